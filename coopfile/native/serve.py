"""PID 1 of a session: starts a supervisor for each request, reaps, and ends when it is time to.

It does no more than that itself, so that no client and no command can keep it from the others.
"""

from __future__ import annotations

import _socket
import os
import select
import stat
import time

from coopfile.native import report, signals, supervise, wire
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.native.init import Start
    from coopfile.native.upper import Upper

_LOST = (
    "a command ended or stopped what supervised it, or the kernel did for want of memory: "
    "the session was ended"
)
_SPARED = 5.0  # seconds that a spare is kept after the last request
_PAUSE = 0.05  # seconds between two tries to take a request when there is no room for its descriptor
_FULL = "the session has as many processes as it may have, or the machine has"
_ROOM = "limits.pids says how many; or end some"


class Serving(Record):
    """What a session has besides a run: ``listener``, ``notes``, ``lease`` and ``alive`` are descriptors.

    ``listener`` is where requests come in. ``lease`` is the end of a pipe to read from: when nobody
    can write to it any more, the session ends. ``ttl`` is how many seconds it lasts without a request.
    ``notes`` takes what there is to tell at the end. ``plan`` is the plan's digest. ``directory`` is
    the session's on the host; ``alive`` is the file there that its monitor has locked.
    """

    listener: int
    notes: int
    plan: str
    directory: str
    alive: int
    lease: int | None = None
    ttl: float | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Those that PID 1 keeps."""
        return (self.listener, self.notes, *(() if self.lease is None else (self.lease,)))

    def is_known(self) -> bool:
        """Tell, in the monitor, whether what leads to the session is still there, and nobody removed it."""
        try:
            place = os.lstat(f"{self.directory}/{wire.SOCKET}")
            lock = os.lstat(f"{self.directory}/alive")
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return stat.S_ISSOCK(place.st_mode) and os.path.samestat(lock, os.fstat(self.alive))

    def leave(self, reported: int) -> None:
        """Leave requests to PID 1, in the process that made it; what is reported goes to the notes now."""
        os.dup2(self.notes, reported, inheritable=False)
        for descriptor in (self.listener, *(() if self.lease is None else (self.lease,))):
            os.close(descriptor)


class Server:
    """The loop of PID 1. ``upper`` is what takes the root's changes, None without.

    While a session is in use, a supervisor that has nothing to do yet, the *spare*, waits for the
    next request: that takes the fork, half of the time of a short command, out of the caller's way.
    """

    def __init__(self, start: Start, serving: Serving, upper: Upper | None) -> None:
        self._start = start
        self._serving = serving
        self._upper = upper
        self._listener = _socket.socket(fileno=serving.listener)
        self._crew: set[int] = set()  # the supervisors that have a request
        self._taken, self._take = os.pipe()  # a spare writes to it when it has a request
        self._spare: Spare | None = None
        self._used = 0.0  # when the last command ended
        self._ended = False

    def serve(self) -> int:
        """Serve until the session is to end; return its status."""
        self._listener.setblocking(False)
        own = (self._serving.listener, self._taken)
        lease = () if self._serving.lease is None else (self._serving.lease,)
        for descriptor in (*own, *lease):
            os.set_blocking(descriptor, False)
            signals.announce(descriptor)
        if not report.is_read(self._start.report):
            return 0  # who wanted it has gone, and nobody else knows of it
        report.send(self._start.report, report.Message(report.READY, ""))
        os.dup2(self._serving.notes, self._start.report, inheritable=False)
        wanted = 0.0
        self._used = taken = time.monotonic()
        while not self._ended and not _is_closed(self._serving.lease):
            if self._has_taken() or self._crew:
                wanted = _SPARED
                taken = time.monotonic()
            quiet = time.monotonic() - taken
            asked = self._is_asked()
            over = self._is_over() and not asked
            if over and self._spare is None:
                break
            if self._spare is None and (asked or quiet < wanted):
                self._fork()
            elif self._spare is not None and (over or quiet >= _SPARED):
                self._spare.dismiss()
            self._wait(quiet)
        self._close()
        return 0

    def _close(self) -> None:
        """Take no more requests, and tell those who have connected meanwhile."""
        self._listener.shutdown(_socket.SHUT_RDWR)
        self._turn_away("gone")
        self._listener.close()

    def _is_over(self) -> bool:
        """Tell whether there was no command for as long as the session may be without one."""
        ttl = self._serving.ttl
        return ttl is not None and not self._crew and time.monotonic() - self._used >= ttl

    def _wait(self, quiet: float) -> None:
        """Wait for a signal, or until there is something to do for want of requests."""
        left = None
        if not self._crew and (self._spare is None or not self._spare.dismissed):
            ends = [] if self._spare is None else [_SPARED - quiet]
            if self._serving.ttl is not None:
                ends.append(self._used + self._serving.ttl - time.monotonic())
            left = min(ends, default=None)
        got = signals.wait_sender(left)
        if got is None:
            return
        number, from_outside = got
        if number == signals.SIGCHLD:
            self._reap()
        elif number in signals.ENDING and from_outside:
            self._ended = True  # the monitor's; what comes from inside does not count

    def _is_asked(self) -> bool:
        """Tell whether a request waits."""
        waiting = select.poll()
        waiting.register(self._serving.listener, select.POLLIN)
        return bool(waiting.poll(0))

    def _has_taken(self) -> bool:
        """Tell whether the spare has a request since the last time; it is none any more then."""
        try:
            os.read(self._taken, 1)
        except BlockingIOError:
            return False
        if self._spare is not None:
            self._crew.add(self._spare.pid)
            self._forget()
        return True

    def _fork(self) -> None:
        """Make the spare; if there cannot be one, refuse the requests that wait."""
        try:
            leave, dismiss = os.pipe()
        except OSError:
            self._turn_away("refused", _FULL, _ROOM)
            return
        try:
            pid = os.fork()
        except OSError:
            os.close(leave)
            os.close(dismiss)
            self._turn_away("refused", _FULL, _ROOM)
            return
        if pid == 0:
            status = 1
            try:
                os.close(dismiss)
                status = self._stand_by(leave)
            except BaseException as error:  # a traceback would have nowhere to go
                text = f"what supervises commands failed: {type(error).__name__}: {error}"
                report.send(self._start.report, report.Message(report.NOTE, text))
            finally:
                os._exit(status)
        os.close(leave)
        self._spare = Spare(pid, dismiss)

    def _stand_by(self, leave: int) -> int:
        """Be the spare: take one request, or end when there is none for it."""
        waiting = select.poll()
        waiting.register(self._serving.listener, select.POLLIN)
        waiting.register(leave, select.POLLIN)
        while True:
            ready = dict(waiting.poll())
            try:
                connection = wire.accept(self._listener)
            except OSError:
                time.sleep(_PAUSE)
                connection = None
            if connection is not None:
                os.write(self._take, b"1")
                connection.setblocking(True)
                return supervise.main(connection, self._start, self._serving.plan, self._upper)
            if leave in ready:
                return 0

    def _forget(self) -> None:
        if self._spare is not None:
            self._spare.dismiss()
        self._spare = None

    def _turn_away(self, *answer: str) -> None:
        """Answer all who wait, without reading what they ask: that would be waiting for them."""
        try:
            while (connection := wire.accept(self._listener)) is not None:
                connection.setblocking(False)
                try:
                    wire.send(connection, answer)
                except wire.Broken:
                    pass
                connection.close()
        except OSError:
            pass

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._has_taken()  # the spare tells before it ends
            if pid not in self._crew and (self._spare is None or pid != self._spare.pid):
                continue  # what a command has left behind
            if not os.WIFSTOPPED(status):
                self._crew.discard(pid)
                if self._spare is not None and pid == self._spare.pid:
                    self._forget()
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
            if code == supervise.RAN:
                self._used = time.monotonic()
            elif code == supervise.END:
                self._ended = True
            elif code != 0:
                # What it supervised cannot be told from other processes any more, nor held to its time.
                report.send(self._start.report, report.Message(report.NOTE, _LOST))
                self._ended = True


class Spare:
    """A supervisor that waits for a request. ``dismiss`` is the end of a pipe that keeps it."""

    def __init__(self, pid: int, dismiss: int) -> None:
        self.pid = pid
        self._dismiss = dismiss
        self.dismissed = False

    def dismiss(self) -> None:
        """Let it end, unless it has a request."""
        if not self.dismissed:
            os.close(self._dismiss)
            self.dismissed = True


def _is_closed(lease: int | None) -> bool:
    """Tell whether nobody can write to a pipe any more."""
    if lease is None:
        return False
    try:
        return os.read(lease, 1) == b""
    except BlockingIOError:
        return False
