"""Getting a project's root file system ready, for ``coop init`` and ``coop rebuild``."""

from __future__ import annotations

import os
import sys

from coopfile.cli import lock, output
from coopfile.cli.execution import recall, require_approval, say
from coopfile.cli.failures import tell
from coopfile.cli.options import RunOptions, request
from coopfile.cli.progress import Rows, showing
from coopfile.cli.stagefailure import explain
from coopfile.compiling import compile_project
from coopfile.engines.attend import SignalledError, unwinding
from coopfile.errors import CoopError, UsageError
from coopfile.find import directories, find
from coopfile.launching import outside
from coopfile.native import building
from coopfile.rootfs import base
from coopfile.rootfs.build import StageError
from coopfile.rootfs.fetch import threads
from coopfile.rootfs.store import Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from coopfile.compiling import Compiled
    from coopfile.native.building import Step
    from coopfile.plan.model import Plan
    from coopfile.rootfs.base import Built
    from coopfile.rootfs.progress import Progress
    from coopfile.rootfs.store import Stage

_PACKAGES = "packages."


def prepare(
    options: argparse.Namespace,
    *,
    upgrade: bool = False,
    frozen: bool = False,
    rebuild: bool = False,
    debug: bool = False,
) -> int:
    """Lock, fetch and build what the project's plan asks for; return the exit status.

    ``upgrade`` renews the lock, ``frozen`` refuses to change it. ``rebuild`` keeps no stage that
    stands on the image. With ``debug`` a shell is opened where a command failed.
    """
    if debug and not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("--debug opens a shell, and there is no terminal here", "start it from a terminal")
    compiled = compile_project(request(options).replace(locked=False))
    if compiled.plan.base.image is None:
        raise CoopError(
            f"{output.safe(options.file or 'Coopfile')} has no base.image: there is nothing to build",
            'name one in [base], such as "debian:bookworm-slim"; coop init --force writes a new Coopfile',
        )
    require_approval(compiled)
    settled = lock.settle(compiled, upgrade=upgrade, frozen=frozen)
    if settled.before is None and not frozen:
        # At once: whatever fails from here on, the next try is with the same image.
        lock.write(settled, (lambda _: None) if options.quiet else say)
        settled = settled.replace(before=settled.after)
    plan = settled.apply(compiled.plan)
    store = Store(directories(os.environ).rootfs)

    def accept(stages: Sequence[Stage]) -> None:
        found = {
            stage.kind.removeprefix(_PACKAGES): stage.about.get("versions", {})
            for stage in stages
            if stage.kind.startswith(_PACKAGES)
        }
        after = lock.with_packages(settled, found, progress.note, upgrade=upgrade, frozen=frozen)
        if not frozen:
            lock.write(after, progress.note)

    try:
        with threads(), unwinding(), showing(options.quiet, options.verbose) as progress:
            built = base.build(
                plan,
                store,
                outside(plan, compiled.project, os.environ),
                progress,
                project=compiled.project.root,
                rebuild=rebuild,
                debug=_shell_opener(compiled, progress) if debug else None,
                accept=accept,
            )
    except SignalledError as signalled:
        return 128 + signalled.number
    except StageError as error:
        if debug:
            raise CoopError(f"{error.stage} is not built") from None
        raise explain(error, compiled, error.remedy) from None
    _keep_plan(options)
    if options.json:
        output.emit_json(_data(plan, built))
    elif not options.quiet:
        say(f"{settled.after.image} is ready")
        _tell_unused(plan, store.directory, compiled.project.root)
    return 0


def _tell_unused(plan: Plan, directory: str, project: str) -> None:
    """Say that what was committed stands on what was there before, if that is so."""
    found = base.find(plan, directory, project)
    for descriptor in found.held:
        os.close(descriptor)
    if found.unused:
        say("what sessions have committed stands on another root file system and is not in this one")
        say("  coop reset drops it; it is there again when base, packages, setup and agent are as they were")


def _shell_opener(compiled: Compiled, progress: Progress) -> Callable[[Step, StageError], None]:
    """Return what opens a shell in the sandbox of a command that failed, on the caller's terminal."""

    def debug(step: Step, error: StageError) -> None:
        if isinstance(progress, Rows):
            progress.pause()
        tell(explain(error, compiled, None), as_json=False)
        say("this shell is where it failed; leave it, and what the stage has made is dropped")
        environment = {**step.environment, "TERM": os.environ.get("TERM", "dumb")}
        building.run(step.replace(argv=("/bin/sh",), environment=environment), None)
        if isinstance(progress, Rows):
            progress.resume()

    return debug


def _keep_plan(options: argparse.Namespace) -> None:
    """Have the plan in the cache, so that neither a run nor a second init compiles it."""
    asked = request(options)
    project = find(asked.directory, asked.file, os.environ)
    named = {name: getattr(asked, name) for name in asked._fields if name in RunOptions._fields}
    recall(project, RunOptions(**named))


def _data(plan: Plan, built: Built) -> dict[str, object]:
    stages = [{"key": stage.key, "kind": stage.kind, "size": stage.size} for stage in built.stages]
    size = sum(stage.size for stage in built.stages)
    return {"image": str(plan.base.image), "stages": stages, "size": size}
