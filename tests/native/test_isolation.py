"""What the command sees of the machine: processes, devices, names, and its own empty places."""

from __future__ import annotations

import os
import platform

import pytest

from coopfile.plan.hosttools import DEVICES, DEVICES_OWN, ETC, ETC_OWN, PROC_MASKED
from tests.sandboxes import Project

pytestmark = pytest.mark.native

FILL = """
import errno, os, sys
total = 0
for place in sys.argv[1:]:
    number = 0
    with open(f"{place}/fill", "wb") as file:
        try:
            while number < 4 << 20:
                number += file.write(bytes(1 << 16))
                file.flush()
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
    total += os.path.getsize(f"{place}/fill")
print(total)
"""


def test_processes(project: Project) -> None:
    """Only the sandbox's own processes are visible: coop's PID 1 and the command's."""
    found = project.output("echo /proc/[0-9]*").split()
    assert len(found) == 2 and found[0] == "/proc/1", found


def test_pid_1_is_untouchable(project: Project) -> None:
    """PID 1, which is coop's, can be neither killed, traced nor looked into."""
    script = """
kill -9 1
for name in environ mem maps fd/0 root/etc/passwd cwd/Coopfile; do head -c 1 /proc/1/$name; done
readlink /proc/1/root /proc/1/cwd /proc/1/exe /proc/1/fd/1 /proc/1/ns/pid
sleep 0.1
echo alive
"""
    result = project.shell(script)
    assert (result.status, result.out) == (0, "alive\n")


def test_host_name(project: Project) -> None:
    """The machine has another name inside, which cannot be changed."""
    assert project.output("uname -n; cat /etc/hostname /proc/sys/kernel/hostname").split() == ["coop"] * 3
    assert project.shell("hostname other || echo x > /proc/sys/kernel/hostname").status != 0
    assert platform.node() != "other"


@pytest.mark.parametrize("kind", ["user", "pid_for_children", "mnt", "uts", "ipc", "cgroup", "net"])
def test_own_namespaces(project: Project, kind: str) -> None:
    """Every namespace but those of time is the sandbox's own."""
    assert project.output(f"readlink /proc/self/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")


def test_root_directory(project: Project) -> None:
    """The root has what a program needs and nothing of the host's besides; it is read-only."""
    names = set(project.output("ls -A /").split())
    expected = {"bin", "dev", "etc", "lib", "proc", "root", "run", "sbin", "tmp", "usr", "var", "workspace"}
    assert names - {"lib32", "lib64", "libx32", "nix"} == expected
    script = "for d in / /etc /usr /var /dev /proc /root/..; do touch $d/x 2>/dev/null && echo $d; done; true"
    assert project.output(script) == ""


@pytest.mark.parametrize("place", ["/usr", "/usr/bin", "/bin", "/lib", "/etc", "/dev", "/"])
def test_host_tools_are_read_only(project: Project, place: str) -> None:
    """The host's tools can be used and not changed."""
    result = project.shell(f"echo x > {place}/coop-test; mkdir {place}/coop-test; chmod 777 {place}")
    assert result.status != 0
    assert result.err.count("Read-only file system") == 3, result
    assert not os.path.exists(f"{place}/coop-test")


def test_host_tools_are_there(project: Project) -> None:
    """What the host has in /usr/bin is there, under the same names."""
    assert set(project.output("ls /usr/bin").split("\n")) == set(os.listdir("/usr/bin"))


def test_etc(project: Project) -> None:
    """/etc holds the listed files of the host's and coop's own; no secrets of accounts."""
    names = set(project.output("ls -A /etc").split())
    assert names <= {name.partition("/")[0] for name in ETC} | set(ETC_OWN)
    assert {"ssl", "ld.so.cache"} & set(os.listdir("/etc")) <= names
    assert set(ETC_OWN) <= names
    assert project.shell("ls -d /etc/shadow /etc/gshadow /etc/sudoers /etc/ssh /etc/ssl/private").out == ""


def test_devices(project: Project) -> None:
    """/dev has harmless devices and the sandbox's own terminals, and they work."""
    assert set(project.output("ls -A /dev").split()) == {*DEVICES, *DEVICES_OWN, "shm"}
    script = "head -c 3 /dev/zero | wc -c; head -c 3 /dev/urandom | wc -c; echo x > /dev/null; ls /dev/pts"
    assert project.output(script).split() == ["3", "3", "ptmx"]


def test_no_host_terminals(project: Project) -> None:
    """A terminal made inside is of the sandbox's own instance."""
    script = "import os; print(os.ttyname(os.openpty()[1]))"
    assert project.python(script).out == "/dev/pts/0\n"


def test_masked_proc(project: Project) -> None:
    """What /proc tells about the machine is hidden, and nothing in it can be written."""
    for name in PROC_MASKED:
        if os.path.exists(f"/proc/{name}"):
            assert project.shell(f"cat /proc/{name} || ls /proc/{name}/*").out == "", name
    files = "/proc/sys/kernel/core_pattern /proc/sys/vm/drop_caches /proc/sysrq-trigger"
    script = f"for f in {files}; do (echo 1 > $f) && echo $f; done; true"
    assert project.output(script) == ""


def test_no_sys(project: Project) -> None:
    """/sys is not there, nor cgroup file systems."""
    assert project.shell("test -e /sys").status == 1
    assert (
        project.shell("grep -E ' (sysfs|cgroup2?|debugfs|tracefs|securityfs) ' /proc/self/mounts").status == 1
    )


def test_private_places(project: Project) -> None:
    """Temporary directories, /run and the home begin empty but for what is kept, and end with the sandbox."""
    places = "/tmp /var/tmp /dev/shm /run /root"
    script = f"for d in {places}; do ls -A $d; stat -c %a $d; echo x > $d/coop-private-test; done"
    for _ in range(2):
        assert project.output(script).split() == ["1777", "1777", "1777", "1777", ".claude", "700"]
    for place in ("/tmp", "/var/tmp", "/dev/shm", "/run"):
        assert not os.path.exists(f"{place}/coop-private-test")
    assert {path.name for path in project.home.iterdir()} <= {".cache", ".local"}


def test_host_places_are_invisible(project: Project) -> None:
    """The caller's home and temporary files, and what lies beside the workspace, are not there."""
    (project.home / "secret").write_text("x")
    assert project.shell(f"ls -d {project.home} {project.home}/secret {project.directory}").out == ""
    assert project.shell("ls /tmp/* /home /mnt /srv /opt /boot").out == ""


@pytest.mark.parametrize("places", [("/tmp",), ("/tmp", "/root", "/dev/shm", "/var/tmp", "/run")])
def test_tmp_limit(project: Project, places: tuple[str, ...]) -> None:
    """limits.tmp bounds the bytes in all temporary places together, with "no space left" as the answer."""
    project.coopfile('limits.tmp = "2m"\n')
    total = int(project.python(FILL, *places).out)
    assert 1.5 * (1 << 20) < total <= 2 << 20


def test_tmp_limit_in_files(project: Project) -> None:
    """Empty files count too: their number is bounded."""
    project.coopfile('limits.tmp = "1m"\n')
    script = "import os\nfor n in range(10**5):\n  os.mknod(f'/tmp/{n}')"
    result = project.python(script)
    assert result.status == 1 and "No space left" in result.err


def test_room_in_tmp(project: Project) -> None:
    """Files in a temporary directory can be renamed and linked."""
    assert project.output("echo x > /tmp/a && mv /tmp/a /tmp/b && ln /tmp/b /tmp/c && cat /tmp/c") == "x"


def test_unix_sockets_in_tmp(project: Project) -> None:
    """Sockets and FIFOs can be made in the temporary directory and used."""
    script = """
import os, socket
server = socket.socket(socket.AF_UNIX); server.bind("/tmp/s"); server.listen()
client = socket.socket(socket.AF_UNIX); client.connect("/tmp/s"); client.send(b"x")
os.mkfifo("/tmp/f"); reader = os.open("/tmp/f", os.O_RDONLY | os.O_NONBLOCK)
os.write(os.open("/tmp/f", os.O_WRONLY), b"y")
print(server.accept()[0].recv(1), os.read(reader, 1))
"""
    assert project.python(script).out == "b'x' b'y'\n"


def test_keyring_is_empty(project: Project) -> None:
    """The session keyring is new; the caller's keys are not in it, and the calls are denied."""
    assert project.shell("cat /proc/keys").out == ""


def test_threads_and_processes(project: Project) -> None:
    """Threads, pools of processes and subprocesses work as outside."""
    script = """
import multiprocessing, subprocess, threading
def square(n): return n * n
if __name__ == "__main__":
    seen = []
    threads = [threading.Thread(target=seen.append, args=(n,)) for n in range(4)]
    [t.start() for t in threads]; [t.join() for t in threads]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(len(seen), pool.map(square, [1, 2, 3]), subprocess.check_output(["echo", "x"]))
"""
    assert project.python(script).out == "4 [1, 4, 9] b'x\\n'\n"


def test_unchanged_host(project: Project) -> None:
    """After a run the workspace is as before, but for what the command wrote."""
    project.write("file", "x")
    before = project.tree()
    project.output("cat file; echo y > new; rm new")
    assert project.tree() == before
