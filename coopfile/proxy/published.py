"""Serving published ports: what connects outside is connected with what listens in the sandbox."""

from __future__ import annotations

import time
from _socket import AF_INET, AF_INET6, SHUT_RDWR, SO_KEEPALIVE, SOL_SOCKET, socket

from coopfile.proxy.loop import NEVER, Event, LateError, Loop
from coopfile.proxy.stream import FULL, BrokenError, EndedError, Stream, accept, connect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds.
_CONNECT = 20.0  # for each address
_UNUSED = 60.0  # after which a connection makes room for another, if there is none
_FAREWELL = 2.0  # for what was sent inside before the end to be taken outside

_TURN = 16  # pieces that one connection may move before others do
_PLACES = ((AF_INET, "127.0.0.1"), (AF_INET6, "::1"))  # where programs listen that do so for everybody, too


class _Pair:
    """A connection: its ends outside and inside."""

    def __init__(self, outer: Stream, inner: Stream) -> None:
        self.outer = outer
        self.inner = inner
        self.moved = time.monotonic()
        self.answered = Event()
        """Happens when nothing more comes from inside."""

    def reset(self) -> None:
        """Break it off at both ends."""
        self.outer.reset()
        self.inner.reset()


class Publisher:
    """Carries connections, never more than ``most`` at once; ``note`` takes what there is to tell.

    Whoever accepts them is outside, and sockets that ``make`` makes, of a family, are inside.
    """

    def __init__(
        self,
        loop: Loop,
        most: int,
        note: Callable[[str], None],
        make: Callable[[int], socket] = socket,
    ) -> None:
        self._loop = loop
        self._most = most
        self._note = note
        self._make = make
        self._count = 0
        self._pairs: dict[_Pair, None] = {}
        # Those from whose inside nothing more comes: who is outside may keep them for ever.
        self._answered: dict[_Pair, None] = {}
        self._listeners: list[socket] = []
        self._reached: dict[int, bool] = {}
        self._ending = False
        self._ended = Event()

    def listen(self, listener: socket, port: int) -> None:
        """Serve what comes to a listening socket, from ``port`` of the sandbox."""
        listener.setblocking(False)
        self._listeners.append(listener)
        self._loop.watch(listener.fileno())
        self._loop.start(self._accept(listener, port))

    async def finish(self) -> None:
        """Listen no longer, and wait a moment until all is carried that the sandbox had sent: it is gone."""
        self._ending = True
        for listener in self._listeners:
            try:
                listener.shutdown(SHUT_RDWR)  # closing it would give its number to another socket
            except OSError:
                pass
        for port, reached in self._reached.items():
            if not reached:
                self._note(
                    f"port {port} was asked for, and nothing in the sandbox listened on 127.0.0.1:{port} "
                    f"or [::1]:{port}"
                )
        await self._loop.give_way()  # what was accepted last begins
        if self._pairs:
            try:
                await self._loop.happens(self._ended, time.monotonic() + _FAREWELL)
            except LateError:
                for pair in list(self._pairs):
                    pair.reset()

    async def _accept(self, listener: socket, port: int) -> None:
        while not self._ending:
            if self._count >= self._most:
                self._make_room()
                await self._loop.pause(FULL)
                continue
            connection = await accept(self._loop, listener)
            if connection is not None:
                self._count += 1
                self._loop.start(self._serve(connection, port))

    def _make_room(self) -> None:
        """Break off the connection that has been of no use for longest, if that is long."""
        oldest = min((*self._pairs, *self._answered), key=lambda pair: pair.moved, default=None)
        if oldest is not None and time.monotonic() - oldest.moved >= _UNUSED:
            oldest.reset()

    async def _serve(self, connection: socket, port: int) -> None:
        try:
            outer = Stream(self._loop, connection)
            connection.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)
            outer.prompt()
            inner = await self._reach(port)
            if inner is None:
                outer.reset()
            else:
                await self._carry_both(_Pair(outer, inner))
        except OSError:
            pass  # it has ended already, or there is no memory for it
        finally:
            connection.close()
            self._count -= 1

    async def _reach(self, port: int) -> Stream | None:
        """Connect inside; None if nothing listens there."""
        self._reached.setdefault(port, False)
        for family, address in _PLACES:
            try:
                deadline = time.monotonic() + _CONNECT
                found = await connect(self._loop, family, (address, port), deadline, self._make)
            except (OSError, LateError):
                continue
            self._reached[port] = True
            return found
        return None

    async def _carry_both(self, pair: _Pair) -> None:
        self._pairs[pair] = None
        self._loop.start(self._answer(pair))
        try:
            await self._carry(pair, pair.outer, pair.inner)
        finally:
            await self._loop.happens(pair.answered, NEVER)
            del self._answered[pair]
            pair.inner.close()

    async def _answer(self, pair: _Pair) -> None:
        """Carry what comes from inside."""
        try:
            await self._carry(pair, pair.inner, pair.outer)
        finally:
            self._loop.tell(pair.answered)
            del self._pairs[pair]
            self._answered[pair] = None
            if self._ending and not self._pairs:
                self._loop.tell(self._ended)

    async def _carry(self, pair: _Pair, source: Stream, target: Stream) -> None:
        """Carry what comes until the source has ended, which the target is told, or the target has."""
        turn = 0
        while True:
            try:
                piece = await source.receive(NEVER)
            except BrokenError:
                pair.reset()
                return
            except EndedError:
                target.finish()
                return
            except LateError:
                return  # it was broken off
            pair.moved = time.monotonic()
            try:
                await target.send(piece, NEVER)
            except (EndedError, LateError):
                return  # what had come from there before is carried yet
            turn += 1
            if turn % _TURN == 0:
                await self._loop.give_way()
