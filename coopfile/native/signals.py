"""Signals through the C module: importing ``signal`` costs 2.6 ms, for its enums.

Every process of a sandbox blocks what it handles and takes it with ``sigwait``: no
handler runs between two bytecodes, and nothing is lost between a check and a wait.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found, unused-ignore]
import fcntl
import os

SIGKILL: int = _signal.SIGKILL
SIGTERM: int = _signal.SIGTERM
SIGHUP: int = _signal.SIGHUP
SIGCONT: int = _signal.SIGCONT
SIGSTOP: int = _signal.SIGSTOP
SIGCHLD: int = _signal.SIGCHLD
# Told by the kernel to the monitor when its caller dies, and by the caller to end the sandbox now.
ABANDONED: int = _signal.SIGRTMIN + 6

FORWARDED: frozenset[int] = frozenset(
    int(getattr(_signal, name))
    for name in (
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGTERM",
        "SIGUSR1",
        "SIGUSR2",
        "SIGWINCH",
        "SIGALRM",
        "SIGCONT",
    )
)
# Those that a terminal sends to a whole process group: termios(3), tty_ioctl(4).
OF_A_TERMINAL: frozenset[int] = frozenset((_signal.SIGINT, _signal.SIGQUIT, _signal.SIGWINCH))
# The interpreter ignores these from its start, which exec would hand on.
IGNORED_BY_PYTHON: tuple[int, ...] = (int(_signal.SIGPIPE), int(_signal.SIGXFSZ))
SIGIO: int = _signal.SIGIO
_SI_USER = 0  # the code of what kill(2) sends: sigaction(2)
HANDLED = FORWARDED | {SIGCHLD, SIGIO, ABANDONED}
# Those that ask to end.
ENDING: frozenset[int] = frozenset(
    int(item) for item in (_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGTERM)
)


def block() -> set[int]:
    """Block what is handled and return the mask that was in force."""
    return {int(item) for item in _signal.pthread_sigmask(_signal.SIG_BLOCK, HANDLED)}


def announce(descriptor: int) -> None:
    """Have SIGIO sent to this process when there is something to read: fcntl(2), F_SETOWN, O_ASYNC."""
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)


def ending() -> frozenset[int]:
    """Return the signals that ask this process to end, less those that it ignores."""
    return frozenset(item for item in ENDING if _signal.getsignal(item) != _signal.SIG_IGN)


def restore(mask: set[int]) -> None:
    """Put a mask back."""
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)


def wait(timeout: float | None = None) -> int | None:
    """Wait for the next handled signal; None when the time (in seconds) is over."""
    if timeout is None:
        return int(_signal.sigwaitinfo(HANDLED).si_signo)
    info = _signal.sigtimedwait(HANDLED, max(timeout, 0.0))
    return None if info is None else int(info.si_signo)


def wait_sender(timeout: float | None = None) -> tuple[int, bool] | None:
    """Wait like ``wait``; return the signal, and whether a process outside this PID namespace sent it.

    Such a one has number 0; sigqueue(3) lets a sender give any number, but not SI_USER with it.
    """
    left = None if timeout is None else max(timeout, 0.0)
    info = _signal.sigwaitinfo(HANDLED) if left is None else _signal.sigtimedwait(HANDLED, left)
    return None if info is None else (int(info.si_signo), (info.si_code, info.si_pid) == (_SI_USER, 0))
