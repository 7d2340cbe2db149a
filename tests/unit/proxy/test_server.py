"""The server on real sockets: slow, broken and rude clients cost nobody else anything."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from coopfile.language.items import HostPattern
from coopfile.proxy import server
from coopfile.proxy.denials import Denials
from coopfile.proxy.loop import Loop
from coopfile.proxy.policy import Place, Policy
from coopfile.proxy.server import Server
from tests.sandboxes import wait_until
from tests.unit.proxy.conftest import end_parked


class Here(Policy):
    """Leads every listed name to the tests' own server, which is on the loopback interface."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__((HostPattern("a.example", port=9000),), lambda: ((), ()))
        self._address = address

    def look_up(self, host: str, port: int) -> list[Place]:
        """Return the tests' server."""
        return [Place(socket.AF_INET, self._address)]


class Running:
    """A proxy in a thread, with ``most`` connections, that leads to ``origin``."""

    def __init__(self, most: int) -> None:
        self.origin = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.listeners = [socket.create_server(("127.0.0.1", 0), backlog=512) for _ in range(2)]
        self.failed: list[BaseException] = []
        self.loop = Loop(self.failed.append)
        self.server = Server(self.loop, Here(self.origin.getsockname()), Denials(-1, -1), most)
        self.server.listen(*self.listeners)
        self.thread = threading.Thread(target=self.loop.run)
        self.thread.start()

    def client(self, kind: int = 0) -> socket.socket:
        """Connect to the proxy."""
        return socket.create_connection(self.listeners[kind].getsockname(), timeout=20)

    def tunnel(self) -> tuple[socket.socket, socket.socket]:
        """Return both ends of a tunnel."""
        client = self.client()
        client.sendall(b"CONNECT a.example:9000 HTTP/1.1\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
        server, _ = self.origin.accept()
        server.settimeout(20)
        return client, server

    def close(self) -> None:
        """End it when it has closed all connections: a loop that is stopped closes none."""
        self.origin.close()  # with what it has not accepted
        try:
            for kind in range(len(self.listeners)):  # who waits to be accepted is accepted before this one
                with self.client(kind) as last:
                    last.shutdown(socket.SHUT_WR)
                    last.recv(1)
            assert wait_until(lambda: self.server._count == 0, 20)
        finally:
            self.loop.stop()
            self.client().close()
            self.thread.join(20)
            for listener in self.listeners:
                listener.close()
            end_parked(self.loop)
        assert not self.thread.is_alive()


@contextmanager
def running(most: int = 100) -> Iterator[Running]:
    """Run a proxy; nothing may have failed in it."""
    made = Running(most)
    try:
        yield made
    finally:
        made.close()
    assert made.failed == []


@pytest.fixture
def proxy() -> Iterator[Running]:
    """Yield a proxy."""
    with running() as made:
        yield made


def test_half_closed(proxy: Running) -> None:
    """Either side may say that it has no more to send, and still gets the rest."""
    for first in (0, 1):
        ends = proxy.tunnel()
        ends[first].sendall(b"question")
        ends[first].shutdown(socket.SHUT_WR)
        assert ends[1 - first].recv(100) == b"question" and ends[1 - first].recv(1) == b""
        ends[1 - first].sendall(b"answer")
        ends[1 - first].close()
        assert ends[first].recv(100) == b"answer" and ends[first].recv(1) == b""
        ends[first].close()


def test_no_reader(proxy: Running) -> None:
    """Who does not read is not read from either, and others go on meanwhile."""
    client, server = proxy.tunnel()
    client.settimeout(1)
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < 1 << 28:
            sent += client.send(bytes(1 << 16))
    other, end = proxy.tunnel()
    other.sendall(b"x")
    assert end.recv(1) == b"x"
    got = 0
    client.settimeout(20)
    client.shutdown(socket.SHUT_WR)
    while piece := server.recv(1 << 20):
        got += len(piece)
    assert got == sent
    for one in (client, server, other, end):
        one.close()


def test_little_is_kept_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of connections among very many the kernel keeps less on the way than of a few."""
    with running() as proxy:
        kept = []
        ends: list[socket.socket] = []
        for roomy in (100, 0):
            monkeypatch.setattr(server, "_ROOMY", roomy)
            client, end = proxy.tunnel()
            ends += [client, end]
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
            end.settimeout(1)
            sent = 0
            with contextlib.suppress(TimeoutError):
                while sent <= 1 << 20:  # the last of what it takes of a few it takes slowly
                    sent += end.send(bytes(1 << 12))
            kept.append(sent)
        assert kept[1] < 1 << 20 < kept[0]
        for one in ends:
            one.close()


def test_bad_hello_under_a_flood(proxy: Running) -> None:
    """A client that is cut off while its server floods it ends both connections, and nothing else."""
    client, server = proxy.tunnel()
    server.settimeout(1)
    with pytest.raises((TimeoutError, ConnectionError)):
        while True:
            server.sendall(bytes(1 << 16))
    client.sendall(b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00")
    server.settimeout(20)
    with pytest.raises(ConnectionError):
        while True:
            server.sendall(bytes(1 << 16))
    for one in (client, server, *proxy.tunnel()):
        one.close()


def test_resets(proxy: Running) -> None:
    """Connections that are reset at any point leave nothing behind."""
    for data in (
        b"",
        b"CONN",
        b"CONNECT a.example:9000 HTTP/1.1\r\n\r\n",
        b"\x05",
        b"\x05\x01\x00\x05\x01\x00\x03\x09a",
    ):
        for kind in (0, 1):
            client = proxy.client(kind)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(data)
            client.close()
    proxy.origin.settimeout(1)
    with pytest.raises(TimeoutError):
        while True:
            proxy.origin.accept()[0].close()
    proxy.origin.settimeout(None)
    for one in proxy.tunnel():
        one.close()


def test_full() -> None:
    """When it is full the oldest that have asked for nothing make room, and tunnels stay."""
    with running(most=20) as proxy:
        kept = [proxy.tunnel() for _ in range(5)]
        silent = [proxy.client(number % 2) for number in range(60)]
        late = proxy.tunnel()
        for client, server in (*kept, late):
            client.sendall(b"x")
            assert server.recv(1) == b"x"
        for one in (*silent, *(end for pair in (*kept, late) for end in pair)):
            one.close()


def test_idle_tunnels_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is full of tunnels, those that carry nothing for long end, and those in use stay."""
    monkeypatch.setattr(server, "_SPARE", 0.5)
    with running(most=10) as proxy:
        used = proxy.tunnel()
        idle = [proxy.tunnel() for _ in range(9)]
        late = proxy.client()
        late.sendall(b"CONNECT a.example:9000 HTTP/1.1\r\n\r\n")
        late.settimeout(0.05)
        answer = b""
        for _ in range(400):
            used[0].sendall(b"x")
            assert used[1].recv(1) == b"x"
            try:
                answer = late.recv(4096)
                break
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 200")
        assert idle[0][0].recv(1) == b""
        for one in (late, *used, *(end for pair in idle for end in pair)):
            one.close()


def test_server_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request whose answer comes to no end is given up, and its place is free."""
    monkeypatch.setattr(server, "_ANSWER", 0.5)
    with running(most=1) as proxy:
        for _ in range(2):
            client = proxy.client()
            client.sendall(b"GET http://a.example:9000/ HTTP/1.1\r\nHost: a.example:9000\r\n\r\n")
            end, _ = proxy.origin.accept()
            end.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            answer = b""
            while piece := client.recv(4096):
                answer += piece
            assert answer.endswith(b"ok")
            end.close()
            client.close()


@pytest.mark.parametrize("tunnelled", [False, True])
def test_answer_before_the_question_ends(proxy: Running, tunnelled: bool) -> None:
    """Who answers before all of a request has come, and takes no more of it, is heard."""
    for _ in range(5):
        client = proxy.client()
        client.settimeout(5)
        end = None
        if tunnelled:
            client.close()
            client, end = proxy.tunnel()
        client.sendall(b"POST http://a.example:9000/ HTTP/1.1\r\nHost: a.example:9000\r\n")
        client.sendall(b"Content-Length: 9000000\r\n\r\n" + bytes(1000))
        if end is None:
            end, _ = proxy.origin.accept()
        assert end.recv(10)
        end.sendall(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
        end.close()  # with something unread
        with contextlib.suppress(ConnectionError):
            for _ in range(900):
                client.sendall(bytes(10000))
        assert client.recv(4096).startswith(b"HTTP/1.1 413")
        client.close()


@pytest.mark.parametrize(
    "head", [b"GET http://a.example:9000/" + b"x" * (65 << 10), b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 12000]
)
def test_large_heads(proxy: Running, head: bytes) -> None:
    """A head that is too long is refused when so much of it has come, and never kept."""
    client = proxy.client()
    client.sendall(head)
    assert client.recv(4096).startswith(b"HTTP/1.1 431 ")
    client.close()


def test_what_it_tells(proxy: Running) -> None:
    """Asked for itself, the proxy tells what is allowed, and what was blocked, over SOCKS too."""

    def ask() -> bytes:
        client, data = proxy.client(), b""
        client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % client.getpeername()[1])
        while piece := client.recv(4096):
            data += piece
        client.close()
        return data

    assert b"network.allow of the plan: a.example:9000\nNothing was blocked." in ask()
    client = proxy.client(1)
    client.sendall(b"\x05\x01\x00\x05\x01\x00\x03\x06b.test\x00\x16")
    assert client.recv(2) == b"\x05\x00" and client.recv(10)[:2] == b"\x05\x02"
    client.close()
    assert b"  b.test:22 is blocked by network.allow" in ask()


def test_one_byte_at_a_time(proxy: Running) -> None:
    """A request counts however it is cut up, and its body ends where it says."""
    client = proxy.client()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request = (
        b"POST http://a.example:9000/x HTTP/1.1\r\nHost: a.example:9000\r\nContent-Length: 3\r\n\r\nabcGET / "
    )
    for byte in request:
        client.send(bytes((byte,)))
    server, _ = proxy.origin.accept()
    server.settimeout(20)
    data = b""
    while not data.endswith(b"abc"):
        data += server.recv(4096)
    assert data.startswith(b"POST /x HTTP/1.1\r\nHost: a.example:9000\r\n") and b"GET" not in data
    server.settimeout(0.5)
    with pytest.raises(TimeoutError):
        server.recv(1)
    server.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
    server.close()
    answer = b""
    while piece := client.recv(4096):
        answer += piece
    assert answer.startswith(b"HTTP/1.1 204")
    client.close()
