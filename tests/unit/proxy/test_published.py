"""Published connections: carried whole both ways, ended as the other side ended, and never too many."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from coopfile.proxy import published
from coopfile.proxy.loop import Loop
from coopfile.proxy.published import Publisher
from tests.unit.proxy.conftest import end_parked

LIMIT = 20.0  # seconds
LARGE = os.urandom(1 << 16) * 64


class Served:
    """A publisher in a thread; ``port`` is the outer one, and leads to the listener ``inner``."""

    def __init__(self, most: int = 100, family: int = socket.AF_INET) -> None:
        self.notes: list[str] = []
        self.failed: list[BaseException] = []
        self.inner = socket.socket(family)
        self.inner.settimeout(LIMIT)
        self.inner.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        self.inner.listen()
        outer = socket.create_server(("127.0.0.1", 0))
        self.port = outer.getsockname()[1]
        self._loop = Loop(self.failed.append)
        self._publisher = Publisher(self._loop, most, self.notes.append)
        self._publisher.listen(outer, self.inner.getsockname()[1])
        self._bell, self._bell_end = os.pipe2(os.O_NONBLOCK)
        self._loop.watch(self._bell)
        self._loop.start(self._end())
        self._thread = threading.Thread(target=self._loop.run)
        self._thread.start()
        self._open: list[socket.socket] = [self.inner, outer]

    async def _end(self) -> None:
        while True:
            try:
                os.read(self._bell, 1)
                break
            except BlockingIOError:
                await self._loop.readable(self._bell, float("inf"))
        await self._publisher.finish()
        self._loop.stop()

    def connect(self) -> socket.socket:
        """Connect from outside."""
        made = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)
        self._open.append(made)
        return made

    def accept(self) -> socket.socket:
        """Accept inside."""
        made, _ = self.inner.accept()
        made.settimeout(LIMIT)
        self._open.append(made)
        return made

    def pair(self) -> tuple[socket.socket, socket.socket]:
        """Return both ends of a new connection: outside, inside."""
        outer = self.connect()
        return outer, self.accept()

    def finish(self) -> None:
        """Tell the publisher that the sandbox is gone."""
        os.write(self._bell_end, b"1")

    def end(self) -> None:
        """Have the publisher end."""
        self.finish()
        for item in self._open[2:]:
            item.close()
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()

    def close(self) -> None:
        """End all; what failed meanwhile is an error."""
        self.end()
        for item in self._open:
            item.close()
        os.close(self._bell)
        os.close(self._bell_end)
        end_parked(self._loop)
        assert self.failed == []


@pytest.fixture
def served() -> Iterator[Served]:
    """Yield a publisher."""
    made = Served()
    yield made
    made.close()


def everything(end: socket.socket) -> bytes:
    """Return what comes until the end."""
    found = b""
    while data := end.recv(1 << 20):
        found += data
    return found


def send(end: socket.socket, data: bytes) -> threading.Thread:
    """Send from a thread, and end that direction."""

    def work() -> None:
        end.sendall(data)
        end.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def reset(end: socket.socket) -> None:
    """Close a socket so that the other side sees it break."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()


def test_both_ways(served: Served) -> None:
    """What is large arrives whole in both directions at once."""
    outer, inner = served.pair()
    threads = [send(outer, LARGE), send(inner, LARGE[::-1])]
    got: dict[str, bytes] = {}
    reader = threading.Thread(target=lambda: got.update(inner=everything(inner)))
    reader.start()
    assert everything(outer) == LARGE[::-1]
    for thread in (*threads, reader):
        thread.join(LIMIT)
    assert got["inner"] == LARGE


@pytest.mark.parametrize("first", [0, 1], ids=["outside", "inside"])
def test_half_closed(served: Served, first: int) -> None:
    """Who has ended its direction still gets what the other side says after it has heard of that."""
    ends = served.pair()
    one, other = ends[first], ends[1 - first]
    one.sendall(b"question")
    one.shutdown(socket.SHUT_WR)
    assert everything(other) == b"question"
    other.sendall(b"answer")
    other.close()
    assert everything(one) == b"answer"


@pytest.mark.parametrize("first", [0, 1], ids=["outside", "inside"])
def test_broken_off(served: Served, first: int) -> None:
    """A connection that breaks at one end does so at the other: nobody takes what is cut off for whole."""
    ends = served.pair()
    one, other = ends[first], ends[1 - first]
    one.sendall(b"part")
    assert other.recv(4) == b"part"
    reset(one)
    with pytest.raises(ConnectionResetError):
        other.recv(1)


def test_answer_before_the_question_ends(served: Served) -> None:
    """What was said inside arrives though the rest of what is sent there is refused."""
    outer, inner = served.pair()
    outer.sendall(b"x" * 1000)
    assert inner.recv(1) == b"x"
    inner.sendall(b"too large")
    assert outer.recv(9) == b"too large"
    inner.close()  # with something unread
    with contextlib.suppress(OSError):
        while outer.recv(100):
            pass


def test_nobody_inside(served: Served) -> None:
    """Where nothing listens inside the connection is broken off, and that is told at the end."""
    port = served.inner.getsockname()[1]
    served.inner.close()
    with pytest.raises(ConnectionResetError):
        served.connect().recv(1)  # it may be broken off before it is made
    served.end()
    assert len(served.notes) == 1 and f"port {port} was asked for" in served.notes[0]


def test_ipv6_inside() -> None:
    """What listens on IPv6's loopback alone is reached."""
    try:
        made = Served(family=socket.AF_INET6)
    except OSError:
        pytest.skip("this host has no IPv6")
    outer, inner = made.pair()
    inner.sendall(b"6")
    assert outer.recv(1) == b"6"
    made.close()


def test_others_go_on(served: Served) -> None:
    """Who does not read, inside or outside, does not hold up the others."""
    stuck = [served.pair() for _ in range(5)]
    for outer, inner in stuck:
        for end in (outer, inner):
            end.setblocking(False)
            with pytest.raises(BlockingIOError):
                while True:
                    end.send(LARGE)
    outer, inner = served.pair()
    outer.sendall(b"ping")
    assert inner.recv(4) == b"ping"


def test_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most so many are served at once; who comes then waits, until one ends or is of no use any more."""
    monkeypatch.setattr(published, "_UNUSED", 3600.0)
    made = Served(most=2)
    first, _ = made.pair(), made.pair()
    third = made.connect()
    made.inner.settimeout(0.2)
    with pytest.raises(TimeoutError):
        made.accept()
    made.inner.settimeout(LIMIT)
    for end in first:
        end.close()
    inner = made.accept()
    inner.sendall(b"3")
    assert third.recv(1) == b"3"
    monkeypatch.setattr(published, "_UNUSED", 0.0)
    made.pair()
    made.close()


def test_ended_inside_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who keeps connections open that have ended inside keeps nobody out."""
    monkeypatch.setattr(published, "_UNUSED", 0.1)
    with contextlib.closing(Served(most=2)) as made:
        for _ in range(2):
            outer, inner = made.pair()
            inner.close()
            assert outer.recv(1) == b""
        outer, inner = made.pair()
        inner.sendall(b"3")
        assert outer.recv(1) == b"3"


def test_what_was_sent_arrives_after_the_end(served: Served) -> None:
    """What a program inside has sent before its end arrives, and nobody listens any more."""
    outer, inner = served.pair()
    idle, ended = served.pair()
    size = 0
    inner.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            size += inner.send(LARGE)
    for end in (inner, ended):
        end.close()
    served.finish()
    time.sleep(0.1)
    assert len(everything(outer)) == size
    assert idle.recv(1) == b""
    with pytest.raises(OSError, match=r"refused|reset"):
        refused: Any = served.connect()
        refused.recv(1)
