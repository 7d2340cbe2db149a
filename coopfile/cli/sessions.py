"""What the verbs of sessions share: finding one, starting it, and running a command in it."""

from __future__ import annotations

import os

from coopfile import audit, strictjson
from coopfile.audit import Entry
from coopfile.cli import attached
from coopfile.cli.exec import add_rest, below
from coopfile.cli.execution import progress, recalled, say, tell_backend, tell_weakenings
from coopfile.cli.options import ExecOptions, request, seconds
from coopfile.cli.rejoin import remember
from coopfile.errors import CoopError
from coopfile.find import directories, find
from coopfile.launching import check_access, prefers_native
from coopfile.plan.sessions import place
from coopfile.session import client, installs, lifecycle, store
from coopfile.session.model import Command, SessionError, SessionGone, Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from coopfile.cli.options import CommandOptions, RunOptions
    from coopfile.find import Project
    from coopfile.plan.model import Access, Plan
    from coopfile.session.lifecycle import Opened
    from coopfile.session.model import Live

    # A session, the variables that its plan names, and its directory.
    _Reached = tuple[Live, frozenset[str], str]

_SHOWN = 12  # names of sessions in a message
_TITLES = {"native": "native (namespaces)"}
# The account's shell where the sandbox has it; of the others bash, which people expect, before sh.
_SHELL = (
    'case ${SHELL:-/bin/sh} in /bin/sh) ;; *) [ -x "$SHELL" ] && exec "$SHELL" ;; esac; '
    "command -v bash >/dev/null 2>&1 && exec bash; exec /bin/sh"
)
SHELL = ("/bin/sh", "-c", _SHELL)


def data_directory() -> str:
    """Return where coop keeps what outlives runs, as a real path."""
    return os.path.realpath(directories(os.environ).data)


def rest_of_line(options: argparse.Namespace) -> argparse.Namespace:
    """Take in the options that stand between a session's name and the command, and the command."""
    words = options.command
    if words and words[0].startswith("-"):
        import argparse

        from coopfile.cli.parsing import add_common

        rest = argparse.ArgumentParser(prog=f"coop exec {options.name}")
        add_common(rest, defaults=False)
        add_rest(rest)
        rest.parse_args(words, namespace=options)
    options.command = [*options.command, *options.after] if options.command else options.after[1:]
    return options


def exec_options(options: argparse.Namespace) -> ExecOptions:
    """Return what argparse understood as a record."""
    named = {name: getattr(options, name) for name in ExecOptions._fields if hasattr(options, name)}
    for name in ("command", "variables", "assignments"):
        named[name] = tuple(named.get(name) or ())
    return ExecOptions(**named)


def run_in(options: RunOptions, project: Project, plan: Plan, timeout: float | None, entry: Entry) -> int:
    """Run the command of ``coop run --session``; return the exit status."""
    assert options.session is not None
    ttl = None if options.ttl is None else seconds("--ttl", options.ttl)
    terminal = attached.terminal() if attached.has_terminal() else None
    asked = Command(
        tuple(options.command) or plan.agent.command or SHELL, (), below(project, None), timeout, terminal
    )
    spec = Spec(options.session, plan, project, os.environ, ttl)
    _ask_for_secrets(entry, project, plan.access, options.session)
    return _run(lambda again: _opened(spec, options, asked, again), asked, entry)


def shell_in(options: ExecOptions, project: Project, asked: Command) -> int:
    """Run a command in a session that is started if need be; return the exit status."""
    ttl = None if options.ttl is None else seconds("--ttl", options.ttl)
    entry = Entry("shell", project.root, (), options.identity)

    def reach(again: bool) -> _Reached:
        plan, digest = recalled(project, options)
        entry.known(plan, digest)
        _ask_for_secrets(entry, project, plan.access, options.name)
        check_access(plan)
        return _opened(Spec(options.name, plan, project, os.environ, ttl), options, asked, again)

    return _written(lambda: _run(reach, asked, entry), entry)


def exec_in(options: ExecOptions, project: Project, asked: Command, entry: Entry) -> int:
    """Run a command in a session that there is, started again if need be; return the exit status."""

    def reach(again: bool) -> _Reached:
        return _found(options, project, asked, again, entry)

    return _written(lambda: _run(reach, asked, entry), entry)


def _ask_for_secrets(entry: Entry, project: Project, access: Access | None, name: str) -> None:
    """Have a session, if one runs, say what of a command is secret, whether or not it may be run there."""
    directory = place(data_directory(), project.root, access, name)
    entry.secrets = lambda: client.secrets(directory, name, entry.about)


def _written(run: Callable[[], int], entry: Entry) -> int:
    """Run a command, and write down what came of it."""
    try:
        status = run()
    except BaseException as error:
        entry.failed(error)
        raise
    entry.ended(status)
    return status


def _run(reach: Callable[[bool], _Reached], asked: Command, entry: Entry) -> int:
    """Run a command in the session that ``reach`` returns, once more if it ended before it had begun.

    ``reach`` gets whether it is asked again, and has told people what there is to tell.
    """
    again = False
    while True:
        live, named, directory = reach(again)
        entry.about, entry.backend = audit.noted(directory) or entry.about, live.backend
        try:
            return attached.run(live.begin, attached.dressed(asked, named), directory)
        except SessionGone as error:
            if error.begun or again:
                raise
            again = True


def _opened(spec: Spec, options: CommandOptions, asked: Command, again: bool) -> _Reached:
    # It is the whole project's, wherever the caller stands who happens to be the first.
    spec = spec.replace(project=spec.project.replace(directory=spec.project.root))
    opened = _open(spec, options)
    if not (options.quiet or again):
        _tell(opened, spec, options)
    if opened.state.backend == "native":
        remember(spec.project, spec.plan, opened.directory, opened.state.digest)
    installs.note(opened.directory, asked.argv)
    named = frozenset(variable.name for variable in spec.plan.env)
    return opened.live, named, opened.directory


def _open(spec: Spec, options: CommandOptions) -> Opened:
    """Join or start a session; on an engine people see meanwhile what a run on it would show them."""
    tell, show = progress(options)
    if prefers_native(spec.plan):  # importing what engines need would take longer than all else
        return lifecycle.open_session(spec, tell=tell, show=show)
    from coopfile.engines.attend import SignalledError, unwinding

    try:
        with unwinding():
            return lifecycle.open_session(spec, tell=tell, show=show)
    except SignalledError as signalled:
        raise SystemExit(128 + signalled.number) from None


def _tell(opened: Opened, spec: Spec, options: CommandOptions) -> None:
    if opened.fresh:
        choice = opened.choice
        name = title(opened.state.backend) if choice is None else choice.title
        tell_backend(f"{name}, session {spec.name}")
        if choice is None or choice.engine is None:
            tell_weakenings(spec.plan, opened.weakenings, options.verbose)
        else:
            from coopfile.cli.elsewhere import tell_some

            tell_some(opened.weakenings, choice.engine, options.verbose)
        if spec.ttl is not None and spec.plan.session.commit == "auto" and spec.plan.base.image is not None:
            say("what is installed is committed only by coop stop, not when --ttl ends the session")
    elif spec.ttl is not None and opened.state.ttl_ms != int(spec.ttl * 1000):
        say(f"--ttl does not count: the session {spec.name} runs already")


def _found(options: ExecOptions, project: Project, asked: Command, again: bool, entry: Entry) -> _Reached:
    """Return a session that there is: as it runs, unless the caller asks for another plan."""
    plan = None
    if options.identity is not None or options.file is not None or options.assignments:
        plan = _allowed(options, project, entry)
    access = None if plan is None else plan.access
    data = data_directory()
    _ask_for_secrets(entry, project, access, options.name)
    directory = place(data, project.root, access, options.name)
    state = store.read(directory)
    if state is None:
        if store.look(directory) is None:
            raise unknown(options.name, data, project.root, access)
        if store.is_alive(directory):
            raise SessionError(
                f"the session {options.name} runs, but what is known of it is damaged: {directory}/state",
                f"coop stop {options.name} ends it; the next command starts it again",
                session=options.name,
            )
    elif options.file is None and not options.assignments:
        live = lifecycle.join(directory, state)
        if live is not None:
            installs.note(directory, asked.argv)
            return live, _named(state), directory
    if plan is None:
        plan = _allowed(options, project, entry)
    ttl = None if state is None or state.ttl_ms is None else state.ttl_ms / 1000
    return _opened(Spec(options.name, plan, project, os.environ, ttl), options, asked, again)


def _allowed(options: ExecOptions, project: Project, entry: Entry) -> Plan:
    """Return the plan for who may run commands under it. Raises CoopError."""
    plan, digest = recalled(project, options)
    entry.known(plan, digest)
    check_access(plan)
    return plan


def located(name: str, options: argparse.Namespace) -> store.Known:
    """Return the session of this project that has a name, or of any project that has it as its id."""
    project = find(options.directory, options.file, os.environ)
    access = None
    if options.identity is not None:
        from coopfile.compiling import compile_project

        access = compile_project(request(options), project=project).plan.access
    data = data_directory()
    found = store.look(place(data, project.root, access, name)) or store.look(f"{data}/sessions/{name}")
    if found is None:
        raise unknown(name, data, project.root, access)
    return found


def _named(state: store.State) -> frozenset[str]:
    """Return the variables that a session's plan names; none if it is of another version of coop."""
    try:
        return frozenset(item["name"] for item in strictjson.loads(state.plan)["env"])
    except (ValueError, TypeError, KeyError):
        return frozenset()


def unknown(name: str, data: str, root: str, access: Access | None) -> CoopError:
    """Return the error that says that a project has no such session, and which it has."""
    user = None if access is None else access.user
    names = sorted(
        item.state.name
        for item in store.known(data)
        if item.state is not None and (item.state.root, item.state.user) == (root, user)
    )
    more = ", …" if len(names) > _SHOWN else ""
    there = f"; there are: {', '.join(names[:_SHOWN])}{more}" if names else ""
    return SessionError(
        f"this project has no session {name}",
        f"coop run --session {name} -- COMMAND makes it{there}",
        session=name,
    )


def title(backend: str) -> str:
    """Return a session's back end for people."""
    return _TITLES.get(backend, backend)
