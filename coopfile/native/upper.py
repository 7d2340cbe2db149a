"""What takes a session's changes to its root file system, as PID 1 keeps it for who may ask.

PID 1 itself never reads it once commands run. It is not dumpable, so no command gets at its descriptor.
"""

from __future__ import annotations

import os
import stat

from coopfile.record import Record

try:
    # hashlib would load OpenSSL.
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

_HASH = 16  # bytes
_LARGEST = 1 << 21  # bytes of a file that coop writes at the start
_PIECE = 1 << 16
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# A mode with its type, and a digest of what is in a file.
Stamp = tuple[int, bytes]


class Upper(Record):
    """The upper directory of an overlay.

    ``layers`` are the real paths of what is below it, the highest first. ``made`` is what coop put
    there before the first command: places of mounts, account files, the sandbox's names. By path.
    """

    descriptor: int
    layers: tuple[str, ...]
    made: dict[str, Stamp]


def keep(descriptor: int, layers: tuple[str, ...]) -> Upper:
    """Return what takes the changes, as it is before the first command."""
    return Upper(descriptor, layers, look(descriptor))


def look(descriptor: int) -> dict[str, Stamp]:
    """Return what is in a small tree that nobody changes meanwhile, by absolute path."""
    found: dict[str, Stamp] = {}
    pending = [("", os.open(".", _DIRECTORY, dir_fd=descriptor))]
    while pending:
        path, directory = pending.pop()
        try:
            for name in os.listdir(directory):
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                found[f"{path}/{name}"] = stamp(directory, name, status)
                if stat.S_ISDIR(status.st_mode):
                    pending.append((f"{path}/{name}", os.open(name, _DIRECTORY, dir_fd=directory)))
        finally:
            os.close(directory)
    return found


def stamp(directory: int, name: str, status: os.stat_result) -> Stamp:
    """Return what tells one thing from another in its place, however it came there. Raises OSError."""
    if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
        return status.st_mode, b""
    descriptor = os.open(
        name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=directory
    )
    try:
        digest = blake2b(digest_size=_HASH)
        left = _LARGEST  # it may grow meanwhile
        while left > 0 and (piece := os.read(descriptor, _PIECE)):
            digest.update(piece)
            left -= len(piece)
    finally:
        os.close(descriptor)
    return status.st_mode, digest.digest()
