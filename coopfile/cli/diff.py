"""``coop diff``: what a session has changed of its root file system."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import closing

from coopfile.cli import output
from coopfile.cli.exec import check_name
from coopfile.cli.execution import say
from coopfile.cli.sessions import located
from coopfile.errors import CoopError
from coopfile.find import directories
from coopfile.plan.sessions import DEFAULT
from coopfile.rootfs.overlay import ADDED, CHANGED, DELETED
from coopfile.rootfs.store import Store
from coopfile.session.changes import Difference, differences
from coopfile.session.commit import listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from coopfile.rootfs.overlay import Change
    from coopfile.session.store import State

SUMMARY = "show what a session has changed of its root file system"
EPILOG = """examples:
  coop diff                 of the session "default": added, changed and deleted files
  coop diff work --content  and how the content of text files differs
  coop diff --json

What is mounted is no part of it: the workspace, files.write, session.persist, /tmp. A file that was
only touched has not changed. The session goes on meanwhile. `coop commit` keeps what this shows.
"""

_COLORS = {ADDED: "green", CHANGED: "yellow", DELETED: "red"}
_MARKS = {"+": "green", "-": "red", "@": "cyan"}
_UNITS = ("B", "kB", "MB", "GB", "TB")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument("name", metavar="NAME", nargs="?", default=DEFAULT, help="the session's name")
    parser.add_argument("--content", action="store_true", help="show how the content of files differs")


def main(options: argparse.Namespace) -> int:
    """Print each difference as it is found."""
    directory, state = session(options)
    store = Store(directories(os.environ).rootfs)
    counts = dict.fromkeys(_COLORS, 0)
    found: list[dict[str, Any]] = []
    deep: list[str] = []
    color = output.wants_color(options.color, sys.stdout)
    with closing(differences(directory, state, store, content=options.content)) as items:
        for item in items:
            if not isinstance(item, Difference):
                deep.append(item.path)
                continue
            counts[item.change.kind] += 1
            if options.json:
                found.append(_data(item, options.content))
            else:
                for line in _lines(item, color):
                    output.emit(line)
    if options.json:
        output.emit_json({"changes": found, "too_deep": deep})
    elif not options.quiet:
        for path in deep:
            say(f"{path[:200]}: so deep that nobody looks into it")
        say(listed((counts[ADDED], counts[CHANGED], counts[DELETED])))
    return 0


def session(options: argparse.Namespace) -> tuple[str, State]:
    """Return directory and state of the session that is meant. Raises CoopError."""
    check_name(options.name)
    known = located(options.name, options)
    if known.state is None:
        raise CoopError(
            f"what is known of the session {options.name} is damaged: {known.directory}/state",
            f"coop stop {options.name} ends it; the next command starts it again",
        )
    return known.directory, known.state


def size(count: int) -> str:
    """Return a number of bytes for people."""
    value, unit = float(count), 0
    while value >= 999.95 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{count} B"


def _lines(item: Difference, color: bool) -> Iterator[str]:
    change = item.change
    path = output.safe(change.path) + "/" * (change.type == "directory")
    kind = output.paint(f"{change.kind:<7}", _COLORS[change.kind], color)
    about = ", ".join(_about(change))
    yield f"{kind}  {path}  ({about})" if about else f"{kind}  {path}"
    for line in item.content:
        text = "\t".join(map(output.safe, line.split("\t")))
        yield output.paint(text, _MARKS[line[0]], color) if line[:1] in _MARKS else text


def _about(change: Change) -> Iterator[str]:
    """Yield what there is to say of a change besides its path."""
    if change.was is not None:
        yield f"{change.was} → {change.type}"
    elif change.type not in ("file", "directory"):
        yield change.type
    sizes = [size(count) for count in (change.before, change.size) if count is not None]
    if sizes:
        yield " → ".join(dict.fromkeys(sizes))
    modes = (change.mode_before, change.mode)
    if change.kind == CHANGED and None not in modes and change.mode != change.mode_before:
        yield f"mode {change.mode_before:o} → {change.mode:o}"


def _data(item: Difference, content: bool) -> dict[str, Any]:
    change = item.change
    data = {
        "kind": change.kind,
        "path": change.path,
        "type": change.type,
        "type_before": change.was,
        "size": change.size,
        "size_before": change.before,
        "mode": change.mode,
        "mode_before": change.mode_before,
    }
    return {**data, "content": list(item.content)} if content else data
