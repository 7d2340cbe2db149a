"""limits.memory, pids, cpus and tmp, by control groups where there are some and without them."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from coopfile.native import hierarchies, systemd
from tests.sandboxes import DEADLINE, Project, abandoned_cgroups, cgroup_directories, wait_until

pytestmark = pytest.mark.native

GROUPS = ("cgroup", "systemd")  # how what begins that holds for a sandbox as a whole
ALLOCATE = """
import sys
held = []
try:
    for _ in range(int(sys.argv[1])):
        held.append(bytearray(b"x" * (1 << 20)))
except MemoryError:
    held.clear()  # an interpreter may need some to say so
    raise
print("allocated", flush=True)
"""
SPREAD = """
import os, sys, time
made = 0
try:
    for made in range(int(sys.argv[1])):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    print("all", flush=True)
except BlockingIOError:
    print(made, flush=True)
"""
BURN = """
import os, time
children = []
for _ in range(2):
    if os.fork() == 0:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            pass
        os._exit(0)
for _ in range(2):
    os.wait()
times = os.times()
print(times.children_user + times.children_system)
"""


def without_cgroups(project: Project) -> None:
    """Let coop see no control groups, and no systemd that makes some: where something lies over them."""
    if os.geteuid() != 0:
        pytest.skip("covering /sys/fs/cgroup needs root")
    uid, gid = project.actor.uid, project.actor.gid
    become = f"setpriv --reuid={uid} --regid={gid} --clear-groups" if uid else ""
    places = [path for path in ("/sys/fs/cgroup", "/run/systemd", "/run/user") if os.path.isdir(path)]
    covers = " && ".join(f"mount -t tmpfs none {path}" for path in places)
    script = f'{covers} && exec {become} "$@"'
    project.unshared = ("unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh")


def enforced(project: Project) -> dict[str, str]:
    """Return what enforces each limit, as ``coop status`` says."""
    native = json.loads(project.coop("status", "--json").out)["backends"][0]
    assert isinstance(native["limits"], dict)
    return native["limits"]


@pytest.fixture(params=["found", "none", "delegated"])
def limited(request: pytest.FixtureRequest, project: Project) -> Project:
    """Return a project with the control groups as found, without any, or with some of the actor's own."""
    if request.param == "none":
        without_cgroups(project)
    elif request.param == "delegated":
        if project.actor.uid == 0:
            pytest.skip("root's control groups are delegated as they are found")
        request.getfixturevalue("delegated")
    return project


@pytest.fixture
def delegated(project: Project) -> Iterator[None]:
    """Give the actor control groups of their own, in every hierarchy of version 1 that coop uses."""
    if os.geteuid() != 0:
        pytest.skip("delegating control groups needs root")
    found, _ = hierarchies.find()
    places = [item.directory for item in found if item.version == 1]
    if not places:
        pytest.skip("this machine has no cgroup v1 hierarchy to delegate")
    made = []
    for place in places:
        directory = f"{place}/coop-tests-{os.getpid()}"
        os.makedirs(directory, exist_ok=True)
        for name in (".", "tasks", "cgroup.procs"):
            os.chown(f"{directory}/{name}", project.actor.uid, project.actor.gid)
        made.append(directory)
    join = "; ".join(f"echo $$ > {directory}/cgroup.procs" for directory in made)
    become = f"setpriv --reuid={project.actor.uid} --regid={project.actor.gid} --clear-groups"
    project.unshared = ("sh", "-c", f'{join}; exec {become} "$@"', "sh")
    yield
    project.close()
    for directory in made:
        # `coop status` asks podman, which leaves a process that holds its user namespace.
        for number in Path(directory, "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(number), signal.SIGKILL)
        assert not [name for name in os.listdir(directory) if os.path.isdir(f"{directory}/{name}")]
        assert wait_until(functools.partial(_remove, directory), 10)


def _remove(directory: str) -> bool:
    try:
        os.rmdir(directory)
    except OSError:
        return False
    return True


def test_memory(limited: Project) -> None:
    """A command that takes more memory than it may dies or is told so; one that does not is fine."""
    limited.coopfile('limits.memory = "64m"\n')
    how = enforced(limited)["limits.memory"]
    assert limited.python(ALLOCATE, "20").out == "allocated\n"
    result = limited.python(ALLOCATE, "200")
    assert result.out == ""
    if how.startswith(GROUPS):
        assert result.status == 137
        assert "limits.memory is 67108864 bytes" in result.err
    else:
        assert how == "rlimit" and result.status == 1 and "MemoryError" in result.err
        assert "limits.memory: held for each process's private memory" in result.err


def test_memory_of_many(limited: Project) -> None:
    """Control groups hold the sandbox's processes together to the limit."""
    limited.coopfile('limits.memory = "64m"\n')
    if not enforced(limited)["limits.memory"].startswith(GROUPS):
        assert "private memory, not for the sandbox as a whole" in limited.run("true").err
        return
    script = """
import os, time
for number in range(4):
    if os.fork() == 0:
        break
held = b"x" * (30 << 20)
time.sleep(1)
os._exit(0)
"""
    result = limited.python(script)
    assert "limits.memory" in result.err


def test_memory_of_one(limited: Project) -> None:
    """What one process takes ends no other one, and is told at the end all the same."""
    limited.coopfile('limits.memory = "64m"\n')
    held = enforced(limited)["limits.memory"].startswith(GROUPS)
    limited.write("allocate.py", ALLOCATE)
    result = limited.shell("python3 allocate.py 200; echo after $?")
    assert result.out == f"after {137 if held else 1}\n", result
    assert ("limits.memory is 67108864 bytes" in result.err) is held


def test_tmp_counts_as_memory(limited: Project) -> None:
    """Temporary files cannot be used to go round the memory limit of a control group."""
    limited.coopfile('[limits]\nmemory = "64m"\ntmp = "512m"\n')
    if not enforced(limited)["limits.memory"].startswith(GROUPS):
        assert limited.shell("head -c 200m /dev/zero > /tmp/x").status == 0  # bounded by limits.tmp alone
        return
    result = limited.shell("head -c 200m /dev/zero > /tmp/x; echo written")
    assert "written" not in result.out or "limits.memory" in result.err


def test_pids(limited: Project) -> None:
    """Processes beyond the limit cannot be started, and the machine does not notice."""
    limited.coopfile("limits.pids = 20\n")
    how = enforced(limited)["limits.pids"]
    result = limited.python(SPREAD, "100")
    if how == "nothing":
        assert limited.actor.uid == 0
        assert "limits.pids: not enforced for root" in result.err
        assert result.out == "all\n"
    else:
        # The command itself is one of them.
        assert result.out.strip() in ("18", "19", "20"), result
    if how.startswith(GROUPS):
        assert "limits.pids is 20" in result.err


def test_fork_bomb(limited: Project) -> None:
    """A fork bomb is bounded, ended by its time, and all of it is gone afterwards."""
    limited.coopfile("limits.pids = 30\n")
    if enforced(limited)["limits.pids"] == "nothing":
        pytest.skip("nothing bounds root's processes without control groups, as coop says")
    result = limited.run(
        "sh", "-c", "bomb() { bomb | bomb & }; bomb; sleep 1000", options=["--timeout", "1s"]
    )
    assert result.status in (2, 124), result  # 2: the shell itself gave up


def test_threads_count(limited: Project) -> None:
    """Threads count as processes do."""
    limited.coopfile("limits.pids = 20\n")
    if enforced(limited)["limits.pids"] == "nothing":
        pytest.skip("nothing bounds root's threads without control groups, as coop says")
    script = """
import threading, time
try:
    for n in range(100):
        threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
except RuntimeError:
    print(n < 21)
"""
    assert limited.python(script).out == "True\n"


def test_cpus(limited: Project) -> None:
    """Half a processor's worth of time is what two busy processes get of limits.cpus = 0.5."""
    limited.coopfile("limits.cpus = 0.5\n")
    how = enforced(limited)["limits.cpus"]
    result = limited.python(BURN)
    if how == "nothing":
        assert "limits.cpus: not enforced" in result.err
        return
    assert float(result.out) < 1.5 * 0.5 * 1.5, result


def test_cpus_beside_groups_of_systemds(project: Project) -> None:
    """The limit stays when systemd takes the controller of processors away from the groups beside it."""
    if project.actor.uid != 0 or not (hierarchies.unified_only() and systemd.available()):
        pytest.skip("needs root, systemd, and cgroup v2 alone")
    project.coopfile("limits.cpus = 0.5\n")
    unit = f"tests-{os.getpid()}.service"
    quota = [
        "systemd-run",
        "--quiet",
        "--collect",
        f"--unit={unit}",
        "--property=CPUQuota=50%",
        "sleep",
        "1000",
    ]
    subprocess.run(quota, check=True, timeout=DEADLINE)
    try:
        before = cgroup_directories()
        project.popen("sleep", "1000")
        files = wait_until(lambda: [Path(path, "cpu.max") for path in cgroup_directories() - before])
        assert wait_until(lambda: files[0].read_text() == "50000 100000\n")
    finally:
        subprocess.run(["systemctl", "stop", unit], check=True, timeout=DEADLINE)
    assert not wait_until(lambda: not files[0].exists(), 2)
    assert files[0].read_text() == "50000 100000\n"


def test_no_cpus_limit(limited: Project) -> None:
    """Without limits.cpus nothing is said about it."""
    assert "limits.cpus" not in limited.run("true", options=["-v"]).err


def test_status_agrees(limited: Project) -> None:
    """What is weaker than the plan is said on every run, unless asked not to."""
    limited.coopfile("limits.cpus = 1\n")
    weaker = {
        key
        for key, how in enforced(limited).items()
        if how in ("nothing",) or (how, key) == ("rlimit", "limits.memory")
    }
    err = limited.run("true").err
    assert {key for key in ("limits.memory", "limits.pids", "limits.cpus") if f"{key}: " in err} == weaker
    assert limited.run("true", options=["-q"]).err == ""


def test_nothing_left(limited: Project) -> None:
    """No control group outlives its sandbox."""
    before = cgroup_directories()
    limited.run("true")
    limited.shell("sleep 1000 & kill -9 $$")
    assert wait_until(lambda: not abandoned_cgroups(before), 10), abandoned_cgroups(before)


def test_limits_cannot_be_raised(limited: Project) -> None:
    """The command finds no control group to leave or to change, and cannot raise a resource limit."""
    limited.coopfile('limits.memory = "64m"\n')
    script = """
import os, resource
for kind in range(16):
    soft, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        try:
            resource.setrlimit(kind, (soft, hard + 1))
        except (ValueError, OSError):
            pass
        if resource.getrlimit(kind)[1] != hard:
            print("raised", kind)
print(os.path.exists("/sys/fs/cgroup"))
"""
    assert limited.python(script).out == "False\n"


def test_sweeping(project: Project) -> None:
    """An empty control group of a monitor that was killed is removed by the next run."""
    found, _ = hierarchies.find()
    if project.actor.uid != 0 or not found:
        pytest.skip("needs a hierarchy that the actor can make groups in")
    place = next(item.directory for item in found if "pids" in item.controllers)
    dead = f"{place}/coop-{4194304 + os.getpid()}"  # above the largest pid
    mine = f"{place}/coop-{os.getpid()}"
    os.mkdir(dead)
    os.mkdir(mine)
    try:
        assert project.run("true").status == 0
        assert not os.path.exists(dead)
        assert os.path.exists(mine)
    finally:
        for path in (dead, mine):
            if os.path.exists(path):
                os.rmdir(path)
