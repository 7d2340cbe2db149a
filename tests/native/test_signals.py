"""Signals that reach coop reach the command, once."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pexpect
import pytest

from tests.sandboxes import DEADLINE, Project, descendants, wait_gone, wait_until
from tests.terminals import name_of

pytestmark = pytest.mark.native

COUNTER = """
import signal, sys, time
seen = []
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), lambda number, frame: seen.append(signal.Signals(number).name))
print("ready", flush=True)
end = time.monotonic() + 30
while not seen and time.monotonic() < end:
    time.sleep(0.05)
time.sleep(0.3)
print(*seen, flush=True)
"""


def start_counter(project: Project, *names: str) -> subprocess.Popen[bytes]:
    """Start a command that waits for a signal, and prints all it gets; returns when it is ready."""
    process = project.popen("/usr/bin/python3", "-I", "-c", COUNTER, *names)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGWINCH"])
def test_forwarded_once(project: Project, name: str) -> None:
    """A signal sent to coop arrives at the command exactly once."""
    process = start_counter(project, name)
    os.kill(process.pid, getattr(signal, name))
    out, _ = process.communicate(timeout=DEADLINE)
    assert (out.decode(), process.returncode) == (f"{name}\n", 0)


def test_group_signal_once(project: Project) -> None:
    """A signal to coop's whole process group, as a terminal sends it, arrives once too."""
    process = start_counter(project, "SIGINT")
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=DEADLINE)
    assert out == b"SIGINT\n"


def test_control_c_reaches_what_a_shell_waits_for(project: Project) -> None:
    """Ctrl-C on a terminal ends the program that a shell waits for, and the shell goes on if it wants to."""
    terminal = project.terminal("sh", "-c", "trap : INT; echo ready; sleep 60; echo went on")
    terminal.expect_exact("ready")
    assert wait_until(lambda: [pid for pid in descendants(terminal.pid or 0) if name_of(pid) == "sleep"])
    terminal.sendintr()
    terminal.expect_exact("went on", timeout=DEADLINE)
    terminal.wait()
    assert terminal.exitstatus == 0


def test_control_c(project: Project) -> None:
    """Ctrl-C on a terminal reaches the command once, and coop waits for what it makes of it."""
    terminal = project.terminal("/usr/bin/python3", "-I", "-c", COUNTER, "SIGINT")
    terminal.expect_exact("ready")
    terminal.sendintr()
    terminal.expect(pexpect.EOF)
    assert (terminal.before or "").split() == ["SIGINT"]
    assert terminal.wait() == 0


def test_default_action(project: Project) -> None:
    """A command that does not handle the signal dies of it, and coop says so in its status."""
    process = project.popen("sh", "-c", "echo ready; exec sleep 1000")
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(DEADLINE) == 128 + signal.SIGTERM


def test_signals_to_the_monitor(project: Project) -> None:
    """A signal sent to the process between, by who knows it, reaches the command as well."""
    process = start_counter(project, "SIGTERM")
    os.kill(descendants(process.pid)[0], signal.SIGTERM)
    out, _ = process.communicate(timeout=DEADLINE)
    assert out == b"SIGTERM\n"


def test_signals_at_the_start(project: Project) -> None:
    """Signals that come while the sandbox is being made end coop or the command; nothing hangs or stays."""
    for delay in (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1):
        process = project.popen("sleep", "1000")
        time.sleep(delay)
        family = descendants(process.pid)
        # What comes while the command starts may be lost on it, so ask again as a person would.
        process.send_signal(signal.SIGTERM)
        while process.poll() is None:
            time.sleep(0.1)
            process.send_signal(signal.SIGTERM)
        assert process.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM), (delay, process.communicate())
        assert wait_gone(family)


def test_default_dispositions(project: Project) -> None:
    """The command starts with no signal blocked or ignored, whatever coop did for itself."""
    status = project.output("grep -E '^Sig(Blk|Ign)' /proc/self/status").split()
    blocked, ignored = int(status[1], 16), int(status[3], 16)
    # glibc's posix_spawn leaves its own two, 32 and 33, ignored: every library sets them itself.
    assert (blocked, ignored & ~(1 << 31 | 1 << 32)) == (0, 0)


def test_ignored_signals_stay_ignored(project: Project) -> None:
    """What the caller ignores (as nohup does) is ignored by the command too."""
    project.wrap = ("nohup",)
    ignored = int(project.output("grep SigIgn /proc/self/status").split()[1], 16)
    assert ignored & (1 << (signal.SIGHUP - 1))


def test_stopped_and_continued(project: Project) -> None:
    """A job that was stopped goes on when it is continued."""
    process = project.popen("sh", "-c", "echo ready; sleep 0.5; echo end")
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGCONT)
    out, _ = process.communicate(timeout=DEADLINE)
    assert (out, process.returncode) == (b"end\n", 0)
