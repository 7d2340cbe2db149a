"""``coop rm``: end a session of a project, and remove what it has kept for the next."""

from __future__ import annotations

import os

from coopfile.cli import output
from coopfile.cli.exec import check_name
from coopfile.cli.options import request
from coopfile.cli.sessions import data_directory, unknown
from coopfile.find import directories
from coopfile.plan.sessions import DEFAULT, place, project_id
from coopfile.session import store, sweep

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "end a session and remove what it has kept: the directories of session.persist"
EPILOG = """examples:
  coop rm                     the session "default", whose directories every coop run has: ~/.claude, too
  coop rm work                another one
  coop rm --caches            and what session.caches shares
  coop rm --as x:ann          what runs as that user have kept
  coop rm --dry-run           where it is

NAME may be an id, such as `coop ls --all --json` prints, then of whatever project. Nothing else is
touched: neither the project nor its root file system, for which there is `coop clean`.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument("name", metavar="NAME", nargs="?", default=DEFAULT, help="the session's name")
    parser.add_argument("--caches", action="store_true", help="remove the named caches, too")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")


def main(options: argparse.Namespace) -> int:
    """Remove the session, and say where it was."""
    from coopfile.compiling import compile_project

    check_name(options.name)
    compiled = compile_project(request(options))
    root, access = compiled.project.root, compiled.plan.access
    data = data_directory()
    session = place(data, root, access, options.name)
    if options.name != DEFAULT and not os.path.lexists(session):
        session = f"{data}/sessions/{options.name}"
        if not os.path.lexists(session):
            raise unknown(options.name, data, root, access)
    places = [session, *([f"{data}/caches/{project_id(root, access)}"] if options.caches else [])]
    found = [path for path in places if os.path.lexists(path)]
    others = [path for path in found if path != session]
    if options.dry_run or not found:
        ended = sweep.runs(session, store.read(session))
    else:
        ended = sweep.discard(session, options.name, directories(os.environ).state, others)
    if options.json:
        output.emit_json({"directories": found, "removed": not options.dry_run})
    elif not options.quiet:
        verb = "would remove" if options.dry_run else "removed"
        note = f"{'would end' if options.dry_run else 'ended'} the session {options.name}"
        lines = [f"{verb} {output.safe(path)}" for path in found] or ["nothing is kept for this project"]
        output.emit("\n".join([*([note] if ended else []), *lines]))
    return 0
