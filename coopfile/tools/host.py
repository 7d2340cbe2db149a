"""Commands of the owner's, which run on this machine without a sandbox: a back end for ``Session``."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Sequence

from coopfile.session.backend import Open
from coopfile.session.model import TIMED_OUT, Command, Ended, SessionGone, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.proxy.denials import Denial
    from coopfile.session.model import Running, Spec

_GRACE = 2.0  # seconds between asking to end and ending, when the time is over


class ThisMachine:
    """Has "sessions" that are this machine itself. There is no isolation whatever."""

    def open(self, spec: Spec) -> Open:
        """Return what starts commands in the project."""
        return Open(_Live(spec), True)

    def note(self, spec: Spec, argv: Sequence[str]) -> None:
        """Take no notice: what is installed stays."""

    def denials(self, spec: Spec, began: float) -> tuple[Denial, ...]:
        """Return nothing: there is no proxy."""
        return ()

    def stop(self, spec: Spec) -> tuple[str, ...]:
        """Do nothing: each command is ended by who waits for it."""
        return ()

    def remove(self, spec: Spec) -> None:
        """Do nothing: nothing is kept."""


class _Live:
    backend = "host"

    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    def begin(self, command: Command, streams: Sequence[int] = ()) -> Running:
        root = self._spec.project.root
        try:
            return _Running(command, streams, os.path.join(root, command.directory or "."))
        except OSError as error:
            gone = SessionGone(f"{command.argv[0]} cannot be started: {error.strerror}")
            gone.begun = True  # asking again would not help
            raise gone from None

    def workspace(self) -> tuple[int, ...]:
        return (os.open(self._spec.project.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC),)

    def usage(self) -> Usage:
        return Usage(0, None)

    def stop(self) -> None:
        pass

    def release(self) -> None:
        pass


class _Running:
    """A process and its group: ``model.Running``."""

    terminal: int | None = None

    def __init__(self, command: Command, streams: Sequence[int], directory: str) -> None:
        self._process = subprocess.Popen(
            command.argv,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            cwd=directory,
            env={**os.environ, **dict(command.environment)},
            start_new_session=True,
        )
        self._descriptor = os.pidfd_open(self._process.pid)
        self._timed_out = self._over = False
        self._lock = threading.Lock()
        self._timers: list[threading.Timer] = []
        if command.timeout is not None:
            self._later(command.timeout, self._end)

    def fileno(self) -> int:
        return self._descriptor

    def wait(self) -> Ended:
        os.waitid(os.P_PIDFD, self._descriptor, os.WEXITED | os.WNOWAIT)
        timed_out = self._finish(kill=False)
        status = self._process.returncode
        if timed_out:
            return Ended(TIMED_OUT, timed_out=True)
        return Ended(128 - status, -status) if status < 0 else Ended(status)

    def signal(self, number: int) -> None:
        with self._lock:
            if not self._over:
                _signal_group(self._process.pid, number)

    def close(self) -> None:
        if self._descriptor >= 0:
            self._finish(kill=True)
            os.close(self._descriptor)
            self._descriptor = -1

    def forked(self) -> None:
        self._descriptor = -1  # a process of another one's, which nobody waits for or ends here

    def _finish(self, *, kill: bool) -> bool:
        """Reap the process, whose number is nobody's afterwards; tell whether its time was over.

        What it leaves in the background goes on, as it does in a session, unless it was to be killed.
        """
        with self._lock:
            if not self._over:
                if kill or self._timed_out:
                    _signal_group(self._process.pid, signal.SIGKILL)
                self._process.wait()
                self._over = True
        for timer in self._timers:
            timer.cancel()
        return self._timed_out

    def _kill(self) -> None:
        self.signal(signal.SIGKILL)

    def _end(self) -> None:
        self._timed_out = True
        self.signal(signal.SIGTERM)
        self._later(_GRACE, self._kill)

    def _later(self, seconds: float, action: object) -> None:
        timer = threading.Timer(seconds, action)  # type: ignore[arg-type]
        timer.daemon = True
        self._timers.append(timer)
        timer.start()


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass
