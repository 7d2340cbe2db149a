"""``coop run``: run a command, the agent, or a shell in the sandbox that the plan describes."""

from __future__ import annotations

import os
import sys
import time

from coopfile.errors import CoopError, UsageError
from coopfile.find import approvals, directories, find, home_directory
from coopfile.plan import cache
from coopfile.plan.bind import PATH, Host, bind

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from coopfile.cli.options import RunOptions
    from coopfile.compiling import Compiled
    from coopfile.find import Project
    from coopfile.native.runner import Outcome, Prepared
    from coopfile.plan.bind import Weakening
    from coopfile.plan.model import Plan

SUMMARY = "run a command in the sandbox: one given after --, else the agent, else a shell"
EPILOG = """examples:
  coop run -- make test
  coop run --timeout 10m -- pytest -q
  coop run --set network.mode=host -- curl https://example.org
  coop run --as signal:+15555550100 -- ls      with what that user may have
  coop run                                     agent.command, or a shell

The exit status is the command's own; 124: the time ran out; 125: coop could not run it;
126 and 127: the command could not be executed, or was not found.
"""

_RUNNABLE = "owner, full and inner users"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    import argparse

    parser.add_argument(
        "--timeout", metavar="TIME", help="end the command after this time, such as 90s or 10m"
    )
    parser.add_argument(
        "--plan",
        metavar="JSON",
        help="run under this plan, as `coop plan --json` prints it, not the project's",
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="[--] COMMAND", help="a program and its arguments"
    )


def main(options: argparse.Namespace) -> int:
    """Run what argparse understood."""
    from coopfile.cli.options import RunOptions

    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    named = {name: getattr(options, name) for name in RunOptions._fields if hasattr(options, name)}
    named.update(command=tuple(command), assignments=tuple(options.assignments or ()))
    return execute(RunOptions(**named))


def execute(options: RunOptions) -> int:
    """Compile or recall the plan, run the command, and return the exit status."""
    timeout = None if options.timeout is None else _seconds(options.timeout)
    project = find(options.directory, options.file, os.environ)
    plan = recall(project, options)
    check_access(plan)
    if not _is_native(plan):
        from coopfile.cli.elsewhere import run_elsewhere

        return run_elsewhere(plan, project, options, timeout)
    return run_native(plan, project, options, timeout)


def run_native(plan: Plan, project: Project, options: RunOptions, timeout: float | None) -> int:
    """Run the command in namespaces; where this machine has none, on what else the plan allows."""
    from coopfile.native import kept, running

    try:
        prepared = prepare(plan, project, tuple(options.command))
        layout = prepared.layout
        announced = running.announce(directories(os.environ).state, layout.writable, layout.guarded)
        try:
            lost = kept.make(prepared.launch)  # `coop rm` leaves alone from here on what this run uses
            prepared = prepared.replace(weakenings=(*prepared.weakenings, *lost))
            if not options.quiet:
                tell_backend("native (namespaces)")
                _tell_weakenings(plan, prepared, options.verbose)
            if plan.network.mode == "proxy":
                prepared = prepared.replace(log=_log(plan, project))
            outcome = _run(prepared, timeout)
        finally:
            running.leave(announced)
    except CoopError as error:
        if plan.sandbox.backend == ("native",) and plan.sandbox.fallback == "refuse":
            raise
        from coopfile.cli.elsewhere import native_is_impossible, run_elsewhere

        if not native_is_impossible():
            raise
        return run_elsewhere(plan, project, options, timeout, without={"native": error})
    for note in outcome.notes:
        say(note)
    return outcome.status


def _run(prepared: Prepared, timeout: float | None) -> Outcome:
    """Run what is prepared, with a directory of the store for what is written if this kernel needs one."""
    from coopfile.native import runner

    root = prepared.layout.root
    if not root.needs_disk():
        return runner.run(prepared, timeout=timeout)
    from coopfile.rootfs.store import Store

    with Store(directories(os.environ).rootfs).scratch() as place:
        real = os.path.realpath(place)
        upper, work = f"{real}/upper", f"{real}/work"
        for path in (upper, work):
            os.mkdir(path, 0o755)
        layout = prepared.layout.replace(root=root.replace(upper=upper, work=work))
        return runner.run(prepared.replace(layout=layout), timeout=timeout)


def _log(plan: Plan, project: Project) -> str:
    """Return the file for what the proxy blocks."""
    from coopfile.plan.reach import log_path
    from coopfile.plan.sessions import session_id

    return log_path(directories(os.environ).state, session_id(project.root, plan.access))


def recall(project: Project, options: RunOptions) -> Plan:
    """Return the project's plan, from the cache if nothing it depends on has changed."""
    own = directories(os.environ)
    key = cache.key(project, options.compile_options, os.environ)
    plan = cache.load(own.cache, key)
    if plan is None:
        plan = _compiled(project, options) if options.plan is None else _given(project, options)
        cache.store(own.cache, key, plan, project.places)
    return plan


def _compiled(project: Project, options: RunOptions) -> Plan:
    from coopfile.cli.options import request
    from coopfile.compiling import compile_project

    compiled = compile_project(request(options), project=project)
    require_approval(compiled)
    return compiled.plan


def _given(project: Project, options: RunOptions) -> Plan:
    """Return the plan on the command line: the caller's own word, as far as their ceiling goes."""
    from coopfile.compiling import hold_to_ceiling
    from coopfile.plan.canonical import from_json

    if options.file or options.identity or options.assignments or options.place != "direct":
        raise UsageError("--plan is a whole plan: -f, --as, --place and --set do not go with it")
    assert options.plan is not None
    plan = from_json(options.plan, "--plan")
    hold_to_ceiling(plan, project)
    return plan


def require_approval(compiled: Compiled) -> None:
    """Ask on a terminal whether the project may widen its sandbox; elsewhere refuse if it does."""
    from coopfile.access import approval

    directory = approvals(os.environ)
    try:
        approval.require(compiled, directory)
    except approval.ApprovalError as needed:
        if not (sys.stdin.isatty() and sys.stderr.isatty() and _is_granted(compiled, needed)):
            raise
        approval.approve(compiled, directory)


def _is_granted(compiled: Compiled, needed: CoopError) -> bool:
    from coopfile.cli.output import safe

    question = f"allow this for {safe(compiled.project.root)}? [y/N] "
    sys.stderr.write("\n".join(map(safe, needed.message.split("\n"))) + f"\n{question}")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def prepare(plan: Plan, project: Project, command: tuple[str, ...]) -> Prepared:
    """Bind a plan to this machine and lay it out for the native back end."""
    from coopfile.native import runner

    inputs, private = guarded(project)
    launch = bind(plan, this_host(project), command)
    if plan.base.image is None:
        return runner.prepare(launch, inputs, private)
    from coopfile.rootfs import base

    found = base.find(plan, directories(os.environ).rootfs, project.root)
    environment = {"PATH": PATH, **dict(found.environment), **launch.environment}
    return runner.prepare(launch.replace(environment=environment), inputs, private, found.layers)


def guarded(project: Project) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return real paths of what the plan was made of, and of coop's own state."""
    own = directories(os.environ)
    private = tuple(os.path.realpath(path) for path in (own.cache, own.state, own.data))
    return (*project.inputs, os.path.realpath(own.config)), private


def this_host(project: Project) -> Host:
    """Return the facts of this machine that a launch depends on."""
    home = os.path.realpath(home_directory(os.environ))
    return Host(
        uid=os.geteuid(),
        gid=os.getegid(),
        user=os.environ.get("USER") or "user",
        home=home,
        workspace=project.root,
        directory=project.directory,
        environment=os.environ,
        shell="/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh",
        started=int(time.time()),
        data=os.path.realpath(directories(os.environ).data),
    )


def _seconds(text: str) -> float:
    from coopfile.language.values import BadValue, Duration

    try:
        return int(Duration().parse(text)) / 1000
    except BadValue as error:
        raise UsageError(f"--timeout: {error.message}", error.help) from None


def check_access(plan: Plan) -> None:
    """Refuse a user whose trust does not let them run commands (design section 11)."""
    if plan.access is None:
        return
    from coopfile.access.trust import may_run_commands

    if not may_run_commands(plan.access):
        who = plan.access.user or "an unknown user"
        raise CoopError(
            f"{who} has trust {plan.access.trust}, which may not run commands",
            f"{_RUNNABLE} may; trust is set in [[users]], and lowered by --place group",
        )


def _is_native(plan: Plan) -> bool:
    """Tell whether the native back end comes first, and may do what the plan says."""
    from coopfile.native.suitable import refusal

    return plan.sandbox.backend[0] in ("auto", "native") and sys.platform == "linux" and refusal(plan) is None


def tell_backend(title: str) -> None:
    """Say what isolates the command: on a terminal with a sign, elsewhere in plain words."""
    sys.stderr.write(f"🔒 {title}\n" if sys.stderr.isatty() and _shows_signs() else f"coop: {title}\n")
    sys.stderr.flush()


def _shows_signs() -> bool:
    return (sys.stderr.encoding or "").lower().replace("-", "") == "utf8"


def _tell_weakenings(plan: Plan, prepared: Prepared, verbose: int) -> None:
    for weakening in (*prepared.weakenings, *_unkept(plan)):
        say(f"weaker than the plan: {weakening.key}: {weakening.text}")
        if verbose and weakening.remedy:
            say(f"  to have it: {weakening.remedy}")
    if verbose:
        for skipped in prepared.layout.skipped:
            say(f"skipped: {skipped}")


def _unkept(plan: Plan) -> tuple[Weakening, ...]:
    """Return what was asked for and is not given; of what every plan has, `coop status` tells."""
    if plan.session.commit == "never" and not (plan.session.caches or plan.network.publish):
        return ()
    from coopfile.plan.promises import unkept

    return unkept(plan)


def say(text: str) -> None:
    """Tell a person something, on standard error."""
    from coopfile.cli.output import safe

    sys.stderr.write(f"coop: {safe(text)}\n")
