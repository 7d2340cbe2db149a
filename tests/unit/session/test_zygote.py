"""What the helper of sessions knows of its monitors."""

from __future__ import annotations

import _socket

import pytest

from coopfile.native import wire
from coopfile.session import keep, zygote


def test_room_of_a_monitor() -> None:
    """A monitor that has said that it is full is, until it says otherwise, whatever it says besides."""
    mine, its = _socket.socketpair()
    monitor = zygote._Monitor(mine)
    monitor.count = 3
    assert monitor.has_room(4) and not monitor.has_room(3)
    its.send(keep.FULL)
    assert not monitor.has_room(4)
    its.send(keep.ENDED)
    assert not monitor.has_room(4) and monitor.count == 2
    assert not monitor.has_room(4)
    its.send(keep.ROOM + keep.ENDED)
    assert monitor.has_room(4) and monitor.count == 1
    its.send(keep.FULL + keep.ENDED + keep.ROOM)
    assert monitor.has_room(4) and monitor.count == 0
    its.close()
    with pytest.raises(wire.Broken):
        monitor.has_room(4)
    mine.close()
