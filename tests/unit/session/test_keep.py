"""What a monitor forks: it must never go on as the monitor of which it is a copy."""

from __future__ import annotations

import _socket
import os
from typing import NoReturn

import pytest

from coopfile.session import keep


def no_memory(*_: object) -> NoReturn:
    """Fail as anything can."""
    raise MemoryError


def test_undoer_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """What undoes a session ends whatever happens to it: as a second monitor it would end all the others."""
    monkeypatch.setattr(keep, "enter_user_namespace", no_memory)
    one, other = _socket.socketpair()
    if (pid := os.fork()) == 0:
        try:
            keep._be_undoer(keep.Session(0, one, -1), None)
        finally:
            os._exit(9)  # it has come back
    one.close()
    other.close()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
