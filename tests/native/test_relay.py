"""The caller's side of a terminal by itself, as sessions use it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.sandboxes import Actor
from tests.terminals import Terminal

pytestmark = pytest.mark.native

ATTEND = """
import os, sys
sys.path.insert(0, sys.argv[1])
from coopfile.native import pty, relay
master, slave = os.openpty()
script = "trap '' HUP; echo ready; read answer; echo got $answer; sleep 1000 & echo $!; yes & echo $!; exit 3"
path = os.ttyname(slave)
pid = os.posix_spawn("/bin/sh", ["sh", "-c", script], os.environ, setsid=True, file_actions=pty.actions(path))
os.close(slave)
relay.attend(master, os.pidfd_open(pid), lambda number: os.kill(pid, number))
os.close(master)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), len(os.listdir("/proc/self/fd")))
"""


def test_attend() -> None:
    """What still draws when the command has ended does not hold the relay; it leaves no descriptor."""
    terminal = Terminal(Actor("root", os.geteuid(), os.getegid(), Path("/tmp"), ()))
    try:
        before = terminal.state()
        root = str(Path(__file__).parents[2])
        process = terminal.start([sys.executable, "-c", ATTEND, root], dict(os.environ), Path("/tmp"))
        terminal.screen.expect_exact(b"ready\r\n")
        terminal.screen.send(b"word\r")
        terminal.screen.expect(rb"got word\r\n(\d+)\r\n")
        left = int(terminal.screen.match.group(1))
        seen = terminal.rest(process)
        assert left in left_behind(left)
        assert seen.split(b"\n")[-2].split() == [b"3", b"5"], seen[-300:]
        assert process.returncode == 0 and terminal.state() == before
    finally:
        terminal.close()


def left_behind(pid: int) -> list[int]:
    """End what a test left in a process's session; return what was found."""
    session = os.getsid(pid)
    found = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    found = [item for item in found if item != os.getpid() and _session(item) == session]
    for item in found:
        os.kill(item, signal.SIGKILL)
    return found


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0
