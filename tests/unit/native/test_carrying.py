"""Sockets that somebody else makes: each is what was asked for, whenever the answers come."""

from __future__ import annotations

import socket
import threading

import pytest

from coopfile.native import carrying


def _hand(end: socket.socket, count: int) -> None:
    """Answer requests as the neighbour of a container does."""
    for _ in range(count):
        family = socket.AF_INET6 if end.recv(1) == b"6" else socket.AF_INET
        with socket.socket(family) as made:
            socket.send_fds(end, [b"1"], [made.fileno()])


def test_late_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is answered too late is not taken for the answer to what is asked next."""
    monkeypatch.setattr(carrying, "_PROMPT", 0.2)
    own, end = socket.socketpair()
    with end:
        maker = carrying.Maker(own.detach())
        with pytest.raises(TimeoutError):
            maker.socket(socket.AF_INET6)
        maker._connection.settimeout(10)
        serving = threading.Thread(target=_hand, args=(end, 3))
        serving.start()
        for family in (socket.AF_INET, socket.AF_INET6):
            made = maker.socket(family)
            assert made.family == family
            made.close()
        serving.join(10)
        maker._connection.close()
