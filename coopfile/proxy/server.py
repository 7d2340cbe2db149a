"""Serving a sandbox's connections: over HTTP and SOCKS, each within its limits."""

from __future__ import annotations

import time
from _socket import socket

from coopfile.proxy import http, socks, tls
from coopfile.proxy.loop import NEVER, LateError, Loop, Workers
from coopfile.proxy.names import show
from coopfile.proxy.policy import HTTPS, BlockedError, UnreachableError
from coopfile.proxy.stream import FULL, EndedError, Stream, Tunnel, accept, connect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from coopfile.proxy.denials import Denials
    from coopfile.proxy.policy import Policy

# Seconds.
_REQUEST = 30.0  # for a whole request, and for a whole TLS hello
_LOOK_UP = 30.0
_CONNECT = 20.0  # for each address
_IDLE = 3600.0  # of a tunnel, in both directions
_ANSWER = 300.0  # the same of one request, to whose answer a server may forget to put an end
_SPARE = 60.0  # the same of what makes room for others

_EVICTED = 64  # connections at a time
_ROOMY = 128  # connections that may have as much of the kernel's memory as it likes
_RESOLVERS = 16  # threads


class Server:
    """Serves connections; never more than ``most`` at once, the rest wait."""

    def __init__(self, loop: Loop, policy: Policy, denials: Denials, most: int) -> None:
        self._loop = loop
        self._policy = policy
        self._denials = denials
        self._most = most
        self._count = 0
        # Those that have not said yet what they want, the oldest first.
        self._undecided: dict[Stream, None] = {}
        self._tunnels: set[Tunnel] = set()
        self._resolvers = Workers(loop, policy.look_up, _RESOLVERS)

    def listen(self, http_listener: socket, socks_listener: socket) -> None:
        """Serve what comes to two listening sockets."""
        self._listen(http_listener, self._http)
        self._listen(socks_listener, self._socks)

    def listen_for_both(self, listener: socket) -> None:
        """Serve HTTP and SOCKS on one listening socket."""
        self._listen(listener, self._either)

    def _listen(self, listener: socket, speak: Callable[[Stream], Awaitable[None]]) -> None:
        listener.setblocking(False)
        self._loop.watch(listener.fileno())
        self._loop.start(self._accept(listener, speak))

    async def _accept(self, listener: socket, speak: Callable[[Stream], Awaitable[None]]) -> None:
        while True:
            while self._count >= self._most:
                self._make_room()
                await self._loop.pause(FULL)
            connection = await accept(self._loop, listener)
            if connection is not None:
                self._count += 1
                self._loop.start(self._serve(connection, speak))

    def _make_room(self) -> None:
        """End connections of those who dawdle; they must not keep others out."""
        for stream in list(self._undecided)[:_EVICTED]:
            stream.abort()
        if not self._undecided:
            before = time.monotonic() - _SPARE
            idle = sorted(
                (tunnel.moved, id(tunnel), tunnel) for tunnel in self._tunnels if tunnel.moved < before
            )
            for _, _, tunnel in idle[:_EVICTED]:
                tunnel.abort()

    async def _serve(self, connection: socket, speak: Callable[[Stream], Awaitable[None]]) -> None:
        try:
            stream = Stream(self._loop, connection)
            self._undecided[stream] = None
            try:
                stream.prompt()
                if self._count > _ROOMY:
                    stream.be_modest()
                await speak(stream)
            finally:
                self._undecided.pop(stream, None)
        except (EndedError, LateError, OSError):
            pass
        finally:
            connection.close()
            self._count -= 1

    async def _either(self, client: Stream) -> None:
        """Speak what the first byte is of: no request of HTTP begins with a version of SOCKS."""
        first = await client.peek(1, time.monotonic() + _REQUEST)
        await (self._socks if first[0] == socks.VERSION else self._http)(client)

    async def _http(self, client: Stream) -> None:
        head = await client.until(b"\r\n\r\n", http.MOST_HEAD, time.monotonic() + _REQUEST)
        try:
            if head is None:
                raise http.RefusedError(431, "the head of the request is too long")
            if http.is_for_proxy(head, client.port):
                await client.farewell(http.page(self._about()))
                return
            request = http.parse(head)
            server = await self._reach(client, request.host, request.port, plain=bool(request.head))
        except http.RefusedError as error:
            self._denials.add("", 0, f"a request to the proxy was refused: {error}")
            await client.farewell(http.answer(error.status, str(error)))
            return
        except BlockedError as error:
            await client.farewell(http.answer(403, str(error), error.short))
            return
        except UnreachableError as error:
            await client.farewell(http.answer(502, str(error)))
            return
        try:
            if request.head:
                await self._forward(client, server, request)
            else:
                await client.send(http.ESTABLISHED, time.monotonic() + _REQUEST)
                await self._tunnel(client, server, request.host, request.port)
        finally:
            server.close()

    def _about(self) -> str:
        """Return what the proxy tells the sandbox of itself: SOCKS and TLS have no room for reasons."""
        lines = [
            "This is the proxy of a coop sandbox, its only way out: for HTTP, CONNECT and SOCKS 5.",
            f"Allowed by {self._policy.rule}: {self._policy.listed()}",
            "Blocked last:",
            *(f"{denial.time}  {denial.text}" for denial in self._denials.recent),
        ]
        return "\n".join(lines if self._denials.recent else [*lines[:2], "Nothing was blocked."]) + "\n"

    async def _socks(self, client: Stream) -> None:
        deadline = time.monotonic() + _REQUEST
        version, count = await client.exactly(2, deadline)
        if version != socks.VERSION:
            return
        methods = await client.exactly(count, deadline)
        if 0 not in methods:
            await client.farewell(socks.NO_METHOD)
            return
        await client.send(socks.METHOD, deadline)
        try:
            kind = socks.check_request(await client.exactly(4, deadline))
            size = socks.ADDRESSES.get(kind) or (await client.exactly(1, deadline))[0]
            name = await client.exactly(size, deadline)
            host, port = socks.target(kind, name, await client.exactly(2, deadline))
            server = await self._reach(client, host, port)
        except socks.RefusedError as error:
            self._denials.add("", 0, f"a request to the proxy was refused: {error}")
            await client.farewell(socks.reply(error.code))
            return
        except BlockedError:
            await client.farewell(socks.reply(socks.BLOCKED))
            return
        except UnreachableError:
            await client.farewell(socks.reply(socks.UNREACHABLE))
            return
        try:
            await client.send(socks.reply(socks.GRANTED), deadline)
            await self._tunnel(client, server, host, port)
        finally:
            server.close()

    async def _reach(self, client: Stream, host: str, port: int, *, plain: bool = False) -> Stream:
        """Connect to a host that may be reached; ``plain``: no TLS. Raises BlockedError, UnreachableError."""
        self._undecided.pop(client, None)
        try:
            self._policy.check(host, port)
            if plain:
                self._policy.check_plain(host, port)
            places = await self._resolvers.call(host, port, deadline=time.monotonic() + _LOOK_UP)
        except BlockedError as error:
            self._denials.add(host, port, str(error))
            raise
        except LateError:
            raise UnreachableError(f"{host} cannot be resolved: no answer came in time") from None
        reason = ""
        for place in places:
            try:
                deadline, modest = time.monotonic() + _CONNECT, self._count > _ROOMY
                return await connect(self._loop, place.family, place.address, deadline, modest=modest)
            except LateError:
                reason = "no answer came in time"
            except OSError as error:
                reason = str(error.strerror)
        raise UnreachableError(f"{show(host, port)} cannot be reached: {reason}")

    async def _forward(self, client: Stream, server: Stream, request: http.Request) -> None:
        """Pass one request on, and what is answered."""
        tunnel = self._begin(Tunnel(client, server, _ANSWER))
        try:
            await server.send(request.head, time.monotonic() + _ANSWER)
            await tunnel.ask(request.length)
        except (EndedError, LateError):
            tunnel.abort()
        finally:
            await self._end(tunnel)
        await client.farewell()

    def _begin(self, tunnel: Tunnel) -> Tunnel:
        self._tunnels.add(tunnel)
        self._loop.start(tunnel.back())
        return tunnel

    async def _end(self, tunnel: Tunnel) -> None:
        await self._loop.happens(tunnel.ended, NEVER)
        self._tunnels.discard(tunnel)

    async def _tunnel(self, client: Stream, server: Stream, host: str, port: int) -> None:
        """Carry both directions, when the beginning agrees with where they lead."""
        tunnel = self._begin(Tunnel(client, server, _ANSWER if port == http.PORT else _IDLE))
        try:
            length = await self._pass_start(tunnel, host, port)
            await tunnel.ask(length)
            if length < 0:
                server.finish()
        except http.RefusedError as error:
            self._denials.add(host, port, f"a request to {show(host, port)} was refused: {error}")
            client.attempt(http.answer(error.status, str(error)))
            tunnel.abort()
        except (BlockedError, tls.BadTlsError) as error:
            self._denials.add(host, port, str(error))
            client.attempt(tls.UNKNOWN_NAME)
            tunnel.abort()
        except (EndedError, LateError):
            tunnel.abort()
        finally:
            await self._end(tunnel)

    async def _pass_start(self, tunnel: Tunnel, host: str, port: int) -> int:
        """Look at what the client sends first; return how many bytes may follow, -1 for all that come.

        Raises BlockedError, BadTlsError, http.RefusedError, EndedError, LateError.
        """
        client = tunnel.client
        patience = _REQUEST if port == HTTPS else _IDLE
        try:
            first = await client.peek(1, time.monotonic() + patience)
        except EndedError:
            return -1
        if first[0] != tls.HANDSHAKE:
            self._policy.check_plain(host, port)
            return await self._pass_request(tunnel, host, port) if port == http.PORT else -1
        await self._pass_hello(tunnel, host, port)
        while True:
            header = await client.peek(tls.RECORD_HEADER, time.monotonic() + _IDLE)
            if header[0] == tls.HANDSHAKE:
                await self._loop.happens(tunnel.answered, time.monotonic() + _REQUEST)
            if tunnel.answered.happened:
                if not tls.is_retry(tunnel.start):
                    return -1
                if header[0] == tls.HANDSHAKE:
                    await self._pass_hello(tunnel, host, port)
                    return -1
            size = tls.RECORD_HEADER + tls.record_size(header)
            record = await client.exactly(size, time.monotonic() + _IDLE)
            await tunnel.server.send(record, time.monotonic() + _IDLE)

    async def _pass_request(self, tunnel: Tunnel, host: str, port: int) -> int:
        """Pass on the head of a request that names the host it goes to; return its body's length."""
        head = await tunnel.client.until(b"\r\n\r\n", http.MOST_HEAD, time.monotonic() + _REQUEST)
        if head is None:
            raise http.RefusedError(431, "the head of the request is too long")
        request = http.parse_inside(head, host, port)
        await tunnel.server.send(request.head, time.monotonic() + _REQUEST)
        return request.length

    async def _pass_hello(self, tunnel: Tunnel, host: str, port: int) -> None:
        """Pass on a hello of TLS that names the host it goes to."""
        client, deadline = tunnel.client, time.monotonic() + _REQUEST
        while (hello := tls.read_hello(client.unread)) is None:
            await client.peek(len(client.unread) + 1, deadline)
        self._policy.check_hello(hello, host, port)
        await tunnel.server.send(client.take(hello.size), deadline)
