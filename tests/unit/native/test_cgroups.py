"""Where control groups can be made, told from the kernel's texts and a directory tree."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coopfile.native import cgroups
from coopfile.native.cgroups import Group, Hierarchy
from coopfile.native.hierarchies import find
from coopfile.plan.model import Limits

LIMITS = Limits(memory=64 << 20, cpus=1500, pids=10, tmp=1 << 20, timeout=1000, output=1000)


class Machine:
    """A made-up machine: directories in place of mounted hierarchies."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mounts = ["22 27 0:21 / /proc rw,relatime - proc proc rw"]

    def mount(self, kind: str, where: str, controllers: str, root: str = "/") -> None:
        """Add a hierarchy; ``kind`` is cgroup or cgroup2."""
        (self.root / where).mkdir(parents=True, exist_ok=True)
        options = f"rw,{controllers}" if controllers else "rw"
        self.mounts.append(f"30 27 0:30 {root} {self.root}/{where} rw shared:4 - {kind} {kind} {options}")

    def group(self, path: str, controllers: str = "", enabled: str = "") -> Path:
        """Add a group of version 2."""
        directory = self.root / path
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cgroup.controllers").write_text(controllers + "\n")
        (directory / "cgroup.subtree_control").write_text(enabled + "\n")
        (directory / "cgroup.procs").touch()
        return directory

    def find(self, own: str) -> tuple[dict[str, tuple[str, int]], dict[str, str]]:
        """Return (directory, version) per controller that can be used, and why not for the others."""
        found, missing = find(own=own, mounts="\n".join(self.mounts) + "\n")
        usable = {
            name: (os.path.relpath(item.directory, self.root), item.version)
            for item in found
            for name in item.controllers
        }
        return usable, {reason.controller: reason.why for reason in missing}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine without control groups."""
    return Machine(tmp_path)


def test_none(machine: Machine) -> None:
    """Without any hierarchy every controller is missing, for that reason."""
    usable, missing = machine.find("")
    assert usable == {}
    assert set(missing) == {"memory", "pids", "cpu"}
    assert all("no cgroup hierarchy" in why for why in missing.values())


def test_version_1(machine: Machine) -> None:
    """In version 1 a group is made below our own in each hierarchy."""
    machine.mount("cgroup", "memory", "memory")
    machine.mount("cgroup", "pids", "pids")
    machine.mount("cgroup", "cpu,cpuacct", "cpu,cpuacct")
    (machine.root / "memory/mine").mkdir()
    usable, missing = machine.find("5:cpu,cpuacct:/\n4:memory:/mine\n3:pids:/\n1:name=systemd:/x\n0::/\n")
    assert usable == {"memory": ("memory/mine", 1), "pids": ("pids", 1), "cpu": ("cpu,cpuacct", 1)}
    assert missing == {}


def test_version_1_together(machine: Machine) -> None:
    """Controllers that share a hierarchy share a group."""
    machine.mount("cgroup", "all", "memory,pids,cpu")
    found, _ = find(own="1:memory,pids,cpu:/\n", mounts="\n".join(machine.mounts))
    assert found == (Hierarchy(f"{machine.root}/all", 1, ("memory", "pids", "cpu")),)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_version_1_not_writable(machine: Machine) -> None:
    """A hierarchy that we may not write is named in the reason."""
    machine.mount("cgroup", "memory", "memory")
    (machine.root / "memory").chmod(0o555)
    usable, missing = machine.find("4:memory:/\n")
    assert usable == {} and "memory (cgroup v1) is not writable" in missing["memory"]


def test_version_1_missing_directory(machine: Machine) -> None:
    """A group of ours that is not in the mounted part, as in containers, cannot be used."""
    machine.mount("cgroup", "memory", "memory", root="/docker/abc")
    (machine.root / "memory/below").mkdir()
    assert machine.find("4:memory:/docker/abc/below\n")[0] == {"memory": ("memory/below", 1)}
    assert machine.find("4:memory:/docker/abc\n")[0] == {"memory": ("memory", 1)}
    for outside in ("/", "/docker/abcdef", "/docker/abc/gone"):
        usable, missing = machine.find(f"4:memory:{outside}\n")
        assert usable == {}, outside
        assert "not writable" in missing["memory"]


SCOPE = "user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope"


def test_version_2_delegated(machine: Machine) -> None:
    """Under systemd with delegation a group is made beside our own, which has processes in it."""
    machine.mount("cgroup2", "cgroup", "")
    parent = machine.group(f"cgroup/{os.path.dirname(SCOPE)}", "cpu memory pids", "cpu memory pids")
    machine.group(f"cgroup/{SCOPE}", "cpu memory pids")
    usable, missing = machine.find(f"0::/{SCOPE}\n")
    place = os.path.relpath(parent, machine.root)
    assert usable == dict.fromkeys(("cpu", "memory", "pids"), (place, 2))
    assert missing == {}


def test_version_2_partly_enabled(machine: Machine) -> None:
    """A controller that our parent does not hand down is missing, and the reason names the file."""
    machine.mount("cgroup2", "cgroup", "")
    machine.group(f"cgroup/{os.path.dirname(SCOPE)}", "cpu memory pids", "memory pids")
    machine.group(f"cgroup/{SCOPE}", "cpu memory pids")
    usable, missing = machine.find(f"0::/{SCOPE}\n")
    assert set(usable) == {"memory", "pids"}
    assert "cgroup.subtree_control does not enable it" in missing["cpu"]


def test_version_2_not_delegated(machine: Machine) -> None:
    """A parent whose processes we may not move (an ordinary login) is not ours to use."""
    machine.mount("cgroup2", "cgroup", "")
    parent = machine.group(f"cgroup/{os.path.dirname(SCOPE)}", "cpu memory pids", "cpu memory pids")
    machine.group(f"cgroup/{SCOPE}", "cpu memory pids")
    (parent / "cgroup.procs").unlink()
    usable, missing = machine.find(f"0::/{SCOPE}\n")
    assert usable == {}
    assert "not delegated" in missing["memory"]


def test_version_2_in_a_container(machine: Machine) -> None:
    """In a cgroup namespace our own group looks like the root."""
    machine.mount("cgroup2", "cgroup", "")
    machine.group("cgroup", "cpu memory pids", "cpu memory pids")
    assert machine.find("0::/\n")[0] == dict.fromkeys(("cpu", "memory", "pids"), ("cgroup", 2))
    machine.group("cgroup", "cpu memory pids", "")
    usable, missing = machine.find("0::/\n")
    assert usable == {} and set(missing) == {"cpu", "memory", "pids"}


def test_version_2_with_mounted_root(machine: Machine) -> None:
    """A mount of a part of the hierarchy is looked at from there."""
    machine.mount("cgroup2", "cgroup", "", root="/a/b")
    machine.group("cgroup", "memory", "memory")
    machine.group("cgroup/c", "memory")
    assert machine.find("0::/a/b/c\n")[0] == {"memory": ("cgroup", 2)}
    assert machine.find("0::/elsewhere\n")[0] == {}


def test_mixed(machine: Machine) -> None:
    """On a machine with both versions each controller is taken where it is."""
    machine.mount("cgroup", "memory", "memory")
    machine.mount("cgroup2", "unified", "")
    machine.group("unified", "pids", "pids")
    machine.group("unified/x", "pids")
    usable, missing = machine.find("4:memory:/\n0::/x\n")
    assert usable == {"memory": ("memory", 1), "pids": ("unified", 2)}
    assert set(missing) == {"cpu"}


def settings(directory: Path) -> dict[str, str]:
    """Return the files of a group and what was written to them."""
    (group,) = directory.glob("coop-*")
    return {path.name: path.read_text() for path in group.iterdir()}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            2,
            {
                "pids.max": "11",  # one more: PID 1 is coop's
                "memory.max": str(64 << 20),
                "memory.swap.max": "0",
                "cpu.max": "150000 100000",
            },
        ),
        (
            1,
            {
                "pids.max": "11",
                "memory.limit_in_bytes": str(64 << 20),
                "memory.memsw.limit_in_bytes": str(64 << 20),
                "cpu.cfs_period_us": "100000",
                "cpu.cfs_quota_us": "150000",
            },
        ),
    ],
)
def test_limits_written(
    tmp_path: Path, version: int, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each limit is written where this version has it, in its units; one process's memory ends no others."""
    make = os.mkdir

    def with_files(path: str) -> None:
        make(path)
        for name in ("tasks", "cgroup.procs", "memory.oom.group", *expected):
            Path(path, name).touch()

    # The kernel fills a new group with files; a plain directory stays empty.
    monkeypatch.setattr(os, "mkdir", with_files)
    monkeypatch.setattr(cgroups, "_REMOVAL_TRIES", 1)
    hierarchies = (Hierarchy(str(tmp_path), version, ("memory", "pids", "cpu")),)
    group = Group()
    group.create(hierarchies, LIMITS, str(os.getpid()))
    assert {name: text for name, text in settings(tmp_path).items() if text} == expected
    assert group.controllers == {"memory", "pids", "cpu"}
    # Version 1 is entered by a thread itself, version 2 by whoever may move it.
    group.admit(os.getpid())
    cgroups.enter(cgroups.open_own(hierarchies), str(os.getpid()))
    joined = settings(tmp_path)
    expected_join = ("", str(os.getpid())) if version == 2 else ("0", "")
    assert (joined["tasks"], joined["cgroup.procs"]) == expected_join
    group.remove()


def test_what_groups_told_stays(tmp_path: Path) -> None:
    """What groups told when they were looked at is known when they have gone, as systemd's do."""
    for name in ("lent", "own"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "memory.events").write_text("max 3\noom 1\noom_kill 1\n")
    lent, own = Group(lent=[(f"{tmp_path}/lent", 2)]), Group(made=[(f"{tmp_path}/own", 2)])
    for group in (lent, own):
        group.look()
    for name in ("lent", "own"):
        (tmp_path / name / "memory.events").unlink()
    assert lent.exceeded() == ("limits.memory",)
    assert own.exceeded() == ("limits.memory",)


def test_only_what_is_wanted(machine: Machine) -> None:
    """A controller that no limit needs is neither used nor missed."""
    machine.mount("cgroup", "cpu", "cpu")
    found, missing = find(own="1:cpu:/\n", mounts="\n".join(machine.mounts), wanted=("pids",))
    assert found == ()
    assert [reason.controller for reason in missing] == ["pids"]


def test_vanished_hierarchy(tmp_path: Path) -> None:
    """A place that cannot be used after all promises nothing and leaves nothing."""
    group = Group()
    group.create((Hierarchy(f"{tmp_path}/gone", 2, ("memory",)),), LIMITS, str(os.getpid()))
    assert group.controllers == set()
    group.remove()


def test_unified_hierarchy(tmp_path: Path) -> None:
    """Joining and leaving a real group of version 2 works, where this process may make one."""
    found, _ = find()
    place = next((item.directory for item in found if item.version == 2), None)
    if place is None:
        # Without controllers the hierarchy serves as well: it is the joining that is shown.
        unified = [
            line.split(" ")[4]
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if " - cgroup2 " in line
        ]
        place = next((path for path in unified if os.access(f"{path}/cgroup.procs", os.W_OK)), None)
    if place is None:
        pytest.skip("this process may make no group in a cgroup v2 hierarchy")
    group = Group()
    group.create((Hierarchy(place, 2, ("pids",)),), LIMITS, str(os.getpid()))
    directory = Path(place, f"coop-{os.getpid()}")
    assert directory.is_dir()
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(send)
        os.read(receive, 1)
        os._exit(0)
    os.close(receive)
    try:
        group.admit(pid)
        assert directory.joinpath("cgroup.procs").read_text().split() == [str(pid)]
    finally:
        os.close(send)
        os.waitpid(pid, 0)
        group.remove()
    assert not directory.exists()
