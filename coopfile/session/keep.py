"""What the helper forks: a monitor, which keeps sessions until their ends, some tens of them.

It stays, and does next to nothing itself: for each session it forks PID 1 of the sandbox, which waits, and
a process, the *maker*, that makes the sandbox, hands it what has to be undone at the end, and goes. When
PID 1 has ended it forks another one that undoes. So nothing that takes its time, and nothing that fails,
is in here.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found, unused-ignore]
import _socket
import os
import resource
import select
import sys
import time
from os import close, fork

from coopfile.errors import CoopError
from coopfile.native import report, signals, syscalls, title, wire
from coopfile.native.namespaces import enter_user_namespace
from coopfile.session import founding, store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    Make = Callable[[_socket.socket, _socket.socket, founding.Founded, int, bool], NoReturn]

MOST = 250  # descriptors of a message: SCM_MAX_FD is 253
SESSIONS = 32  # of a monitor: as many end when it is killed
DESCRIPTORS = 64  # of a session, in the monitor: where it may have fewer than all take, it has fewer sessions
IMPORTERS = tuple(sys.meta_path)  # which the helper takes away from what it forks
ENDED, ROOM, FULL = b".", b"+", b"-"  # what the helper is told
_NAME = "coop: monitor of sessions"
_QUICK = 0.5  # seconds that who asks may take when it is refused
_PROMPT = 5.0  # seconds that a maker may take between two parts of what it hands over
_SPARED = 2.0  # seconds that a monitor stays without a session
_NEVER = float("inf")
_LOOKS = 60.0  # seconds between two looks whether anything leads to the sessions
_SIGNAL = 128  # bytes of struct signalfd_siginfo, which begins with the number
_LEAVING = os.WEXITED | os.WNOHANG | os.WNOWAIT
_NO_PROCESS = "no process can be started for the session"
_MORE = "end some, or raise the limit: ulimit -u, or pids.max of the control group"


def main(control: _socket.socket, make: Make) -> NoReturn:
    """Be a monitor of what comes from the helper until there is no session for a while; never returns.

    ``make`` is what a maker does.
    """
    status = 1
    try:
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        mask = signals.block()
        os.setsid()  # nobody's terminal counts
        title.take(_NAME)
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        monitor = Monitor(control, mask, make)
        try:
            monitor.keep()
            status = 0
        except BaseException as error:  # a fault of ours, or no memory: then nothing is to be left behind
            monitor.give_up(error)
    finally:
        os._exit(status)


def refuse(connection: _socket.socket, error: OSError | CoopError) -> None:
    """Tell who asks why no process could be made for it. It is quick: others wait."""
    connection.settimeout(_QUICK)
    try:
        _, descriptors = wire.receive_bounded(connection, MOST)
    except wire.Broken:
        return
    if isinstance(error, OSError):
        error = CoopError(f"{_NO_PROCESS}: {error.strerror}", _MORE)
    for number, descriptor in enumerate(descriptors):
        if number == 0:
            report.send_error(descriptor, error)
        close(descriptor)


class Session:
    """What the monitor knows of one.

    ``maker`` is the process that makes it, 0 when that has gone. ``channel`` leads there until it has
    handed over all that is below; ``first`` is PID 1, 0 until then, and ``kept`` is ``undoing.Kept``,
    packed. The first of ``descriptors`` is of the file that is locked, the second of the one for what there
    is to tell, the others are those of ``undoing.Kept``, and what else is to be held. ``opener`` is the end
    of a pipe: PID 1 waits for a byte in it, and what the maker has left until it is closed.
    """

    __slots__ = ("channel", "descriptors", "directory", "first", "kept", "maker", "opener")

    def __init__(self, maker: int, channel: _socket.socket, opener: int) -> None:
        self.maker = maker
        self.channel: _socket.socket | None = channel
        self.opener = opener
        self.first = 0
        self.directory = ""
        self.kept = b""
        self.descriptors: list[int] = []


class Monitor:
    """The loop, and the sessions."""

    def __init__(self, control: _socket.socket, mask: set[int], make: Make) -> None:
        """``control`` leads to the helper; ``mask`` is for the commands of the sessions."""
        self._control: _socket.socket | None = control
        self._mask = mask
        self._make_one = make
        self._signals = syscalls.signal_descriptor(signals.HANDLED)
        self._sessions: list[Session] = []
        self._undoers: set[int] = set()
        self._empty: float | None = None  # since when there is no session
        self._ending = False
        self._full = False
        self._is_first = True  # until a session has been made
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)  # the sessions', too
        hard = self._limits[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self._most = hard // 2 if hard >= 0 else 1 << 30  # the rest is for those that are being made

    def keep(self) -> None:
        """See to sessions until there are none, and none comes for a while."""
        looks = time.monotonic() + _LOOKS
        while self._control is not None or self._sessions:
            goes = self._retires()
            ready = self._wait(min(looks, goes) - time.monotonic())
            number = self._signalled()
            while number:
                if number == signals.SIGCHLD:
                    self._reap()
                elif number in signals.ENDING:
                    self._end()
                else:
                    looks = 0.0
                number = self._signalled()
            for session in tuple(self._sessions):
                if session.channel is not None and session.channel.fileno() in ready:
                    self._receive(session)
            if self._control is not None and self._control.fileno() in ready:
                self._take(self._control)
            if self._control is not None and not ready and time.monotonic() >= goes:
                # The helper cannot send any more. What it has sent comes yet, and then the end.
                self._control.shutdown(_socket.SHUT_RD)
            if time.monotonic() >= looks:
                self._look()
                looks = time.monotonic() + _LOOKS

    def _retires(self) -> float:
        """Return when to end for want of sessions."""
        if self._sessions or self._control is None:
            self._empty = None
            return _NEVER
        if self._empty is None:
            self._empty = time.monotonic()
        return self._empty + _SPARED

    def _wait(self, seconds: float) -> set[int]:
        """Wait for a signal, the helper and the makers; return the descriptors from which something comes."""
        waiting = select.poll()
        waiting.register(self._signals, select.POLLIN)
        if self._control is not None:
            waiting.register(self._control.fileno(), select.POLLIN)
        for session in self._sessions:
            if session.channel is not None:
                waiting.register(session.channel.fileno(), select.POLLIN)
        return {descriptor for descriptor, _ in waiting.poll(max(seconds, 0.0) * 1000)}

    def _signalled(self) -> int:
        """Return the next signal; 0 if there is none."""
        try:
            return int.from_bytes(os.read(self._signals, _SIGNAL)[:4], "little")
        except BlockingIOError:
            return 0

    def _take(self, control: _socket.socket) -> None:
        """Take what the helper sends: the connection of one who asks for a session."""
        try:
            _, (descriptor,) = wire.receive(control, 1)
        except (wire.Broken, ValueError):  # it has gone; or there is no room for the descriptor
            self._leave_helper()
            return
        connection = _socket.socket(fileno=descriptor)
        try:
            self._make(connection)
        except (CoopError, OSError) as error:
            refuse(connection, error)
            self._tell(ENDED)
        connection.close()

    def _make(self, connection: _socket.socket) -> None:
        """Fork PID 1 and the maker of a session. Raises OSError, CoopError."""
        mine, makers = _socket.socketpair()
        try:
            gate, opener = os.pipe()
        except OSError:
            mine.close()
            makers.close()
            raise
        monitor = os.getpid()
        founded = None
        try:
            founded = founding.found(gate, self._mask, self._limits)
            maker = fork()
            if maker == 0:
                _be_maker(connection, makers, founded, monitor, self._limits, self._make_one, self._is_first)
        except BaseException:
            mine.close()
            close(opener)
            raise
        finally:
            makers.close()
            if founded is None:
                close(gate)
            else:
                founded.close()
        mine.settimeout(_PROMPT)
        self._sessions.append(Session(maker, mine, opener))

    def _receive(self, session: Session) -> None:
        """Receive what the maker hands over, as far as it has sent it."""
        while session.channel is not None and _is_ready(session.channel.fileno()):
            try:
                message, descriptors = wire.receive(session.channel, MOST)
            except wire.Broken:
                self._drop(session)
                return
            session.descriptors += descriptors
            if message:
                self._begin(session, *message)

    def _begin(self, session: Session, first: int, directory: str, kept: bytes) -> None:
        """See to a session from now on, and let it begin. The maker undoes it unless it hears that."""
        if session.channel is not None:
            try:
                wire.send(session.channel, ())
            except wire.Broken:
                pass  # it has been killed
        self._hang_up(session)
        self._is_first = False
        process = session.descriptors.pop(0)
        session.first, session.directory, session.kept = first, directory, kept
        has_ended = _is_ready(process)
        close(process)
        if has_ended:  # it is waited for like any other process
            store.tell_end(session.descriptors[0])
            self._finish(session)
        elif self._ending:
            os.kill(first, signals.SIGKILL)
        else:
            try:
                os.write(session.opener, b"1")
            except OSError:
                pass  # it has been killed meanwhile
        self._tell_room()

    def _reap(self) -> None:
        while (found := self._ended()) is not None:
            pid = found.si_pid
            for session in tuple(self._sessions):
                if pid == session.maker:
                    self._receive(session)  # it may have sent it just before
                elif pid == session.first:
                    store.tell_end(session.descriptors[0])
            os.waitpid(pid, 0)
            self._undoers.discard(pid)
            for session in tuple(self._sessions):
                if pid == session.maker:
                    session.maker = 0
                    self._lose_maker(session, (found.si_code, found.si_status) == (os.CLD_EXITED, 0))
                elif pid == session.first:
                    self._finish(session)

    def _ended(self) -> os.waitid_result | None:
        """Return a child that has ended and is to be waited for.

        A PID 1 that is not handed over yet is not: its maker goes by its number.
        """
        try:
            found = os.waitid(os.P_ALL, 0, _LEAVING)
        except ChildProcessError:
            return None
        known = {pid for session in self._sessions for pid in (session.maker, session.first) if pid}
        known |= self._undoers
        is_making = any(session.channel is not None for session in self._sessions)
        if found is None or found.si_pid in known or not is_making:
            return found
        ended = (os.waitid(os.P_PID, pid, _LEAVING) for pid in known)
        return next((item for item in ended if item is not None), None)

    def _lose_maker(self, session: Session, well: bool) -> None:
        """Notice that the maker is gone: as it should, or of something that it has told."""
        if session.channel is not None:
            self._drop(session)
        elif not well:  # if it was to stay, what it saw to is gone
            os.kill(session.first, signals.SIGKILL)

    def _hang_up(self, session: Session) -> None:
        if session.channel is not None:
            session.channel.close()
        session.channel = None

    def _drop(self, session: Session) -> None:
        """Forget a session that is not handed over: its maker undoes what it has done, and PID 1 ends."""
        self._hang_up(session)
        self._tell(ENDED)
        self._forget(session)

    def _finish(self, session: Session) -> None:
        """Have undone what there was of a session."""
        self._tell(ENDED)  # before anybody can see that it has ended
        close(session.opener)  # what the maker has left ends by that
        session.opener = -1
        stayed = None
        try:
            if session.maker:
                stayed = os.pidfd_open(session.maker)
            undoer = fork()
        except OSError:
            undoer = -1
        if undoer == 0:
            _be_undoer(session, stayed)
        if undoer > 0:
            self._undoers.add(undoer)
        else:  # there can be no other process: others wait, then
            _undo(session, stayed)
        if stayed is not None:
            close(stayed)
        self._forget(session)

    def _forget(self, session: Session) -> None:
        self._sessions.remove(session)
        for descriptor in (session.opener, *session.descriptors):
            try:
                close(descriptor)
            except OSError:
                pass  # it is closed already
        self._tell_room()

    def _look(self) -> None:
        """End the sessions that nothing leads to any more."""
        for session in self._sessions:
            if session.first and not store.leads_to(session.directory, session.descriptors[0]):
                os.kill(session.first, signals.SIGTERM)

    def _end(self) -> None:
        """End all sessions, in order, and take no more."""
        self._ending = True
        self._leave_helper()
        for session in self._sessions:
            if session.first:
                os.kill(session.first, signals.SIGTERM)

    def give_up(self, error: BaseException) -> None:
        """End all sessions at once and undo them, each as well as that can be done now.

        Those that are not handed over end by themselves: their makers undo what they have done.
        """
        for session in self._sessions:
            if session.first:
                report.send_error(session.descriptors[1], error)
                os.kill(session.first, signals.SIGKILL)
        for session in self._sessions:
            if session.first:
                close(session.opener)
                try:
                    os.waitpid(session.first, 0)
                except ChildProcessError:
                    pass  # it had ended, and was waited for
                _undo(session, None)

    def _leave_helper(self) -> None:
        if self._control is not None:
            self._control.close()
        self._control = None

    def _tell_room(self) -> None:
        """Tell the helper when there is no room for more descriptors, and when there is again."""
        full = sum(1 + len(session.descriptors) for session in self._sessions) > self._most
        if full != self._full:
            self._full = full
            self._tell(FULL if full else ROOM)

    def _tell(self, what: bytes) -> None:
        if self._control is not None:
            try:
                self._control.send(what, _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL)
            except OSError:
                pass  # it has gone, which is seen elsewhere


def _is_ready(descriptor: int) -> bool:
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(0))


def _be_maker(
    connection: _socket.socket,
    channel: _socket.socket,
    founded: founding.Founded,
    monitor: int,
    files: tuple[int, int],
    make: Make,
    is_first: bool,
) -> NoReturn:
    """Be the maker of a session, with nothing of the others'; never returns."""
    try:
        founding.leave_others((connection.fileno(), channel.fileno(), *founded.descriptors()), files)
        make(connection, channel, founded, monitor, is_first)
    finally:
        os._exit(1)


def _be_undoer(session: Session, stayed: int | None) -> NoReturn:
    """Undo a session, with nothing of the others'; never returns."""
    try:
        try:
            sys.meta_path[:] = IMPORTERS
            kept = [0, 1, 2, *session.descriptors]
            syscalls.close_but(kept if stayed is None else [*kept, stayed])
            enter_user_namespace(os.geteuid(), os.getegid())  # it takes no more privileges than PID 1 had
        except (CoopError, OSError):
            pass  # of namespaces there are too many: what is there has to go all the same
        _undo(session, stayed)
    finally:
        os._exit(0)  # else it would go on as a monitor, and end all that it knows of


def _undo(session: Session, stayed: int | None) -> None:
    from coopfile.session import undoing  # loaded long ago

    try:
        undoing.undo(session.directory, undoing.unpacked(session.kept), session.descriptors, stayed)
    except BaseException as error:
        report.send_error(session.descriptors[1], error)
