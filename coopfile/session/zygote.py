"""The helper: a warm interpreter that does nothing but fork; what it forks keeps sessions, and makes them.

What a session's processes write to is memory of their own, by the page. So what those that stay use is
imported first, and practised, and lies close together; all else comes behind it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found, unused-ignore]
import _socket
import codecs
import errno
import gc
import os
import resource
import sys

from coopfile.native import serve, syscalls, wire
from coopfile.session import keep, practice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.session.outside import Outside

_IDLE = 60.0  # seconds without a request
_NAME = "coop: helper of sessions"
_TOLD = 4096  # bytes that a monitor may have told meanwhile


def main(descriptor: int, directory: str, name: str) -> None:
    """Be the helper until nobody has asked for anything in a while.

    ``descriptor`` is that of its listening socket, which is ``name`` in a directory.
    """
    # Not the descriptors of who happened to start it, whose pipes and locks would never be let go.
    syscalls.close_but((0, 1, 2, descriptor))
    os.set_inheritable(descriptor, False)
    os.chdir("/")
    gc.disable()
    _practise()
    from coopfile.session import helper, making, outside

    serve.prepare()
    codecs.lookup("ascii")  # for reading why the kernel refuses something
    _practise()  # again: the imports have taken places in the interpreter's memory of attributes
    sys.meta_path.clear()  # what a session's PID 1 imported would be the sandbox's own
    gc.collect()
    _filler = practice.filled()
    gc.freeze()
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)  # the kernel reaps
    listener = _socket.socket(fileno=descriptor)
    monitors = _Monitors(making.main, outside.Outside())
    while True:
        connection = _next(listener, _IDLE)
        if connection is None:
            with helper.locked(directory):
                connection = _next(listener, 0)
                if connection is None:
                    os.unlink(f"{directory}/{name}")
                    _close(listener, monitors)
                    return
        monitors.give(connection)
        connection.close()


def _close(listener: _socket.socket, monitors: _Monitors) -> None:
    """Let nobody connect any more, and see to those who have before the socket was gone."""
    listener.shutdown(_socket.SHUT_RDWR)
    listener.settimeout(0)
    try:
        while (connection := wire.accept(listener)) is not None:
            monitors.give(connection)
            connection.close()
    except OSError:
        pass  # that is what some kernels say when there is none, and will be none


def _practise() -> None:
    try:
        practice.practise(_NAME)
    except OSError:
        pass  # it spares memory; what the kernel does not have, who asks is told


def _next(listener: _socket.socket, seconds: float) -> _socket.socket | None:
    listener.settimeout(seconds)
    while True:
        try:
            return wire.accept(listener)
        except OSError:
            _pause()  # no room for its descriptor


def _pause() -> None:
    import time

    time.sleep(0.01)


class _Monitor:
    """A monitor as the helper knows it: how many sessions it has, and whether it has no room, says it."""

    __slots__ = ("control", "count", "full")

    def __init__(self, control: _socket.socket) -> None:
        self.control = control
        self.count = 0
        self.full = False

    def has_room(self, most: int) -> bool:
        """Tell whether it takes another session, of so many, by what it has said. Raises Broken."""
        try:
            told = self.control.recv(_TOLD, _socket.MSG_DONTWAIT)
            if not told:
                raise wire.Broken("it has ended")
        except BlockingIOError:
            told = b""
        except OSError as error:
            raise wire.Broken(str(error)) from None
        self.count -= told.count(keep.ENDED)
        of_room = told.replace(keep.ENDED, b"")
        if of_room:
            self.full = of_room.endswith(keep.FULL)
        return self.count < most and not self.full


class _Monitors:
    """Those that the helper has forked, each of which keeps as many sessions as it may."""

    def __init__(self, make: keep.Make, outside: Outside) -> None:
        self._make = make
        self._outside = outside
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        self._most = max(min(keep.SESSIONS, most // keep.DESCRIPTORS), 1) if most >= 0 else keep.SESSIONS
        self._monitors: list[_Monitor] = []

    def give(self, connection: _socket.socket) -> None:
        """Have a monitor see to who asks for a session, one with room or a new one."""
        if not self._outside.has(connection):
            return
        connection.setblocking(True)
        for monitor in tuple(self._monitors):
            try:
                if not monitor.has_room(self._most):
                    continue
                wire.send(monitor.control, (), (connection.fileno(),))
            except wire.Crowded as error:
                keep.refuse(connection, OSError(errno.ETOOMANYREFS, error.why))
                return
            except wire.Broken:
                monitor.control.close()
                self._monitors.remove(monitor)
                continue
            monitor.count += 1
            return
        try:
            made = self._fork()
            wire.send(made.control, (), (connection.fileno(),))
            made.count += 1
        except OSError as error:
            keep.refuse(connection, error)
        except wire.Broken:
            pass  # it was killed at once, and who asks is told by that

    def _fork(self) -> _Monitor:
        """Start a monitor. Raises OSError."""
        mine, control = _socket.socketpair()
        try:
            pid = os.fork()
        except OSError:
            mine.close()
            control.close()
            raise
        if pid == 0:
            try:
                syscalls.close_but((0, 1, 2, control.fileno()))
                keep.main(control, self._make)
            finally:
                os._exit(1)
        control.close()
        made = _Monitor(mine)
        self._monitors.append(made)
        return made
