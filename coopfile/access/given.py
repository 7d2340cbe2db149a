"""What plans give of the host's files on this machine, path by path, however a Coopfile spells them.

``compare`` knows no home: to it ``~/a`` and ``/home/me/a`` are two places. Here they are one, as they are
to the runner: the innermost path of one spelling decides, what is given read-only stays so inside of what is
given by the other, and a file that both lead to may be used as either of them lets it be.
"""

from __future__ import annotations

from coopfile.language.directions import WIDENS
from coopfile.plan.bind import expand, inside
from coopfile.plan.compare import Change

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopfile.plan.model import Files

_NOTHING, _READ, _WRITE = range(3)
_KEYS = {_READ: "files.read", _WRITE: "files.write"}


def gains(before: Sequence[Files], after: Files, home: str) -> tuple[Change, ...]:
    """Return what one plan gives of the host beyond all that others give; ``home`` is the caller's.

    Each is a path that it lists, or one that a plan before it had read-only, which it has no more.
    """
    listed = {expand(text, home): text for files in (*before, after) for text in (*files.write, *files.read)}
    found = []
    for path, text in sorted(listed.items(), key=lambda item: item[1]):
        now = level(path, after, home)
        if now <= max((level(path, files, home) for files in before), default=_NOTHING):
            continue
        own = next((item for item in _list(after, now) if expand(item, home) == path), None)
        if own is None:
            found.append(Change(_KEYS[_READ], WIDENS, text, None, item=True))
        else:
            found.append(Change(_KEYS[now], WIDENS, None, own, item=True))
    return tuple(sorted(found, key=lambda change: change.key))


def level(path: str, files: Files, home: str) -> int:
    """Return what may be done with an absolute path of the host: 0 nothing, 1 read, 2 read and write."""
    most = _NOTHING
    for from_home in (True, False):
        around = [
            (len(place), kind == _READ, place)
            for kind in (_READ, _WRITE)
            for text in _list(files, kind)
            if text.startswith("~") is from_home and inside(path, place := expand(text, home))
        ]
        if around:
            _, read, outer = max(around)
            guards = (expand(text, home) for text in files.read)
            held = any(guard != outer and inside(guard, outer) and inside(path, guard) for guard in guards)
            most = max(most, _READ if read or held else _WRITE)
    return most


def _list(files: Files, kind: int) -> tuple[str, ...]:
    return files.read if kind == _READ else files.write
