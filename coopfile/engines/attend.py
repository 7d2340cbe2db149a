"""Waiting for one program that has the caller's streams: signals are passed on, and time is kept."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager

from coopfile.native.terminal import Saved
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

GRACE = 5.0  # seconds between asking to end and ending
_LAST = 10.0  # seconds from ending to taking no answer for one
_FOREVER = 3600.0
_SI_KERNEL = 0x80  # si_code of what the kernel sent, such as a terminal's ^C: sigaction(2)
_FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


class SignalledError(BaseException):
    """A signal that asks coop itself to end; like KeyboardInterrupt, it is nobody's mistake."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Ended(Record):
    """How a program ended: its exit status (negative: the signal), and whether the time ran out."""

    status: int
    timed_out: bool = False


@contextmanager
def unwinding() -> Iterator[None]:
    """Have signals that would end this process raise SignalledError instead, so that it cleans up.

    What the caller had ignored stays so: nohup(1).
    """

    def end(number: int, _: FrameType | None) -> None:
        raise SignalledError(number)

    numbers = (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler == signal.SIG_DFL:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def attend(
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    timeout: float | None,
    stop: Callable[[int, signal.Signals], object],
    forward: Callable[[int, signal.Signals], None] = os.kill,
    look: Callable[[], None] = lambda: None,
    look_after: float = _FOREVER,
    name: str | None = None,
) -> Ended:
    """Start a program, argv's first word as a path, and return when it has ended.

    At the end of ``timeout`` seconds ``stop(pid, signal)`` is called, with TERM and
    after a grace period with KILL; ``forward(pid, signal)`` with each signal that this
    process gets and the program does not. ``look`` may raise, and the program is killed: it is
    called once after ``look_after`` seconds, and as long after a signal asked to end.
    ``name`` is what the program is told to be called. Raises OSError if it cannot be started.
    """
    terminals = Saved()
    handled = {*_FORWARDED, signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    try:
        pid = os.posix_spawn(
            argv[0],
            (argv[0] if name is None else name, *argv[1:]),
            dict(environment),
            setsigmask=mask,
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
        )
        try:
            return _wait(pid, handled, timeout, stop, forward, look, look_after)
        except BaseException:
            _end(pid)
            raise
    finally:
        terminals.restore()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _wait(
    pid: int,
    handled: set[signal.Signals],
    timeout: float | None,
    stop: Callable[[int, signal.Signals], object],
    forward: Callable[[int, signal.Signals], None],
    look: Callable[[], None],
    look_after: float,
) -> Ended:
    stops = [signal.SIGTERM, signal.SIGKILL]
    stop_at = None if timeout is None else time.monotonic() + timeout
    look_at: float | None = time.monotonic() + look_after
    while True:
        times = [moment for moment in (stop_at, look_at) if moment is not None]
        left = min(times) - time.monotonic() if times else _FOREVER
        info = signal.sigtimedwait(handled, max(left, 0.0))
        now = time.monotonic()
        if info is not None and info.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return Ended(os.waitstatus_to_exitcode(status), len(stops) < 2)
        elif info is not None:
            # What the terminal sent went to the program too.
            if info.si_code != _SI_KERNEL:
                forward(pid, signal.Signals(info.si_signo))
            if info.si_signo in _ENDING and look_at is None:
                look_at = now + look_after
        elif stop_at is not None and now >= stop_at:
            if not stops:
                return Ended(_end(pid), True)
            number = stops.pop(0)
            stop_at = now + (GRACE if stops else _LAST)
            stop(pid, number)
        elif look_at is not None and now >= look_at:
            look_at = None
            look()


def _end(pid: int) -> int:
    """Kill a child that may have ended already, and return its status."""
    try:
        os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except (ProcessLookupError, ChildProcessError):
        return -signal.SIGKILL
