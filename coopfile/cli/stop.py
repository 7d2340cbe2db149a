"""``coop stop``: end sessions; what they keep is kept."""

from __future__ import annotations

import argparse
import os
import sys

from coopfile.cli import output
from coopfile.cli.exec import check_name
from coopfile.cli.execution import say
from coopfile.cli.failures import tell
from coopfile.cli.sessions import data_directory, located
from coopfile.errors import CoopError, UsageError
from coopfile.find import directories, find
from coopfile.plan.sessions import DEFAULT
from coopfile.session import lifecycle, store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.session.commit import End

SUMMARY = "end sessions of this project; what session.persist keeps of them is kept"
EPILOG = """examples:
  coop stop              the session "default"
  coop stop work play
  coop stop --all        all of this project

All that runs in them is ended. A name may be an id, such as `coop ls --all --json` prints, then of
whatever project. A session that was stopped starts again when it is used; `coop rm` removes it.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument("names", metavar="NAME", nargs="*", help="the sessions' names")
    parser.add_argument("--all", action="store_true", help="end all sessions of this project")
    parser.add_argument(
        "--no-commit", action="store_true", help="commit nothing, whatever session.commit says"
    )


def main(options: argparse.Namespace) -> int:
    """End each session, whatever becomes of the others, and say so."""
    if options.all and options.names:
        raise UsageError("--all is every session of this project", "leave the names out")
    status = 0
    ended: list[str] = []
    failed: list[dict[str, str | None]] = []
    for known in _wanted(options):
        state = known.state or store.salvaged(known.directory, known.id)
        try:
            end = None if options.no_commit else _committed(known, options)
            if end is not None and end.kept:
                say(end.kept)
            if lifecycle.stop(known.directory, state):
                ended.append(known.id)
                text = f"stopped {output.safe(state.name)}"
                if end is not None and end.lost:
                    say(end.lost)
            else:
                text = f"{output.safe(state.name)} does not run"
        except (CoopError, OSError) as error:
            why = (
                error
                if isinstance(error, CoopError)
                else CoopError(f"{known.directory}: {error.strerror}", "look whether it is yours")
            )
            status = why.status
            failed.append({"id": known.id, "error": why.message, "remedy": why.remedy})
            if not options.json:  # which is one document, whatever becomes of them
                tell(why, as_json=False)
            continue
        if not options.json and not options.quiet:
            output.emit(text)
    if options.json:
        output.emit_json({"stopped": ended, "failed": failed})
    return status


def _committed(known: store.Known, options: argparse.Namespace) -> End | None:
    """Do what ``session.commit`` says, and return what there is to tell. Raises CoopError."""
    from coopfile.rootfs.store import Store
    from coopfile.session.commit import at_end

    if known.state is None:
        return None
    ask = _ask if sys.stdin.isatty() and sys.stderr.isatty() and not options.json else None
    try:
        return at_end(known.directory, known.state, Store(directories(os.environ).rootfs), ask=ask)
    except CoopError as error:
        remedy = "coop stop --no-commit ends it without"
        raise CoopError(
            f"not ended, for what it has changed cannot be kept: {error.message}",
            f"{error.remedy}; {remedy}" if error.remedy else remedy,
        ) from None


def _ask(question: str) -> bool:
    sys.stderr.write(f"{output.safe(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _wanted(options: argparse.Namespace) -> list[store.Known]:
    if options.all:
        root = find(options.directory, options.file, os.environ).root
        return [known for known in store.known(data_directory()) if known.root == root]
    found = []
    for name in options.names or [DEFAULT]:
        check_name(name)
        found.append(located(name, options))
    return found
