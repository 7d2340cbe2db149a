"""``coop render``: what a back end is told for the plan, as text to paste or as JSON; nothing is run."""

from __future__ import annotations

import argparse
import hashlib
import os
import posixpath
import sys

from coopfile.cli import output
from coopfile.cli.options import request
from coopfile.cli.parsing import add_common
from coopfile.errors import CoopError, UsageError
from coopfile.system import DESCRIBING, LINUX, LOOKING, system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from coopfile.find import Project
    from coopfile.plan.launch import Weakening
    from coopfile.plan.model import Plan
    from coopfile.render.facts import Engine, Facts
    from coopfile.render.steps import Rendering

SUMMARY = "print what a back end is told for the plan, to be pasted into a shell"
EPILOG = """examples:
  coop render docker -- make test            the image, and the command in a container
  coop render podman --step keep             a container that waits for: coop render podman --step exec
  coop render dockerfile                     how the image is built
  coop render seatbelt --facts mac.json      a profile and sandbox-exec for another machine
  coop render facts > facts.json             what of this machine a rendering depends on
  coop render docker --json                  argv by argv, for programs

Nothing is run, and the back end need not be there. An engine that is there is asked what it can do.
Lines with GIVES MORE THAN THE PLAN say what `coop run` would refuse.
"""

ENGINES = ("docker", "podman", "apple")
MACS = ("apple", "seatbelt")
TARGETS = (*ENGINES, "dockerfile", "seatbelt", "facts")
# As script.STEPS, which the command line's help should not import.
STEPS = ("run", "keep", "exec", "stop", "remove", "commit", "build")

_ASSUMED = "nothing is known of this {}: it is taken for a usual one"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments.

    argparse cannot tell a target, options in any order and a command apart at once:
    what follows the target is understood by ``_parsed``. The choices are for completion.
    """
    _own_options(parser)
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        choices=TARGETS,
        metavar="TARGET [-- COMMAND]",
        help=f"the back end ({', '.join(TARGETS)}), and a program and its arguments",
    )


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--facts", metavar="FILE", help="render for the machine that FILE describes (- for standard input)"
    )
    parser.add_argument(
        "--step", choices=STEPS, default="run", help="which step of a container's life (default: run)"
    )
    parser.add_argument("--tty", action="store_true", help="give the command a terminal")


def _parsed(options: argparse.Namespace) -> tuple[str, tuple[str, ...]]:
    """Return the target and the command, and add the options between them to ``options``."""
    words = options.words
    end = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        prog="coop render", usage="coop render TARGET [options] [-- COMMAND]", allow_abbrev=False
    )
    parser.add_argument("target", choices=TARGETS, metavar="TARGET", help="one of %(choices)s")
    _own_options(parser)
    add_common(parser, defaults=False)
    parser.parse_args(words[:end], namespace=options)
    return str(options.target), tuple(words[end + 1 :])


def main(options: argparse.Namespace) -> int:
    """Compile, collect or read facts, and print the rendering."""
    from coopfile.cli.execution import require_approval
    from coopfile.compiling import compile_project
    from coopfile.launching import check_access

    target, command = _parsed(options)
    if options.step != "run" and target not in ENGINES:
        raise UsageError(f"--step {options.step}: {target} has no containers", "leave --step out")
    compiled = compile_project(request(options))
    plan, project = compiled.plan, compiled.project
    if target == "facts":
        _emit_facts(plan, _facts(options, plan, project))
        return 0
    # What is pasted is run.
    require_approval(compiled)
    check_access(plan)
    if target == "dockerfile":
        _dockerfile(options, plan)
    elif target == "seatbelt":
        _seatbelt(options, plan, _facts(options, plan, project), command)
    else:
        _container(options, plan, _facts(options, plan, project), command)
    return 0


def _facts(options: argparse.Namespace, plan: Plan, project: Project) -> Facts:
    """Return the facts of the file, or of this machine; with no engine, or with the one that is asked for."""
    name = options.target
    facts = _this_machine(name, plan, project) if options.facts is None else _read(options.facts)
    if name in MACS and facts.system != "darwin":
        raise CoopError(
            f"{name} is of macOS, and the facts are of a {facts.system} machine",
            'describe a Mac with --facts FILE: {"system": "darwin", '
            '"host": {"home": "/Users/me", "workspace": "/Users/me/project"}} and what else `coop render '
            "facts` prints",
        )
    if name in ENGINES and facts.engine is not None and facts.engine.name != name:
        raise CoopError(
            f"the facts are of {facts.engine.name}, and {name} is to be rendered",
            f"set engine to null for a {name} as it usually is, or describe that one",
        )
    return facts


def _read(path: str) -> Facts:
    from coopfile.render.factsfile import LARGEST, from_json

    try:
        if path == "-":
            return from_json(sys.stdin.buffer.read(LARGEST + 1), "standard input")
        with open(path, "rb") as file:
            return from_json(file.read(LARGEST + 1), path)
    except OSError as error:
        raise CoopError(f"cannot read {path}: {error.strerror}") from None


def _this_machine(target: str, plan: Plan, project: Project) -> Facts:
    if system() != LINUX:
        raise CoopError(LOOKING, DESCRIBING)
    from coopfile.engines.collect import facts
    from coopfile.find import directories
    from coopfile.launching import guarded, outside, this_host

    inputs, private = guarded(project, os.environ)
    masks = os.path.realpath(directories(os.environ).state) + "/masks"
    engine = _engine(target, plan, outside(plan, project, os.environ))
    return facts(plan, this_host(project, os.environ), engine, inputs=inputs, private=private, masks=masks)


def _engine(target: str, plan: Plan, environment: Mapping[str, str]) -> Engine | None:
    """Return the engine of this machine that is to be rendered for; for facts, the first that is there."""
    from coopfile.engines.detect import NAMES, detect

    names = [name for name in NAMES if target in (name, "facts")]
    engines = [found.engine for found in detect(environment, names) if found.engine is not None]
    if not engines:
        return None
    wants = "auto" in plan.sandbox.backend and engines[0].name == "docker"
    wants = wants or plan.sandbox.min_isolation != "namespace"
    if plan.sandbox.runtime is None and wants and "runsc" in engines[0].runtimes:
        return engines[0].replace(runtime="runsc")
    return engines[0]


def _container(options: argparse.Namespace, plan: Plan, facts: Facts, command: tuple[str, ...]) -> None:
    from coopfile.engines.detect import VM, isolation
    from coopfile.render.container import Request
    from coopfile.render.factsfile import default_engine
    from coopfile.render.script import script
    from coopfile.render.steps import rendering, token

    assumed = facts.engine is None
    engine = facts.engine or default_engine(options.target)
    facts = facts.replace(engine=engine)
    runtime = plan.sandbox.runtime or engine.runtime or engine.default_runtime
    level = VM if engine.name == "apple" else isolation(runtime)
    asked = Request(command, token=token(plan, facts), terminal=options.tty)
    found = rendering(plan, facts, asked, level)
    if options.json:
        output.emit_json({**_data(found), "assumed": assumed})
    else:
        _emit_exact(script(found, options.step, [_ASSUMED.format(engine.name)] if assumed else []))


def _data(found: Rendering) -> dict[str, Any]:
    image = found.image
    return {
        "backend": found.backend,
        "isolation": found.isolation,
        "plan": found.plan,
        "container": found.name,
        "image": {
            "reference": image.reference,
            "from": image.source,
            "present": list(image.present),
            "argv": list(image.argv),
        },
        "steps": {name: list(argv) for name, argv in found.steps},
        "commit": [{"argv": list(command.argv), "stdin": command.stdin} for command in found.commit],
        "dockerfile": image.stdin if isinstance(image.stdin, str) else None,
        "archive": _base64(image.stdin) if isinstance(image.stdin, bytes) else None,
        "variables": [list(pair) for pair in found.variables],
        "masks": found.masks,
        "kept": list(found.kept),
        **_shortfalls(found.weakenings, found.holes, found.skipped),
    }


def _base64(archive: bytes) -> str:
    import base64

    return base64.b64encode(archive).decode("ascii")


def _shortfalls(
    weakenings: tuple[Weakening, ...], holes: tuple[Weakening, ...], skipped: tuple[str, ...]
) -> dict[str, Any]:
    def fields(items: tuple[Weakening, ...]) -> list[dict[str, Any]]:
        return [{name: getattr(item, name) for name in item._fields} for item in items]

    return {"weakenings": fields(weakenings), "holes": fields(holes), "skipped": list(skipped)}


def _dockerfile(options: argparse.Namespace, plan: Plan) -> None:
    from coopfile.plan.canonical import digest
    from coopfile.render.dockerfile import dockerfile, image_tag

    text = dockerfile(plan)
    if options.json:
        data = {"backend": "dockerfile", "plan": digest(plan), "image": image_tag(plan), "dockerfile": text}
        output.emit_json(data)
    else:
        _emit_exact(text)


def _seatbelt(options: argparse.Namespace, plan: Plan, facts: Facts, command: tuple[str, ...]) -> None:
    from coopfile.plan.bind import bind
    from coopfile.plan.canonical import digest
    from coopfile.render import script, seatbelt

    launch = bind(plan, facts.host.replace(data=""), command)  # Seatbelt mounts nothing
    own = plan.sandbox.profile not in seatbelt.PROFILES
    text = None if own else seatbelt.profile(plan, launch, facts)
    # By its content: it depends on the machine and the workspace too, and stays what it is while in use.
    name = hashlib.sha256((text or "").encode()).hexdigest()[:24]
    path = f"{posixpath.dirname(facts.masks)}/{name}.sb"
    argv = seatbelt.argv(plan, launch, facts, path)
    weakenings = seatbelt.weakenings(plan, launch, facts)
    skipped = seatbelt.skipped(launch, facts)
    directory = seatbelt.directory(launch)
    if options.json:
        output.emit_json(
            {
                "backend": "seatbelt",
                "isolation": "policy",
                "plan": digest(plan),
                "profile": text,
                "profile_path": None if own else path,
                "directory": directory,
                "steps": {"run": list(argv)},
                "variables": [list(pair) for pair in launch.inherited],
                **_shortfalls(weakenings, (), skipped),
            }
        )
        return
    head = [f"coop: run with seatbelt, a policy of the host's kernel, in {directory}", f"plan {digest(plan)}"]
    if plan.network.mode == "proxy":
        head.append(f"first, in another terminal, to be left running: coop proxy --port {facts.proxy}")
    notes = head + script.described(weakenings, (), skipped)
    profile = None if text is None else (path, text)
    _emit_exact(script.seatbelt(notes, profile, directory, argv, len(launch.argv)))


def _emit_facts(plan: Plan, facts: Facts) -> None:
    from coopfile.render.factsfile import to_json

    output.emit(to_json(facts, plan.env))


def _emit_exact(text: str) -> None:
    """Write text that is to be run, in UTF-8 whatever the stream's own encoding: none of it may change."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()
