"""Which sandboxes of this user run now, what each can write, and what each has pinned.

Container engines mount by name. A sandbox that can write where another is about to be
mounted from could put a link there at that moment, and have the engine mount what it
leads to. Every run writes a file that it keeps locked, flock(2), as long as it lives; a
run on an engine reads the others' before it mounts.
"""

from __future__ import annotations

import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LOCK = "starting"
_LARGEST = 1 << 24


def announce(
    state: str, roots: Sequence[str], guarded: Sequence[str], *, starts_held: bool = False
) -> tuple[int, str] | None:
    """Say that a sandbox starts; return what ``leave`` takes, None where the state cannot be written.

    ``roots`` are real paths that it can write. ``guarded`` are real paths below them that
    it cannot move or replace, nor any directory on the way to them. Waits while another
    run is having its mounts made, unless ``starts_held``.
    """
    directory = f"{state}/running"
    path = f"{directory}/{os.getpid()}"
    flags = os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        lock = _open_lock(directory)
        if not starts_held:
            fcntl.flock(lock, fcntl.LOCK_SH)
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # of a process with our number in another PID namespace
            os.close(descriptor)
            path += f".{os.urandom(8).hex()}"
            descriptor = os.open(path, flags | os.O_EXCL, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, os.fsencode("\0".join(roots) + "\0\0" + "\0".join(guarded)))
        os.close(lock)
    except OSError:
        return None  # nor can a run on an engine start, which needs the same directory
    return descriptor, path


def leave(announced: tuple[int, str] | None) -> None:
    """Say that the sandbox is gone."""
    if announced is None:
        return
    descriptor, path = announced
    try:
        os.unlink(path)
    except OSError:
        pass
    os.close(descriptor)


def hold_starts(state: str) -> int:
    """Keep every other run from starting until ``let_start``. Raises OSError."""
    lock = _open_lock(f"{state}/running")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def let_start(lock: int) -> None:
    """Let others start again: the lock is given up for every copy of its descriptor."""
    fcntl.flock(lock, fcntl.LOCK_UN)


def _open_lock(directory: str) -> int:
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(f"{directory}/{_LOCK}", flags, 0o600)
    except FileNotFoundError:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        return os.open(f"{directory}/{_LOCK}", flags, 0o600)


def others(state: str) -> list[tuple[list[str], list[str]]]:
    """Return ``roots`` and ``guarded`` of every sandbox that runs. Raises OSError."""
    return list(_others(f"{state}/running"))


def exposed(others: Sequence[tuple[Sequence[str], Sequence[str]]], sources: Sequence[str]) -> str | None:
    """Return the first of some mount sources that one of the ``others`` could replace."""
    for roots, guarded in others:
        for source in sources:
            for root in roots:
                if source.startswith(root.rstrip("/") + "/") and not _pinned(source, guarded):
                    return source
    return None


def is_used(state: str, directory: str) -> bool:
    """Tell whether a running sandbox can write below a directory."""
    prefix = directory.rstrip("/") + "/"
    return any(root.startswith(prefix) for roots, _ in others(state) for root in roots)


def _pinned(path: str, guarded: Sequence[str]) -> bool:
    """Tell whether a path is guarded, below or on the way to what is, so that nobody can replace it."""
    return any(
        item == path or item.startswith(path + "/") or path.startswith(item + "/") for item in guarded if item
    )


def _others(directory: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield what others can write and have pinned; files that nobody holds are removed."""
    for name in os.listdir(directory):
        path = f"{directory}/{name}"
        if name == _LOCK:
            continue
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.unlink(path)
        except BlockingIOError:
            roots, _, guarded = os.fsdecode(os.read(descriptor, _LARGEST)).partition("\0\0")
            yield roots.split("\0"), guarded.split("\0")
        except FileNotFoundError:
            continue
        finally:
            os.close(descriptor)
