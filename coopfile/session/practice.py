"""Doing once, before sessions are forked, what each would do for the first time otherwise.

The interpreter rewrites code when it has run a few times, and remembers where it found attributes. In a
forked process each of these writes copies a page, which is that session's alone from then on. So what
stays of a session practises what it can without any effect, on pipes and sockets that lead nowhere.
"""

from __future__ import annotations

import _socket
import os

from coopfile.native import confine, serve, signals, syscalls, title, wire

_TIMES = 20  # CPython 3.11 rewrites a function after 8 calls
_FUNCTIONS = ("mount", "prctl", "prlimit", "syscall", "unshare")
_MOMENT = 1e-4  # seconds
_PR_GET_DUMPABLE = 3
_GRAIN, _LARGEST = 16, 512  # bytes
_POOL, _POOL_HEAD = 1 << 14, 48  # bytes
_HEAD = 33  # bytes that an object of bytes has besides them
_MOST = 4096


def practise(name: str) -> None:
    """Practise; ``name`` is this process's in the list of processes. Raises OSError."""
    syscalls.look_up(_FUNCTIONS)
    syscalls.look_up_forking()
    signals.restore(signals.block())
    mask = signals.block()
    harmless = syscalls.Calls([("prctl", None, (_PR_GET_DUMPABLE,))])
    try:
        for _ in range(_TIMES):
            _send()
            _keep()
            _serve()
            title.take(name)
            syscalls.prctl(_PR_GET_DUMPABLE)
            harmless.make()
            syscalls.unshare(0)
            os.close(syscalls.openat2(syscalls.AT_FDCWD, "/", syscalls.O_PATH, 0))
    finally:
        while signals.wait(0) is not None:
            pass  # one would end this process now: it was slow, and did not wait for what it had sent itself
        signals.restore(mask)


def _send() -> None:
    """Send messages as the maker, the monitor and PID 1 do, and take them."""
    one, other = _socket.socketpair()
    with open(os.devnull, "rb") as null:
        for message in (("name", 0, 0, True), (1,), ("/directory", b"packed")):
            wire.send(one, message, (null.fileno(),))
            for descriptor in wire.receive(other, 4)[1]:
                os.close(descriptor)
            wire.send(one, message)
            wire.receive(other)
    one.close()
    other.close()


def _keep() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"1")
    confine.pass_gate(reading)
    os.close(reading)
    os.close(writing)


def _serve() -> None:
    """Serve requests that do not come, until the session has lasted as long as it may."""
    reading, writing = os.pipe()
    listener = wire.stream()
    listener.bind("")  # a name that nobody knows
    listener.listen(1)
    notes = os.dup(writing)
    os.kill(os.getpid(), signals.SIGIO)
    serve.Server(writing, set(), b"", None, listener.detach(), notes, None, _MOMENT).serve()
    table = confine.Table.taken("/proc/self/mountinfo")
    table.tell_lost(writing)
    table.close()
    for descriptor in (reading, writing, notes):
        os.close(descriptor)


def filled() -> list[object]:
    """Return objects that fill what is free between others, so that new ones get pages of their own.

    An object of up to 512 bytes comes from a pool of ones of its size, a multiple of 16: Objects/obmalloc.c.
    """
    found: list[object] = []
    for size in range(_GRAIN, _LARGEST + 1, _GRAIN):
        for _ in range(_MOST):
            made: object = object() if size == _GRAIN else bytes(max(size - _HEAD, 1))
            found.append(made)
            if id(made) % _POOL == _POOL_HEAD:
                break  # the first of a pool that nobody has used
    return found
