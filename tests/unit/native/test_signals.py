"""Signals, waited for instead of handled."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from coopfile.native import signals


def test_same_as_the_module() -> None:
    """The C module's numbers are those of ``signal``, which is too slow to import."""
    assert (signals.SIGKILL, signals.SIGTERM, signals.SIGCHLD) == (
        signal.SIGKILL,
        signal.SIGTERM,
        signal.SIGCHLD,
    )
    assert signal.SIGRTMIN < signals.ABANDONED <= signal.SIGRTMAX
    assert {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGQUIT,
        signal.SIGWINCH,
    } <= signals.FORWARDED
    assert not {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGTSTP} & signals.FORWARDED


def child(script: str, *arguments: str) -> None:
    """Run a script in a process with one thread: signals to a process go to any that does not block them."""
    root = Path(__file__).parents[3]
    head = f"import os, sys, time; sys.path.insert(0, {str(root)!r}); from coopfile.native import signals\n"
    command = [sys.executable, "-c", head + script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_waited_for() -> None:
    """A blocked signal is kept until it is waited for, and then taken once."""
    child("""
mask = signals.block()
for number in sorted(signals.HANDLED):
    os.kill(os.getpid(), number)
    assert signals.wait(5) == number, number
    assert signals.wait(0) is None
signals.restore(mask)
import signal
assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask
""")


def test_timeout() -> None:
    """Waiting ends with the time, also a time that has passed already."""
    child("""
signals.block()
start = time.monotonic()
assert signals.wait(0.05) is None
assert 0.04 < time.monotonic() - start < 5
assert signals.wait(-1.0) is None
""")
