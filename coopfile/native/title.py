"""The name under which a process is listed."""

from __future__ import annotations

import os

from coopfile.native import syscalls

_room: memoryview | None = None  # the same in all that is forked


def take(name: str) -> None:
    """Overwrite this process's command line in /proc with a name, cut to the room that there is."""
    room = look()
    size = len(room)
    room[:] = os.fsencode(name).ljust(size, b"\0")[:size]


def look() -> memoryview:
    """Return the room; what is forked from this process knows it, too. Raises OSError."""
    global _room
    if _room is None:
        fields = syscalls.read_file("/proc/self/stat").rpartition(b") ")[2].split()
        start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end: proc_pid_stat(5)
        _room = syscalls.memory(start, end - start if start else 0)
    return _room
