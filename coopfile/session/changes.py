"""What the commands of a session have changed of its root file system, on whatever back end."""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack

from coopfile import strictjson
from coopfile.native.owner import as_owner
from coopfile.record import Record
from coopfile.rootfs import commit, overlay
from coopfile.rootfs.overlay import ADDED, DELETED, Change
from coopfile.session import lifecycle
from coopfile.session.model import SessionError, SessionGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from coopfile.native.upper import Upper
    from coopfile.rootfs.overlay import Item
    from coopfile.rootfs.store import Store
    from coopfile.session.native import NativeLive
    from coopfile.session.store import State

_LARGEST = 256 << 10  # bytes of a file whose content is shown
_MOST_PAIRS = 1_000_000  # of lines that are compared with each other
_CONTEXT = 3  # lines around a difference
_UNTERMINATED = "\\ No newline at end of file"


class Difference(Record):
    """A change, and how the content differs, as lines of a unified diff.

    There are none when that was not asked for, or when the content is the same. One line that is no
    diff says why there is none. ``stamp`` is another one when the same has been changed again.
    """

    change: Change
    content: tuple[str, ...] = ()
    stamp: str = ""


class Skipped(Record):
    """A directory that is too deep to be looked into."""

    path: str


def differences(
    directory: str, state: State, store: Store, *, content: bool = False
) -> Generator[Difference | Skipped, None, None]:
    """Yield what a session has changed since it was started, as it is when it is looked at.

    ``directory`` and ``state`` are the session's, ``store`` is that of root file systems. Raises
    SessionError for a session that does not run, or has no root file system; CoopError.
    """
    live = running(directory, state)
    if state.backend != "native":
        from coopfile.session import saving

        for change, stamp in saving.changes(directory, state):
            yield Difference(change, (saving.UNSHOWN,) if content and change.type == "file" else (), stamp)
        return
    upper = live.upper()
    with ExitStack() as opened:
        opened.callback(os.close, upper.descriptor)
        lower = commit.open_layers(store, upper, opened)
        try:
            for path, deep, fields, lines, stamp in as_owner(lambda: _look(upper, lower, content)):
                if fields is not None:
                    yield Difference(Change(*fields), lines, stamp)
                if deep:
                    yield Skipped(path)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise SessionError(
                f"what the session has changed cannot be read: {where}{error.strerror}"
            ) from None


def running(directory: str, state: State) -> NativeLive:
    """Return a session that runs on a root file system. Raises SessionError, CoopError."""
    if not is_on_image(state):
        raise SessionError(
            f"the session {state.name} has the host's own tools, which nobody can change",
            "what is written beside the workspace is thrown away; session.persist keeps directories, "
            "and base.image gives a root file system that can be changed",
            session=state.name,
        )
    live = lifecycle.join(directory, state)
    if live is None:
        raise SessionGone(
            f"the session {state.name} does not run: what it had changed is gone, but for what is committed",
            f"coop shell {state.name} starts it",
            session=state.name,
        )
    found: NativeLive = live  # type: ignore[assignment]
    return found


def is_on_image(state: State) -> bool:
    """Tell whether a session's root file system is an image's."""
    try:
        return strictjson.loads(state.plan)["base"]["image"] is not None
    except (ValueError, TypeError, KeyError):
        return False


def _look(upper: Upper, lower: Sequence[int], content: bool) -> Iterator[tuple[object, ...]]:
    for item in overlay.compare([upper.descriptor], lower, upper.made):
        if item.change is None and not item.deep:
            continue
        lines = _content(item) if content and item.change is not None else ()
        fields, stamp = (None, "") if item.change is None else (_fields(item.change), _stamp(item))
        yield item.path, item.deep, fields, lines, stamp


def _stamp(item: Item) -> str:
    """Return permissions, and when it was changed; that a directory was does not say that it differs."""
    if item.change is None or item.change.kind == DELETED:
        return ""
    try:
        if item.name:
            status = os.stat(item.name, dir_fd=item.place, follow_symlinks=False)
        else:
            status = os.fstat(item.place)
    except OSError:
        return ""  # it has just gone
    when = "" if stat.S_ISDIR(status.st_mode) else f" {status.st_ctime_ns}"
    return f"{stat.S_IMODE(status.st_mode):o}{when}"


def _fields(change: Change) -> tuple[object, ...]:
    return tuple(getattr(change, name) for name in change._fields)


# Content


def _content(item: Item) -> tuple[str, ...]:
    """Return how the content of a file, or where a link leads, differs from what it was."""
    change = item.change
    assert change is not None
    before = None if change.kind == ADDED else _read(item.below, change.was or change.type)
    after = None if change.kind == DELETED else _read((item.place, item.name), change.type)
    if before == after:
        return ()
    for text in (before, after):
        if isinstance(text, _Unshown):
            return (text.why,)
    assert not isinstance(before, _Unshown) and not isinstance(after, _Unshown)
    path = change.path
    head = (
        "--- /dev/null" if before is None else f"--- a{path}",
        "+++ /dev/null" if after is None else f"+++ b{path}",
    )
    return (*head, *unified((before or "").split("\n"), (after or "").split("\n")))


class _Unshown(Record):
    """Content that is not shown, and why."""

    why: str


def _read(where: tuple[int, str] | None, kind: str) -> str | _Unshown | None:
    """Return a file's text, or a link's target; None for what has neither."""
    if where is None:
        return None
    place, name = where
    if kind == "link":
        try:
            return os.readlink(name, dir_fd=place)
        except OSError:
            return None
    if kind != "file":
        return None
    descriptor = overlay.open_file(place, name)
    if descriptor is None:
        return None
    with open(descriptor, "rb") as file:
        if os.fstat(descriptor).st_size > _LARGEST or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return _Unshown(f"files of more than {_LARGEST >> 10} KiB differ")
        data = file.read(_LARGEST)
    try:
        if b"\0" not in data:
            return data.decode()
    except UnicodeDecodeError:
        pass
    return _Unshown("binary files differ")


def unified(old: list[str], new: list[str]) -> Iterator[str]:
    """Yield the hunks of a unified diff of two texts, split at their newlines.

    What is alike at both ends is not compared, and what is left is shown as replaced when it is too much
    to compare: that takes time that grows with the square of it.
    """
    marked = [
        [*lines[:-1], *([lines[-1] + "\n" + _UNTERMINATED] if lines[-1] else [])] for lines in (old, new)
    ]
    for start, end, new_start, new_end, lines in _hunks(*marked):
        yield f"@@ -{_range(start, end)} +{_range(new_start, new_end)} @@"
        for line in lines:
            yield from line.split("\n")


def _hunks(old: list[str], new: list[str]) -> Iterator[tuple[int, int, int, int, list[str]]]:
    """Yield where a hunk is in both texts, and its lines."""
    from difflib import SequenceMatcher

    shortest = min(len(old), len(new))
    ahead = next((n for n in range(shortest) if old[n] != new[n]), shortest)
    left = shortest - ahead
    behind = next((n for n in range(left) if old[-1 - n] != new[-1 - n]), left)
    first = max(ahead - _CONTEXT, 0)
    kept = max(behind - _CONTEXT, 0)
    one, other = old[first : len(old) - kept], new[first : len(new) - kept]
    if len(one) * len(other) > _MOST_PAIRS:
        same = ahead - first
        ends = (len(one) - (behind - kept), len(other) - (behind - kept))
        groups = [
            [
                ("equal", 0, same, 0, same),
                ("replace", same, ends[0], same, ends[1]),
                ("equal", ends[0], len(one), ends[1], len(other)),
            ]
        ]
    else:
        groups = list(SequenceMatcher(None, one, other, False).get_grouped_opcodes(_CONTEXT))
    for group in groups:
        lines: list[str] = []
        for tag, i, j, k, m in group:
            if tag == "equal":
                lines += [f" {line}" for line in one[i:j]]
            else:
                lines += [f"-{line}" for line in one[i:j]] + [f"+{line}" for line in other[k:m]]
        yield first + group[0][1], first + group[-1][2], first + group[0][3], first + group[-1][4], lines


def _range(start: int, end: int) -> str:
    """Return lines from ``start``, from 0, to before ``end`` as a hunk's head has them: diff(1)."""
    count = end - start
    return f"{start + 1 if count else start}" if count == 1 else f"{start + 1 if count else start},{count}"
