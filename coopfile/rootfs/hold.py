"""Keeping a stage while it is used: by a lock that the kernel drops with its holder."""

from __future__ import annotations

import fcntl
import os


def hold(path: str) -> int | None:
    """Return a descriptor that keeps a stage's directory from being removed; None if it is not there.

    The lock is flock(2)'s: it goes with the descriptor's last copy, in whatever process. Who
    removes or has just built the stage is waited for.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        # Whoever removes a stage takes it out of its place first.
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except FileNotFoundError:
        pass
    os.close(descriptor)
    return None
