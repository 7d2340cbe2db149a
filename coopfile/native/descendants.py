"""Finding and ending processes by parentage, in the PID namespace whose /proc is there: proc_pid_stat(5)."""

from __future__ import annotations

import os

from coopfile.native import signals, syscalls
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Process(Record):
    """A process as it was at one moment; ``session`` is the one of setsid(2), 0 for one made outside."""

    pid: int
    state: str
    parent: int
    session: int

    @property
    def is_own(self) -> bool:
        """Tell whether it is PID 1 or a supervisor.

        Those are in the session that the monitor made outside. Every command begins with one of its
        own, and nobody can enter another's; before it does, its parent is a supervisor.
        """
        return self.session == 0 and self.parent <= 1


def find(ancestor: int) -> list[int]:
    """Return the processes below one. It may be out of date: whoever ends them has to look again."""
    parents = {process.pid: process.parent for process in _table()}
    found: list[int] = []
    below = {ancestor}
    while below:
        below = {pid for pid, parent in parents.items() if parent in below and pid != ancestor}
        found += below
    return found


def kill(ancestor: int) -> None:
    """Kill the processes below one: first all are stopped, so that none starts others meanwhile."""
    stopped: set[int] = set()
    while new := set(find(ancestor)) - stopped:
        for pid in new:
            signal(pid, signals.SIGSTOP)
        stopped |= new
    for pid in stopped:
        signal(pid, signals.SIGKILL)


def stop_all() -> list[int]:
    """Stop every process of commands; return the ones that were not stopped already."""
    seen: set[int] = set()
    stopped: list[int] = []
    while new := [process for process in _table() if not process.is_own and process.pid not in seen]:
        for process in new:
            seen.add(process.pid)
            if process.state not in "TtZX":
                signal(process.pid, signals.SIGSTOP)
                stopped.append(process.pid)
    return stopped


def usage() -> tuple[int, int]:
    """Return how many processes commands have, and their memory in bytes.

    Memory that several share counts in parts, where the kernel tells (smaps_rollup), else whole.
    """
    pids = [process.pid for process in _table() if not process.is_own and process.state not in "ZX"]
    return len(pids), sum(map(_memory, pids))


def signal(pid: int, number: int) -> None:
    """Send a signal; a process that is gone does not matter, nor a number that is none."""
    try:
        os.kill(pid, number)
    except (OSError, OverflowError):
        pass


def _table() -> Iterator[Process]:
    """Yield every process."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fields = syscalls.read_file(f"/proc/{name}/stat").rpartition(b") ")[2].split()
        except OSError:
            continue  # it has just ended
        yield Process(int(name), fields[0].decode(), int(fields[1]), int(fields[3]))


def _memory(pid: int) -> int:
    try:
        for line in syscalls.read_file(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        return int(syscalls.read_file(f"/proc/{pid}/statm").split()[1]) * _PAGE
    except (OSError, ValueError):
        return 0
