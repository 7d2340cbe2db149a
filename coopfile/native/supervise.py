"""The supervisor of one command in a session: a fork of PID 1, as locked in as the command.

All that the command starts stays below this process, which adopts what loses its parent
(PR_SET_CHILD_SUBREAPER), so that ending it is ending all of it.
"""

from __future__ import annotations

import _socket
import marshal
import os
import resource  # also what os.wait4 imports, which may not be there any more inside
import time

from coopfile.errors import CoopError
from coopfile.native import descendants, pty, signals, streams, syscalls, wire
from coopfile.native.serve import END, RAN
from coopfile.native.spawn import NotStarted, spawn
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from coopfile.native.upper import Stamp

TIMED_OUT = 124
_PROMPT = 10.0  # seconds that a client may take for a message
_GRACE = 2.0  # seconds between asking to end and ending, when the time is over
_LET_GO = 1.0  # the same when the caller is gone
_NO_PROGRAM = ("",)  # a command for which not even a process is made: that would count for a moment
_UNENDING = "some of its processes cannot be ended: the kernel holds them"


class Inside(Record):
    """What a session's commands are started with, which PID 1 itself has no use for.

    ``plan`` is the plan's digest. ``layers`` and ``made`` are as in ``upper.Upper``.
    """

    plan: str
    workspace: str
    environment: dict[str, str]
    layers: tuple[str, ...]
    made: dict[str, Stamp]

    def packed(self) -> bytes:
        """Return it as ``unpacked`` takes it."""
        return marshal.dumps(tuple(getattr(self, name) for name in self._fields))


def unpacked(data: bytes) -> Inside:
    """Return what ``packed`` was told."""
    return Inside(*marshal.loads(data))


class Served(Record):
    """What supervisors are given, which adopt what loses its parent below them: PR_SET_CHILD_SUBREAPER.

    ``report`` takes notes, ``upper`` is a descriptor of the root's changes.
    """

    report: int
    mask: set[int]
    inside: Inside
    upper: int | None


def main(connection: _socket.socket, served: Served) -> int:
    """Answer one request to the session; return this process's exit status.

    When it raises, none of what the command started may be left to itself: PID 1 ends the session.
    """
    connection.settimeout(_PROMPT)
    supervisor = None
    try:
        if wire.peer(connection) != (0, os.geteuid()):
            return 0  # of another user; or from inside, where the number of a process is not 0
        request, descriptors = wire.receive_bounded(connection, 3)
        if request[:1] != (wire.PROTOCOL,):
            text = "the session was started by another version of coop"
            wire.send(connection, ("refused", text, "end it with coop stop; it starts again when used"))
        elif request[1:2] == ("stop",):
            return END
        else:
            supervisor = _answer(connection, request[1:], descriptors, served)
            if supervisor is not None:
                supervisor.attend()
    except wire.Broken:
        pass  # the caller is gone
    return 0 if supervisor is None else RAN


def practise(served: Served) -> None:
    """Go the way of a request once, without effect.

    In a forked process the first write to each page is a copy of it. Those are a third of what a short
    command takes, and here nobody waits for them.
    """
    kind = _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC
    try:
        client, connection = _socket.socketpair(_socket.AF_UNIX, kind)
    except OSError:
        return  # there is no room for them
    descriptors: list[int] = []
    try:
        connection.settimeout(_PROMPT)
        wire.peer(connection)
        wire.send(client, wire.command(_NO_PROGRAM, (), None, None), (0, 1, 2))
        request, descriptors = wire.receive_bounded(connection, 3)
        supervisor = Supervisor(connection, served, served.inside, Asked(*request[2:]))
        supervisor.start(descriptors)
        _let_go()
        supervisor.practise()
    except (OSError, CoopError, wire.Broken):
        pass  # what is wrong is told to those who ask for something
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        client.close()
        connection.close()
        while signals.wait(0) is not None:
            pass  # of these sockets


def _answer(
    connection: _socket.socket,
    request: tuple[Any, ...],
    descriptors: list[int],
    served: Served,
) -> Supervisor | None:
    """Do what is asked; return what has to attend to a command that has been started."""
    inside = served.inside
    try:
        kind, asked, *details = request
        if asked not in (None, inside.plan):
            wire.send(connection, ("replaced",))
        elif kind == "exec":
            supervisor = Supervisor(connection, served, inside, Asked(*details))
            return supervisor if supervisor.begin(descriptors) else None
        elif kind == "usage":
            wire.send(connection, ("usage", *descendants.usage()))
        elif kind == "upper" and served.upper is not None:
            wire.send(connection, ("upper", inside.layers, inside.made), (served.upper,))
        elif kind == "workspace":
            _hand_over_workspace(connection)
        elif kind == "variables":
            environment = inside.environment
            wire.send(connection, ("variables", tuple((name, environment.get(name)) for name in details[0])))
        elif kind == "pause":
            _pause(connection)
        else:
            wire.send(connection, ("refused", f"this session has no {kind}", ""))
    except CoopError as error:
        wire.send(connection, ("refused", error.message, error.remedy or ""))
    except (TypeError, ValueError, AttributeError) as error:
        wire.send(connection, ("refused", f"the session cannot do that: {error}", ""))
    return None


def _hand_over_workspace(connection: _socket.socket) -> None:
    """Send the workspace as it is mounted here, where this process stands, and what keeps it so.

    A mount namespace that ends takes the mounts on its directories, guards among them, away from
    whoever still has a descriptor of those. It does not end while somebody has one of it.
    """
    place = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        try:
            wire.send(connection, ("workspace",), (place, namespace))
        finally:
            os.close(namespace)
    finally:
        os.close(place)


def _pause(connection: _socket.socket) -> None:
    """Stop all processes while the caller stays connected."""
    stopped = descendants.stop_all()
    try:
        wire.send(connection, ("paused", len(stopped)))
        connection.settimeout(None)
        wire.receive(connection)
    finally:
        descendants.go_on(stopped)


class Asked(Record):
    """What is asked for with a command: the fields of ``model.Command``. ``environment`` is made of pairs."""

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    directory: str | None
    timeout: float | None
    terminal: tuple[int, int, bytes] | None


class Supervisor:
    """Runs one command and answers with how it ended."""

    def __init__(self, connection: _socket.socket, served: Served, inside: Inside, asked: Asked) -> None:
        self._connection = connection
        self._served = served
        self._inside = inside
        self._asked = asked
        self._began = time.monotonic()
        self._deadline = None if asked.timeout is None else self._began + asked.timeout
        self._command = 0
        self._status: int | None = None
        self._peak: int | None = None

    def begin(self, descriptors: list[int]) -> bool:
        """Start what was asked for; tell whether it could be. Raises CoopError, ValueError, TypeError."""
        kept = (self._connection.fileno(), self._served.report, *descriptors)
        syscalls.close_but((0, 1, 2, *kept))
        return self.start(descriptors)

    def start(self, descriptors: list[int]) -> bool:
        """Do what ``begin`` does, but let this process keep its other descriptors."""
        asked = self._asked
        environment = {**self._inside.environment, **dict(asked.environment)}
        place = _place(self._inside.workspace, asked.directory)
        _enter(place)
        environment["PWD"] = place
        if not asked.argv:
            raise CoopError("no command was given")
        if asked.terminal is None:
            master, actions = None, _streams(descriptors)
        else:
            master, actions = _terminal(asked.terminal)
        started = spawn(asked.argv, environment, self._served.mask, actions)
        if isinstance(started, NotStarted):
            self._answer(started.status, notes=(started.text,))
            return False
        self._command = started
        _let_go()
        try:
            wire.send(self._connection, ("started",), () if master is None else (master,))
        except wire.Broken:
            pass  # which is noticed again, when the command can be ended
        if master is not None:
            os.close(master)
        return True

    def practise(self) -> None:
        """Attend to a command that there is not."""
        self._reap()
        self._status = 0
        self.attend()
        self._listen()

    def attend(self) -> None:
        """Wait for the command's end, for its time to be over, or for the caller to go."""
        deadline = self._deadline
        self._connection.settimeout(None)  # with one, Python would wait where it is told not to
        signals.announce(self._connection.fileno())
        number: int | None = signals.SIGIO  # something may have come before
        while self._status is None:
            if number == signals.SIGIO and not self._listen():
                self._end_all(signals.SIGHUP if self._asked.terminal else signals.SIGTERM, _LET_GO)
                return
            if deadline is not None and time.monotonic() >= deadline:
                ended = self._end_all(signals.SIGTERM, _GRACE)
                self._answer(TIMED_OUT, timed_out=True, notes=() if ended else (_UNENDING,))
                return
            number = signals.wait(None if deadline is None else deadline - time.monotonic())
            if number == signals.SIGCHLD:
                self._reap()
        code = os.waitstatus_to_exitcode(self._status)
        self._answer(code if code >= 0 else 128 - code, signal=-code if code < 0 else None)

    def _listen(self) -> bool:
        """Do what the caller asks for meanwhile; tell whether it is still there."""
        while (waiting := wire.is_waiting(self._connection)) is not False:
            if waiting is None:
                return False
            self._connection.settimeout(_PROMPT)
            try:
                message, _ = wire.receive(self._connection)
            except wire.Broken:
                return False
            self._connection.settimeout(None)
            if message[:1] != ("signal",) or not isinstance(message[-1], int):
                return False
            descendants.signal(-self._command, message[-1])
        return True

    def _reap(self) -> bool:
        """Reap what has ended; tell whether anything is left."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._command:
                self._status = status
                # An exec counts what went before it, which is this process's memory: exec_mmap in fs/exec.c.
                own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                self._peak = used.ru_maxrss * 1024 if used.ru_maxrss > own else None

    def _end_all(self, asking: int, grace: float) -> bool:
        """End all that the command started, after having asked; tell whether that could be done."""
        for pid in descendants.find(os.getpid()):
            descendants.signal(pid, asking)
            descendants.signal(pid, signals.SIGCONT)
        if self._wait_all(grace, lambda: None):
            return True
        return self._wait_all(_PROMPT, lambda: descendants.kill(os.getpid()))

    def _wait_all(self, seconds: float, between: Callable[[], None]) -> bool:
        """Reap until nothing is left, which only the kernel can tell; not longer than so many seconds."""
        deadline = time.monotonic() + seconds
        while self._reap():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            between()
            signals.wait(min(left, 0.05))
        return True

    def _answer(
        self, status: int, *, signal: int | None = None, timed_out: bool = False, notes: tuple[str, ...] = ()
    ) -> None:
        took = time.monotonic() - self._began
        wire.send(self._connection, ("ended", status, signal, timed_out, took, self._peak, notes))


def _place(workspace: str, directory: str | None) -> str:
    """Return where a command starts, as a path inside."""
    if not directory:
        return workspace
    return directory if directory.startswith("/") else f"{workspace}/{directory}"


def _enter(directory: str) -> None:
    """Change to a directory. No link leads out: this process has no descriptor of one any more."""
    try:
        os.chdir(directory)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise CoopError(
            f"{directory} cannot be entered inside the sandbox: {why}", "name a directory of the sandbox"
        ) from None


def _streams(descriptors: list[int]) -> tuple[Any, ...]:
    """Make the caller's descriptors, which are used up, the three streams of this process and its command."""
    if len(descriptors) != 3:
        raise CoopError("a command needs three streams")
    for number in range(3):
        descriptor = descriptors.pop(0)
        os.dup2(descriptor, number)
        os.close(descriptor)
    streams.refuse_directories()
    streams.take_own_devices()
    return ()


def _terminal(wanted: tuple[int, int, bytes]) -> tuple[int, tuple[Any, ...]]:
    try:
        master, slave = pty.open_pair(*wanted)
    except OSError as error:
        raise CoopError(f"the sandbox cannot make a terminal: {error.strerror}") from None
    return master, tuple(pty.actions(slave))


def _let_go() -> None:
    """Give up the command's streams: whoever reads them waits for the last copy to be closed."""
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for number in (0, 1, 2):
        os.dup2(null, number, inheritable=False)
    os.close(null)
