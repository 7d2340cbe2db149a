"""Ports of the sandbox on the host: sockets that listen outside, and the process that serves them.

The *publisher* is the proxy the other way round. The sockets are made before anything else, in the
host's network namespace, where they stay; PID 1 hands over its own network namespace, which the
publisher enters. So it accepts outside and connects inside, and can connect nowhere else: what is in
the sandbox gets connections that come from outside, and has no way to ask for any. Monitor and kernel
end it with the sandbox.
"""

from __future__ import annotations

import errno
import os
import select
from _socket import (
    SCM_RIGHTS,
    SOL_SOCKET,
    socket,
    socketpair,
)
from _struct import pack

from coopfile.errors import CoopError, SettingError
from coopfile.native import beside, signals, syscalls
from coopfile.proxy.listening import listening
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopfile.language.items import PublishedPort

KEY = "network.publish"
_BACKLOG = 4096
# Nobody in the sandbox has the capability for ports below; those are of its network alone: ip(7).
_PRIVILEGED = 1024
_FIRST_FOR_ALL = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
_END = 5.0  # seconds; the publisher takes less to end
_OTHERS = "or, if another sandbox of this project has it, do without: coop run --no-publish"
_REASONS = {
    errno.EADDRINUSE: (
        "is taken",
        "`ss -ltnp` tells by whom; name another port of the host, such as "
        f'network.publish = ["{{other}}:{{sandbox}}"], {_OTHERS}',
    ),
    errno.EACCES: (
        "is not for you to take: the host keeps the lower ones for root",
        'name another port of the host, such as network.publish = ["{other}:{sandbox}"]',
    ),
    errno.EADDRNOTAVAIL: (
        "cannot be taken: that is no address of this host",
        "`ip address` lists them; without an address it is 127.0.0.1",
    ),
    errno.EAFNOSUPPORT: ("cannot be taken: this host has no IPv6", "name an IPv4 address, or none"),
}


class Listener(Record):
    """A socket that listens on the host, and the port of the sandbox that it leads to."""

    socket: socket
    port: int


def listen(ports: Sequence[PublishedPort]) -> tuple[Listener, ...]:
    """Listen on the host, in the calling process's network namespace. Raises SettingError."""
    made: list[Listener] = []
    try:
        for number, port in enumerate(ports):
            try:
                made.append(Listener(listening(port.address, port.host, _BACKLOG), port.sandbox))
            except OSError as error:
                raise _explained(error, port, number) from None
    except BaseException:
        for listener in made:
            listener.socket.close()
        raise
    return tuple(made)


def _explained(error: OSError, port: PublishedPort, number: int) -> SettingError:
    address = f"[{port.address}]" if ":" in port.address else port.address
    what = f"{KEY}: port {port.host} of {address}"
    reason, remedy = _REASONS.get(error.errno or 0, (f"cannot be taken: {error.strerror}", ""))
    other = port.host + 1 if 1024 <= port.host < 65535 else 8000 + port.host % 1000
    return SettingError(
        f"{what} {reason}", remedy.format(other=other, sandbox=port.sandbox) or None, KEY, number
    )


class Publication(Record):
    """The sandbox's ends: a channel, a pipe of what the publisher has to tell, and its number.

    The publisher ends with the last end of the channel, which the monitor holds, or with the monitor.
    ``lowest`` is the first port of the sandbox's that is published.
    """

    channel: socket
    pipe: int
    process: int
    lowest: int

    def leave(self) -> None:
        """Leave the rest to PID 1, as the monitor, which keeps both ends open."""

    def announce(self, pid: int | None = None) -> None:
        """Hand over the namespaces of this process, which are PID 1's."""
        if self.lowest < _PRIVILEGED:
            try:
                syscalls.write_file(_FIRST_FOR_ALL, str(self.lowest))
            except OSError:
                pass  # in a container whose /proc is read-only: the command says so if it cannot listen
        namespaces = [
            os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("user", "net")
        ]
        try:
            self.channel.sendmsg([b"1"], [(SOL_SOCKET, SCM_RIGHTS, pack("2i", *namespaces))])
        except OSError:
            raise self._ended() from None
        for descriptor in namespaces:
            os.close(descriptor)

    def accept(self) -> None:
        """Wait until the publisher is where it can serve, as PID 1."""
        try:
            ready = self.channel.recv(1)
        except OSError:
            ready = b""
        if not ready:
            raise self._ended()

    def close(self) -> None:
        """End the publisher, as the monitor: nobody listens when this returns."""
        self.channel.close()
        try:
            descriptor = os.pidfd_open(self.process)
            select.select([descriptor], [], [], _END)
            os.close(descriptor)
            os.kill(self.process, signals.SIGKILL)
            os.waitpid(self.process, 0)
        except OSError:
            pass  # it has been waited for already

    def notes(self) -> tuple[str, ...]:
        """Return the lines that the publisher has for people so far."""
        return beside.told(self.pipe)

    def _ended(self) -> CoopError:
        return CoopError(" ".join(self.notes()) or "the process that publishes ports has ended")


def start(listeners: Sequence[Listener], landlock_abi: int, maker: int = -1) -> Publication:
    """Fork the publisher, from a process that is in the host's namespaces yet; it has the listeners alone.

    ``maker`` is a connection to who makes sockets in the sandbox's network, as ``carrying.Maker`` asks
    for them; without one PID 1 has to ``announce`` its namespaces.
    """
    channel, end = socketpair()
    pipe, pipe_end = os.pipe()
    monitor = os.getpid()
    pid = os.fork()
    if pid == 0:
        ports = tuple((listener.socket.fileno(), listener.port) for listener in listeners)
        task = Task(ports, landlock_abi, end.detach(), pipe_end, monitor, maker)
        beside.be(lambda: _serve(task), pipe_end, "ports are published no longer")
    for listener in listeners:
        listener.socket.close()
    end.close()
    os.close(pipe_end)
    return Publication(channel, pipe, pid, min(listener.port for listener in listeners))


class Task(Record):
    """What the publisher is given; ``listeners`` are descriptors and ports, the rest is as in ``start``."""

    listeners: tuple[tuple[int, int], ...]
    landlock_abi: int
    channel: int
    notes: int
    monitor: int
    maker: int


def _serve(task: Task) -> None:
    from coopfile.native import carrying

    carrying.serve(task)
