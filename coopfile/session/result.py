"""What came of a command in a session, for programs: status, output, and the error that says why."""

from __future__ import annotations

import shlex

from coopfile.errors import CoopError
from coopfile.language.diagnostics import visible
from coopfile.record import Record
from coopfile.session.model import SessionGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.proxy.denials import Denial
    from coopfile.session.model import Command, Ended

_SHOWN = 200  # characters of a command in a message


class Result(Record):
    """How a command ended, and what it printed.

    ``status`` is as a shell gives it: 128 and the number for a signal, 124 when its time was over,
    126 and 127 when it could not be started (``notes`` says why). ``timeout`` is what it had, None
    for no limit, and ``duration`` what it took, both in seconds. ``peak_memory``, in bytes, is the
    most that one of its processes had, None where that is not known. ``stdout`` and ``stderr`` are
    the ends of what it printed, empty where the caller's descriptors were given; ``cut_stdout`` and
    ``cut_stderr`` say how many bytes came before. ``denials`` are the connections that the proxy of
    ``network.mode = "proxy"`` has blocked in the session while the command ran.
    """

    argv: tuple[str, ...]
    status: int
    signal: int | None = None
    timed_out: bool = False
    timeout: float | None = None
    duration: float = 0.0
    peak_memory: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    cut_stdout: int = 0
    cut_stderr: int = 0
    notes: tuple[str, ...] = ()
    denials: tuple[Denial, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it ended with status 0."""
        return self.status == 0

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are not UTF-8 become U+FFFD."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        """Standard error as text; bytes that are not UTF-8 become U+FFFD."""
        return self.stderr.decode("utf-8", "replace")

    def check(self) -> Result:
        """Return the same if it ended with status 0. Raises CommandFailed."""
        if not self.ok:
            raise CommandFailed(self)
        return self


class CommandFailed(CoopError):
    """A command ended with another status than 0. ``result`` is all of it.

    The message has nothing of what the command printed, which may be meant for a terminal.
    """

    def __init__(self, result: Result) -> None:
        remedy = "timeout= gives it more, or limits.timeout" if result.timed_out else None
        super().__init__(f"{shown(result.argv)} {_how(result)}", remedy)
        self.result = result
        self.argv = result.argv
        self.status = result.status
        self.signal = result.signal
        self.timed_out = result.timed_out
        self.stdout = result.stdout
        self.stderr = result.stderr


class CommandLost(SessionGone):
    """A session ended while a command ran in it. ``stdout`` and ``stderr`` are what had come of it."""

    def __init__(
        self,
        message: str,
        remedy: str | None = None,
        *,
        session: str = "",
        argv: tuple[str, ...] = (),
        stdout: bytes = b"",
        stderr: bytes = b"",
    ) -> None:
        super().__init__(message, remedy, session=session)
        self.argv = argv
        self.stdout = stdout
        self.stderr = stderr


def result_of(
    command: Command,
    ended: Ended,
    output: tuple[bytes, bytes],
    cut: tuple[int, int],
    denials: tuple[Denial, ...] = (),
) -> Result:
    """Return the result of a command that has ended."""
    return Result(
        argv=command.argv,
        status=ended.status,
        signal=ended.signal,
        timed_out=ended.timed_out,
        timeout=command.timeout,
        duration=ended.duration,
        peak_memory=ended.peak_memory,
        stdout=output[0],
        stderr=output[1],
        cut_stdout=cut[0],
        cut_stderr=cut[1],
        notes=ended.notes,
        denials=denials,
    )


def shown(argv: tuple[str, ...]) -> str:
    """Return a command for a message: on one line, and not longer than a line or two."""
    text = visible(shlex.join(argv))
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _how(result: Result) -> str:
    if result.timed_out:
        return "took too long" if result.timeout is None else f"took longer than {result.timeout:g} s"
    if result.signal is not None:
        return f"was ended by {_signal_name(result.signal)}"
    notes = "".join(f": {visible(note)}" for note in result.notes)
    return f"ended with status {result.status}{notes}"


def _signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
