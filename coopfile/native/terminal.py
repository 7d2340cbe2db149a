"""The caller's terminal, put back as it was however the command leaves it.

The command has the caller's own terminal as a stream: it may switch the echo off, or
open the device's mode for others to read.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Saved:
    """The state of the terminals among the three streams."""

    def __init__(self) -> None:
        self._states: list[tuple[int, list[Any], int]] = []
        for stream in (0, 1, 2):
            if os.isatty(stream):
                import termios

                mode = stat.S_IMODE(os.fstat(stream).st_mode)
                self._states.append((stream, termios.tcgetattr(stream), mode))

    def restore(self) -> None:
        """Put everything back; a terminal that hung up, or is another job's now, is left alone."""
        for stream, attributes, mode in self._states:
            import termios

            try:
                if stat.S_IMODE(os.fstat(stream).st_mode) != mode:
                    os.fchmod(stream, mode)
                if os.tcgetpgrp(stream) == os.getpgrp() and termios.tcgetattr(stream) != attributes:
                    termios.tcsetattr(stream, termios.TCSADRAIN, attributes)
            except (OSError, termios.error):
                continue
