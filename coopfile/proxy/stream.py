"""One end of a connection, and carrying bytes between two."""

from __future__ import annotations

import os
import time
from _socket import (
    IPPROTO_TCP,
    SHUT_RDWR,
    SHUT_WR,
    SO_ERROR,
    SO_LINGER,
    SO_RCVBUF,
    SO_SNDBUF,
    SOL_SOCKET,
    TCP_NODELAY,
    socket,
)
from _struct import pack
from errno import EINPROGRESS

from coopfile.proxy import tls
from coopfile.proxy.loop import NEVER, Event, LateError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from coopfile.proxy.loop import Loop

PIECE = 64 * 1024  # bytes
FULL = 0.05  # seconds until there may be room for another connection
_TURN = 16  # pieces that one connection may move before others do
_MODEST = 32 * 1024  # bytes that the kernel keeps of one direction of a connection among very many
_AT_ONCE = pack("2i", 1, 0)  # struct linger: without a farewell, socket(7)
_FAREWELL = 2.0  # seconds, and ...
_MOST_UNREAD = 1 << 20  # ... bytes, to let an answer arrive before the end
_buffer = memoryview(bytearray(PIECE))  # of whoever's turn it is


class EndedError(Exception):
    """The other side has closed the connection."""


class BrokenError(EndedError):
    """The connection has broken: the other side has perhaps not said all that it wanted to."""


class Stream:
    """A connected socket, non-blocking; what was read too much waits in ``unread``."""

    def __init__(self, loop: Loop, connection: socket) -> None:
        connection.setblocking(False)
        loop.watch(connection.fileno())
        self.loop = loop
        self.unread = b""
        self._socket = connection

    @property
    def port(self) -> int:
        """The port of this end."""
        return int(self._socket.getsockname()[1])

    async def send(self, data: bytes | memoryview, deadline: float) -> None:
        """Send all of it. Raises EndedError, LateError."""
        while data:
            try:
                data = data[self._socket.send(data) :]
            except BlockingIOError:
                # Whoever has its turn meanwhile uses the buffer.
                data = bytes(data)
                await self.loop.writable(self._socket.fileno(), deadline)
            except OSError:
                raise EndedError from None

    async def receive(self, deadline: float) -> memoryview:
        """Return what comes next, to be used before anybody else's turn; raises EndedError, LateError."""
        while True:
            try:
                count = self._socket.recv_into(_buffer)
            except BlockingIOError:
                await self.loop.readable(self._socket.fileno(), deadline)
                continue
            except OSError:
                raise BrokenError from None
            if not count:
                raise EndedError
            return _buffer[:count]

    async def peek(self, count: int, deadline: float) -> bytes:
        """Return ``count`` bytes or more of what comes next, which stay unread.

        Raises EndedError, LateError.
        """
        while len(self.unread) < count:
            self.unread += bytes(await self.receive(deadline))
        return self.unread

    async def exactly(self, count: int, deadline: float) -> bytes:
        """Return the next ``count`` bytes. Raises EndedError, LateError."""
        await self.peek(count, deadline)
        return self.take(count)

    async def until(self, end: bytes, most: int, deadline: float) -> bytes | None:
        """Return what comes next up to and with ``end``; None if that is more than ``most`` bytes."""
        start = 0
        while (place := self.unread.find(end, start)) < 0:
            start = max(len(self.unread) - len(end) + 1, 0)
            if len(self.unread) > most:
                return None
            await self.peek(len(self.unread) + 1, deadline)
        return self.take(place + len(end)) if place < most else None

    def take(self, count: int) -> bytes:
        """Return the first of what was peeked at, and have it read."""
        taken, self.unread = self.unread[:count], self.unread[count:]
        return taken

    def attempt(self, data: bytes) -> None:
        """Send a few bytes if that is possible at once; nobody minds if it is not."""
        try:
            self._socket.send(data)
        except OSError:
            pass

    def finish(self) -> None:
        """Tell the other side that nothing more comes."""
        self._shut(SHUT_WR)

    def abort(self) -> None:
        """End both directions, so that whoever waits for either goes on."""
        self._shut(SHUT_RDWR)

    def reset(self) -> None:
        """Break the connection off and close it, as the other side can tell; nobody waits for it any more."""
        self.loop.interrupt(self._socket.fileno())
        try:
            self._socket.setsockopt(SOL_SOCKET, SO_LINGER, _AT_ONCE)
        except OSError:
            pass  # it is closed already
        self._socket.close()

    def prompt(self) -> None:
        """Send small pieces at once, as programs on both sides expect of their own connections."""
        self._socket.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)

    def be_modest(self) -> None:
        """Have the kernel keep little of what comes and goes: by itself it takes megabytes: tcp(7)."""
        _limit_buffers(self._socket)

    def close(self) -> None:
        """Close the socket; nobody waits for it any more."""
        self._socket.close()

    async def farewell(self, data: bytes = b"") -> None:
        """Send the last words, and wait until they have arrived: unread input would have them thrown away."""
        deadline = time.monotonic() + _FAREWELL
        try:
            await self.send(data, deadline)
            self.finish()
            left = _MOST_UNREAD
            while left > 0:
                left -= len(await self.receive(deadline))
        except (EndedError, LateError):
            return

    def _shut(self, how: int) -> None:
        try:
            self._socket.shutdown(how)
        except OSError:
            pass  # it has ended already


def _limit_buffers(connection: socket) -> None:
    for option in (SO_RCVBUF, SO_SNDBUF):
        connection.setsockopt(SOL_SOCKET, option, _MODEST)


async def accept(loop: Loop, listener: socket) -> socket | None:
    """Return the next connection of a listener; None when it was only waited for, and may be asked again."""
    try:
        descriptor, _ = listener._accept()  # type: ignore[attr-defined]
    except BlockingIOError:
        await loop.readable(listener.fileno(), NEVER)
    except OSError:
        await loop.pause(FULL)  # no descriptors, no memory, or the client has gone
    else:
        return socket(fileno=descriptor)
    return None


async def connect(
    loop: Loop,
    family: int,
    address: tuple[Any, ...],
    deadline: float,
    make: Callable[[int], socket] = socket,
    *,
    modest: bool = False,
) -> Stream:
    """Connect to an address with a socket that ``make`` makes; ``modest``: as in ``be_modest``.

    Raises OSError, LateError.
    """
    connection = make(family)
    if modest:
        _limit_buffers(connection)
    connection.setblocking(False)
    code = connection.connect_ex(address)
    stream = Stream(loop, connection)
    try:
        if code == EINPROGRESS:
            await loop.writable(connection.fileno(), deadline)
            code = connection.getsockopt(SOL_SOCKET, SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        stream.prompt()
    except BaseException:
        stream.close()
        raise
    return stream


class Tunnel:
    """Two streams, each of which gets what the other sends, until both are idle for so many seconds."""

    def __init__(self, client: Stream, server: Stream, idle: float) -> None:
        self.client = client
        self.server = server
        self.ended = Event()
        self.answered = Event()
        """Happens when ``start``, the first bytes from the server, tells what it is going to do."""
        self.start = b""
        self._idle = idle
        self.moved = time.monotonic()
        """When something was carried last."""

    async def carry(self, source: Stream, target: Stream, most: int = -1) -> None:
        """Carry what comes, or ``most`` bytes of it, until the source has ended.

        Raises EndedError when the target is gone, LateError.
        """
        loop = source.loop
        waiting, source.unread = source.unread, b""
        turn = 0
        while most:
            if waiting:
                piece: bytes | memoryview = waiting
                waiting = b""
            else:
                try:
                    piece = await self._next(source)
                except EndedError:
                    return
            if 0 <= most < len(piece):
                source.unread, piece = bytes(piece[most:]), piece[:most]
            await self._send(target, piece)
            most -= len(piece) if most > 0 else 0
            turn += 1
            if turn % _TURN == 0:
                await loop.give_way()

    async def ask(self, most: int) -> None:
        """Carry what the client sends, as ``carry`` does; a server that takes no more may have answered.

        Raises LateError.
        """
        try:
            await self.carry(self.client, self.server, most)
        except EndedError:
            return  # what it has said before is carried yet

    async def back(self) -> None:
        """Carry what the server sends, as a task of its own; tells ``ended`` at its end."""
        try:
            while not tls.tells(self.start):
                piece = bytes(await self._next(self.server))
                self.start += piece
                if tls.tells(self.start):
                    self.client.loop.tell(self.answered)
                await self._send(self.client, piece)
            await self.carry(self.server, self.client)
            self.client.finish()
        except (EndedError, LateError):
            self.abort()
        finally:
            self.client.loop.tell(self.answered)
            self.client.loop.tell(self.ended)

    def abort(self) -> None:
        """End it."""
        self.client.abort()
        self.server.abort()

    async def _next(self, source: Stream) -> memoryview:
        """Return what comes next; while the other direction is in use, it may take as long as it likes."""
        while True:
            try:
                piece = await source.receive(time.monotonic() + self._idle)
            except LateError:
                if time.monotonic() - self.moved >= self._idle:
                    raise
            else:
                self.moved = time.monotonic()
                return piece

    async def _send(self, target: Stream, piece: bytes | memoryview) -> None:
        await target.send(piece, time.monotonic() + self._idle)
        self.moved = time.monotonic()
