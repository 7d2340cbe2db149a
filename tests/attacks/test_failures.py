"""Failing closed: whatever the kernel refuses to coop, the command does not run with less than was said."""

# ruff: noqa: E501  (attack programs, and tables of what they try)
from __future__ import annotations

import platform
import subprocess

import pytest

from tests.sandboxes import Project, abandoned_cgroups, cgroup_directories, mounts, wait_until

pytestmark = pytest.mark.native

X86 = platform.machine() == "x86_64"

# Installs a seccomp filter that answers EPERM (or what is named) to some calls, then becomes coop:
# what an outer container, an older kernel or a security module does. Arguments: "number[:first argument],…" errno.
DENY = """
import ctypes, os, struct, sys
calls, code = sys.argv[1].split(","), int(sys.argv[2])
block = b""
pack = struct.Struct("<HBBI").pack
for call in calls:
    number, _, first = call.partition(":")
    answer = pack(0x06, 0, 0, 0x00050000 | code)
    if first:
        inner = pack(0x20, 0, 0, 16) + pack(0x15, 0, 1, int(first)) + answer + pack(0x20, 0, 0, 0)
        block += pack(0x15, 0, len(inner) // 8, int(number)) + inner
    else:
        block += pack(0x15, 0, 1, int(number)) + answer
program = pack(0x20, 0, 0, 0) + block + pack(0x06, 0, 0, 0x7FFF0000)
class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
holder = Program(len(program) // 8, program)
assert libc.prctl(22, ctypes.c_ulong(2), ctypes.byref(holder)) == 0
os.execv(sys.argv[3], sys.argv[3:])
"""

# Per step: its calls on x86-64 and on the others, with prctl's first argument where it matters.
PRCTL = (157, 167)
STEPS = {
    "new namespaces": ((272,), (97,)),
    "mount": ((165,), (40,)),
    "unmount": ((166,), (39,)),
    "pivot_root": ((155,), (41,)),
    "mount copies": ((428,), (428,)),
    "mount placement": ((429,), (429,)),
    "mount attributes": ((442,), (442,)),
    "safe opening": ((437,), (437,)),
    "landlock rules": ((445,), (445,)),
    "landlock itself": ((446,), (446,)),
    "closing descriptors": ((436,), (436,)),
    "keyring": ((250,), (219,)),
    "capabilities": ((126,), (91,)),
    "host name": ((170,), (161,)),
    "session": ((112,), (157,)),
    **{
        name: tuple((f"{number}:{option}",) for number in PRCTL)
        for name, option in (
            ("death signal", 1),
            ("dumpable", 4),
            ("seccomp", 22),
            ("bounding set", 24),
            ("no_new_privs", 38),
            ("ambient set", 47),
        )
    },
}


def refused(project: Project, step: str, code: int) -> None:
    """Run a command with a step's calls denied and assert that it does not run."""
    calls = ",".join(map(str, STEPS[step][0 if X86 else 1]))
    project.wrap = ("/usr/bin/python3", "-I", "-c", DENY, calls, str(code))
    before, groups = mounts(), cgroup_directories()
    result = project.shell("echo ran; touch ran")
    assert result.status == 125, result
    assert result.out == ""
    assert result.err.count("coop: error: ") == 1, result
    assert "Error:" not in result.err, result  # an exception of Python is no refusal
    assert "Traceback" not in result.err
    assert not (project.directory / "ran").exists()
    assert list(project.tree()) == ["Coopfile"]
    assert mounts() == before
    assert wait_until(lambda: not abandoned_cgroups(groups), 10)


@pytest.mark.parametrize("code", [1, 38])
@pytest.mark.parametrize("step", STEPS)
def test_each_step(project: Project, step: str, code: int) -> None:
    """When the kernel refuses one step of the set-up, coop says so and the command does not start."""
    refused(project, step, code)


def test_without_landlock(project: Project) -> None:
    """A kernel without Landlock is told of as a weakening, and everything else still holds."""
    project.wrap = ("/usr/bin/python3", "-I", "-c", DENY, "444", "38")
    result = project.shell("grep -E '^(CapEff|Seccomp:)' /proc/self/status; cat /etc/shadow; echo x > /usr/x")
    assert "weaker than the plan: landlock" in result.err, result
    assert result.out.split() == ["CapEff:", "0" * 16, "Seccomp:", "2"]


def test_control_group_that_cannot_be_made(project: Project) -> None:
    """Limits that were promised through a control group are not dropped when it cannot be made after all."""
    if "limits.pids" in project.run("true").err or project.actor.uid != 0:
        pytest.skip("no control groups for this user here")
    number = "83" if X86 else "34"
    project.wrap = ("/usr/bin/python3", "-I", "-c", DENY, number, "1")
    project.run("true")
    result = project.shell("echo ran")
    assert (result.status, result.out) == (125, ""), result
    assert "limits." in result.err


def namespace(project: Project) -> tuple[str, ...]:
    """Return what makes the actor the master of a user namespace, without a change of uid."""
    kept = ("--map-current-user", "--keep-caps") if project.actor.uid else ("--map-root-user",)
    return ("--user", *kept)


@pytest.mark.parametrize("setup", ["echo 0 > /proc/sys/user/max_user_namespaces", "echo 0 > /proc/sys/user/max_mnt_namespaces",
                                   "echo 0 > /proc/sys/user/max_pid_namespaces", "echo 0 > /proc/sys/user/max_net_namespaces"])  # fmt: skip
def test_namespaces_switched_off(project: Project, setup: str) -> None:
    """Where namespaces are switched off, coop refuses with the reason, also as root of a namespace."""
    project.wrap = ("unshare", *namespace(project), "sh", "-c", f'{setup} && exec "$@"', "sh")
    result = project.shell("echo ran")
    assert (result.status, result.out) == (125, ""), result
    assert "Traceback" not in result.err
    if "max_user" in setup and project.actor.uid != 0:
        assert "user namespaces are switched off" in result.err


def test_namespace_without_a_mapping(project: Project) -> None:
    """In a user namespace without any mapping nothing can be mapped: refused."""
    project.wrap = ("unshare", "--user")
    result = project.shell("echo ran")
    assert (result.status, result.out) == (125, ""), result
    assert "Traceback" not in result.err


@pytest.mark.parametrize("what", ["read-only", "full", "masked /proc", "no /dev/null"])
def test_odd_hosts(project: Project, what: str) -> None:
    """On a host with odd file systems the command runs as ever or not at all."""
    setup = {
        "read-only": "mount -o remount,bind,ro,nosuid,nodev /run 2>/dev/null || mount -t tmpfs -o ro none /run",
        "full": "mount -t tmpfs -o size=4k none /run",
        "masked /proc": "mount -t tmpfs none /proc/scsi 2>/dev/null || mount -t tmpfs none /proc/sys",
        "no /dev/null": "mount -t tmpfs none /dev",
    }[what]
    user = () if project.actor.uid == 0 else namespace(project)
    project.wrap = ("unshare", *user, "--mount", "sh", "-c", f'{setup} && exec "$@"', "sh")
    result = project.shell("grep CapEff /proc/self/status")
    assert "Traceback" not in result.err, result
    assert what != "read-only" or result.status == 0
    assert (result.status, result.out) in ((0, f"CapEff:\t{'0' * 16}\n"), (125, "")), result


def test_the_filter_of_these_tests() -> None:
    """The filter that denies calls here does deny them: uname cannot tell what its call does not say."""
    argv = ["/usr/bin/python3", "-I", "-c", DENY, "63" if X86 else "160", "1", "/bin/uname"]
    done = subprocess.run(argv, capture_output=True, timeout=60, check=False)
    assert done.returncode != 0
