"""Messages from whoever can connect: no more descriptors than asked for, and not all of the memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from coopfile.native import wire

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sessions in namespaces need Linux")

if sys.platform == "linux":
    import _socket
    import resource

Pair = tuple["_socket.socket", "_socket.socket"]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Yield two ends of a connection."""
    one, other = _socket.socketpair()
    yield one, other
    one.close()
    other.close()


@pytest.mark.parametrize("sent", [0, 3])
def test_as_many_descriptors_as_asked_for(pair: Pair, sent: int) -> None:
    """What fits is received, and the limit of this process is as before."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    wire.send(pair[0], ("asked",), (0,) * sent)
    message, descriptors = wire.receive_bounded(pair[1], 3)
    assert (message, len(descriptors)) == (("asked",), sent)
    for descriptor in descriptors:
        os.close(descriptor)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_too_many_descriptors(pair: Pair) -> None:
    """More than asked for are refused, and none stays open."""
    before = os.listdir("/proc/self/fd")
    wire.send(pair[0], ("asked",), (0,) * 4)
    with pytest.raises(wire.Broken, match="more descriptors"):
        wire.receive_bounded(pair[1], 2)
    assert os.listdir("/proc/self/fd") == before


def test_nonsense_takes_little_memory(pair: Pair) -> None:
    """What marshal would make gigabytes of is no message, and the limit of this process is as before."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    nonsense = b"(" * 1000
    pair[0].sendall(len(nonsense).to_bytes(4, "little") + nonsense)
    with pytest.raises(wire.Broken):
        wire.receive_bounded(pair[1])
    assert resource.getrlimit(resource.RLIMIT_AS) == before
