"""``coop exec``: run a command in a session that there is."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found, unused-ignore]
import os
import time

from coopfile import startup
from coopfile.cli.options import seconds
from coopfile.errors import UsageError
from coopfile.find import directories, find
from coopfile.native import wire
from coopfile.plan.sessions import NAME_RULE, is_name, place

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from _socket import socket
    from collections.abc import Sequence
    from typing import Any

    from coopfile.cli.options import ExecOptions
    from coopfile.find import Project
    from coopfile.session.model import Running

SUMMARY = "run a command in a session: coop exec NAME -- COMMAND"
EPILOG = """examples:
  coop exec work -- make test
  coop exec work --dir src --env DEBUG=1 -- pytest -q
  coop exec work --timeout 10m -- make release
  echo 'print(1)' | coop exec work -- python3 -

The session is one that `coop run --session NAME` or `coop shell NAME` has made; if it was stopped,
it is started again. The exit status is the command's own; 124: the time ran out; 125: coop could
not run it; 126 and 127: the command could not be executed, or was not found.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument("name", metavar="NAME", help="the session's name")
    add_rest(parser)


def add_rest(parser: argparse.ArgumentParser) -> None:
    """Add what may stand after a session's name: options, and the command."""
    import argparse

    add_start(parser)
    parser.add_argument(
        "--timeout", metavar="TIME", help="end the command after this time, such as 90s or 10m"
    )
    parser.add_argument(
        "-T",
        "--no-terminal",
        dest="terminal",
        action="store_false",
        help="give the command the streams as they are, be they a terminal",
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="[--] COMMAND", help="a program and its arguments"
    )


def add_start(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a command starts in a session."""
    parser.add_argument(
        "-w", "--dir", dest="inside", metavar="DIR", help="start it in DIR, a directory of the sandbox"
    )
    parser.add_argument(
        "--env",
        dest="variables",
        metavar="NAME=VALUE",
        action="append",
        help="set a variable, over the plan's; may be repeated",
    )


def main(options: argparse.Namespace) -> int:
    """Run what argparse understood."""
    from coopfile.cli.sessions import exec_options, rest_of_line

    return execute(exec_options(rest_of_line(options)))


def execute(options: ExecOptions) -> int:
    """Run the command in the session, started again if it does not run, and return the exit status."""
    check_name(options.name)
    if not options.command:
        raise UsageError("no command given", f"coop exec {options.name} -- COMMAND; coop shell opens a shell")
    variables = pairs(options.variables)
    timeout = None if options.timeout is None else seconds("--timeout", options.timeout)
    project = find(options.directory, options.file, os.environ)
    directory = place(os.path.realpath(directories(os.environ).data), project.root, None, options.name)
    start = below(project, options.inside)
    terminals = [number for number in (0, 1, 2) if os.isatty(number)]
    on_terminal = options.terminal and len(terminals) == 3
    short = not on_terminal and options.identity is None and options.file is None and not options.assignments
    # Asked first: the command starts while this process imports the rest. Signals that come meanwhile
    # wait until they can be passed on. A terminal's state would have to be saved before.
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
    began = time.time()
    asking = wire.command(options.command, variables, start, timeout)
    connection = _asked(directory, asking) if short and not terminals else None
    if connection is None:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
    else:
        startup.load_more("attached")
    from coopfile import audit
    from coopfile.cli import attached
    from coopfile.session.model import Command, SessionGone

    entry = audit.Entry("exec", project.root, options.command, options.identity)
    asked = Command(options.command, variables, start, timeout)
    if connection is not None or (short and terminals):
        from coopfile.session import client, installs

        def begin(command: Command, streams: Sequence[int]) -> Running:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
            installs.note(directory, command.argv)
            return client.begin(directory, options.name, command, streams, connection)

        entry.about, entry.backend = audit.noted(directory) or entry.about, "native"
        entry.secrets = lambda: client.secrets(directory, options.name, entry.about)
        try:
            status = attached.run(begin, asked, directory, began)
            entry.ended(status)
            return status
        except SessionGone as error:
            if error.begun:
                entry.failed(error)
                raise
        except BaseException as error:
            entry.failed(error)
            raise
    from coopfile.cli.sessions import exec_in

    asked = asked.replace(terminal=attached.terminal()) if on_terminal else asked
    return exec_in(options, project, asked, entry)


def _asked(directory: str, asking: tuple[Any, ...]) -> socket | None:
    """Ask a session for a command with this process's streams; None if the long way says why it cannot be."""
    connection = wire.session(directory)
    if connection is not None:
        try:
            if wire.ask(connection, asking, (0, 1, 2)):
                return connection
        except (wire.TooLong, wire.Crowded):
            pass
        connection.close()
    return None


def check_name(name: str) -> None:
    """Refuse what no session can be called."""
    if not is_name(name):
        raise UsageError(f"{name!r} is not the name of a session", NAME_RULE)


def below(project: Project, inside: str | None) -> str | None:
    """Return where a command starts: where the caller stands in the workspace, or as asked from there."""
    if inside is not None and inside.startswith("/"):
        return inside
    stands = project.directory[len(project.root) :].strip("/")
    return "/".join(filter(None, (stands, inside))) or None


def pairs(variables: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the variables of ``--env`` as names and values."""
    found = []
    for text in variables:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"--env {text}: this is not NAME=VALUE", f'such as --env {name or "NAME"}="…"')
        found.append((name, value))
    return tuple(found)
