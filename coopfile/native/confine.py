"""What every PID 1 does: gives up for good what commands may not have, and looks after them to the end.

It imports next to nothing: a session's PID 1 stays, and the fewer objects it has about it, the less
memory it writes to.
"""

from __future__ import annotations

import os
from os import read, set_blocking

from coopfile.native import report, signals, syscalls

FAILED = 125
# While a root file system is built. CAP_DAC_OVERRIDE: images have directories that nobody may write,
# root's capabilities aside. CAP_SYS_CHROOT: apk runs the scripts of packages in a chroot. Both count in
# the sandbox's user namespace only, for files that are the caller's own, of which it sees its own.
BUILD_CAPABILITIES = 1 << 1 | 1 << 18
_LOST = "{} was replaced on the host meanwhile, and the sandbox could write it from then on: look at it"


def pass_gate(gate: int) -> None:
    """Wait for the monitor; end if it died, perhaps before the parent-death signal was set.

    It may have died after it had opened the gate, so what is read then counts too.
    """
    if read(gate, 1) == b"":
        os._exit(FAILED)
    set_blocking(gate, False)
    try:
        read(gate, 1)
    except BlockingIOError:
        return
    os._exit(FAILED)


class Lock:
    """What locks a process in: it gives up for good what the command may not have.

    It may be made before a fork. ``program`` is seccomp's.
    """

    def __init__(self, program: bytes, building: bool = False) -> None:
        # 1 also keeps the kernel from feeding the host's dump handler: core(5).
        core = syscalls.limiting(syscalls.RLIMIT_CORE, 1)
        self._dumps = syscalls.Calls([core, ("prctl", None, (syscalls.PR_SET_DUMPABLE, 0))])
        self._capabilities = syscalls.Capabilities(BUILD_CAPABILITIES if building else 0)
        self._privileges = syscalls.Calls([("prctl", None, (syscalls.PR_SET_NO_NEW_PRIVS, 1))])
        self._filter = syscalls.Filter(program)

    def close(self, rules: int | None) -> None:
        """Give it all up. ``rules`` is a descriptor of Landlock's."""
        self._dumps.make()
        self._capabilities.drop()
        self._privileges.make()
        if rules is not None:
            syscalls.restrict_self(rules)
        self._filter.install()


def limit_resources(rlimits: tuple[tuple[int, int], ...], pid: int = 0) -> None:
    """Set limits that no control group enforces, for a process, 0: this one, and its children to come."""
    for resource, value in rlimits:
        syscalls.limit_resource(resource, value, pid)


class Table:
    """The table of PID 1's mounts, as it is before the first command.

    Nobody inside can change it; a mount is gone when the host replaced what it guarded. ``file`` is the
    kernel's, ``before`` what it held.
    """

    def __init__(self, file: int, before: bytes) -> None:
        self.file = file
        self.before = before

    @classmethod
    def taken(cls, path: str) -> Table:
        """Take what is in the table now. Raises OSError."""
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return cls(file, syscalls.read_all(file))

    def close(self) -> None:
        """Let go of it."""
        os.close(self.file)

    def tell_lost(self, report_to: int) -> None:
        """Tell of guards that are gone since then. The command may have taken our means to look (prlimit)."""
        try:
            os.lseek(self.file, 0, os.SEEK_SET)
            after = syscalls.read_all(self.file)
            if after == self.before:
                return
            lost = [_LOST.format(path) for _, path in sorted(_mounts(self.before) - _mounts(after))]
        except (OSError, MemoryError):
            lost = ["coop could not tell whether the host replaced a protected file meanwhile"]
        for text in lost:
            report.send(report_to, report.Message(report.NOTE, text))


def _mounts(text: bytes) -> set[tuple[str, str]]:
    """Return number and place of every mount in a table: proc_pid_mountinfo(5)."""
    fields = [line.split(" ", 5) for line in os.fsdecode(text).splitlines()]
    return {(field[0], field[4]) for field in fields}


def end_all() -> None:
    """End what the command left running, and wait until PID 1 is alone, as the kernel would."""
    try:
        os.kill(-1, signals.SIGKILL)
        while True:
            os.waitpid(-1, 0)
    except (ProcessLookupError, ChildProcessError):
        pass
