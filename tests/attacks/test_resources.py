"""Attacks on the machine's resources, and by processes that will not end."""

# ruff: noqa: E501  (attack programs, and tables of what they try)
from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.sandboxes import (
    DEADLINE,
    Project,
    abandoned_cgroups,
    alive,
    cgroup_directories,
    descendants,
    one_second,
    wait_until,
)

pytestmark = pytest.mark.native


def limits(**values: object) -> tuple[str, ...]:
    """Return the options that set limits."""
    return tuple(
        item
        for name, value in values.items()
        for item in ("--set", f"limits.{name}={value!r}".replace("'", '"'))
    )


def enforced(project: Project, key: str, **values: object) -> bool:
    """Tell whether a limit holds here for the sandbox as a whole; if not, coop has to have said so."""
    result = project.run("true", options=limits(**values))
    assert result.status == 0, result
    return f"limits.{key}" not in result.err


BOMB = """
import os, sys, time
made = 0
for _ in range(int(sys.argv[1])):
    try:
        if os.fork() == 0:
            time.sleep(300)
            os._exit(0)
        made += 1
    except OSError:
        break
print(made)
"""


def test_fork_bomb(project: Project) -> None:
    """A command has no more processes than limits.pids, and all of them end with it."""
    if not enforced(project, "pids", pids=40):
        pytest.skip("this machine has nothing that limits processes for this user, and coop says so")
    result = project.python(BOMB, "400", options=limits(pids=40))
    assert result.status == 0, result
    assert 20 <= int(result.out) < 40


def test_exponential_fork_bomb(project: Project) -> None:
    """The classical bomb ends at its time, and the host had at most limits.pids of it."""
    if not enforced(project, "pids", pids=60):
        pytest.skip("this machine has nothing that limits processes for this user, and coop says so")
    script = "b() { b | b & }; i=0; while [ $i -lt 50 ]; do b 2>/dev/null; i=$((i+1)); done; sleep 30"
    process = project.popen("bash", "-c", script, options=[*limits(pids=60), *one_second(project)])
    most = 0
    while process.poll() is None:
        most = max(most, len(descendants(process.pid)))
        time.sleep(0.1)
    assert process.returncode in (124, 137, 254), process.communicate()
    # Looking takes a moment, in which some end and others begin.
    assert 0 < most <= 100


HOG = """
import mmap, os, sys
kind, size, piece, kept = sys.argv[1], int(sys.argv[2]), 1 << 20, []
try:
    for number in range(size // piece):
        if kind == "private":
            kept.append(bytearray(b"x") * piece)
        elif kind == "shared":
            area = mmap.mmap(-1, piece); area.write(b"x" * piece); kept.append(area)
        else:
            place = {"tmpfs": "/tmp", "shm": "/dev/shm"}.get(kind)
            fd = os.memfd_create("x") if place is None else os.open(f"{place}/{number}", os.O_CREAT | os.O_RDWR)
            os.write(fd, b"x" * piece); kept.append(fd)
    print("had all")
except (MemoryError, OSError):
    print("refused")
"""


@pytest.mark.parametrize("kind", ["private", "shared", "memfd", "tmpfs", "shm"])
def test_memory_hog(project: Project, kind: str) -> None:
    """Memory of every kind counts: private, shared, in unnamed files, in the scratch directories."""
    whole = enforced(project, "memory", memory="64m")
    result = project.python(HOG, kind, str(200 << 20), options=limits(memory="64m", tmp="1g"))
    if kind != "private" and not whole:
        pytest.skip(
            "held per process here, for private memory only, and coop says that it is not held as a whole"
        )
    assert result.out != "had all\n", result
    assert result.status in (0, 137)


FILL = """
import errno, os, sys
total = number = 0
for place in sys.argv[1:]:
    try:
        with open(f"{place}/fill", "wb") as file:
            while total < 64 << 20:
                total += os.write(file.fileno(), bytes(1 << 16))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.EDQUOT):
            raise
for place in sys.argv[1:]:
    try:
        os.unlink(f"{place}/fill")
    except OSError:
        pass
    try:
        while number < 50000:
            os.close(os.open(f"{place}/i{number}", os.O_CREAT))
            number += 1
    except OSError:
        pass
print(total, number)
"""


def test_disk_fillers(project: Project) -> None:
    """All writable places but the workspace together take limits.tmp, in bytes and in files."""
    places = [
        "/",
        "/tmp",
        "/var",
        "/var/tmp",
        "/dev",
        "/dev/shm",
        "/dev/pts",
        "/run",
        "/root",
        "/etc",
        "/usr",
        "/home",
        "/proc",
    ]
    result = project.python(FILL, *places, options=limits(tmp="4m"))
    assert result.status == 0, result
    size, files = map(int, result.out.split())
    assert 2 << 20 <= size <= 4 << 20
    assert files <= 2048


STUBBORN = """
import os, signal, sys, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                try:
                    os.write(1, b"x" * 65536)
                except OSError:
                    time.sleep(1)
        os._exit(0)
while True:
    os.write(2, b"x" * 65536)
"""


def test_what_will_not_end(project: Project) -> None:
    """A command that ignores every signal, floods an output that nobody reads, and has daemons, ends in time."""
    before = cgroup_directories()
    process = project.popen("/usr/bin/python3", "-I", "-c", STUBBORN, options=["--timeout", "2s", "-q"])
    assert wait_until(lambda: len(descendants(process.pid)) >= 4, 20)
    below = descendants(process.pid)
    assert wait_until(lambda: not alive(below[1:]), 30)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 124
    assert wait_until(lambda: not abandoned_cgroups(before), 10)


def test_killed_caller(project: Project) -> None:
    """When coop itself is killed, the stubborn command, its daemons and its control groups go too."""
    before = cgroup_directories()
    process = project.popen("/usr/bin/python3", "-I", "-c", STUBBORN)
    assert wait_until(lambda: len(descendants(process.pid)) >= 5, 20)
    below = descendants(process.pid)
    process.kill()
    assert wait_until(lambda: not alive(below), 20)
    assert wait_until(lambda: not abandoned_cgroups(before), 10)
    assert list(project.tree()) == ["Coopfile"]


DAEMON = """
import os, sys, time
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            open("/workspace/daemon", "w").close()
            time.sleep(float(sys.argv[1]))
            open("/workspace/outlived", "w").close()
        os._exit(0)
while not os.path.exists("/workspace/daemon"):
    time.sleep(0.01)
"""


def test_daemons(project: Project) -> None:
    """Daemons end with the command, before coop itself does, and keep no stream open."""
    started = time.monotonic()
    process = project.popen("/usr/bin/python3", "-I", "-c", DAEMON, "2")
    _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, errors
    time.sleep(max(0.0, started + 2.5 - time.monotonic()))
    assert not (project.directory / "outlived").exists()


def test_zombies(project: Project) -> None:
    """Orphans are reaped: no zombie is left, and their number does not count against limits.pids for long."""
    script = """
import os, time
for _ in range(300):
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.waitpid(pid, 0)
def state(number):
    try:
        return open(f"/proc/{number}/stat").read().rpartition(")")[2].split()[0]
    except OSError:
        return ""
for _ in range(200):
    zombies = sum(state(number) == "Z" for number in os.listdir("/proc") if number.isdigit())
    if not zombies:
        break
    time.sleep(0.05)
print(zombies)
"""
    result = project.python(script, options=limits(pids=64))
    assert (result.status, result.out) == (0, "0\n"), result


def test_descriptor_exhaustion(project: Project) -> None:
    """Using up every descriptor ends at the process's limit and leaves the host's table as it was."""
    script = (
        "import os\nn = 0\ntry:\n  while n < 300000: os.dup(0); n += 1\nexcept OSError as e: print(e.errno)"
    )
    assert project.python(script).out == "24\n"
    used = int(Path("/proc/sys/fs/file-nr").read_text().split()[0])
    assert used < int(Path("/proc/sys/fs/file-nr").read_text().split()[2])
    assert project.shell("echo ran").out == "ran\n"


@pytest.mark.parametrize(
    "script",
    [
        "kill -STOP 1; kill -KILL 1; kill -SEGV 1; for s in 34 40 63 64; do kill -$s 1; done; exit 7",
        "i=2; while [ $i -lt 3000 ]; do [ $i = $$ ] || kill -9 $i; i=$((i+1)); done 2>/dev/null; exit 7",
        "prlimit --pid 1 --nofile=0:0 --data=0:0 --stack=0:0; exit 7",
        "renice 19 1; chrt -i -p 0 1; taskset -p 1 1; ionice -c 3 -p 1; exit 7",
    ],
)
def test_attacks_on_pid_1(project: Project, script: str) -> None:
    """PID 1 and the monitor can be neither stopped nor ended nor starved from inside; the status comes through."""
    result = project.shell(script, options=["--timeout", "20s"])
    assert result.status == 7, result


def test_limits_of_pid_1(project: Project) -> None:
    """Whatever limits a command sets on PID 1, coop ends, and nothing is left."""
    before = cgroup_directories()
    script = "import resource\nfor r in range(16):\n  try: resource.prlimit(1, r, (0, 0))\n  except (OSError, ValueError): pass\nfor _ in range(50):\n  import os\n  if os.fork() == 0: os._exit(0)"
    process = project.popen("/usr/bin/python3", "-I", "-c", script, options=["--timeout", "10s"])
    process.communicate(timeout=DEADLINE)
    assert wait_until(lambda: not abandoned_cgroups(before), 10)
    assert list(project.tree()) == ["Coopfile"]


def test_signal_storm(project: Project) -> None:
    """A caller who signals coop without end, and a command that signals PID 1 without end, stop nothing."""
    storm = "import os, time\nend = time.time() + 1.5\nwhile time.time() < end:\n  os.kill(1, 10); os.kill(1, 17); os.kill(1, 28)"
    script = (
        f"import signal\nfor s in (10, 17, 28, 18): signal.signal(s, signal.SIG_IGN)\n{storm}\nprint('done')"
    )
    process = project.popen("/usr/bin/python3", "-I", "-c", script, stdout=subprocess.PIPE)
    time.sleep(0.5)
    for _ in range(200):
        for number in (signal.SIGWINCH, signal.SIGCONT):
            os.kill(process.pid, number)
    output, errors = process.communicate(timeout=DEADLINE)
    assert (process.returncode, output) == (0, b"done\n"), errors
