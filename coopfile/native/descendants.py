"""Finding and ending processes by parentage, in the PID namespace whose /proc is there: proc_pid_stat(5)."""

from __future__ import annotations

import os
import time

from coopfile.native import signals, syscalls
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_PAGE = os.sysconf("SC_PAGE_SIZE")
_STILL = "TtZX"  # states in which a process does nothing
_STANDS = 1.0  # seconds that all may take to stand still: one that waits for a disk does when that answers
_PAUSE = 0.0005  # seconds between two looks whether one does


class Process(Record):
    """A process as it was at one moment; ``session`` is the one of setsid(2)."""

    pid: int
    state: str
    parent: int
    session: int

    @property
    def is_own(self) -> bool:
        """Tell whether it is PID 1 or a supervisor.

        Those are in the session that PID 1 has made. Every command begins with one of its own, and
        nobody can enter another's; before it does, its parent is a supervisor.
        """
        return self.session == 1 and self.parent <= 1


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
    """Stop every process of commands, parents first; return the ones that were not stopped already.

    A parent stands still before its children are stopped: a shell that sees its job stopped takes that
    for Ctrl-Z.
    """
    seen: set[int] = set()
    stopped: list[int] = []
    deadline = time.monotonic() + _STANDS
    while new := [process for process in _table() if not process.is_own and process.pid not in seen]:
        for generation in _generations(new):
            seen.update(process.pid for process in generation)
            running = [process.pid for process in generation if process.state not in _STILL]
            for pid in running:
                signal(pid, signals.SIGSTOP)
            stopped += running
            for pid in running:
                while _state(pid) not in _STILL and time.monotonic() < deadline:
                    time.sleep(_PAUSE)
    return stopped


def go_on(stopped: list[int]) -> None:
    """Have what ``stop_all`` has stopped go on, children first."""
    for pid in reversed(stopped):
        signal(pid, signals.SIGCONT)


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
            fields = _fields(name)
        except OSError:
            continue  # it has just ended
        yield Process(int(name), fields[0].decode(), int(fields[1]), int(fields[3]))


def _fields(number: str) -> list[bytes]:
    """Return what the kernel tells of a process behind its name: proc_pid_stat(5). Raises OSError."""
    return syscalls.read_file(f"/proc/{number}/stat").rpartition(b") ")[2].split()


def _generations(processes: list[Process]) -> list[list[Process]]:
    """Return processes in groups, of which each has the children of those before."""
    by_number = {process.pid: process for process in processes}

    def depth(process: Process) -> int:
        above = by_number.get(process.parent)
        seen: set[int] = set()  # a table is not of one moment: its numbers may lead in a circle
        while above is not None and above.pid not in seen:
            seen.add(above.pid)
            above = by_number.get(above.parent)
        return len(seen)

    found: dict[int, list[Process]] = {}
    for process in processes:
        found.setdefault(depth(process), []).append(process)
    return [found[number] for number in sorted(found)]


def _state(pid: int) -> str:
    """Return the state of a process, X if there is none of this number."""
    try:
        return _fields(str(pid))[0].decode()
    except (OSError, IndexError):
        return "X"


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
