"""A terminal for tests: the part of the terminal emulator, with a look at the other end's state."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import stat
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pexpect.fdpexpect

from tests.sandboxes import DEADLINE, Actor, Project, descendants, wait_until


class Terminal:
    """A terminal of an actor's, whose device stays open: ``screen`` is for pexpect, in bytes.

    With ``foreign`` the device is another user's, as after ``su``.
    """

    def __init__(self, actor: Actor, *, foreign: bool = False) -> None:
        self.master, self.device = os.openpty()
        if actor.uid != os.geteuid() and not foreign:
            os.fchown(self.device, actor.uid, -1)
        os.fchmod(self.device, 0o620)
        self.resize(24, 80)
        self.screen: Any = pexpect.fdpexpect.fdspawn(self.master, timeout=DEADLINE)
        self.screen.delaybeforesend = None
        self._started: list[subprocess.Popen[bytes]] = []

    def start(
        self, argv: Sequence[str], environment: Mapping[str, str], cwd: Path, **streams: Any
    ) -> subprocess.Popen[bytes]:
        """Start a program that leads a session on this terminal; ``pid`` is its own."""
        whole: dict[str, Any] = {
            "stdin": self.device,
            "stdout": self.device,
            "stderr": self.device,
            **streams,
        }
        process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *argv], env=dict(environment), cwd=cwd, **whole
        )
        self._started.append(process)
        return process

    def coop(
        self, project: Project, *argv: str, options: Sequence[str] = (), **streams: Any
    ) -> subprocess.Popen[bytes]:
        """Start a command in the sandbox from this terminal."""
        environment = {**project.environment, "TERM": "xterm-256color"}
        command = project.argv(argv, ("-q", *options))
        return self.start(command, environment, project.actor.base, **streams)

    def resize(self, rows: int, columns: int) -> None:
        """Change the size, as a window does."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def state(self) -> tuple[Any, int, bool]:
        """Return the settings, the mode of the device, and whether the descriptor blocks."""
        mode = stat.S_IMODE(os.fstat(self.device).st_mode)
        return termios.tcgetattr(self.device), mode, os.get_blocking(self.device)

    def is_raw(self) -> bool:
        """Tell whether keys go through as they are."""
        flags = termios.tcgetattr(self.device)[3]
        return not flags & (termios.ICANON | termios.ECHO | termios.ISIG)

    def paste(self, data: bytes) -> threading.Thread:
        """Write like a terminal emulator, beside reading."""

        def write() -> None:
            rest = data
            while rest:
                rest = rest[os.write(self.master, rest) :]

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        return thread

    def rest(self, process: subprocess.Popen[bytes]) -> bytes:
        """Return all that is drawn until the process has ended."""
        seen = bytes(self.screen.buffer)
        self.screen.buffer = b""
        end = time.monotonic() + DEADLINE
        while True:
            ended = process.poll() is not None
            ready, _, _ = select.select([self.master], [], [], 0 if ended else 0.02)
            if ready:
                seen += os.read(self.master, 65536)
            elif ended:
                return seen
            assert time.monotonic() < end, (len(seen), seen[-500:])

    def hang_up(self) -> None:
        """Be closed, as a window is."""
        os.close(self.device)
        os.close(self.master)
        self.master = self.device = -1

    def close(self) -> None:
        """End what still runs, and leave nothing."""
        for process in self._started:
            if process.poll() is None:
                for pid in (*reversed(descendants(process.pid)), process.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            process.wait(DEADLINE)
        for descriptor in (self.master, self.device):
            with contextlib.suppress(OSError):
                if descriptor >= 0:
                    os.close(descriptor)


def name_of(pid: int) -> str:
    """Return the name of the program that a process runs, empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError as error:
        assert error.errno in (errno.ENOENT, errno.ESRCH)
        return ""


def is_foreground(pid: int) -> bool:
    """Tell whether a process is in the group that has its terminal, whose keys' signals it gets."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    _, _, group, _, _, foreground = fields[:6]
    return group == foreground


def wait_for_program(process: subprocess.Popen[bytes], name: str) -> int:
    """Wait until a program runs below a process; return its number."""
    found = wait_until(lambda: [pid for pid in descendants(process.pid) if name_of(pid) == name])
    assert found, f"{name} does not run"
    return int(found[0])
