"""The helper: a warm interpreter that does nothing but fork; what it forks becomes sessions.

What a session's processes write to is memory of their own, by the page. So what those that stay use is
imported first, and practised, and lies close together; all else comes behind it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found, unused-ignore]
import _socket
import codecs
import gc
import os
import sys

from coopfile.native import serve, syscalls, title, wire
from coopfile.session import keep, practice

_IDLE = 60.0  # seconds without a request
_NAME = "coop: helper of sessions"
_PLAIN = "coop"  # PID 1's


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
    from coopfile.session import helper, making  # noqa: F401 - for those that are forked

    serve.prepare()
    codecs.lookup("ascii")  # for reading why the kernel refuses something
    _practise()  # again: the imports have taken places in the interpreter's memory of attributes
    sys.meta_path.clear()  # what a session's PID 1 imported would be the sandbox's own
    gc.collect()
    _filler = practice.filled()
    gc.freeze()
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)  # the kernel reaps
    listener = _socket.socket(fileno=descriptor)
    while True:
        connection = _next(listener, _IDLE)
        if connection is None:
            with helper.locked(directory):
                connection = _next(listener, 0)
                if connection is None:
                    os.unlink(f"{directory}/{name}")
                    return
        _fork(listener, connection)


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


def _fork(listener: _socket.socket, connection: _socket.socket) -> None:
    connection.setblocking(True)
    title.take(_PLAIN)
    try:
        pid = os.fork()
    except OSError as error:
        pid = -1
        keep.refuse(connection, error)
    if pid == 0:
        try:
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
            listener.close()
            keep.main(connection)
        finally:
            os._exit(1)
    title.take(_NAME)
    connection.close()
