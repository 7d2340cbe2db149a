"""A sandbox whose only way out is a proxy: sockets of its own namespace that lead to a process outside.

PID 1 makes the listening sockets, which stay in the network namespace where they were made, and
hands them to the proxy, which connects from the host's. So nothing inside relays, and the command can
reach nothing but those two ports. The proxy is forked by the monitor while it is in the host's
namespaces, and the kernel ends it with the monitor.
"""

from __future__ import annotations

import os
from _socket import AF_INET, SCM_RIGHTS, SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET, socket, socketpair
from _struct import pack

from coopfile.errors import CoopError
from coopfile.native import beside
from coopfile.plan.reach import HTTP_PORT, SOCKS_PORT
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopfile.language.items import HostPattern

_BACKLOG = 4096


class Gate(Record):
    """The sandbox's ends: a channel, with whose end the proxy ends, and a pipe of what it has to tell."""

    channel: socket
    pipe: int

    def leave(self) -> None:
        """Leave the rest to PID 1, as the monitor, which keeps both ends open."""

    def announce(self, pid: int | None = None) -> None:
        """Tell nothing: the proxy has no business in the sandbox."""

    def accept(self) -> None:
        """Hand the proxy sockets that listen on this process's, PID 1's, loopback."""
        listeners = [_listener(port) for port in (HTTP_PORT, SOCKS_PORT)]
        self.give([listener.fileno() for listener in listeners])
        for listener in listeners:
            listener.close()

    def give(self, listeners: Sequence[int]) -> None:
        """Hand the proxy two sockets that listen in the sandbox, for HTTP and for SOCKS."""
        try:
            self.channel.sendmsg([b"1"], [(SOL_SOCKET, SCM_RIGHTS, pack("2i", *listeners))])
        except OSError:
            raise CoopError(" ".join(self.notes()) or "the proxy has ended") from None

    def close(self) -> None:
        """Leave the proxy's end to the kernel, as the monitor."""

    def notes(self) -> tuple[str, ...]:
        """Return the lines that the proxy has for people so far."""
        return beside.told(self.pipe)


def _listener(port: int) -> socket:
    made = socket(AF_INET, SOCK_STREAM)
    made.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    made.listen(_BACKLOG)
    return made


def start(allow: tuple[HostPattern, ...], log: str, landlock_abi: int, listed: str = "") -> Gate:
    """Fork the proxy, from a process that is in the host's namespaces yet.

    ``log`` is the file for what is blocked, and ``listed`` says where the list was written; or empty.
    """
    channel, end = socketpair()
    pipe, pipe_end = os.pipe()
    monitor = os.getpid()
    if os.fork() == 0:
        task = Task(allow, log, landlock_abi, end.detach(), pipe_end, monitor, listed)
        beside.be(lambda: _serve(task), pipe_end, "the proxy has ended")
    end.close()
    os.close(pipe_end)
    return Gate(channel, pipe)


class Task(Record):
    """What the proxy is given, as in ``start``; ``channel`` and ``notes`` are its ends."""

    allow: tuple[HostPattern, ...]
    log: str
    landlock_abi: int
    channel: int
    notes: int
    monitor: int
    listed: str


def _serve(task: Task) -> None:
    from coopfile.native import serving

    serving.serve(task)
