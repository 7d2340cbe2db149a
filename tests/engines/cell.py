"""A machine of their own for the engines of a test run, as far as that goes without a virtual one.

Root's engines keep state where the whole machine sees it: locks in ``/dev/shm``, names
in ``/run``, bridges and addresses. A ``Cell`` has its own mount and network namespaces
for all that, and ends with the tests, however they end. Its processes are the host's,
its ``/tmp`` too, so paths mean the same inside and out.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tests.sandboxes import DEADLINE, alive, descendants, plain_environment, wait_gone

CGROUPS = "/sys/fs/cgroup"
MARK = "coop-tests-"  # what the paths and the control groups of a test run have in their names

# A v2 mount beside v1 makes crun refuse to work. Subordinate ids and accounts go into a
# copy-on-write /etc; Podman looks for the ids of $USER, which is tester in every test.
# The tun device is for everybody on a Debian with udev.
_FURNISH = r"""
set -e
mount --make-rshared /
ip link set lo up
if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir -p /run/lock /run/etc/upper /run/etc/work
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work overlay /etc
if [ -d /dev/net ]; then
    mount -t tmpfs -o mode=755 tmpfs /dev/net
    mknod -m 666 /dev/net/tun c 10 200
fi
# Runtimes give a container's user its streams: not the machine's own /dev/null.
mknod -m 666 /run/null c 1 3
mount --bind /run/null /dev/null
printf 'tester:x:%s:%s::/:/bin/sh\n' "$1" "$2" >>/etc/passwd
printf 'tester:x:%s:\ncoop-docker:x:%s:\n' "$2" "$3" >>/etc/group
printf 'tester:%s:65536\n' "$4" | tee /etc/subuid >/etc/subgid
echo ready
exec sleep infinity
"""
_ENTER = 'mount=$1 net=$2; shift 2; exec nsenter --mount="$mount" --net="$net" --wdns="$PWD" -- "$@"'
_PODMANS = {"podman", "conmon", "catatonit", "slirp4netns", "pasta", "aardvark-dns", "rootlessport"}
_SUBORDINATE = 500_000_000  # far from what adduser gives to people


class UnusableError(Exception):
    """An engine, or what it needs, does not work on this machine; the text says why."""


class Cell:
    """Namespaces for engines, and the accounts in them: one user, and a group for docker's socket."""

    def __init__(self, uid: int, gid: int) -> None:
        self.docker_gid = gid + 50
        subordinate = _SUBORDINATE + 65536 * (uid % 1000)
        self._holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--propagation", "slave"]
            + ["sh", "-c", _FURNISH, "sh"]
            + [str(number) for number in (uid, gid, self.docker_gid, subordinate)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=plain_environment(Path("/")),
        )
        assert self._holder.stdout is not None and self._holder.stderr is not None
        if self._holder.stdout.readline() != b"ready\n":
            self._holder.kill()
            reason = self._holder.stderr.read().decode("utf-8", "replace").strip()
            self.close()
            raise UnusableError(f"no namespaces for the engines of the tests: {reason}")

    @property
    def prefix(self) -> tuple[str, ...]:
        """What makes root's process, without another pid, one in the cell, in the same directory."""
        namespaces = f"/proc/{self._holder.pid}/ns"
        return ("sh", "-c", _ENTER, "sh", f"{namespaces}/mnt", f"{namespaces}/net")

    def use_memory(self, directory: Path) -> None:
        """Put what engines keep in a directory into memory: it is faster, and gone with the cell."""
        argv = [*self.prefix, "mount", "-t", "tmpfs", "-o", "mode=700", "tmpfs", str(directory)]
        subprocess.run(argv, check=True, timeout=DEADLINE)

    def close(self) -> None:
        """Let the namespaces go; they end with their last process."""
        self._holder.kill()
        self._holder.wait(DEADLINE)
        for stream in (self._holder.stdout, self._holder.stderr):
            if stream is not None:
                stream.close()


def end_of(session: int) -> None:
    """End what Podman runs for the test run with this pid, and remove the run's control groups.

    Podman has no daemon whose end would end its containers: each has a conmon that
    belongs to nobody, but tells by its paths whose it is.
    """
    mark = f"/{MARK}{session}-".encode()
    doomed: set[int] = set()
    for pid in _podmans():
        if mark in _words(pid):
            doomed.update((pid, *descendants(pid)))
    groups = {path for pid in doomed for path in _cgroups(pid)}
    for pid in alive(sorted(doomed)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    wait_gone(sorted(doomed))
    remove_cgroups(path for path in groups if os.path.basename(path).startswith("libpod-"))
    remove_cgroups(_directories(f"{MARK}{session}"))
    # The parent of Podman's groups belongs to every user of the machine: it stays while used.
    remove_cgroups(_directories("libpod_parent"), seconds=0)


def sweep() -> None:
    """Remove what test runs that were killed have left behind."""
    dead: set[int] = set()
    for pid in _podmans():
        dead.update(_sessions(_words(pid).decode("utf-8", "replace")))
    dead.update(_sessions("".join(f"{path}-" for path in _directories(rf"{MARK}\d+"))))
    for session in dead:
        if not os.path.exists(f"/proc/{session}"):
            end_of(session)
    for path in Path(tempfile.gettempdir()).glob(f"{MARK}*-*"):
        owner = path.name[len(MARK) :].partition("-")[0]
        if owner.isdigit() and not os.path.exists(f"/proc/{owner}") and path.stat().st_uid == os.geteuid():
            discard(path)


def discard(directory: Path) -> None:
    """Remove a directory in which rootless engines have made files that belong to other users."""
    shutil.rmtree(directory, ignore_errors=True)
    for maps in (("--map-root-user", "--map-auto"), ("--map-root-user",)):
        if directory.exists() and os.geteuid() != 0:
            argv = ["unshare", "--user", *maps, "rm", "-rf", str(directory)]
            subprocess.run(argv, capture_output=True, timeout=DEADLINE, check=False)


def remove_cgroups(paths: Iterable[str], seconds: float = 5.0) -> None:
    """Remove control groups and those below them; waits a while for those of the dying."""
    for path in sorted(paths):
        for directory, _, _ in sorted(os.walk(path), reverse=True):
            end = time.monotonic() + seconds
            while os.path.isdir(directory):
                try:
                    os.rmdir(directory)
                except OSError:
                    if time.monotonic() > end:
                        break
                    time.sleep(0.02)


def _sessions(text: str) -> set[int]:
    return {int(found) for found in re.findall(rf"/{MARK}(\d+)-", text)}


def _podmans() -> list[int]:
    """Return the processes that Podman leaves running, everybody's."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{name}/comm").read_text().strip() in _PODMANS:
                    found.append(int(name))
    return found


def _controllers() -> list[str]:
    """Return the top of each hierarchy of control groups."""
    try:
        return [CGROUPS, *(entry.path for entry in os.scandir(CGROUPS) if entry.is_dir())]
    except OSError:
        return []


def _directories(pattern: str) -> list[str]:
    """Return the control groups with such a name, at any depth: some runtimes make them below their own."""
    return [
        os.path.join(directory, name)
        for directory, names, _ in os.walk(CGROUPS)
        for name in names
        if re.fullmatch(pattern, name)
    ]


def _cgroups(pid: int) -> list[str]:
    """Return the directories of a process's control groups."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return []
    names = {line.split(":", 2)[2] for line in lines if line.count(":") > 1}
    found = [top + name for top in _controllers() for name in names if name != "/"]
    return [path for path in found if os.path.isdir(path)]


def _words(pid: int) -> bytes:
    """Return the arguments and the environment of a process; empty when they can't be seen."""
    words = b""
    for name in ("cmdline", "environ"):
        with contextlib.suppress(OSError):
            words += Path(f"/proc/{pid}/{name}").read_bytes() + b"\0"
    return words
