"""The processes that keep sessions in namespaces, many each: what ends with one, and what does not."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from coopfile.session import keep, store
from tests.sandboxes import alive, cgroup_directories, descendants, kill, wait_gone, wait_until
from tests.sessionlab import Refused, Sessions
from tests.sessionseen import children, descriptors

pytestmark = pytest.mark.native

ROUNDS = 12


def group(pid: int) -> str:
    """Return the number of a process's group."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[2]


def test_as_many_as_it_keeps(sessions: Sessions) -> None:
    """A monitor keeps as many sessions as it may, one more has another; there is room where one ends."""
    caller = sessions.caller()
    names = [f"s{number}" for number in range(keep.SESSIONS + 1)]
    for name in names:
        caller.open(name)
    monitors = [sessions.monitor(name) for name in names]
    assert len(set(monitors[:-1])) == 1
    assert monitors[-1] != monitors[0]
    (helper,) = sessions.helpers()
    assert set(children(helper)) == set(monitors)
    caller.stop(names[3])
    caller.open("again")
    assert sessions.monitor("again") == monitors[0]
    for name in (names[0], names[-1], "again"):
        assert caller.run("true", name=name).status == 0
        caller.stop(name)


def test_few_descriptors(sessions: Sessions) -> None:
    """A monitor with few descriptors keeps fewer sessions, and their commands have the limit as it was."""
    caller = sessions.caller(wrap=("/bin/sh", "-c", 'ulimit -S -n 60; ulimit -H -n 100; exec "$@"', "sh"))
    names = [f"s{number}" for number in range(6)]
    for name in names:
        caller.open(name)
    assert len({sessions.monitor(name) for name in names}) == len(names)
    for name in names:
        assert caller.shell("ulimit -S -n; ulimit -H -n", name=name).out == "60\n100\n"
        caller.stop(name)
    assert sessions.left() == []


def test_monitor_killed(sessions: Sessions) -> None:
    """With a monitor that is killed all of its sessions end, and no others; each of them starts again."""
    caller = sessions.opened("one")
    caller.open("two")
    other = sessions.caller(wrap=("/bin/sh", "-c", 'ulimit -n 500; exec "$@"', "sh"))
    other.open("other")
    assert sessions.monitor("one") == sessions.monitor("two") != sessions.monitor("other")
    number = caller.begin("sleep", "100", name="two")
    processes = sessions.processes("one") + sessions.processes("two")
    kill(sessions.monitor("one"))
    with pytest.raises(Refused, match="the session two ended before"):
        caller.wait(number)
    assert wait_gone(processes)
    assert other.run("true", name="other").status == 0
    for name in ("one", "two"):
        caller.open(name)
        assert caller.run("true", name=name).status == 0
        caller.stop(name)
    other.stop("other")
    assert sessions.left() == []


def test_monitor_told_to_end(sessions: Sessions) -> None:
    """A monitor that is told to end ends its sessions in order, and itself; the next ones have another."""
    sessions.project.mkdir(".git")
    sessions.watch_workspace()
    caller = sessions.opened("one")
    caller.open("two")
    monitor = sessions.monitor("one")
    os.kill(monitor, signal.SIGTERM)
    assert wait_gone([monitor])
    assert sessions.left() == []
    caller.open("one")
    assert sessions.monitor("one") != monitor
    caller.stop("one")


# A monitor whose second maker hands over what is none.
FAILING = """
import os, signal, sys, time
from coopfile.native import wire
from coopfile.session import keep, store, undoing

place = sys.argv[1]

def make(connection, channel, gate, mask, monitor):
    if os.path.exists(place + "/socket"):
        wire.send(channel, ("nonsense",))
        os._exit(1)
    if (first := os.fork()) == 0:
        signal.pause()
    lock, notes = store.keep_alive(place), store.new_notes(place)
    open(place + "/socket", "w").close()
    announced = os.open(place + "/running", os.O_CREAT | os.O_WRONLY)
    kept = undoing.Kept(((), ()), (), 0, place + "/running", 0, 0).packed()
    wire.send(channel, (first, place, kept), (os.pidfd_open(first), lock, notes, announced))
    wire.receive(channel)
    print(first, flush=True)
    open(place + "/begun", "w").close()
    os._exit(0)

mine, control = keep._socket.socketpair()
if (pid := os.fork()) == 0:
    mine.close()
    keep.main(control, make)
control.close()
asking = keep._socket.socketpair()
wire.send(mine, (), (asking[0].fileno(),))
while not os.path.exists(place + "/begun"):
    time.sleep(0.01)
wire.send(mine, (), (asking[0].fileno(),))
_, status = os.waitpid(pid, 0)
print(os.waitstatus_to_exitcode(status))
"""


def test_monitor_that_fails(tmp_path: Path) -> None:
    """A monitor with a fault ends its sessions and undoes them, and each has a note of why."""
    done = subprocess.run(
        [sys.executable, "-c", FAILING, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    first, status = map(int, done.stdout.split())
    assert status == 1
    assert wait_gone([first])
    assert not (tmp_path / "running").exists()
    assert not store.is_alive(str(tmp_path))
    assert "TypeError" in (tmp_path / "notes").read_text()


def test_monitor_ends_with_its_last_session(sessions: Sessions) -> None:
    """Once the helper is gone a monitor stays as long as one of its sessions does, and no longer."""
    caller = sessions.opened("one")
    caller.open("two")
    monitor = sessions.monitor("one")
    kill(*sessions.helpers())
    caller.stop("one")
    assert caller.run("true", name="two").status == 0
    assert alive([monitor]) == [monitor]
    caller.stop("two")
    assert wait_gone([monitor])
    assert sessions.left() == []


def test_monitor_without_sessions(sessions: Sessions) -> None:
    """A monitor ends when it has had no session for a while; the next one has another, of the same helper."""
    caller = sessions.opened("one")
    monitor = sessions.monitor("one")
    caller.stop("one")
    (helper,) = sessions.helpers()
    assert wait_gone([monitor])
    assert sessions.helpers() == [helper]
    caller.open("two")
    assert sessions.monitor("two") != monitor
    caller.stop("two")
    assert sessions.left() == []


def test_asked_for_while_a_monitor_ends(sessions: Sessions) -> None:
    """A session that is asked for at the moment when its monitor ends for want of any is started."""
    caller = sessions.caller()
    for number in range(5):
        caller.open("one")
        caller.stop("one")
        time.sleep(1.97 + 0.015 * number)
    caller.open("one")
    assert caller.run("true", name="one").status == 0
    caller.stop("one")


def test_end_that_takes_its_time(sessions: Sessions) -> None:
    """While one session's end takes its time others start, serve and stop."""
    before = cgroup_directories()
    caller = sessions.opened("slow")
    caller.open("other")
    first = sessions.first("slow")
    mine = [path for path in cgroup_directories() - before if f"coop-{first}-" in path]
    if os.geteuid() != 0 or not mine:
        pytest.skip("that an end waits takes a control group that somebody else is in")
    sleeping = os.posix_spawn("/bin/sleep", ["sleep", "100"], {})
    monitor = sessions.monitor("slow")
    try:
        Path(mine[0], "cgroup.procs").write_text(str(sleeping))
        kill(first)
        assert wait_until(lambda: first not in children(monitor))
        began = time.monotonic()
        caller.open("new")
        assert caller.run("true", name="other").status == 0
        caller.stop("other")
        caller.stop("new")
        assert time.monotonic() - began < 60
        assert (sessions.directory("slow") / "alive").exists()
    finally:
        os.kill(sleeping, signal.SIGKILL)
        os.waitpid(sleeping, 0)
    caller.open("slow")
    caller.stop("slow")


def test_groups_are_apart(sessions: Sessions) -> None:
    """No two sessions are in one process group, so that kill(2) of a group reaches no other session."""
    caller = sessions.opened("one")
    caller.open("two")
    firsts = [sessions.first("one"), sessions.first("two")]
    assert sessions.monitor("one") == sessions.monitor("two")
    assert len({group(pid) for pid in (*firsts, sessions.monitor("one"), os.getpid())}) == 4


def test_nothing_of_the_others(sessions: Sessions) -> None:
    """PID 1 has no descriptor of another session's, and the monitor none of one that has ended."""
    if os.geteuid() != 0:
        pytest.skip("looking at another process's descriptors needs root")
    caller = sessions.opened("one")
    monitor = sessions.monitor("one")
    before = descriptors(monitor)
    for number in range(3):
        caller.open(f"s{number}")
        first = sessions.first(f"s{number}")
        targets = [os.readlink(f"/proc/{first}/fd/{name}") for name in os.listdir(f"/proc/{first}/fd")]
        assert not [path for path in targets if "/sessions/" in path and not path.endswith("/notes")]
        notes = [path for path in targets if path.endswith("/notes")]
        assert {str(Path(path).parent) for path in notes} == {str(sessions.directory(f"s{number}"))}
    for number in range(3):
        caller.stop(f"s{number}")
    assert wait_until(lambda: descriptors(monitor) == before)


def test_number_is_taken_back(sessions: Sessions) -> None:
    """When PID 1 has been waited for, its number stands nowhere: it may be another process's."""
    caller = sessions.opened("one")
    first = sessions.first("one")
    told = sessions.directory("one") / "alive"
    assert told.read_text().split()[0] == str(first)
    kill(first)
    assert wait_until(lambda: not Path(f"/proc/{first}").exists()), "it is no zombie either"
    assert told.read_text() == ""
    caller.open("one")
    caller.stop("one")


@pytest.mark.parametrize("which", ["making", "monitor", "helper", "any"])
def test_killed_at_any_moment(sessions: Sessions, which: str) -> None:
    """Whatever of them is killed while sessions start, each starts or is refused, and nothing is left."""
    sessions.project.mkdir(".git")
    sessions.watch_workspace()
    chance = random.Random(which)
    caller = sessions.opened("first")
    victims: list[int] = []
    done = threading.Event()

    def strike() -> None:
        while not done.is_set():
            time.sleep(0.08 * chance.random())
            helpers = sessions.helpers()
            monitors = [pid for helper in helpers for pid in children(helper)]  # or one that is about to be
            making = [pid for monitor in monitors for pid in descendants(monitor)]
            choice = {"making": making, "monitor": monitors, "helper": helpers}
            there = choice.get(which) or [*making, *monitors, *helpers]
            if there:
                victims.append(chance.choice(there))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victims[-1], signal.SIGKILL)

    striking = threading.Thread(target=strike)
    striking.start()
    try:
        for number in range(ROUNDS):
            with contextlib.suppress(Refused):
                caller.open(f"s{number}")
    finally:
        done.set()
        striking.join()
    assert victims
    other = sessions.caller()
    for name in ("first", *(f"s{number}" for number in range(ROUNDS))):
        other.open(name)
        assert other.run("true", name=name).status == 0
    for name in ("first", *(f"s{number}" for number in range(ROUNDS))):
        other.stop(name)
    assert sessions.left() == []
