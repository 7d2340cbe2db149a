"""``coop run`` on anything but the native back end: a container engine, or the bare host where allowed."""

from __future__ import annotations

import os
import sys

from coopfile.cli.output import safe
from coopfile.cli.run import say, tell_backend, written
from coopfile.engines.choose import HOST, NATIVE, Choice, choose
from coopfile.errors import SettingError
from coopfile.launching import log, place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopfile.cli.options import RunOptions
    from coopfile.errors import CoopError
    from coopfile.find import Project
    from coopfile.plan.bind import Weakening
    from coopfile.plan.model import Plan
    from coopfile.render.container import Container
    from coopfile.render.facts import Engine

# Weaker in every container, or in every one of an engine's; `coop status` tells.
_ALWAYS = ("limits.tmp", "proc", "sandbox.backend", "seccomp")
_WIDEST = 400  # characters of a line of progress
_NOT_ISOLATED = "NOT SANDBOXED: no back end can enforce the plan, and sandbox.fallback is host"


def run_elsewhere(
    plan: Plan,
    project: Project,
    options: RunOptions,
    timeout: float | None,
    *,
    without: Mapping[str, CoopError] | None = None,
) -> int:
    """Choose a back end, run the command on it, and return the exit status.

    ``without`` holds back ends that do not work here, and why.
    """
    where = place(plan, project, os.environ)
    choice = choose(plan, where.environment, without=without)
    if choice.name == NATIVE:
        from coopfile.cli.run import run_native

        return run_native(plan, project, options, timeout)
    if choice.name == HOST:
        return _run_on_host(plan, project, tuple(options.command), timeout)
    assert choice.engine is not None
    from coopfile.engines.attend import SignalledError, unwinding
    from coopfile.engines.run import run

    def check(made: Container) -> None:
        if not options.quiet:
            _tell(choice, made, options.verbose)

    try:
        with unwinding():
            outcome = run(
                plan,
                choice.engine,
                where,
                tuple(options.command),
                timeout=timeout,
                log=log(plan, project, os.environ),
                tell=(lambda _: None) if options.quiet else say,
                show=_show if _shows_progress(options) else None,
                check=check,
            )
    except SettingError as error:
        raise written(error, project, options) from None
    except SignalledError as signalled:
        return 128 + signalled.number
    for note in outcome.notes:
        say(note)
    return outcome.status


def is_usual(weakening: Weakening, engine: Engine) -> bool:
    """Tell whether something is weaker in every container of an engine's, on whatever machine."""
    # An engine that filters no system calls at all is no usual one.
    return weakening.key in _ALWAYS and (weakening.key != "seccomp" or engine.seccomp)


def _shows_progress(options: RunOptions) -> bool:
    return not options.quiet and (options.verbose > 0 or sys.stderr.isatty())


def _show(line: str) -> None:
    """Show a line of an engine's output, of which a terminal must act on nothing."""
    text = safe(line)
    sys.stderr.write(f"  {text[:_WIDEST]}{'…' * (len(text) > _WIDEST)}\n")
    sys.stderr.flush()


def _tell(choice: Choice, made: Container, verbose: int) -> None:
    tell_backend(choice.title)
    for weakening in made.weakenings:
        if is_usual(weakening, made.engine) and not verbose:
            continue
        say(f"weaker than the plan: {weakening.key}: {weakening.text}")
        if verbose and weakening.remedy:
            say(f"  to have it: {weakening.remedy}")
    for skipped in made.skipped if verbose else ():
        say(f"skipped: {skipped}")


def _run_on_host(plan: Plan, project: Project, command: tuple[str, ...], timeout: float | None) -> int:
    """Run a command with nothing around it but the plan's variables, and say so, however quiet."""
    from coopfile.engines.host import run

    say(_NOT_ISOLATED)
    environment = dict(os.environ)
    for variable in plan.env:
        value = variable.value if variable.host is None else os.environ.get(variable.host)
        if value is not None:
            environment[variable.name] = value
    argv = command or plan.agent.command or (os.environ.get("SHELL") or "/bin/sh",)
    outcome = run(argv, environment, project.directory, timeout=timeout)
    for note in outcome.notes:
        say(note)
    return outcome.status
