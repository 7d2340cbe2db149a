"""Terminals of a sandbox's own, made on this machine."""

from __future__ import annotations

import fcntl
import os
import termios

import pytest

from coopfile.native import pty


def test_same_as_the_module() -> None:
    """The numbers of requests are those of ``termios``."""
    assert (pty.TIOCGWINSZ, pty.TIOCSWINSZ) == (termios.TIOCGWINSZ, termios.TIOCSWINSZ)
    for name in ("TCGETS", "TCSETS"):
        assert getattr(pty, name) == getattr(termios, name, getattr(pty, name))


def test_streams_that_are_replaced() -> None:
    """The first is opened, which makes it the controlling terminal, and the others are copies."""
    assert pty.actions("/dev/pts/3") == [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/pts/3", os.O_RDWR, 0),
        (os.POSIX_SPAWN_DUP2, 0, 1),
        (os.POSIX_SPAWN_DUP2, 0, 2),
    ]
    assert pty.actions("/dev/pts/3", (0, 1))[1:] == [(os.POSIX_SPAWN_DUP2, 0, 1)]


def test_a_pair() -> None:
    """It has the size that was asked for, settings of a new one for UTF-8, and does not block."""
    if not os.access("/dev/pts/ptmx", os.R_OK | os.W_OK):
        pytest.skip("/dev/pts/ptmx is closed here; in a sandbox it is open")
    master, path = pty.open_pair(31, 70000)
    try:
        assert os.get_terminal_size(master) == (0xFFFF, 31)
        assert termios.tcgetattr(master)[0] & 0o40000  # IUTF8
        assert not os.get_blocking(master) and not os.get_inheritable(master)
        device = os.open(path, os.O_RDWR | os.O_NOCTTY)
        os.write(device, b"x")
        assert os.read(master, 10) == b"x"
        os.close(device)
        settings = fcntl.ioctl(master, pty.TCGETS, bytes(pty.SETTINGS))
        changed = settings[:12] + bytes([settings[12] & ~0o10]) + settings[13:]  # ECHO, in c_lflag
        other, _ = pty.open_pair(1, 1, changed)
        assert not termios.tcgetattr(other)[3] & termios.ECHO
        os.close(other)
    finally:
        os.close(master)
