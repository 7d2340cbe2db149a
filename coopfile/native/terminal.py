"""The caller's terminal: its state, put back as it was however the command leaves it.

A command without a terminal of its own may have the caller's as a stream: it may switch the
echo off, or open the device's mode for others to read.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Saved:
    """The state of the terminals among the three streams."""

    def __init__(self) -> None:
        self._states: list[tuple[int, list[Any], int, bool]] = []
        for stream in (0, 1, 2):
            if os.isatty(stream):
                import termios

                mode = stat.S_IMODE(os.fstat(stream).st_mode)
                self._states.append((stream, termios.tcgetattr(stream), mode, os.get_blocking(stream)))

    def make_raw(self) -> None:
        """Let every key through to whoever reads, and every byte through to the screen: cfmakeraw(3).

        In the background this stops the process, as whatever else changes a terminal there. Input and
        output may be different terminals. Raises OSError for one that hung up.
        """
        import termios

        for stream, attributes, *_ in self._states:
            if stream < 2:
                try:
                    termios.tcsetattr(stream, termios.TCSADRAIN, _raw(attributes))
                except termios.error as error:
                    raise OSError(*error.args) from None

    def restore(self, *, discard: bool = False) -> None:
        """Put everything back; a terminal that hung up, or is another job's now, is left alone.

        ``discard`` what was typed and not read, too.
        """
        for stream, attributes, mode, blocks in self._states:
            import termios

            try:
                if os.get_blocking(stream) != blocks:  # else who reads it next may be told to try again
                    os.set_blocking(stream, blocks)
                if stat.S_IMODE(os.fstat(stream).st_mode) != mode:
                    os.fchmod(stream, mode)
                if is_foreground(stream) and termios.tcgetattr(stream) != attributes:
                    when = termios.TCSAFLUSH if discard else termios.TCSADRAIN
                    termios.tcsetattr(stream, when, attributes)
            except (OSError, termios.error):
                continue

    def take_back(self) -> None:
        """Undo ``make_raw`` for a process that was killed, unless somebody has done so already.

        For a process of another session, which no terminal stops.
        """
        for stream, attributes, *_ in self._states:
            import termios

            try:
                if termios.tcgetattr(stream) == _raw(attributes):
                    termios.tcsetattr(stream, termios.TCSANOW, attributes)
            except (OSError, termios.error):
                continue


class Watch:
    """A process that puts terminals back if the one that made it raw, this one, is killed."""

    def __init__(self, saved: Saved) -> None:
        """Start it. Raises OSError where there is no room for another process."""
        reading, self._writing = os.pipe()
        try:
            self._pid = os.fork()
        except OSError:
            os.close(reading)
            os.close(self._writing)
            raise
        if self._pid == 0:
            try:
                _stand_by(reading, saved)
            finally:
                os._exit(0)
        os.close(reading)

    def dismiss(self) -> None:
        """Let it end: the terminals are as they were."""
        try:
            os.write(self._writing, b".")
        except BrokenPipeError:
            pass  # somebody has killed it
        os.close(self._writing)
        try:
            os.waitpid(self._pid, 0)
        except ChildProcessError:
            pass


def _stand_by(reading: int, saved: Saved) -> None:
    """Wait until the other end of a pipe is closed, and do what that process would have done."""
    from coopfile.native import syscalls, title

    # What else is open would last as long as this process does: a terminal inside, or a command.
    syscalls.close_but((0, 1, 2, reading))
    os.setsid()  # a signal to the whole job is not for this one, and no terminal stops it
    os.chdir("/")
    title.take("coop: terminal")
    if not os.read(reading, 1):
        saved.take_back()


def is_foreground(stream: int) -> bool:
    """Tell whether this process may change a terminal: it is its job's, or that of no job. Raises OSError."""
    try:
        return os.tcgetpgrp(stream) == os.getpgrp()
    except OSError as error:
        if error.errno == errno.ENOTTY:  # no controlling terminal of ours, so there are no jobs on it
            return True
        raise


def _raw(attributes: list[Any]) -> list[Any]:
    import termios

    iflag, oflag, cflag, lflag, ispeed, ospeed, characters = attributes
    breaks = termios.IGNBRK | termios.BRKINT | termios.PARMRK | termios.ISTRIP
    iflag &= ~(breaks | termios.INLCR | termios.IGNCR | termios.ICRNL | termios.IXON)
    oflag &= ~termios.OPOST
    cflag = cflag & ~(termios.CSIZE | termios.PARENB) | termios.CS8
    lflag &= ~(termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN)
    characters = [*characters]
    characters[termios.VMIN], characters[termios.VTIME] = 1, 0
    return [iflag, oflag, cflag, lflag, ispeed, ospeed, characters]
