"""Processes as the kernel lists them: proc(5). Where it does not, there are none."""

from __future__ import annotations

import os


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    found = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += [int(word) for word in file.read().split()]
    except OSError:
        pass
    return found


def descendants(pid: int) -> list[int]:
    """Return all processes below one, parents first."""
    found, pending = [], [pid]
    while pending:
        below = children(pending.pop(0))
        found += below
        pending += below
    return found


def started(pid: int) -> str:
    """Return when a living process started, in ticks since boot: with its pid one of a kind."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if len(fields) < 20 or fields[0] in ("Z", "X") else fields[19]


def is_at_work(pid: int) -> bool:
    """Tell whether a thread of a process runs, or waits for a processor or a disk: proc_pid_stat(5)."""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8", errors="replace") as file:
                if file.read().rpartition(")")[2].split()[0] in ("R", "D"):
                    return True
    except (OSError, IndexError):
        pass
    return False
