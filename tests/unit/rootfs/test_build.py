"""What a command prints while a stage is built: passed on, kept at its end, never waited for."""

from __future__ import annotations

import os
import signal

import pytest

from coopfile.rootfs.build import Tap

MANY = b"x" * 300_000


def test_output_is_passed_on_and_its_end_kept() -> None:
    """Listeners get all of it in order; only so much of the end is kept."""
    heard: list[bytes] = []
    with Tap(10, heard.append) as tap:
        os.write(tap.descriptor, b"begin ")
        for start in range(0, len(MANY), 1000):
            os.write(tap.descriptor, MANY[start : start + 1000])
        os.write(tap.descriptor, b" the end")
    assert b"".join(heard) == b"begin " + MANY + b" the end"
    assert bytes(tap.end) == b"xx the end"


def test_a_listener_that_fails_holds_nobody_up() -> None:
    """What is written after a listener failed is still read, and the failure is told in the end."""

    def fail(_: bytes) -> None:
        raise BrokenPipeError("gone")

    with pytest.raises(BrokenPipeError, match="gone"), Tap(10, fail) as tap:
        for start in range(0, len(MANY), 1000):
            os.write(tap.descriptor, MANY[start : start + 1000])


def test_a_failure_of_the_command_comes_first() -> None:
    """A listener's failure does not cover what went wrong meanwhile."""

    def fail(_: bytes) -> None:
        raise BrokenPipeError("gone")

    with pytest.raises(KeyError, match="first"), Tap(10, fail) as tap:
        os.write(tap.descriptor, b"x")
        raise KeyError("first")


def test_signals_are_left_to_the_runner() -> None:
    """The reader takes no signal that the runner waits for, and the caller's mask is as it was."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    masks: list[set[int]] = []
    with Tap(10, lambda _: masks.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, ())))) as tap:
        os.write(tap.descriptor, b"x")
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD} <= masks[0]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
