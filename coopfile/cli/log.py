"""``coop log``: what the sandbox tried and was not let."""

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

SUMMARY = "list what the proxy of this project's sandbox has blocked: when, and where it was to go"
EPILOG = """examples:
  coop log
  coop log --last 20
  coop log --since 10m --host '*.example.org'
  coop log --session work --port 22
  coop log --json

At most a few hundred are kept of a moment and a few thousand in all: when more were blocked at once, a
line says how many. Times are UTC.
"""

_TO_SECONDS = len("2000-01-01T00:00:00")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument("--session", metavar="NAME", default=DEFAULT, help="of a session, not of plain runs")
    parser.add_argument("--last", type=int, metavar="N", help="only the last N")
    parser.add_argument("--since", metavar="TIME", help="only those of the last TIME, such as 90s or 10m")
    parser.add_argument("--host", metavar="PATTERN", help="only those to hosts that match, * as in a shell")
    parser.add_argument("--port", type=int, metavar="N", help="only those to a port")


def main(options: argparse.Namespace) -> int:
    """Print what the session's files hold, the oldest first."""
    from coopfile.compiling import compile_project
    from coopfile.proxy import denials

    check_name(options.session)
    compiled = compile_project(request(options))
    state = directories(os.environ).state
    place = log_path(state, session_id(compiled.project.root, compiled.plan.access, options.session))
    try:
        found = denials.read(place)
    except OSError as error:
        raise CoopError(f"cannot read {output.safe(place)}: {error.strerror}") from None
    found = _chosen(found, options)
    if options.json:
        output.emit_json(found)
        return 0
    for entry in found:
        output.emit(output.safe(f"{entry['time'][:_TO_SECONDS]}Z  {entry['text']}"))
    if not found and not options.quiet:
        output.emit("nothing was blocked")
    return 0


def _chosen(found: list[dict[str, Any]], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the entries that the options ask for."""
    import time
    from fnmatch import fnmatchcase

    from coopfile.proxy.denials import stamp

    if options.since is not None:
        first = stamp(time.time() - seconds("--since", options.since))
        found = [entry for entry in found if entry["time"] >= first]
    if options.host is not None:
        pattern = options.host.lower()
        found = [entry for entry in found if fnmatchcase(entry["host"], pattern)]
    if options.port is not None:
        found = [entry for entry in found if entry["port"] == options.port]
    if options.last is not None:
        found = found[-options.last :] if options.last > 0 else []
    return found
