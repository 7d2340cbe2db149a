"""Sessions whose commands are processes of the host, without any sandbox: for what is not about sandboxes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence

from coopfile.proxy.denials import Denial
from coopfile.session.backend import Open
from coopfile.session.model import TIMED_OUT, Command, Ended, Running, SessionGone, Spec, Usage


class HostBackend:
    """Starts sessions of processes, and counts what is asked of it."""

    def __init__(self, *, slow: float = 0.0) -> None:
        self.slow = slow
        self.opening = threading.Event()
        self.opened: list[Spec] = []
        self.stopped: list[Spec] = []
        self.removed: list[Spec] = []
        self.told: tuple[str, ...] = ()
        self.noted: list[tuple[str, ...]] = []
        self.denied: tuple[Denial, ...] = ()
        self.live: dict[str, HostLive] = {}

    def open(self, spec: Spec) -> Open:
        """Join or start a session."""
        self.opening.set()
        time.sleep(self.slow)
        self.opened.append(spec)
        fresh = spec.name not in self.live
        if fresh:
            self.live[spec.name] = HostLive(spec.name, spec.project.root)
        return Open(self.live[spec.name], fresh)

    def note(self, spec: Spec, argv: Sequence[str]) -> None:
        """Note a command."""
        self.noted.append(tuple(argv))

    def denials(self, spec: Spec, began: float) -> tuple[Denial, ...]:
        """Return what somebody has put there."""
        return self.denied

    def stop(self, spec: Spec) -> tuple[str, ...]:
        """End a session."""
        self.stopped.append(spec)
        self.lose(spec.name)
        return self.told

    def remove(self, spec: Spec) -> None:
        """End a session for good."""
        self.removed.append(spec)
        self.lose(spec.name)

    def lose(self, name: str) -> None:
        """End a session behind its user's back."""
        live = self.live.pop(name, None)
        if live is not None:
            live.stop()

    def close(self) -> None:
        """End everything."""
        for name in list(self.live):
            self.lose(name)


class HostLive:
    """A session: ``model.Live``."""

    backend = "host"

    def __init__(self, name: str, root: str = ".") -> None:
        self.name = name
        self.root = root
        self.commands: list[HostRunning] = []
        self.released = 0
        self.over = False

    def begin(self, command: Command, streams: Sequence[int] = ()) -> Running:
        """Start a process in a process group of its own."""
        if self.over:
            raise SessionGone("it does not run", session=self.name)
        running = HostRunning(self, command, streams)
        self.commands.append(running)
        return running

    def workspace(self) -> tuple[int, ...]:
        """Return the project, in which nothing is guarded."""
        return (os.open(self.root, os.O_PATH | os.O_DIRECTORY),)

    def usage(self) -> Usage:
        """Return next to nothing."""
        return Usage(len(self.commands), None)

    def stop(self) -> None:
        """End all processes."""
        self.over = True
        for running in self.commands:
            running.kill()

    def release(self) -> None:
        """Count."""
        self.released += 1


class HostRunning:
    """A process and its group: ``model.Running``."""

    terminal: int | None = None

    def __init__(self, live: HostLive, command: Command, streams: Sequence[int]) -> None:
        self._live = live
        self._timeout = command.timeout
        self.process = subprocess.Popen(
            command.argv,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            env={**os.environ, **dict(command.environment)},
            cwd=command.directory,
            start_new_session=True,
        )
        self._descriptor = os.pidfd_open(self.process.pid)
        self._timed_out = False
        self._timer: threading.Timer | None = None
        if command.timeout is not None:
            self._timer = threading.Timer(command.timeout, self._end)
            self._timer.daemon = True
            self._timer.start()

    def fileno(self) -> int:
        """Return a descriptor that is readable when the process has ended."""
        return self._descriptor

    def wait(self) -> Ended:
        """Reap it."""
        code = self.process.wait()
        if self._timer is not None:
            self._timer.cancel()
        if self._live.over:
            error = SessionGone("it ended", session=self._live.name)
            error.begun = True
            raise error
        if self._timed_out:
            return Ended(TIMED_OUT, timed_out=True, duration=self._timeout or 0.0)
        return Ended(code if code >= 0 else 128 - code, None if code >= 0 else -code)

    def signal(self, number: int) -> None:
        """Signal the group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """Kill the group, also what was left in the background."""
        self.signal(signal.SIGKILL)

    def close(self) -> None:
        """Let go: what has not ended is killed."""
        if self.process.returncode is None:
            self.kill()
            self.process.wait()
        if self._timer is not None:
            self._timer.cancel()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def forked(self) -> None:
        """Forget the process, which is the parent's."""
        self.process.returncode = 0
        self._descriptor = -1

    def _end(self) -> None:
        self._timed_out = True
        self.kill()
