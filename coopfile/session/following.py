"""The commands in a session on a container engine, as its keeper sees to them.

The caller has the engine start a command, and tells the keeper of it. That ends the command when its time
is over or its caller is gone, and tells whether it ended by itself or with the session.
"""

from __future__ import annotations

import os
import signal
import threading
import time

from coopfile.engines import inside
from coopfile.engines.call import readable
from coopfile.native import wire
from coopfile.session.model import LONGEST_WAIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable
    from typing import Any

    from coopfile.engines.waiting import Waiting

_SETTLES = 0.5  # seconds from the end of a command that was killed to that of its container
_GRACE = 2.0  # seconds between asking to end and ending, when a command's time is over
_LET_GO = 1.0  # the same when its caller is gone
_APPEARS = 5.0  # seconds from asking an engine for a command to seeing it
_CLOSES = 3.0  # seconds from the end of a command to that of the engine's own process
_KILLS = (0.0, 0.3, 1.0, 3.0)  # seconds before each try to kill a command
_SUSPICIOUS = (inside.OTHER, 128 + signal.SIGKILL, 255)  # what commands end with when all does
_UNENDING = "a command could not be ended, and so the whole session was"


class _Command:
    """A command under way. ``alone`` says that no other ran meanwhile; ``client`` is the engine's process."""

    def __init__(self, token: str, alone: bool) -> None:
        self.token = token
        self.alone = alone
        self.client: int | None = None

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the engine's process; tell whether it has ended."""
        if self.client is None:
            time.sleep(seconds)
            return False
        return readable(self.client, seconds)

    def release(self, seconds: float) -> None:
        """End the engine's process if it has not ended by itself soon."""
        if self.client is not None and not self.wait(seconds):
            try:
                signal.pidfd_send_signal(self.client, signal.SIGKILL)
            except ProcessLookupError:
                pass


class Commands:
    """Those under way, each in a thread of its own that ``run`` is called in."""

    def __init__(
        self,
        container: Waiting,
        is_ending: Callable[[], bool],
        end: Callable[[str], None],
        gone: threading.Event,
    ) -> None:
        """``end`` has the session end, for what it is told; ``gone`` is set when the container is."""
        self._container = container
        self._is_ending = is_ending
        self._end_session = end
        self._gone = gone
        self._guard = threading.Lock()
        self._commands: dict[str, _Command] = {}
        self.ended: int | None = None
        """A descriptor that tells that the container has ended, once that has been started."""

    def run(
        self,
        connection: socket,
        facts: dict[str, Any],
        token: str,
        timeout: float | None,
        has_terminal: bool,
    ) -> None:
        """See to a command that the caller has the engine start by ``facts``, until it ends or is to."""
        began = time.monotonic()
        with self._guard:
            command = _Command(token, not self._commands)
            for other in self._commands.values():
                other.alone = False
            self._commands[token] = command
        try:
            wire.send(connection, ("session", facts))
            self._follow(connection, command, None if timeout is None else began + timeout)
        except wire.Broken:
            self._end(command, signal.SIGHUP if has_terminal else signal.SIGTERM, _LET_GO)
        finally:
            with self._guard:
                del self._commands[token]
                if command.client is not None:
                    os.close(command.client)

    def release(self) -> None:
        """End the engine's own processes: not every engine does when its container is gone."""
        if self._commands:
            time.sleep(_SETTLES)
        with self._guard:
            for command in self._commands.values():
                command.release(0.0)

    def _follow(self, connection: socket, command: _Command, deadline: float | None) -> None:
        """Do what the caller asks until the command has ended. Raises Broken when the caller is gone."""
        timed_out, note = False, ""
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not readable(connection.fileno(), None if left is None else min(left, LONGEST_WAIT)):
                if left is not None and left > LONGEST_WAIT:
                    continue
                deadline = None
                if not command.wait(0.0):
                    timed_out = True
                    note = "" if self._end(command, signal.SIGTERM, _GRACE) else _UNENDING
                continue
            message, descriptors = wire.receive(connection, 1)
            if message[0] == "client":
                command.client = descriptors[0]
            elif message[0] == "signal":
                self._signal(command, int(message[1]))
            elif message[0] == "ended":
                status = int(message[1])
                wire.send(connection, ("result", timed_out, not self._ends(status), note))
                if status < 0 and not timed_out:  # somebody killed the engine's process, not the command
                    self._end(command, signal.SIGTERM, _LET_GO)
                return

    def _ends(self, status: int) -> bool:
        """Tell whether the session is ending, or its container: that ends the engine's processes alike.

        They end one after the other, and not with a status that says so.
        """
        if status and not self._is_ending() and self.ended is not None:
            if readable(self.ended, _SETTLES / 20):
                return True
            if status in _SUSPICIOUS:
                same = self._container.is_same()
                if same is None and not readable(self.ended, _SETTLES):
                    # An engine's own process may end much later: podman's by up to 20 s.
                    same = self._container.runs()
                if same is False:
                    self._end_session(f"the session ended: {self._container.why()}")
                else:
                    # Engines learn of an end a moment later, the slower the machine the later.
                    return readable(self.ended, _SETTLES)
        return self._is_ending()

    def _signal(self, command: _Command, number: int) -> None:
        end = time.monotonic() + _APPEARS
        while time.monotonic() < end:
            found = self._container.within(inside.signalling(command.token, number))
            if found is None or found.strip() != "0" or command.wait(0.1):
                return

    def _end(self, command: _Command, number: int, grace: float) -> bool:
        """End all that a command started, after having asked; where that fails, the session: tell which."""
        ended = True
        if not self._ask_to_end(command, number, grace):
            for pause in _KILLS:
                time.sleep(pause)
                argv = inside.killing(command.token, strays=command.alone)
                if self._is_ending() or self._container.within(argv) is not None:
                    break
            else:
                ended = False
                self._end_session(_UNENDING)
                self._gone.wait()
        command.release(_CLOSES)
        return ended

    def _ask_to_end(self, command: _Command, number: int, grace: float) -> bool:
        """Ask all of a command to end; tell whether it has, for sure, within some seconds."""
        appears = time.monotonic() + _APPEARS
        while True:
            found = self._container.within(inside.asking(command.token, number, strays=command.alone))
            if found is None or self._is_ending():
                return False
            if found.strip() != "0":
                break
            if command.wait(0.1) or time.monotonic() > appears:
                return False  # there is one more look when it is killed
        end = time.monotonic() + grace
        command.wait(grace)
        while (left := end - time.monotonic()) > 0:
            found = self._container.within(inside.asking(command.token, 0, strays=command.alone))
            if found is None or found.strip() == "0":
                return found is not None
            time.sleep(min(left, 0.2))
        return False
