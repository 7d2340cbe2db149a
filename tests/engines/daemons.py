"""Docker's daemon, each time with private state, a private socket and no traces after its end."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.engines.cell import MARK, Cell, UnusableError
from tests.sandboxes import DEADLINE, Actor, plain_environment, wait_until

READY = 30.0  # seconds that a daemon may take to answer, on a busy machine

# --kill-child ends the daemon, containerd, shims and containers with their PID
# namespace; the mounts go with the mount namespace. unshare itself dies with the tests.
_ALONE = (
    *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"),
    *("--mount-proc", "--propagation", "slave"),
)
# The shell stays as PID 1 and reaps the shims, which dockerd would not.
_START = ("sh", "-c", 'mount --make-rshared /; "$@"; exit', "sh")
_START_ROOTLESS = ("sh", "-c", 'ip link set lo up; mount -t tmpfs tmpfs /run; "$@"; exit', "sh")


class Daemon:
    """A running dockerd. ``mode`` is "" (rootful), "remapped" (userns-remap) or "rootless".

    ``user`` owns a rootless one, and may use the others by the group of their socket.
    """

    def __init__(self, base: Path, user: Actor, cell: Cell | None, mode: str = "") -> None:
        _check(mode, cell)
        self.directory = base / f"docker{mode}"
        for name in ("data", "exec", "run"):
            (self.directory / name).mkdir(parents=True)
        rootless = mode == "rootless"
        if rootless:
            subprocess.run(["chown", "-R", f"{user.uid}:{user.gid}", str(self.directory)], check=True)
        self.socket = self.directory / "docker.sock"
        self._log = self.directory / "log"
        configuration = self.directory / "daemon.json"
        configuration.write_text(json.dumps({"runtimes": _runtimes(rootless)}))
        arguments = [
            *("dockerd", "--config-file", str(configuration), "--host", f"unix://{self.socket}"),
            *("--data-root", str(self.directory / "data"), "--exec-root", str(self.directory / "exec")),
            *("--pidfile", str(self.directory / "pid"), "--exec-opt", "native.cgroupdriver=cgroupfs"),
            *("--iptables=false", "--ip6tables=false", "--userland-proxy=false"),
        ]
        environment = plain_environment(user.base)
        if rootless:
            environment["XDG_RUNTIME_DIR"] = str(self.directory / "run")
            # What dockerd asks for; the namespaces that rootlesskit would make are made here.
            environment["ROOTLESSKIT_STATE_DIR"] = str(self.directory / "run")
            namespaces = ("--user", "--map-root-user", "--map-auto", "--net")
            arguments = [
                *(*user.prefix, *_ALONE, *namespaces, *_START_ROOTLESS),
                *(*arguments, "--rootless", "--bridge=none"),
            ]
        else:
            assert cell is not None
            arguments += ["--cgroup-parent", f"/{MARK}{os.getpid()}", "--group", "coop-docker"]
            if mode == "remapped":
                arguments.append(f"--userns-remap={user.uid}:{user.gid}")
            cell.use_memory(self.directory / "data")
            arguments = [*cell.prefix, *_ALONE, *_START, *arguments]
        self._process = start(arguments, environment, self._log)
        answered = wait_until(lambda: self._process.poll() is not None or _answers(self.socket), READY)
        if not answered or self._process.poll() is not None:
            reason = self.log().splitlines()[-1:] or ["it did not answer"]
            self.close()
            raise UnusableError(f"dockerd {mode} did not start: {reason[0]}")

    def log(self) -> str:
        """Return what the daemon has said."""
        return self._log.read_text(errors="replace")

    def close(self) -> None:
        """End it and everything that it runs."""
        self._process.kill()
        self._process.wait(DEADLINE)


def start(argv: Sequence[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a daemon that writes its messages into a file."""
    with log.open("wb") as output:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/", env=environment
        )


def _check(mode: str, cell: Cell | None) -> None:
    """Raise UnusableError when a daemon of this mode can't be had."""
    if mode != "rootless" and cell is None:
        raise UnusableError("dockerd needs root")
    # dockerd asks for the last one even when told to use no proxies.
    needed = ["dockerd", "docker", *(["newuidmap", "rootlesskit-docker-proxy"] if mode == "rootless" else [])]
    path = plain_environment(Path("/"))["PATH"]
    for program in needed:
        if shutil.which(program, path=path) is None:
            raise UnusableError(f"{program} is not installed")


def _runtimes(rootless: bool) -> dict[str, object]:
    """Return the OCI runtimes beside runc, as daemon.json has them.

    A runsc that is older than the kernel refuses every network namespace that Docker
    gives it; it can set up its control groups only as root.
    """
    runtimes: dict[str, object] = {}
    if runsc := shutil.which("runsc"):
        arguments = ["--network=none", *(["--ignore-cgroups"] if rootless else [])]
        runtimes["runsc"] = {"path": runsc, "runtimeArgs": arguments}
    return runtimes


def _answers(path: Path) -> bool:
    """Tell whether a daemon answers on a socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        try:
            client.connect(str(path))
            client.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            return client.recv(64).split()[1:2] == [b"200"]
        except OSError:
            time.sleep(0.02)
            return False
