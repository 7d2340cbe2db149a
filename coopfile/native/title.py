"""The name under which a process is listed."""

from __future__ import annotations

import os

from coopfile.native import syscalls


def take(name: str) -> None:
    """Overwrite this process's command line in /proc with a name, cut to the room that there is."""
    fields = syscalls.read_file("/proc/self/stat").rpartition(b") ")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end: proc_pid_stat(5)
    if start:
        syscalls.overwrite(start, os.fsencode(name).ljust(end - start, b"\0")[: end - start])
