"""Attacks through privileges: capabilities, set-id files, PID 1, /proc, descriptors, keys."""

# ruff: noqa: E501  (attack programs, and tables of what they try)
from __future__ import annotations

import os
import resource
import shutil
import stat
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes import DEADLINE, Project

pytestmark = pytest.mark.native

NONE = "0" * 16


def test_no_capabilities(project: Project) -> None:
    """All five sets are empty for PID 1 and for the command, and nothing can be gained by exec."""
    for pid in ("1", "self"):
        lines = project.output(f"grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/{pid}/status").split("\n")
        found = dict(line.split(":\t") for line in lines)
        assert {found[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {NONE}
        assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make the programs to attack with")
@pytest.mark.parametrize("kind", ["set-uid", "set-gid", "capabilities"])
def test_privileged_programs(project: Project, kind: str) -> None:
    """A program of root's with the set-uid bit or file capabilities gives nothing inside."""
    program = project.directory / "program"
    shutil.copy("/usr/bin/grep", program)
    program.chmod({"set-uid": 0o4755, "set-gid": 0o2755}.get(kind, 0o755))
    if kind == "capabilities":
        everything = struct.pack("<5I", 0x02000001, 0xFFFFFFFF, 0xFFFFFFFF, 0x1FF, 0)
        os.setxattr(program, "security.capability", everything)
    result = project.run(
        "./program",
        "-E",
        "^(Uid|Gid|CapPrm|CapEff)",
        "/proc/self/status",
        options=["--set", 'session.user="me"'],
    )
    if result.status == 126:
        return  # the kernel did not even execute it
    found = dict(line.split(":\t") for line in result.out.strip().split("\n"))
    assert (found["CapPrm"], found["CapEff"]) == (NONE, NONE)
    assert set(found["Uid"].split()) == {str(project.actor.uid)}
    assert set(found["Gid"].split()) == {str(project.actor.gid)}


@pytest.mark.parametrize(
    "command",
    ["su -c true", "mount -t tmpfs x /tmp", "umount -l /workspace/secret", "umount -l /proc", "unshare -U true",
     "unshare -r mount -t tmpfs x /tmp", "setpriv --reuid 1 --clear-groups true", "chroot / true",
     "nsenter -t 1 -m true", "mknod /tmp/disk b 8 0", "mknod /tmp/mem c 1 1", "chown 12345 /tmp",
     "mount -o remount,rw /usr", "mount --bind /tmp /usr"],
)  # fmt: skip
def test_host_tools(project: Project, command: str) -> None:
    """The host's tools for privileged work get nowhere, root or not."""
    project.write("secret", "value")
    script = f"{command} && echo done; cat secret; test -w /usr && echo writable"
    result = project.shell(script, options=["--set", 'files.hide=["secret"]'])
    assert result.status != 125
    assert result.out == ""


PID_1 = """
import os
for name in ("root", "cwd", "exe", "fd", "fd/0", "mem", "maps", "environ", "ns/mnt", "ns/user", "auxv", "io",
             "map_files", "pagemap", "stack", "syscall", "personality", "task/1/root", "task/1/mem"):
    for how in (os.O_RDONLY, os.O_RDWR):
        path = f"/proc/1/{name}"
        try:
            descriptor = os.open(path, how)
            if os.path.isdir(path):
                print(name, os.listdir(descriptor) and [os.readlink(f"{path}/{item}") for item in os.listdir(descriptor)])
            else:
                print(name, os.read(descriptor, 1))
        except OSError:
            pass
    try:
        print(name, os.readlink(f"/proc/1/{name}"))
    except OSError:
        pass
"""


def test_pid_1(project: Project) -> None:
    """PID 1 shows nothing of what it came from: no root, memory, descriptors, environment, namespaces."""
    result = project.python(PID_1, environment={"SECRET_OF_THE_CALLER": "value"})
    assert (result.status, result.out) == (0, "")


OPEN_ALL = """
import os, stat, sys
opened = []
for top in sys.argv[1:]:
    for directory, names, files in os.walk(top):
        for name in files:
            path = f"{directory}/{name}"
            try:
                if not stat.S_ISREG(os.lstat(path).st_mode):
                    continue
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                opened.append(path)
            except OSError:
                pass
print(*opened, sep="\\n")
"""


def test_nothing_of_proc_is_writable(project: Project) -> None:
    """No file of /proc can be opened for writing: core_pattern, sysrq-trigger, oom_score_adj, …"""
    result = project.python(OPEN_ALL, "/proc")
    assert (result.status, result.out.strip()) == (0, "")


def test_nothing_of_the_host_is_writable(project: Project) -> None:
    """No file of the tools and of /etc can be opened for writing, though root inside owns them."""
    result = project.python(OPEN_ALL, "/etc", "/usr/bin", "/usr/sbin", "/usr/local", "/lib", "/bin")
    assert (result.status, result.out.strip()) == (0, "")


def test_writable_mounts(project: Project) -> None:
    """Only the workspace, the scratch directories, what is kept and the terminals are mounted writable."""
    project.mkdir(".git")
    lines = project.output("cat /proc/self/mountinfo").split("\n")
    writable = {line.split()[4] for line in lines if line.split()[5].split(",")[0] == "rw"}
    scratch = {"/tmp", "/var/tmp", "/dev/shm", "/run", "/root", "/dev/pts"}
    assert writable == {"/workspace", "/workspace/.git", "/root/.claude", *scratch}
    assert all("nosuid" in line.split()[5] for line in lines)
    assert {line.split()[4] for line in lines if "nodev" not in line.split()[5]} <= {
        "/dev/pts", *(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))
    }  # fmt: skip


def test_devices_of_the_host_keep_their_mode(project: Project) -> None:
    """Root inside owns the host's device nodes, yet can change neither their mode nor their times."""
    before = {name: os.stat(f"/dev/{name}") for name in ("null", "zero", "full", "urandom")}
    script = (
        "for f in /dev/null /dev/zero /dev/full /dev/urandom; do chmod 600 $f; touch -d 2001-01-01 $f; done"
    )
    project.shell(script)
    # Standard input is /dev/null of the host's own mount.
    project.python("import os\nfor d in (0, 1, 2):\n  try: os.fchmod(d, 0o600)\n  except OSError: pass")
    after = {name: os.stat(f"/dev/{name}") for name in before}
    assert {name: (s.st_mode, s.st_mtime) for name, s in after.items()} == {
        name: (s.st_mode, s.st_mtime) for name, s in before.items()
    }
    assert project.output("echo x > /dev/null && head -c 3 /dev/zero | wc -c") == "3"


def test_no_kernel_file_systems(project: Project) -> None:
    """There is no /sys, no control group, no debug, security or BPF file system to be found."""
    kinds = {
        line.partition(" - ")[2].split()[0] for line in project.output("cat /proc/self/mountinfo").split("\n")
    }
    assert not kinds & {
        "sysfs",
        "cgroup",
        "cgroup2",
        "debugfs",
        "tracefs",
        "securityfs",
        "bpf",
        "configfs",
        "mqueue",
    }
    assert project.shell("ls -d /sys/kernel /sys/fs/cgroup /proc/sys/kernel/../../sysrq-trigger/x").out == ""


def test_descriptors(project: Project) -> None:
    """Descriptors of the caller do not get in, however many, however high, whatever they lead to."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = [os.open("/", os.O_RDONLY), os.open(project.home, os.O_RDONLY | os.O_DIRECTORY)]
    wanted += [os.open("/proc", os.O_PATH), os.open("/etc/passwd", os.O_RDONLY)]
    wanted += [os.dup(wanted[0]) for _ in range(40)]
    high = [os.dup2(wanted[0], number) for number in (1024, 1025, min(soft, 5000) - 1) if number < soft]
    try:
        process = project.popen(
            "/usr/bin/python3",
            "-I",
            "-c",
            "import os; print(os.listdir('/proc/self/fd'))",
            pass_fds=[*wanted, *high],
        )
        output, errors = process.communicate(timeout=DEADLINE)
    finally:
        for descriptor in (*wanted, *high):
            os.close(descriptor)
    assert output == b"['0', '1', '2', '3']\n", errors


@pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr"])
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_PATH])
def test_directory_as_a_stream(project: Project, stream: str, flags: int) -> None:
    """A stream that is a directory would lead round every mount: coop does not start the command."""
    project.write(".git/config", "good\n")
    descriptor = os.open(project.directory, flags | os.O_DIRECTORY)
    attack = f"cd /proc/self/fd/{['stdin', 'stdout', 'stderr'].index(stream)} && echo evil >> .git/config"
    try:
        streams: dict[str, Any] = {stream: descriptor}
        process = project.popen("sh", "-c", attack, **streams)
        process.communicate(timeout=DEADLINE)
    finally:
        os.close(descriptor)
    assert process.returncode not in (0, None)
    assert (project.directory / ".git/config").read_text() == "good\n"


def test_working_directory(project: Project) -> None:
    """The command stands inside, and nothing above its root can be reached from there."""
    script = "readlink /proc/self/cwd; cd ../../../../../../..; pwd -P; ls -d home/* etc/shadow root/../../etc/shadow"
    result = project.shell(script, cwd=project.mkdir("below/here"))
    assert result.out == "/workspace/below/here\n/\n"


CORE = """
import os, resource, signal
for limit in ((0, 0), (0, 1), (resource.RLIM_INFINITY,) * 2):
    try:
        resource.setrlimit(resource.RLIMIT_CORE, limit)
    except (OSError, ValueError):
        pass
    print(resource.getrlimit(resource.RLIMIT_CORE))
try:
    resource.prlimit(1, resource.RLIMIT_CORE, (0, 0))
except OSError:
    pass
print(resource.prlimit(1, resource.RLIMIT_CORE))
pid = os.fork()
if pid == 0:
    os.abort()
print(os.WCOREDUMP(os.waitpid(pid, 0)[1]))
"""


def test_core_dumps(project: Project) -> None:
    """A crash leaves no core, and a limit of 1 keeps it from the host's handler; 0 would not, and cannot be set."""
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("the hard limit here is 0, and only root could raise it")
    result = project.python(CORE)
    assert result.out.split("\n") == ["(1, 1)"] * 4 + ["False", ""]
    assert [path.name for path in project.directory.iterdir() if path.name.startswith("core")] == []


KEY = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": (248, 250), "aarch64": (217, 219)}[os.uname().machine]
assert libc.syscall(number[1], 1, None) > 0, "no session keyring"
for ring in (-3, -4):
    assert libc.syscall(number[0], b"user", b"coop-test-key", b"secret", 6, ring) > 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
"""
FIND_KEY = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}[os.uname().machine]
print(libc.syscall(number[1], b"user", b"coop-test-key", None, -3), ctypes.get_errno())
for ring in (-1, -2, -3, -4, -5):
    print(libc.syscall(number[2], 11, ring, ctypes.create_string_buffer(64), 64), ctypes.get_errno())
try:
    print(open("/proc/keys").read())
except OSError:
    print("hidden")
"""


def test_keys(project: Project) -> None:
    """The caller's keys are out of reach."""
    project.wrap = ("/usr/bin/python3", "-I", "-c", KEY)
    probe = project.actor.run(*project.wrap, "/bin/true")
    if probe.status:
        pytest.skip(f"no keys here: {probe.err}")
    assert project.python(FIND_KEY).out.split("\n") == ["-1 1"] * 6 + ["hidden", ""]


def test_host_settings_unchanged(project: Project) -> None:
    """What root could once change from inside (core_pattern, sysrq, the host's name) stays as it is."""
    watched = [
        "kernel/core_pattern",
        "kernel/sysrq",
        "kernel/hostname",
        "kernel/modprobe",
        "vm/overcommit_memory",
    ]
    watched = [name for name in watched if Path("/proc/sys", name).exists()]
    before = [Path("/proc/sys", name).read_text() for name in watched]
    script = "; ".join(f"echo '|/tmp/evil' > /proc/sys/{name}" for name in watched)
    project.shell(f"({script}; echo b > /proc/sysrq-trigger; hostname evil) 2>/dev/null; true")
    assert [Path("/proc/sys", name).read_text() for name in watched] == before


SET_ID = """
import ctypes, os, shutil, struct
libc = ctypes.CDLL(None, use_errno=True)
x86 = os.uname().machine == "x86_64"
shutil.copy("/bin/true", "plain")
def filled(name, flags, mode):
    descriptor = os.open(name, os.O_CREAT | os.O_RDWR | flags, mode)
    os.write(descriptor, open("/bin/true", "rb").read())
    return descriptor
def node():
    os.mknod("node", 0o106755)
    os.write(os.open("node", os.O_RDWR), b"#!/bin/sh")
def linked():
    descriptor = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o6755)
    os.write(descriptor, b"#!/bin/sh")
    os.link(f"/proc/self/fd/{descriptor}", "linked", follow_symlinks=True)
def listed(name, make):
    # Who writes keeps set-group-id as long as the group may not execute, and an ACL lets it later.
    make(name)
    entries = ((1, 7), (4, 5), (0x20, 5))
    value = b"".join(struct.pack("<HHI", tag, rights, 0xFFFFFFFF) for tag, rights in entries)
    os.setxattr(name, "system.posix_acl_access", struct.pack("<I", 2) + value)
def opened_otherwise(name):
    how = struct.pack("<QQQ", os.O_CREAT | os.O_RDWR, 0o2666, 0)
    descriptor = libc.syscall(437, -100, name.encode(), how, len(how))
    os.write(descriptor, b"#!/bin/sh")
def made(name):
    os.mknod(name, 0o102666)
    os.write(os.open(name, os.O_RDWR), b"#!/bin/sh")
ways = [
    lambda: os.chmod("plain", 0o6755), lambda: os.chmod("plain", 0o4755), lambda: os.chmod("plain", 0o2755),
    lambda: os.fchmod(os.open("plain", os.O_RDONLY), 0o4755),
    lambda: libc.syscall(268 if x86 else 53, -100, b"plain", 0o4755, 0),
    lambda: libc.syscall(452, -100, b"plain", 0o4755, 0),
    lambda: libc.syscall(452, os.open("plain", os.O_PATH), b"", ctypes.c_long(0o4755 | 1 << 32), 0x1000),
    lambda: shutil.copy2("/usr/bin/su", "copied"), lambda: shutil.copymode("/usr/bin/su", "plain"),
    lambda: os.setxattr("plain", "security.capability", bytes.fromhex("0100000200200000000000000000000000000000")),
    lambda: filled("created", 0, 0o6755), lambda: filled("exclusive", os.O_EXCL, 0o6755), node, linked,
    lambda: listed("with-list", lambda name: filled(name, 0, 0o2666)),
    lambda: listed("made-with-list", made), lambda: listed("otherwise", opened_otherwise),
]
if x86:
    ways += [lambda: libc.syscall(90, b"plain", 0o4755), lambda: libc.syscall(91, os.open("plain", 0), 0o4755)]
    ways += [lambda: listed("by-creat", lambda name: os.write(libc.syscall(85, name.encode(), 0o2666), b"#!"))]
os.umask(0)
for way in ways:
    try:
        way()
    except OSError:
        pass
"""


def test_set_id_files_for_the_host(project: Project) -> None:
    """The command leaves no set-id program of the caller's in the workspace for others to run."""
    result = project.python(SET_ID)
    assert result.status == 0, result
    modes = {path.name: path.stat().st_mode for path in project.directory.iterdir() if path.is_file()}
    assert "plain" in modes, result
    assert [name for name, mode in modes.items() if mode & (stat.S_ISUID | stat.S_ISGID)] == []
    assert [name for name in modes if os.listxattr(project.directory / name)] == []


def test_ordinary_modes_work(project: Project) -> None:
    """Modes without set-id bits can be set as ever, the sticky bit included."""
    assert project.output("mkdir d; chmod 1777 d; touch f; chmod 755 f; stat -c %a d f").split() == [
        "1777",
        "755",
    ]


def test_not_root_of_the_host(project: Project) -> None:
    """Nothing of another user's in the workspace can be read, changed or taken, by root inside either."""
    if os.geteuid() != 0:
        pytest.skip("only root can make another user's files")
    foreign = project.write("foreign", "value", 0o600)
    os.chown(foreign, 54321, 54321)
    script = "cat foreign; echo x >> foreign; chmod 666 foreign; chown 0 foreign; stat -c %u foreign"
    assert project.shell(script).out in ("65534\n", "nobody\n")
    status = foreign.stat()
    assert (foreign.read_text(), status.st_uid, status.st_mode & 0o777) == ("value", 54321, 0o600)


def test_groups(project: Project) -> None:
    """Supplementary groups of root are given up, and no group can be taken."""
    if project.actor.uid != 0:
        pytest.skip("the actor has no other groups")
    argv = ["setpriv", "--groups", "54321", *project.argv(["id", "-G"])]
    done = subprocess.run(argv, env=project.environment, capture_output=True, timeout=DEADLINE, check=False)
    assert done.stdout == b"0\n", done.stderr
