"""A Docker daemon of the bench's own, which shares nothing with one that may be running."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator

_START = 20.0  # seconds until it answers
_STOP = 20.0  # seconds until it and its containerd have ended

# What a daemon leaves behind outside the directories that it is given.
_KEY = "/etc/docker/key.json"


class DaemonError(Exception):
    """Why no daemon could be started."""


def needs() -> str | None:
    """Return what is missing to start a daemon, or None."""
    if shutil.which("dockerd") is None:
        return "dockerd is not installed"
    return None if os.geteuid() == 0 else "dockerd needs root"


@contextlib.contextmanager
def daemon(directory: str) -> Iterator[dict[str, str]]:
    """Run a daemon below a new directory; yield the variables that lead the client to it.

    It has no network and touches no firewall. It is ended by its process number, and
    afterwards its mounts, its control groups and its files are gone. Raises DaemonError.
    """
    os.mkdir(directory)
    socket = os.path.join(directory, "socket")
    group = f"coop-bench-{os.getpid()}"
    argv = ["dockerd", "--host", f"unix://{socket}", "--pidfile", os.path.join(directory, "pid")]
    argv += ["--data-root", os.path.join(directory, "data"), "--exec-root", os.path.join(directory, "run")]
    argv += ["--config-file", _empty_configuration(directory), "--cgroup-parent", f"/{group}"]
    argv += ["--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"]
    had_key = os.path.exists(_KEY)
    with open(os.path.join(directory, "log"), "wb") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory, start_new_session=True
        )
        try:
            _wait_until_it_answers(process, socket, log.name)
            yield {"DOCKER_HOST": f"unix://{socket}", "DOCKER_CONFIG": os.path.join(directory, "client")}
        finally:
            _stop(process, os.path.join(directory, "run", "containerd", "containerd.pid"))
            _unmount_below(directory)
            _remove_groups(group)
            if not had_key:
                with contextlib.suppress(OSError):
                    os.unlink(_KEY)
                    os.rmdir(os.path.dirname(_KEY))


def _empty_configuration(directory: str) -> str:
    """Return a file that keeps the daemon from reading the machine's own."""
    path = os.path.join(directory, "daemon.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write("{}\n")
    return path


def _wait_until_it_answers(process: subprocess.Popen[bytes], socket: str, log: str) -> None:
    environment = {**os.environ, "DOCKER_HOST": f"unix://{socket}"}
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline and process.poll() is None:
        argv = ["docker", "version", "--format", "{{.Server.Version}}"]
        asked = subprocess.run(argv, env=environment, capture_output=True, check=False)
        if asked.returncode == 0 and asked.stdout.strip():
            return
        time.sleep(0.1)
    with open(log, encoding="utf-8", errors="replace") as file:
        said = file.read().strip().splitlines() or ["no word"]
    raise DaemonError(f"dockerd did not start: {said[-1][:100]}")


def _stop(process: subprocess.Popen[bytes], containerd: str) -> None:
    """End the daemon, which ends its containerd and removes that one's pid file, or both by force."""
    process.terminate()
    try:
        process.wait(_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        with contextlib.suppress(OSError, ValueError), open(containerd, encoding="ascii") as file:
            os.kill(int(file.read()), signal.SIGKILL)


def _unmount_below(directory: str) -> None:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        places = [line.split(" ")[4] for line in file]
    for place in reversed(places):  # the innermost were mounted last
        if place.startswith(directory + "/"):
            subprocess.run(["umount", "--lazy", place], capture_output=True, check=False)


def _remove_groups(name: str) -> None:
    root = "/sys/fs/cgroup"
    for parent in (root, *(entry.path for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False))):
        for directory, _, _ in os.walk(os.path.join(parent, name), topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(directory)
