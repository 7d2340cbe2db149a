"""Netlink: talking to the kernel about interfaces, routes and packet filters.

Messages and attributes as in netlink(7) and include/uapi/linux/netlink.h. Requests go
out in one datagram; every one that asks for it is acknowledged.
"""

from __future__ import annotations

import errno
import os
from _socket import AF_NETLINK, SOCK_CLOEXEC, SOCK_RAW, socket
from _struct import calcsize, pack, unpack_from

from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROUTE, NETFILTER = 0, 12  # protocols: NETLINK_ROUTE, NETLINK_NETFILTER

F_REQUEST, F_ACK, F_DUMP = 0x1, 0x4, 0x300
F_EXCL, F_CREATE, F_APPEND = 0x200, 0x400, 0x800

_ERROR, _DONE = 0x2, 0x3
_HEADER = "=IHHII"  # length, type, flags, sequence number, port: struct nlmsghdr
_HEADER_SIZE = calcsize(_HEADER)
_NESTED = 0x8000
_TIMEOUT = 10.0  # seconds; the kernel answers at once, unless it has to load a module
_BUFFER = 1 << 16


class Message(Record):
    """One message: its type, flags beside F_REQUEST, and what follows the header."""

    kind: int
    flags: int
    body: bytes


def attribute(kind: int, data: bytes) -> bytes:
    """Return one attribute, padded to four bytes."""
    size = 4 + len(data)
    return pack("=HH", size, kind) + data + bytes(-size % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    """Return an attribute that holds others."""
    return attribute(kind | _NESTED, b"".join(attributes))


def text(kind: int, value: str) -> bytes:
    """Return an attribute that holds a name, ended by NUL."""
    return attribute(kind, value.encode() + b"\0")


def attributes(data: bytes) -> dict[int, bytes]:
    """Take a run of attributes apart; of those of one type the last counts."""
    found = {}
    offset = 0
    while offset + 4 <= len(data):
        size, kind = unpack_from("=HH", data, offset)
        if size < 4:
            break
        found[kind & 0x3FFF] = data[offset + 4 : offset + size]
        offset += (size + 3) & ~3
    return found


class Channel:
    """A netlink socket, in the network namespace in which it was made."""

    def __init__(self, protocol: int) -> None:
        self._socket = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol)
        self._socket.settimeout(_TIMEOUT)
        self._sequence = 0

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket; the kernel then drops the tables that it owns."""
        self._socket.close()

    def request(self, messages: Iterable[Message]) -> None:
        """Send messages and wait until those with F_ACK are done.

        Raises OSError for the first that the kernel refuses.
        """
        before = self._sequence
        waiting = self._send(messages)
        while waiting:
            for _, sequence, body in self._receive():
                if sequence <= before:
                    continue  # about a request that was given up
                # Of messages that ask for no acknowledgement only errors are told.
                _raise(body)
                waiting.discard(sequence)

    def ask(self, message: Message) -> Iterator[bytes]:
        """Send one message and yield the bodies of the answers: of one, or of all of a dump."""
        self._send((message,))
        while True:
            for kind, sequence, body in self._receive():
                if sequence != self._sequence:
                    continue
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    _raise(body)
                yield body
                if not message.flags & F_DUMP:
                    return

    def _send(self, messages: Iterable[Message]) -> set[int]:
        """Send messages; return the numbers of those that are to be acknowledged."""
        data, waiting = [], set()
        for message in messages:
            self._sequence += 1
            size = _HEADER_SIZE + len(message.body)
            data.append(
                pack(_HEADER, size, message.kind, message.flags | F_REQUEST, self._sequence, 0) + message.body
            )
            if message.flags & F_ACK:
                waiting.add(self._sequence)
        self._socket.send(b"".join(data))
        return waiting

    def _receive(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (type, sequence number, body) of every message in the next datagram."""
        try:
            data = self._socket.recv(_BUFFER)
        except TimeoutError:
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
        offset = 0
        while offset + _HEADER_SIZE <= len(data):
            size, kind, _, sequence, _ = unpack_from(_HEADER, data, offset)
            yield kind, sequence, data[offset + _HEADER_SIZE : offset + size]
            offset += max((size + 3) & ~3, _HEADER_SIZE)


def _raise(body: bytes) -> None:
    """Raise the error that an acknowledgement tells of, if any: struct nlmsgerr."""
    code = -unpack_from("=i", body)[0]
    if code:
        raise OSError(code, os.strerror(code))
