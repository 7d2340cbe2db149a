"""``coop rm``: remove what the runs of a project have kept for the next."""

from __future__ import annotations

import os

from coopfile.cli import output
from coopfile.cli.kept import remove
from coopfile.cli.options import request
from coopfile.find import directories
from coopfile.plan.sessions import project_id, session_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "remove what runs of this project have kept: the directories of session.persist"
EPILOG = """examples:
  coop rm                     what session.persist kept, ~/.claude in the sandbox included
  coop rm --caches            and what session.caches shares
  coop rm --as x:ann          what runs as that user have kept
  coop rm --dry-run           where it is

Nothing else is touched: neither the project nor its root file system, for which there is `coop clean`.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument("--caches", action="store_true", help="remove the named caches, too")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")


def main(options: argparse.Namespace) -> int:
    """Remove the project's session, and say where it was."""
    from coopfile.compiling import compile_project

    compiled = compile_project(request(options))
    root, access = compiled.project.root, compiled.plan.access
    own = directories(os.environ)
    data = os.path.realpath(own.data)
    places = [f"{data}/sessions/{session_id(root, access)}"]
    places += [f"{data}/caches/{project_id(root, access)}"] if options.caches else []
    found = [place for place in places if os.path.lexists(place)]
    if found and not options.dry_run:
        remove(found, own.state)
    if options.json:
        output.emit_json({"directories": found, "removed": not options.dry_run})
    elif not options.quiet:
        verb = "would remove" if options.dry_run else "removed"
        lines = [f"{verb} {output.safe(place)}" for place in found] or ["nothing is kept for this project"]
        output.emit("\n".join(lines))
    return 0
