"""``coop run`` on anything but the native back end: a container engine, or the bare host where allowed."""

from __future__ import annotations

import os

from coopfile.cli.execution import progress, say, tell_backend, written
from coopfile.engines.choose import HOST, NATIVE, Choice, choose
from coopfile.engines.making import is_usual
from coopfile.errors import SettingError
from coopfile.launching import place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coopfile.audit import Entry
    from coopfile.cli.options import RunOptions
    from coopfile.errors import CoopError
    from coopfile.find import Project
    from coopfile.plan.launch import Weakening
    from coopfile.plan.model import Plan
    from coopfile.render.container import Container
    from coopfile.render.facts import Engine

_NOT_ISOLATED = "NOT SANDBOXED: no back end can enforce the plan, and sandbox.fallback is host"


def run_elsewhere(
    plan: Plan,
    project: Project,
    options: RunOptions,
    timeout: float | None,
    entry: Entry,
    *,
    without: Mapping[str, CoopError] | None = None,
) -> int:
    """Choose a back end, run the command on it, and return the exit status.

    ``without`` holds back ends that do not work here, and why.
    """
    where = place(plan, project, os.environ)
    entry.backend = None
    choice = choose(plan, where.environment, without=without)
    entry.backend = choice.name
    if choice.name == NATIVE:
        from coopfile.cli.execution import run_native

        return run_native(plan, project, options, timeout, entry)
    if choice.name == HOST:
        return _run_on_host(plan, project, tuple(options.command), timeout)
    assert choice.engine is not None
    from coopfile.engines.attend import SignalledError, unwinding
    from coopfile.engines.network import served
    from coopfile.engines.run import run

    def check(made: Container) -> None:
        if not options.quiet:
            _tell(choice, made, options.verbose)

    tell, show = progress(options)
    try:
        with unwinding():
            outcome = run(
                plan,
                choice.engine,
                where,
                tuple(options.command),
                timeout=timeout,
                served=served(plan, project, os.environ),
                tell=tell,
                show=show,
                check=check,
            )
    except SettingError as error:
        raise written(error, project, options) from None
    except SignalledError as signalled:
        return 128 + signalled.number
    for note in outcome.notes:
        say(note)
    return outcome.status


def tell_some(weakenings: Sequence[Weakening], engine: Engine, verbose: int) -> None:
    """Say what of the plan an engine does not keep here; with ``verbose`` what it keeps nowhere, too."""
    for weakening in weakenings:
        if is_usual(weakening, engine) and not verbose:
            continue
        say(f"weaker than the plan: {weakening.key}: {weakening.text}")
        if verbose and weakening.remedy:
            say(f"  to have it: {weakening.remedy}")


def _tell(choice: Choice, made: Container, verbose: int) -> None:
    tell_backend(choice.title)
    tell_some(made.weakenings, made.engine, verbose)
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
