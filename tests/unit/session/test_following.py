"""Commands in a session on an engine: what their ends are taken for."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from coopfile.session.following import Commands


class Container:
    """A container that tells whether it is the same (None: nothing can be run in it), and whether it runs."""

    def __init__(self, same: bool | None, runs: bool | None) -> None:
        self.same = same
        self.running = runs

    def is_same(self) -> bool | None:
        """Tell."""
        return self.same

    def runs(self) -> bool | None:
        """Tell."""
        return self.running

    def why(self) -> str:
        """Tell."""
        return "somebody stopped its container"


@pytest.mark.parametrize(
    ("same", "runs", "process_ends", "ends"),
    [
        (None, False, False, True),
        (None, False, True, True),
        (None, True, True, True),
        (None, None, False, False),
        (None, True, False, False),
        (True, True, False, False),
        (False, True, False, True),
    ],
)
def test_a_command_that_was_killed(
    same: bool | None, runs: bool | None, process_ends: bool, ends: bool
) -> None:
    """The session has ended if the container has, also where the engine's process ends later."""
    told: list[str] = []
    container: Any = Container(same, runs)
    commands = Commands(container, lambda: bool(told), told.append, threading.Event())
    commands.ended, writing = os.pipe()
    if process_ends:
        os.write(writing, b"x")
    try:
        assert commands._ends(137) is ends
    finally:
        os.close(commands.ended)
        os.close(writing)
