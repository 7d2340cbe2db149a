"""Many idle sandboxes at once: what starting, keeping and stopping each costs, and how many there can be.

Sessions of coop's and sandboxes of bubblewrap's take turns. All are descendants of this process, which
adopts what loses its parent, so that whatever belongs to them is found without knowing how they are made.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import coopfile
from bench.measure import RunError
from bench.sessions import settings
from bench.subjects import Place, UnavailableError, in_bubblewrap, static_program, variables
from coopfile.errors import CoopError
from coopfile.find import find
from coopfile.native import syscalls
from coopfile.record import Record
from coopfile.session import lifecycle
from coopfile.session.model import Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object

COUNTS = (1, 10, 50, 200)
_THREADS = 4  # that start and stop at once
_SETTLES = 0.3  # seconds until what was started is idle
_ENDS = 30.0  # seconds that what was stopped may take to be gone
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
START_BUDGET = 5.0  # ms
MEMORY_BUDGET = 1.1 * (1 << 20)  # bytes


class Cost(Record):
    """What idle sandboxes hold: bytes of memory, and numbers of the other things.

    ``private`` is what no other process has, ``shared`` their part of the rest: proc_pid_smaps(5).
    None is what this user may not see.
    """

    processes: int
    private: int | None
    shared: int | None
    descriptors: int | None
    groups: int
    namespaces: int | None


class Sample(Record):
    """One measurement: ``start`` and ``stop`` are ms of each of ``count`` sandboxes; ``cost`` is of all."""

    count: int
    start: float
    stop: float
    cost: Cost
    available: int  # bytes that the machine has less, of each


class Sandbox(Protocol):
    """One that was started."""

    def stop(self) -> object:
        """End it and wait until it has."""


class Kind(Record):
    """How sandboxes of one kind are started: ``start`` returns when it can run a command."""

    name: str
    start: Callable[[int], Sandbox]


def kinds(place: Place) -> Iterator[Kind | tuple[str, str]]:
    """Yield what can be measured here, and a name and a reason for what cannot."""
    for name, ready in (("coop", _coop), ("bubblewrap", _bubblewrap)):
        try:
            yield Kind(name, ready(place))
        except UnavailableError as reason:
            yield name, str(reason)


def measure(kind: Kind, count: int) -> Sample:
    """Start so many at once, look at them, and stop them. Raises CoopError."""
    before = _below(os.getpid())
    free = _available()
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(_THREADS) as pool:
        started: list[Sandbox] = []

        def start(number: int) -> None:
            sandbox = kind.start(number)
            started.append(sandbox)
            stack.callback(_quietly, sandbox)

        began = time.perf_counter()
        list(pool.map(start, range(count)))
        start_ms = (time.perf_counter() - began) * 1000 / count
        time.sleep(_SETTLES)
        mine = _below(os.getpid()) - before
        cost = _cost(mine)
        taken = max(free - _available(), 0) // count
        began = time.perf_counter()
        list(pool.map(_stop, started))
        stop_ms = (time.perf_counter() - began) * 1000 / count
        _wait_for(mine)  # coop's monitors of many go a moment after the last of them
    return Sample(count, start_ms, stop_ms, cost, taken)


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Be the parent of all that loses its own below this process, and end what of that is left."""
    before = _children(os.getpid())
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 0)
        for pid in _children(os.getpid()) - before:  # coop's helper, which would wait for more work
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
                os.waitpid(pid, 0)


def table(samples: Sequence[tuple[str, Sample]]) -> list[str]:
    """Return the table's lines, of each sandbox."""
    heads = ("start ms", "stop ms", "private MiB", "PSS MiB", "machine MiB", "processes", "files", "groups")
    lines = [f"  {'':<11}{'at once':>8}" + "".join(f"{head:>12}" for head in heads)]
    for name, sample in samples:
        count, cost = sample.count, sample.cost
        total = None if cost.private is None or cost.shared is None else cost.private + cost.shared
        cells = [f"{sample.start:.1f}", f"{sample.stop:.1f}"]
        cells += [_mebibytes(cost.private, count), _mebibytes(total, count)]
        cells += [f"{sample.available / (1 << 20):.2f}" if count > 1 else "-"]
        cells += [_each(number, count) for number in (cost.processes, cost.descriptors, cost.groups)]
        lines.append(f"  {name:<11}{count:>8}" + "".join(f"{cell:>12}" for cell in cells))
    return lines


def limits(sample: Sample) -> list[str]:
    """Return the lines that say how many sessions this machine can have, and what ends that."""
    count, cost = sample.count, sample.cost
    rows = [
        (what, used, _limit(path))
        for what, used, path in (
            ("processes and threads", cost.processes / count, "/proc/sys/kernel/threads-max"),
            ("process numbers", cost.processes / count, "/proc/sys/kernel/pid_max"),
            ("open files", _part(cost.descriptors, count), "/proc/sys/fs/file-max"),
            *(
                (f"{name} namespaces", _part(cost.namespaces, count), f"/proc/sys/user/max_{name}_namespaces")
                for name in ("user", "mnt", "net")
            ),
            ("keyrings", 1.0, f"/proc/sys/kernel/keys/{'' if os.geteuid() else 'root_'}maxkeys"),
        )
    ]
    import resource

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    rows.append(("files of the program that starts them (ulimit -n)", 1.0, files))
    rows.append(("processes of the user (ulimit -u)", cost.processes / count, _user_processes()))
    rows += [(what, cost.processes / count, most) for what, most in _group_limits()]
    memory = sample.available if sample.available else _part(cost.private, count) or 0.0
    rows.append(("memory", memory, _available()))
    known = [(what, used, most) for what, used, most in rows if most is not None and used]
    lines = [f"  {'a session takes':<52}{'each':>10}{'of':>16}{'so at most':>12}"]
    for what, used, most in sorted(known, key=lambda row: (row[2] or 0) / (row[1] or 1)):
        each = f"{used / (1 << 20):.2f} MiB" if what == "memory" else f"{used:g}"
        of = f"{(most or 0) >> 20} MiB" if what == "memory" else str(most)
        lines.append(f"  {what:<52}{each:>10}{of:>16}{int((most or 0) / (used or 1)):>12}")
    return lines


def promises(samples: Sequence[tuple[str, Sample]]) -> list[tuple[str, float]]:
    """Return each promise about many sessions, and how much of what it allows is used."""
    most = max((sample for name, sample in samples if name == "coop"), key=lambda sample: sample.count)
    found = [(f"{most.count} sessions start in ≤ {START_BUDGET:g} ms each", most.start / START_BUDGET)]
    if most.cost.private is not None:
        each = most.cost.private / most.count
        found.append((f"each has ≤ {MEMORY_BUDGET / (1 << 20):.1f} MiB of its own", each / MEMORY_BUDGET))
    return found


def _coop(place: Place) -> Callable[[int], Sandbox]:
    """Return what starts a session that ends with this process; the helper is started now."""
    given = {**variables(place), "XDG_STATE_HOME": os.path.join(place.fresh, "scale")}
    try:
        with settings(given):
            plan, project = coopfile.compile(place.project), find(place.project, None, os.environ)
            environment = dict(os.environ)

        def start(number: int) -> Sandbox:
            name = f"scale-{number}"
            spec = Spec(name=name, plan=plan, project=project, environment=environment, leased=True)
            return lifecycle.open_session(spec).live

        start(0).stop()
    except CoopError as error:
        raise UnavailableError(error.message[:100]) from None
    return start


class _Bubblewrap:
    def __init__(self, argv: tuple[str, ...]) -> None:
        self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        if self._process.stdout.read(1) != b"\n":
            self.stop()
            raise RunError("bubblewrap did not start its command")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _bubblewrap(place: Place) -> Callable[[int], Sandbox]:
    program = static_program(place, "idle")
    wrap = in_bubblewrap(place)
    argv = (*wrap[:-1], "--ro-bind", program, "/idle", "--", "/idle")

    def start(_: int) -> Sandbox:
        return _Bubblewrap(argv)

    try:
        start(0).stop()
    except (OSError, RunError) as error:
        raise UnavailableError(str(error)) from None
    return start


def _stop(sandbox: Sandbox) -> None:
    sandbox.stop()


def _quietly(sandbox: Sandbox) -> None:
    with contextlib.suppress(CoopError, OSError):
        sandbox.stop()


def _children(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found.update(map(int, _read(f"/proc/{pid}/task/{thread}/children").split()))
    return found


def _below(pid: int) -> set[int]:
    """Return all descendants of a process."""
    found: set[int] = set()
    new = _children(pid)
    while new:
        found |= new
        new = {child for item in new for child in _children(item)} - found
    return found


def _wait_for(pids: set[int]) -> None:
    deadline = time.monotonic() + _ENDS
    while left := pids & _below(os.getpid()):
        for pid in left & _children(os.getpid()):  # what has lost its parent is to be waited for here
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > deadline:
            raise RunError(f"{len(left)} processes have not ended within {_ENDS:.0f} s: {sorted(left)[:5]}")
        time.sleep(0.002)


def _cost(pids: set[int]) -> Cost:
    own = {line.partition(":")[2] for line in _read("/proc/self/cgroup").splitlines()}
    groups = set()
    for pid in pids:
        groups |= {line.partition(":")[2] for line in _read(f"/proc/{pid}/cgroup").splitlines()} - own
    try:
        private = shared = descriptors = 0
        namespaces = set()
        for pid in pids:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                found = dict(line.split()[:2] for line in file.readlines()[1:])
            alone = int(found["Private_Clean:"]) + int(found["Private_Dirty:"])
            private += alone << 10
            shared += max(int(found["Pss:"]) - alone, 0) << 10
            descriptors += len(os.listdir(f"/proc/{pid}/fd"))
            namespaces.add(os.readlink(f"/proc/{pid}/ns/net"))
    except PermissionError:
        return Cost(len(pids), None, None, None, len(groups), None)
    namespaces.discard(os.readlink("/proc/self/ns/net"))
    return Cost(len(pids), private, shared, descriptors, len(groups), len(namespaces))


def _group_limits() -> Iterator[tuple[str, int]]:
    """Yield the limits of processes of the control groups that this process is in."""
    for line in _read("/proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names in ("pids", ""):
            root = "/sys/fs/cgroup/pids" if names else "/sys/fs/cgroup"
            with contextlib.suppress(ValueError):
                yield f"processes of the control group {path}", int(_read(f"{root}{path}/pids.max"))


def _user_processes() -> int | None:
    import resource

    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    return None if os.geteuid() == 0 or most < 0 else most  # the kernel never holds root to it


def _limit(path: str) -> int | None:
    try:
        return int(_read(path))
    except ValueError:
        return None


def _available() -> int:
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _mebibytes(total: int | None, count: int) -> str:
    return "-" if total is None else f"{total / count / (1 << 20):.2f}"


def _part(total: int | None, count: int) -> float | None:
    return None if total is None else total / count


def _each(total: int | None, count: int) -> str:
    return "-" if total is None else f"{total / count:g}"
