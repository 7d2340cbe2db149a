"""What runs have kept for later ones, as ``coop rm`` and ``coop clean`` see it."""

from __future__ import annotations

import os

from coopfile.errors import CoopError
from coopfile.native import running
from coopfile.record import Record
from coopfile.rootfs.tree import remove_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST = 4096 + 1  # bytes of a path and a newline: PATH_MAX in linux/limits.h


class Forgotten(Record):
    """What is kept for a project whose directory is gone; ``empty`` when nobody would miss it."""

    path: str
    project: str
    empty: bool


def forgotten(data: str) -> tuple[Forgotten, ...]:
    """Return the sessions and the caches below coop's data (a real path) whose project is gone."""
    found = []
    for kind in ("sessions", "caches"):
        for name in _names(f"{data}/{kind}"):
            path = f"{data}/{kind}/{name}"
            project = _project(path)
            if project is not None and not os.path.isdir(project):
                found.append(Forgotten(path, project, kind == "caches" or _is_empty(f"{path}/persist")))
    return tuple(found)


def remove(places: Sequence[str], state: str) -> None:
    """Remove directories that no running sandbox uses. Raises CoopError, before anything is removed."""
    try:
        lock = running.hold_starts(state)
        try:
            used = next((place for place in places if running.is_used(state, place)), None)
            if used is not None:
                raise CoopError(
                    f"a sandbox that uses {used} is running", "wait until it ends, or end it, and try again"
                )
            for place in places:
                remove_tree(place)
        finally:
            running.let_start(lock)
    except OSError as error:
        raise CoopError(f"{error.filename or places[0]} cannot be removed: {error.strerror}") from None


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []  # nothing was ever kept, or by somebody else


def _project(path: str) -> str | None:
    """Return the project that a directory is of, as ``native.kept`` noted it."""
    try:
        with open(f"{path}/project", "rb") as file:
            return os.fsdecode(file.read(_LONGEST).removesuffix(b"\n")) or None
    except OSError:
        return None


def _is_empty(persist: str) -> bool:
    return all(not _holds(f"{persist}/{name}") for name in _names(persist))


def _holds(directory: str) -> bool:
    """Tell whether something is in a directory, as far as it can be looked into."""
    try:
        with os.scandir(directory) as entries:
            return any(entries)
    except OSError:
        return True
