"""Removing sessions, and what is left of those that nobody will come back to."""

from __future__ import annotations

import os

from coopfile import audit
from coopfile.errors import CoopError
from coopfile.plan.sessions import is_own_name
from coopfile.record import Record
from coopfile.session import lifecycle, since, store
from coopfile.session.removing import remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_ENDS = 15.0  # seconds that another process may take for starting or ending a session
_TRACES = ("socket", "notes", "installs", audit.NOTE, since.FILE, "container", "state", "alive")


class Forgotten(Record):
    """What is kept for a project whose directory is gone; ``empty`` when nobody would miss it."""

    path: str
    project: str
    empty: bool


def forgotten(data: str) -> tuple[Forgotten, ...]:
    """Return the sessions and the caches below coop's data (a real path) whose project is gone.

    A session that runs is none of them.
    """
    found = []
    for kind in ("sessions", "caches"):
        for name in _names(f"{data}/{kind}"):
            path = f"{data}/{kind}/{name}"
            state = store.read(path)
            project = store.noted_project(path) if state is None else state.root
            if project is None or os.path.isdir(project) or runs(path, state):
                continue
            found.append(Forgotten(path, project, kind == "caches" or is_empty(f"{path}/persist")))
    return tuple(found)


def abandoned(data: str) -> tuple[str, ...]:
    """Return the directories of sessions that have ended and that nobody starts again.

    Those are the ones that were to end with a process, and those of which nothing sound is known.
    """
    return tuple(
        known.directory
        for known in store.known(data)
        if (known.state is None or known.state.leased) and not runs(known.directory, known.state)
    )


def tidy(directory: str, own_state: str) -> bool:
    """Forget a session that has ended, but for what it kept; tell whether it had. Raises CoopError.

    ``own_state`` is coop's directory of that name.
    """
    try:
        with store.starting(directory, 0.0):
            if runs(directory, store.read(directory)):
                return False
            state = store.read(directory)
            if is_empty(f"{directory}/persist") or (state is not None and _is_anonymous(state)):
                remove([directory], own_state)
                return True
            for name in _TRACES:
                try:
                    os.unlink(f"{directory}/{name}")
                except FileNotFoundError:
                    pass
    except store.BusyError:
        return False
    except OSError as error:
        raise CoopError(f"{error.filename or directory} cannot be removed: {error.strerror}") from None
    return True


def discard(directory: str, name: str, own_state: str, others: Sequence[str] = ()) -> bool:
    """End a session, remove it and all that it kept, and ``others``; tell if it ran. Raises CoopError."""
    live = None
    try:
        with store.starting(directory, _ENDS):
            known = store.look(directory)
            if known is not None:
                live = lifecycle.join(directory, known.state or store.salvaged(directory, name))
                if live is not None:
                    live.stop()
            remove([directory, *others], own_state)
    except OSError as error:
        raise CoopError(f"{error.filename or directory} cannot be removed: {error.strerror}") from None
    return live is not None


def runs(directory: str, state: store.State | None) -> bool:
    """Tell whether a session runs, or may: an engine that does not answer is no proof that it does not."""
    if store.is_alive(directory):
        return True
    try:
        return state is not None and lifecycle.join(directory, state) is not None
    except CoopError:
        return True


def is_empty(persist: str) -> bool:
    """Tell whether a session has kept nothing in its directory for that."""
    return all(not _holds(f"{persist}/{name}") for name in _names(persist))


def _is_anonymous(state: store.State) -> bool:
    """Tell whether a session was a Python program's own, under a name that nobody gave it."""
    return state.leased and is_own_name(state.name)


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []  # nothing was ever kept, or by somebody else


def _holds(directory: str) -> bool:
    """Tell whether something is in a directory, as far as it can be looked into."""
    try:
        with os.scandir(directory) as entries:
            return any(entries)
    except OSError:
        return True
