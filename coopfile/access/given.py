"""What plans give of the host's files on this machine, path by path, however a Coopfile spells them.

``compare`` knows no home: to it ``~/a`` and ``/home/me/a`` are two places. Here they are one, as they are
to the runner: the innermost path of one spelling decides, what is given read-only stays so inside of what is
given by the other, and a file that both lead to may be used as either of them lets it be.
"""

from __future__ import annotations

from coopfile.language.directions import WIDENS
from coopfile.plan.compare import Change
from coopfile.plan.launch import expand, parents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coopfile.plan.model import Files

_NOTHING, _READ, _WRITE = range(3)
_KEYS = {_READ: "files.read", _WRITE: "files.write"}


def gains(before: Sequence[Files], after: Files, home: str) -> tuple[Change, ...]:
    """Return what one plan gives of the host beyond all that others give; ``home`` is the caller's.

    Each is a path that it lists, or one that a plan before it had read-only, which it has no more.
    """
    listed = {expand(text, home): text for files in (*before, after) for text in (*files.write, *files.read)}
    had = [levels(files, home) for files in before]
    has = levels(after, home)
    own = {
        kind: {expand(text, home): text for text in texts}
        for kind, texts in ((_READ, after.read), (_WRITE, after.write))
    }
    found = []
    for path, text in sorted(listed.items(), key=lambda item: item[1]):
        now = has(path)
        if now <= max((level(path) for level in had), default=_NOTHING):
            continue
        given = own[now].get(path)
        if given is None:
            found.append(Change(_KEYS[_READ], WIDENS, text, None, item=True))
        else:
            found.append(Change(_KEYS[now], WIDENS, None, given, item=True))
    return tuple(sorted(found, key=lambda change: change.key))


def levels(files: Files, home: str) -> Callable[[str], int]:
    """Return what tells what may be done with an absolute path: 0 nothing, 1 read, 2 read and write."""
    spellings: dict[bool, dict[str, int]] = {True: {}, False: {}}
    for kind, texts in ((_WRITE, files.write), (_READ, files.read)):  # where both have it, it is read
        for text in texts:
            spellings[text.startswith("~")][expand(text, home)] = kind
    guards = {expand(text, home) for text in files.read}

    def level(path: str) -> int:
        around = [path, *reversed(parents(path))]
        most = _NOTHING
        for places in spellings.values():
            inner = next((number for number, outer in enumerate(around) if outer in places), None)
            if inner is not None:
                held = any(outer in guards for outer in around[:inner])
                most = max(most, _READ if held else places[around[inner]])
        return most

    return level
