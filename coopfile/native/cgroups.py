"""Limits through control groups: v2 where this process may make groups, else v1.

A group is a directory in every hierarchy that has one of the controllers needed.
The monitor makes the directories while PID 1 of the sandbox builds its tree, and removes
them when the sandbox is gone.

Joining is different in the two versions. Moving a whole process makes the kernel wait
for an RCU grace period, some 5 ms, with cgroup_threadgroup_rwsem held for writing. A
single thread that moves itself (v1 only: ``tasks``) does without:
kernel/cgroup/cgroup.c, cgroup_procs_write_start.
Admin guide: cgroup-v2.rst, cgroup-v1/{memory,pids}.rst.
"""

from __future__ import annotations

import os
import time

from coopfile.native import syscalls
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopfile.native.systemd import Scope
    from coopfile.plan.model import Limits

CONTROLLERS = ("memory", "pids", "cpu")
_PREFIX = "coop-"
_PERIOD = 100_000  # microseconds, the kernel's default for cpu.max and cfs_period_us
_REMOVAL_TRIES = 200


class Hierarchy(Record):
    """A directory in which this process may make groups, and the controllers it governs there."""

    directory: str
    version: int
    controllers: tuple[str, ...]


def mounted(mountinfo: str) -> dict[str, tuple[str, str]]:
    """Return (mount point, root) per v1 controller and for ``unified``: proc_pid_mountinfo(5)."""
    places = {}
    for line in mountinfo.splitlines():
        if " - cgroup" not in line:
            continue
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if kind[0] == "cgroup2":
            places["unified"] = (fields[4], fields[3])
        elif kind[0] == "cgroup":
            for name in kind[2].split(","):
                places[name] = (fields[4], fields[3])
    return places


def read(path: str) -> str:
    """Return what a file of the kernel's says; nothing where there is none."""
    try:
        return os.fsdecode(syscalls.read_file(path))
    except OSError:
        return ""


def _settings(version: int, controller: str, limits: Limits) -> list[tuple[str, str, bool]]:
    """Return (file, text, required) for one controller; what is not required may be absent."""
    if controller == "pids":
        # PID 1 is coop's own.
        return [("pids.max", str(limits.pids + 1), True)]
    if controller == "memory":
        size = str(limits.memory)
        if version == 2:
            # Without memory.oom.group, as in v1: it would end a session for what one command took.
            return [("memory.max", size, True), ("memory.swap.max", "0", False)]
        return [("memory.limit_in_bytes", size, True), ("memory.memsw.limit_in_bytes", size, False)]
    quota = str((limits.cpus or 0) * _PERIOD // 1000)
    if version == 2:
        return [("cpu.max", f"{quota} {_PERIOD}", True)]
    return [("cpu.cfs_period_us", str(_PERIOD), True), ("cpu.cfs_quota_us", quota, True)]


class Group:
    """The control group of one sandbox, in as many hierarchies as its limits need."""

    def __init__(self, made: Sequence[tuple[str, int]] = (), lent: Sequence[tuple[str, int]] = ()) -> None:
        """``made`` and ``lent`` are what ``hand_over`` of another process's has returned."""
        self.controllers: set[str] = set()
        self._scope: Scope | None = None
        self._made = list(made)  # directory and version
        self._lent = list(lent)  # the same, of systemd's
        self._reached: tuple[str, ...] | None = None  # when that has been looked at

    def hand_over(self) -> tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]:
        """Leave the groups to another process; return what it makes its own of."""
        found = tuple(self._made), tuple(self._lent)
        self._made.clear()
        self._lent.clear()
        return found

    def create(
        self, hierarchies: tuple[Hierarchy, ...], limits: Limits, name: str, *, sweeps: bool = True
    ) -> None:
        """Make the directories and set the limits; on an error ``remove`` still works.

        ``name`` is numbers with a hyphen between them. The last is that of the process that sees to the
        groups: when it is gone, they are anybody's to remove, and this does where it ``sweeps``. A
        controller whose limit cannot be set is not in ``controllers`` afterwards.
        """
        for hierarchy in hierarchies:
            if sweeps:
                _sweep(hierarchy.directory)
            directory = _directory(hierarchy, name)
            try:
                os.mkdir(directory)
            except OSError:
                continue
            self._made.append((directory, hierarchy.version))
            self.controllers.update(
                name
                for name in hierarchy.controllers
                if _apply(directory, _settings(hierarchy.version, name, limits))
            )

    def ask_systemd(self, controllers: tuple[str, ...], limits: Limits) -> None:
        """Have systemd make the group instead; it is asked when the process is admitted."""
        from coopfile.native.systemd import Scope

        self._scope = Scope(limits)
        self.controllers.update(controllers)

    def admit(self, pid: int) -> None:
        """Move a process where it cannot move itself."""
        for directory, version in self._made:
            if version == 2:
                syscalls.write_file(f"{directory}/cgroup.procs", str(pid))
        if self._scope is not None:
            group = self._scope.admit(pid)
            mount_point, _ = mounted(read("/proc/self/mountinfo"))["unified"]
            self._lent.append((mount_point + group, 2))

    def exceeded(self) -> tuple[str, ...]:
        """Return the keys of the limits that the sandbox ran into."""
        if self._reached is not None:
            return self._reached
        found = set()
        for directory, version in (*self._made, *self._lent):
            memory = "memory.events" if version == 2 else "memory.oom_control"
            for file, word, key in (
                (memory, "oom_kill", "limits.memory"),
                ("pids.events", "max", "limits.pids"),
            ):
                for line in read(f"{directory}/{file}").splitlines():
                    name, _, count = line.partition(" ")
                    if name == word and count != "0":
                        found.add(key)
        return tuple(sorted(found))

    def look(self) -> None:
        """Keep what the groups tell, for ``exceeded``: one of systemd's goes with its last process."""
        self._reached = self.exceeded()

    def remove(self) -> None:
        """Remove the directories; their last processes may need a moment to be gone."""
        if self._scope is not None:
            self._scope.close()
        for directory, _ in self._made:
            for _attempt in range(_REMOVAL_TRIES):
                try:
                    os.rmdir(directory)
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.005)
                else:
                    break
        self._made.clear()


def _apply(directory: str, settings: list[tuple[str, str, bool]]) -> bool:
    for file, text, required in settings:
        try:
            syscalls.write_file(f"{directory}/{file}", text)
        except OSError:
            if required:
                return False
    return True


def open_own(hierarchies: tuple[Hierarchy, ...]) -> list[int]:
    """Open the v1 directories for ``enter``, which comes when the host's tree is out of sight."""
    flags = syscalls.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    return [os.open(hierarchy.directory, flags) for hierarchy in hierarchies if hierarchy.version == 1]


def enter(directories: list[int], name: str) -> None:
    """Move the calling thread, the only one of its process, into the v1 groups of a name."""
    for directory in directories:
        join(os.open(f"{_PREFIX}{name}/tasks", os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory))
        os.close(directory)


def open_tasks(hierarchies: tuple[Hierarchy, ...], name: str) -> list[int]:
    """Open what another process takes to ``join`` the v1 groups of a name."""
    flags = os.O_WRONLY | os.O_CLOEXEC
    return [
        os.open(f"{_directory(hierarchy, name)}/tasks", flags)
        for hierarchy in hierarchies
        if hierarchy.version == 1
    ]


def join(tasks: int) -> None:
    """Move the calling thread, the only one of its process, into a v1 group; closes its file."""
    os.write(tasks, b"0")
    os.close(tasks)


def _directory(hierarchy: Hierarchy, name: str) -> str:
    return f"{hierarchy.directory}/{_PREFIX}{name}"


def _sweep(directory: str) -> None:
    """Remove the empty groups of sandboxes whose monitor was killed."""
    try:
        names = os.listdir(directory)
    except OSError:
        return
    lives: dict[str, bool] = {}  # one monitor may have many
    for name in names:
        numbers = name[len(_PREFIX) :].split("-")
        if not (name.startswith(_PREFIX) and all(number.isdigit() for number in numbers)):
            continue
        owner = numbers[-1]
        if owner not in lives:
            lives[owner] = os.path.exists(f"/proc/{owner}")
        if not lives[owner]:
            try:
                os.rmdir(f"{directory}/{name}")
            except OSError:
                continue  # still has processes: not ours to judge
