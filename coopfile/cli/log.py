"""``coop log``: what the sandbox tried and was not let."""

from __future__ import annotations

import argparse
import os

from coopfile.cli import output
from coopfile.cli.exec import check_name
from coopfile.cli.options import request
from coopfile.errors import CoopError
from coopfile.find import directories
from coopfile.plan.sessions import DEFAULT, session_id

SUMMARY = "list what the proxy of this project's sandbox has blocked: when, and where it was to go"
EPILOG = """examples:
  coop log
  coop log --last 20
  coop log --session work
  coop log --json

Of each run the first few hundred are kept, of earlier runs the last few thousand. Times are UTC.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument("--session", metavar="NAME", default=DEFAULT, help="of a session, not of plain runs")
    parser.add_argument("--last", type=int, metavar="N", help="only the last N")


def main(options: argparse.Namespace) -> int:
    """Print what the session's files hold, the oldest first."""
    from coopfile.compiling import compile_project
    from coopfile.plan.reach import log_path
    from coopfile.proxy import denials

    check_name(options.session)
    compiled = compile_project(request(options))
    state = directories(os.environ).state
    place = log_path(state, session_id(compiled.project.root, compiled.plan.access, options.session))
    try:
        found = denials.read(place)
    except OSError as error:
        raise CoopError(f"cannot read {output.safe(place)}: {error.strerror}") from None
    if options.last is not None:
        found = found[-options.last :] if options.last > 0 else []
    if options.json:
        output.emit_json(found)
        return 0
    for entry in found:
        output.emit(output.safe(f"{entry['time']}  {entry['text']}"))
    if not found and not options.quiet:
        output.emit("nothing was blocked")
    return 0
