"""The keeper of a session on an engine: what it takes the end of a command for."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from coopfile.session.keeper import Keeper


class Container:
    """A container that tells whether it is the same: None when nothing can be run in it any more."""

    def __init__(self, same: bool | None) -> None:
        self.same = same

    def is_same(self) -> bool | None:
        """Tell."""
        return self.same


@pytest.mark.parametrize(
    ("same", "seconds", "ends"), [(None, 2.0, True), (None, 0.0, True), (True, None, False)]
)
def test_a_command_that_was_killed(same: bool | None, seconds: float | None, ends: bool) -> None:
    """The session has ended, also where the engine takes seconds to know, and has not where it goes on."""
    keeper: Any = object.__new__(Keeper)
    reading, writing = os.pipe()
    keeper._ending, keeper._ended, keeper._container = False, reading, Container(same)
    timer = threading.Timer(seconds or 0.0, os.write, (writing, b"x"))
    if seconds is not None:
        timer.start()
    try:
        assert keeper._ends(137) is ends
    finally:
        if seconds is not None:
            timer.join()
        os.close(reading)
        os.close(writing)
