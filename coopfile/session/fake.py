"""``coopfile.FakeBackend``: sessions for the unit tests of programs that use sessions.

Nothing is run: a command gets the answer that the test has written for it. All around it is real:
streams, caps on output, time that is over, sessions that end.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import threading
import time

from coopfile.plan import canonical
from coopfile.record import Record
from coopfile.session.backend import Open
from coopfile.session.model import (
    LONGEST_WAIT,
    TIMED_OUT,
    Ended,
    PlanDiffers,
    SessionError,
    SessionGone,
    Usage,
)
from coopfile.session.result import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coopfile.proxy.denials import Denial
    from coopfile.session.model import Command, Running, Spec

_CHUNK = 4096  # bytes that a pipe takes at once when it takes any: PIPE_BUF in pipe(7)


class Call(Record):
    """A command that a session was asked for. ``environment`` is what was added to the session's own."""

    session: str
    argv: tuple[str, ...]
    stdin: bytes
    environment: tuple[tuple[str, str], ...] = ()
    directory: str | None = None
    timeout: float | None = None


class Answer(Record):
    """How a command ends. ``takes`` is how long, in seconds, which nobody has to wait for.

    ``denials`` are what a proxy would have blocked of it, for plans whose ``network.mode`` is "proxy".
    """

    status: int = 0
    stdout: bytes | str = b""
    stderr: bytes | str = b""
    signal: int | None = None
    takes: float = 0.0
    peak_memory: int | None = None
    notes: tuple[str, ...] = ()
    denials: tuple[Denial, ...] = ()


class FakeBackend:
    """What `Session` and `SessionManager` take as ``backend`` in a unit test.

    ``calls`` are the commands that were asked for, in the order in which they had read their input;
    ``running`` the names of the sessions that run. Commands read all their input.
    """

    def __init__(self, answer: Callable[[Call], Answer | None] | None = None) -> None:
        """Have commands answered by a function; where it returns None, by what ``answer`` was told."""
        self.calls: list[Call] = []
        self._function = answer
        self._answers: dict[tuple[str, ...], Answer] = {}
        self._live: dict[str, _Live] = {}
        self._denied: list[tuple[str, float, Denial]] = []  # of which session, when
        self._lock = threading.Lock()

    @property
    def running(self) -> tuple[str, ...]:
        """The names of the sessions that run, in the order in which they were started."""
        with self._lock:
            return tuple(self._live)

    def answer(
        self,
        argv: Sequence[str] | str,
        *,
        status: int = 0,
        stdout: bytes | str = b"",
        stderr: bytes | str = b"",
        signal: int | None = None,
        takes: float = 0.0,
        denials: Sequence[Denial] = (),
    ) -> None:
        """Say how a command ends: a list for one of ``exec``, a text for one of ``shell``."""
        words = ("/bin/sh", "-c", argv) if isinstance(argv, str) else tuple(argv)
        if signal is not None:
            status = status or 128 + signal
        self._answers[words] = Answer(status, stdout, stderr, signal, takes, denials=tuple(denials))

    def lose(self, name: str | None = None) -> None:
        """End a session behind its users' backs, or all of them: what runs in it is lost."""
        with self._lock:
            names = list(self._live) if name is None else [name]
            lost = [self._live.pop(name) for name in names if name in self._live]
        for live in lost:
            live.lose()

    def open(self, spec: Spec) -> Open:
        """Join or start a session."""
        with self._lock:
            live = self._live.get(spec.name)
            if live is None:
                live = self._live[spec.name] = _Live(self, spec)
                return Open(live, True)
        if live.spec.plan != spec.plan:
            digests = canonical.digest(live.spec.plan), canonical.digest(spec.plan)
            raise PlanDiffers(
                f"the session {spec.name} runs under another plan",
                "end it before",
                session=spec.name,
                running=digests[0],
                asked=digests[1],
            )
        return Open(live, False)

    def note(self, spec: Spec, argv: Sequence[str]) -> None:
        """Take no notice: nothing is ever installed."""

    def denials(self, spec: Spec, began: float) -> tuple[Denial, ...]:
        """Return what answers have named."""
        return tuple(
            denial for session, when, denial in self._denied if session == spec.name and when >= began
        )

    def stop(self, spec: Spec) -> tuple[str, ...]:
        """End a session."""
        self.lose(spec.name)
        return ()

    def remove(self, spec: Spec) -> None:
        """End a session; it has nothing to keep."""
        self.lose(spec.name)

    def given(self, call: Call) -> Answer:
        """Note a command, and return its answer. Raises SessionError."""
        self.calls.append(call)
        answer = self._function(call) if self._function is not None else None
        answer = answer or self._answers.get(call.argv)
        if answer is None:
            raise SessionError(
                f"the test has no answer for {shown(call.argv)}",
                "FakeBackend.answer takes one",
                session=call.session,
            )
        now = time.time()
        self._denied += [(call.session, now, denial) for denial in answer.denials]
        return answer


class _Live:
    """A session that stands for one: ``model.Live``."""

    backend = "fake"

    def __init__(self, source: FakeBackend, spec: Spec) -> None:
        self.spec = spec
        self.source = source
        self._running: list[_Running] = []
        self._lost = False
        self._lock = threading.Lock()

    def begin(self, command: Command, streams: Sequence[int] = ()) -> Running:
        if len(streams) != 3:
            raise SessionError("a fake session has no terminal", session=self.spec.name)
        with self._lock:
            self._check()
            running = _Running(self, command, streams)
            self._running = [*(other for other in self._running if other.is_running), running]
        running.start()
        return running

    def workspace(self) -> tuple[int, ...]:
        self._check()
        return (os.open(self.spec.project.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC),)

    def usage(self) -> Usage:
        self._check()
        return Usage(sum(running.is_running for running in self._running), None)

    def stop(self) -> None:
        self.source.lose(self.spec.name)

    def release(self) -> None:
        pass

    def lose(self) -> None:
        with self._lock:
            self._lost = True
            running = self._running
        for command in running:
            command.lose()

    def _check(self) -> None:
        if self._lost:
            raise self.gone()

    def gone(self) -> SessionGone:
        return SessionGone(f"the session {self.spec.name} does not run", session=self.spec.name)


class _Stopped(Exception):
    """Somebody has ended the command."""


class _Late(Exception):
    """The command's time is over."""


class _Running:
    """A command that stands for one: ``model.Running``. A thread plays it."""

    terminal: int | None = None

    def __init__(self, live: _Live, command: Command, streams: Sequence[int]) -> None:
        self._live = live
        self._command = command
        self._deadline = None if command.timeout is None else time.monotonic() + command.timeout
        self._how: Ended | BaseException | None = None
        # The command's end of this is closed when it has ended; ours is shut down to have it end.
        self._ours, self._its = socket.socketpair()
        self._streams = [os.dup(stream) for stream in streams]
        self._thread = threading.Thread(target=self._play, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._how is None

    def fileno(self) -> int:
        return self._ours.fileno()

    def wait(self) -> Ended:
        self._thread.join()
        if isinstance(self._how, Ended):
            return self._how
        assert self._how is not None
        raise self._how

    def signal(self, number: int) -> None:
        self._stop(Ended(128 + number, number))

    def lose(self) -> None:
        error = self._live.gone()
        error.begun = True
        self._stop(error)

    def close(self) -> None:
        self._stop(self._live.gone())
        self._thread.join()
        self._ours.close()

    def forked(self) -> None:
        from coopfile.session import forking  # which not every system has that tests run on

        forking.let_go((self._ours.fileno(), self._its.fileno()))

    def _stop(self, how: Ended | BaseException) -> None:
        self._how = self._how or how
        with contextlib.suppress(OSError):  # it has ended
            self._ours.shutdown(socket.SHUT_WR)

    def _play(self) -> None:
        try:
            how: Ended | BaseException = self._act()
        except _Late:
            how = Ended(TIMED_OUT, timed_out=True, duration=self._command.timeout or 0.0)
        except _Stopped:
            how = self._live.gone()
        except BaseException as error:  # of the test's function, for its thread to see
            how = error
        finally:
            for stream in self._streams:
                os.close(stream)
        self._how = self._how or how
        self._its.close()

    def _act(self) -> Ended:
        command = self._command
        call = Call(
            self._live.spec.name,
            command.argv,
            self._read(self._streams[0]),
            command.environment,
            command.directory,
            command.timeout,
        )
        answer = self._live.source.given(call)
        for stream, data in zip(self._streams[1:], (answer.stdout, answer.stderr), strict=True):
            self._write(stream, data.encode() if isinstance(data, str) else data)
        if command.timeout is not None and answer.takes > command.timeout:
            raise _Late
        if answer.takes == math.inf:
            self._wait(None)
        return Ended(answer.status, answer.signal, False, answer.takes, answer.peak_memory, answer.notes)

    def _read(self, stream: int) -> bytes:
        data = b""
        while True:
            self._wait((stream, select.POLLIN))
            chunk = os.read(stream, _CHUNK)
            if not chunk:
                return data
            data += chunk

    def _write(self, stream: int, data: bytes) -> None:
        left = memoryview(data)
        while left:
            self._wait((stream, select.POLLOUT))
            try:
                left = left[os.write(stream, left[:_CHUNK]) :]
            except BrokenPipeError:
                return

    def _wait(self, stream: tuple[int, int] | None) -> None:
        """Wait for a stream, or for ever. Raises _Stopped, _Late."""
        poll = select.poll()
        poll.register(self._its, select.POLLIN)
        if stream is not None:
            poll.register(*stream)
        while True:
            left = None if self._deadline is None else max(self._deadline - time.monotonic(), 0)
            ready = dict(poll.poll(None if left is None else min(left, LONGEST_WAIT) * 1000))
            if self._its.fileno() in ready:
                raise _Stopped
            if ready:
                return
            if left is not None and left <= LONGEST_WAIT:
                raise _Late
