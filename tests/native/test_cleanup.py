"""Whatever is killed at whatever moment, nothing is left on the host."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandboxes import (
    DEADLINE,
    Project,
    abandoned_cgroups,
    alive,
    cgroup_directories,
    descendants,
    mounts,
    wait_gone,
    wait_until,
)

pytestmark = pytest.mark.native

ROUNDS = 20
# Most moments are in the tens of milliseconds that a start takes, the others while the command runs.
LONGEST = 0.25
MARKER = "SANDBOX_TEST_MARKER"


class Before:
    """What the host was like, to compare."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.tree = project.tree()
        self.mounts = mounts()
        self.cgroups = cgroup_directories()
        self.temporary = set(os.listdir("/tmp")) | set(os.listdir("/dev/shm")) | set(os.listdir("/run"))

    def differences(self) -> list[object]:
        """Return what is different now; waits a moment for it to be nothing."""
        deadline = time.monotonic() + 15
        while (found := self._now()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return found

    def _now(self) -> list[object]:
        found: list[object] = []
        if processes := marked():
            found.append(("processes", processes))
        if self.project.tree() != self.tree:
            found.append(("workspace", sorted(set(self.project.tree()) ^ set(self.tree))))
        if mounts() != self.mounts:
            found.append(("mounts", sorted(set(mounts().split("\n")) ^ set(self.mounts.split("\n")))))
        if groups := abandoned_cgroups(self.cgroups):
            found.append(("cgroups", groups))
        new = set(os.listdir("/tmp")) | set(os.listdir("/dev/shm")) | set(os.listdir("/run"))
        ours = [name for name in new - self.temporary if "coop" in name.lower() and "coop-tests" not in name]
        if ours:
            found.append(("temporary files", ours))
        return found


def marked() -> list[int]:
    """Return the processes, of coop or of a sandbox, that carry this test run's mark."""
    mark = f"{MARKER}={os.getpid()}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                environment = Path("/proc", name, "environ").read_bytes()
                state = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if mark in environment.split(b"\0") and state != "Z":
                found.append(int(name))
    return found


@pytest.fixture
def before(project: Project) -> Iterator[Before]:
    """Yield the host as it is before; whatever happens, the test's processes end with it."""
    project.coopfile(f'[env]\n{MARKER} = {{ host = "{MARKER}" }}\n')
    project.environment[MARKER] = str(os.getpid())
    project.mkdir(".git")
    time.sleep(0.06)  # a Coopfile as new as this would not be cached
    result = project.shell(f"echo ${MARKER}")  # from now on the plan is cached, as it mostly is
    assert result.out == f"{os.getpid()}\n", result
    yield Before(project)
    project.close()
    kill(marked())


def start(project: Project) -> subprocess.Popen[bytes]:
    """Start a sandbox with a family of processes that do not end by themselves."""
    script = "trap '' TERM; (setsid sleep 1000 &); sleep 1000 & sleep 1000"
    return project.popen("sh", "-c", script, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def moments(seed: int) -> Iterator[float]:
    """Yield the seconds after the start at which something is killed, spread over the whole of it."""
    chance = random.Random(seed)
    for number in range(ROUNDS):
        yield LONGEST * ((number + chance.random()) / ROUNDS) ** 2


def kill(pids: list[int]) -> None:
    """Send SIGKILL to processes that may be gone."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def test_normal_end(project: Project, before: Before) -> None:
    """After runs that ended by themselves, nothing is left."""
    for script in (
        "true",
        "exit 3",
        "sleep 1000 & kill -9 $$",
        "setsid sleep 1000 & exit 0",
        "no-such-command",
    ):
        project.shell(script)
    project.shell("trap '' TERM; sleep 1", options=["--timeout", "100ms"])
    assert not before.differences()


def test_coop_killed(project: Project, before: Before) -> None:
    """A kill -9 of coop at any moment ends the sandbox and leaves nothing."""
    for delay in moments(1):
        process = start(project)
        time.sleep(delay)
        process.kill()
        process.wait(DEADLINE)
        assert not before.differences(), delay


def test_pid_1_killed(project: Project, before: Before) -> None:
    """A kill -9 of the sandbox's PID 1 ends the run; coop and its monitor clean up and return."""
    for delay in moments(2):
        process = start(project)
        time.sleep(delay)
        family = descendants(process.pid)
        if len(family) < 2:
            process.kill()
        else:
            kill(family[1:2])
        assert process.wait(DEADLINE) in (137, -9, 125)
        assert not before.differences(), delay


def test_monitor_killed(project: Project, before: Before) -> None:
    """A kill -9 of the monitor ends the sandbox; what it could not remove the next run removes."""
    for delay in moments(3):
        process = start(project)
        time.sleep(delay)
        family = descendants(process.pid)
        kill(family[:1])
        if not family:
            process.kill()
        assert process.wait(DEADLINE) in (125, -9), delay
        assert wait_gone(family), (delay, alive(family))
    project.run("true")
    assert not before.differences()


def test_all_killed(project: Project, before: Before) -> None:
    """After a kill -9 of coop, its monitor and PID 1 together, the next run removes what was left."""
    for delay in moments(4):
        process = start(project)
        time.sleep(delay)
        family = descendants(process.pid)
        # Stopped first, so that none has time to tidy up after another.
        for pid in (*family[:2], process.pid):
            try:
                os.kill(pid, signal.SIGSTOP)
            except ProcessLookupError:
                continue
        kill([*family[:2], process.pid])
        process.wait(DEADLINE)
        assert wait_gone(family), (delay, alive(family))
    project.run("true")
    assert not before.differences()


def test_terminated(project: Project, before: Before) -> None:
    """After SIGTERM at any moment, and SIGKILL some time later as service managers do it, nothing is left."""
    for delay in moments(5):
        process = start(project)
        time.sleep(delay)
        process.terminate()
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait(DEADLINE)
        assert not before.differences(), delay


def test_failures(project: Project, before: Before) -> None:
    """Launches that fail half-way leave nothing either."""
    project.write("outside", "x")
    fifo = project.home / "fifo"
    os.mkfifo(fifo)
    for text in (
        f'[files]\nread = ["{fifo}"]\n',
        f'workspace.path = "{project.home}"\n[files]\nread = ["{project.home}/fifo"]\n',
        'sandbox.min_isolation = "vm"\n',
    ):
        project.coopfile(text)
        before.tree = project.tree()
        assert project.run("true").status == 125
        assert not before.differences()


def test_stopped_monitor_is_not_fooled(project: Project, before: Before) -> None:
    """A caller killed while the monitor is stopped is noticed when the monitor goes on."""
    process = start(project)
    family = wait_until(lambda: len(descendants(process.pid)) >= 4 and descendants(process.pid))
    os.kill(family[0], signal.SIGSTOP)
    process.kill()
    process.wait(DEADLINE)
    time.sleep(0.05)
    os.kill(family[0], signal.SIGCONT)
    assert wait_gone(family)
    assert not before.differences()
