"""What a session has changed since it was committed: a mark of each thing, kept beside the session.

What is committed stays in the session as well, which goes on. Without the marks its end would take all of
it for lost.
"""

from __future__ import annotations

import os

from coopfile import strictjson, wholefile
from coopfile.record import Record
from coopfile.rootfs.overlay import ADDED, CHANGED, DELETED, Change

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from coopfile.session.changes import Difference

FILE = "committed"  # in a session's directory
_LARGEST = 1 << 28  # bytes


class Earlier(Record):
    """A commit of one life of a session: what came of it (``stage``), and a mark of each path."""

    life: str
    stage: str
    marks: dict[str, str]


def marks(found: Iterable[Difference]) -> dict[str, str]:
    """Return what tells each thing from what it may be later."""
    return {item.change.path: _mark(item) for item in found}


def write(directory: str, earlier: Earlier) -> None:
    """Remember a commit; not being able to is no error: the session's end says more than is so then."""
    import json

    fields = {name: getattr(earlier, name) for name in earlier._fields}
    try:
        wholefile.write(f"{directory}/{FILE}", json.dumps(fields).encode(), 0o600)
    except OSError:
        forget(directory)


def read(directory: str, life: str) -> Earlier | None:
    """Return the last commit of a life of a session; None if there was none."""
    try:
        with open(f"{directory}/{FILE}", "rb") as file:
            earlier = Earlier(**strictjson.loads(file.read(_LARGEST)))
    except (OSError, ValueError, TypeError):
        return None
    return earlier if earlier.life == life and isinstance(earlier.marks, dict) else None


def forget(directory: str) -> None:
    """Begin anew: the session has ended."""
    try:
        os.unlink(f"{directory}/{FILE}")
    except OSError:
        pass


def changes(found: Iterable[Difference], earlier: Earlier | None) -> Iterator[Change]:
    """Yield what differs from what was committed, of all that differs from the session's start."""
    known = {} if earlier is None else dict(earlier.marks)
    for item in found:
        mark = known.pop(item.change.path, None)
        if mark is None:
            yield item.change
        elif mark != _mark(item):
            yield item.change.replace(kind=CHANGED)
    for path, mark in known.items():  # they are as they were before the session
        kind, kept, *_ = mark.split(" ")
        yield Change(DELETED if kind == ADDED else CHANGED, path, kept)


def _mark(item: Difference) -> str:
    return f"{item.change.kind} {item.change.type} {item.change.size} {item.stamp}"
