"""Signals, waited for instead of handled."""

from __future__ import annotations

import os
import signal
import time

import pytest

from coopfile.native import signals


def test_same_as_the_module() -> None:
    """The C module's numbers are those of ``signal``, which is too slow to import."""
    assert (signals.SIGKILL, signals.SIGTERM, signals.SIGCHLD) == (signal.SIGKILL, signal.SIGTERM, signal.SIGCHLD)
    assert signal.SIGRTMIN < signals.ABANDONED <= signal.SIGRTMAX
    assert {signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGWINCH} <= signals.FORWARDED
    assert not {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGTSTP} & signals.FORWARDED


@pytest.mark.parametrize("number", sorted(signals.HANDLED))
def test_waited_for(number: int) -> None:
    """A blocked signal is kept until it is waited for, and then taken once."""
    mask = signals.block()
    try:
        signals.wait(0)
        os.kill(os.getpid(), number)
        assert signals.wait(5) == number
        assert signals.wait(0) is None
    finally:
        signals.restore(mask)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask


def test_timeout() -> None:
    """Waiting ends with the time, also a time that has passed already."""
    mask = signals.block()
    try:
        start = time.monotonic()
        assert signals.wait(0.05) is None
        assert 0.04 < time.monotonic() - start < 2
        assert signals.wait(-1.0) is None
    finally:
        signals.restore(mask)
