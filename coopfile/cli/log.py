"""``coop log``: what was run and called for whom, and what the sandbox tried and was not let."""

from __future__ import annotations

import argparse
import os

from coopfile.cli import output
from coopfile.cli.exec import check_name
from coopfile.cli.options import request, seconds
from coopfile.errors import CoopError
from coopfile.find import directories
from coopfile.plan.sessions import DEFAULT, log_path, session_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from coopfile.compiling import Compiled

SUMMARY = "list the commands and tool calls of this project, and what the proxy of its sandbox has blocked"
EPILOG = """examples:
  coop log
  coop log --last 20
  coop log --denied                what was blocked, refused or declined
  coop log --user bob --tool bash
  coop log --tool run              what `coop run` has run
  coop log --session work          what the proxy of a session has blocked
  coop log --since 10m --host '*.example.org'
  coop log --json

Commands are those of `coop run`, `exec`, `shell` and of Python's Session, calls those of ToolExecutor and
`coop mcp`; the last 4 MB of them are kept. Of blocked connections at most a few hundred are kept of a
moment and a few thousand in all: when more were blocked at once, a line says how many. Times are UTC.
"""

_DENIED = ("denied", "declined", "refused")
_LONGEST = 200  # characters of a command on a line
_TO_SECONDS = len("2000-01-01T00:00:00")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument("--session", metavar="NAME", help="what was blocked in a session, not in plain runs")
    parser.add_argument("--denied", action="store_true", help="only what was not let")
    parser.add_argument("--user", metavar="NAME", help="only calls for this user, or of this identity")
    parser.add_argument(
        "--tool", metavar="NAME", help="only calls of this tool, or run, exec, shell, Session"
    )
    parser.add_argument("--last", type=int, metavar="N", help="only the last N")
    parser.add_argument("--since", metavar="TIME", help="only those of the last TIME, such as 90s or 10m")
    parser.add_argument(
        "--host", metavar="PATTERN", help="only what was blocked to such hosts, * as in a shell"
    )
    parser.add_argument("--port", type=int, metavar="N", help="only what was blocked to a port")


def main(options: argparse.Namespace) -> int:
    """Print what the files hold, the oldest first."""
    from coopfile.compiling import compile_project

    if options.session is not None:
        check_name(options.session)
    compiled = compile_project(request(options))
    found: list[dict[str, Any]] = []
    if options.user is None and options.tool is None:
        blocked = _blocked(compiled, options.session or DEFAULT)
        found += [entry for entry in blocked if _is_wanted_host(entry, options)]
    if options.session is None and options.host is None and options.port is None:
        found += [entry for entry in _calls(compiled) if _is_wanted(entry, options)]
    found = _last(found, options)
    if options.json:
        output.emit_json(found)
        return 0
    for entry in found:
        text = entry["text"] if "text" in entry else _told(entry)
        output.emit(output.safe(f"{entry['time'][:_TO_SECONDS]}Z  {text}"))
    if not found and not options.quiet:
        only_blocked = options.session or options.denied or options.host or options.port is not None
        output.emit("nothing was blocked" if only_blocked else "nothing was called or blocked")
    return 0


def _last(found: list[dict[str, Any]], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return entries in the order of their times, the last ones that the options ask for."""
    found = sorted(found, key=lambda entry: str(entry["time"]))
    if options.since is not None:
        import time

        from coopfile.proxy.denials import stamp

        first = stamp(time.time() - seconds("--since", options.since))
        found = [entry for entry in found if entry["time"] >= first]
    if options.last is not None:
        found = found[-options.last :] if options.last > 0 else []
    return found


def _blocked(compiled: Compiled, session: str) -> list[dict[str, Any]]:
    from coopfile.proxy import denials

    state = directories(os.environ).state
    place = log_path(state, session_id(compiled.project.root, compiled.plan.access, session))
    try:
        return denials.read(place)
    except OSError as error:
        raise _unreadable(place, error) from None


def _calls(compiled: Compiled) -> list[dict[str, Any]]:
    from coopfile import audit

    place = audit.path(compiled.project.root, os.environ)
    try:
        return audit.read(place)
    except OSError as error:
        raise _unreadable(place, error) from None


def _is_wanted(entry: dict[str, Any], options: argparse.Namespace) -> bool:
    return (
        (not options.denied or entry["decision"] in _DENIED)
        and options.user in (None, entry["user"], entry["identity"])
        and options.tool in (None, entry["tool"])
    )


def _is_wanted_host(entry: dict[str, Any], options: argparse.Namespace) -> bool:
    from fnmatch import fnmatchcase

    return (options.host is None or fnmatchcase(entry["host"], options.host.lower())) and (
        options.port in (None, entry["port"])
    )


def _told(entry: dict[str, Any]) -> str:
    """Return a call on one line."""
    who = entry["user"] or entry["identity"] or "caller"
    trust = f" ({entry['trust']})" if entry["trust"] else ""
    command = str(entry["command"] or "")
    about = command if len(command) <= _LONGEST else command[:_LONGEST] + "…"
    what = entry["decision"] if entry["decision"] in _DENIED else f"{entry['result']}, {entry['duration']} s"
    where = " on this machine" if entry["backend"] == "host" else ""
    return f"{who}{trust}{where}: {entry['tool']} {about}: {what}"


def _unreadable(place: str, error: OSError) -> CoopError:
    return CoopError(f"cannot read {output.safe(place)}: {error.strerror}")
