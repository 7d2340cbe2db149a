"""Attacks on the caller's terminal and on the processes round it."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import subprocess
import termios
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandboxes import DEADLINE, Actor, Project, plain_environment

pytestmark = pytest.mark.native

# Makes the terminal on standard input its own, then tries every request in several spellings: the
# kernel looks at the low 32 bits only. Prints one line per try: request, 0 or errno.
PUSH = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
IOCTL = 16 if os.uname().machine == "x86_64" else 29
try:
    own = os.open("/proc/self/fd/0", os.O_RDWR)
except OSError:
    own = 0
def ask(request, argument):
    result = libc.syscall(ctypes.c_long(IOCTL), ctypes.c_long(own), ctypes.c_long(request), argument)
    return 0 if result >= 0 else ctypes.get_errno()
for high in (0, 1 << 32, 0x7FFFFFFF << 32, -1 << 32):
    print("TIOCSTI", ask(0x5412 | high, ctypes.c_char_p(b"x")))
    print("TIOCLINUX", ask(0x541C | high, ctypes.c_char_p(b"\\x03")))
    print("TIOCCONS", ask(0x541D | high, 0))
    print("TIOCSETD", ask(0x5423 | high, ctypes.byref(ctypes.c_int(0))))
"""


@pytest.fixture
def terminal(actor: Actor) -> Iterator[tuple[int, int]]:
    """Yield (master, slave) of a terminal of the actor's that is no session's yet."""
    master, slave = os.openpty()
    os.chown(os.ttyname(slave), actor.uid, -1)
    tty.setraw(slave)
    yield master, slave
    os.close(master)
    os.close(slave)


def pushed(slave: int) -> bytes:
    """Return what waits in the terminal to be read by whoever reads it next."""
    ready, _, _ = select.select([slave], [], [], 0)
    return os.read(slave, 4096) if ready else b""


def test_push_input(project: Project, terminal: tuple[int, int]) -> None:
    """No request that puts input into the terminal gets through, whatever its high bits are."""
    _, slave = terminal
    process = project.popen("/usr/bin/python3", "-I", "-c", PUSH, stdin=slave)
    output, errors = process.communicate(timeout=DEADLINE)
    tries = output.decode().split("\n")[:-1]
    assert len(tries) == 16, errors
    assert {line.split()[1] for line in tries} == {str(errno.EPERM)}
    assert pushed(slave) == b""


def test_push_input_works_outside(actor: Actor, terminal: tuple[int, int]) -> None:
    """Outside the sandbox the same program does push input: the test above tests something."""
    switch = Path("/proc/sys/dev/tty/legacy_tiocsti")  # kernels before 6.2 have TIOCSTI, and no switch
    if switch.exists() and switch.read_text().strip() != "1":
        pytest.skip("this kernel has no TIOCSTI")
    _, slave = terminal
    subprocess.run(
        [*actor.prefix, "/usr/bin/python3", "-I", "-c", PUSH],
        stdin=slave,
        stdout=subprocess.DEVNULL,
        env=plain_environment(actor.base),
        start_new_session=True,
        timeout=DEADLINE,
        check=True,
    )
    assert pushed(slave) == b"xxxx"


CONTROL = """
import fcntl, os, termios
def attempt(name, call):
    try:
        call()
        print(name, "done")
    except OSError:
        print(name, "refused")
attempt("open", lambda: os.open("/dev/tty", os.O_RDWR))
attempt("steal", lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 1))
attempt("foreground", lambda: os.tcsetpgrp(0, os.getpgrp()))
attempt("hang up", lambda: fcntl.ioctl(0, 0x5437))
"""


def test_controlling_terminal(project: Project, terminal: tuple[int, int]) -> None:
    """The caller's terminal is nobody's controlling terminal inside, and cannot be made so."""
    _, slave = terminal

    def take() -> None:
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    process = project.popen("/usr/bin/python3", "-I", "-c", CONTROL, stdin=slave, preexec_fn=take)
    output, errors = process.communicate(timeout=DEADLINE)
    refused = [f"{name} refused" for name in ("open", "steal", "foreground", "hang up")]
    assert output.decode().split("\n")[:-1] == refused, errors


KILL = """
import os, signal, sys
for pid in map(int, sys.argv[1:]):
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except OSError:
            pass
print("done", flush=True)
os.kill(0, signal.SIGKILL)
"""


def test_signals_to_others(project: Project) -> None:
    """Neither the caller's group, nor everyone, nor processes by number can be signalled from inside."""
    actor = project.actor
    sentinel = subprocess.Popen(
        [*actor.prefix, "sleep", "300"], env=plain_environment(actor.base), preexec_fn=os.setpgrp
    )
    try:
        argv = project.argv(
            [
                "/usr/bin/python3",
                "-I",
                "-c",
                KILL,
                "-1",
                str(sentinel.pid),
                str(-sentinel.pid),
                str(os.getpid()),
            ]
        )
        coop = subprocess.Popen(
            argv,
            env=project.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: os.setpgid(0, sentinel.pid),
        )
        output, errors = coop.communicate(timeout=DEADLINE)
        assert (coop.returncode, output) == (128 + signal.SIGKILL, b"done\n"), errors
        assert sentinel.poll() is None
    finally:
        sentinel.kill()
        sentinel.wait()


REACH = """
import fcntl, os, sys, termios
size = os.get_terminal_size(0)
def attempt(name, call):
    try:
        call()
        print(name, "done", end="\\r\\n")
    except OSError:
        print(name, "refused", end="\\r\\n")
attempt("another", lambda: os.open("/dev/pts/1", os.O_RDWR | os.O_NOCTTY))
for pid in (1, os.getppid()):
    for number in range(64):
        try:
            descriptor = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_NOCTTY)
        except OSError:
            continue
        print("descriptor", number, end="\\r\\n")
for path in ("/dev/console", "/dev/tty0", "/dev/tty1", "/dev/ttyS0", "/dev/vcs"):
    attempt(path, lambda: os.open(path, os.O_RDWR | os.O_NOCTTY))
os.fchmod(0, 0o666)
termios.tcsetattr(0, termios.TCSANOW, [0, 0, 0, 0, 0, 0, [b"x"] * 32])
fcntl.ioctl(0, termios.TIOCSWINSZ, b"\\x07\\0" * 4)
print("changed", end="\\r\\n")
"""


def test_own_terminal(project: Project, terminal: tuple[int, int]) -> None:
    """From a terminal of its own a command can neither push input into the caller's nor change it."""
    master, slave = terminal
    fcntl.ioctl(slave, termios.TIOCSWINSZ, b"\x18\0\x50\0\0\0\0\0")
    before = termios.tcgetattr(slave), os.fstat(slave).st_mode, os.get_terminal_size(slave)
    process = project.popen("/usr/bin/python3", "-I", "-c", PUSH + REACH, stdin=slave, stdout=slave)
    seen = b""
    while process.poll() is None or select.select([master], [], [], 0)[0]:
        if select.select([master], [], [], 0.02)[0]:
            seen += os.read(master, 65536)
    assert process.stderr is not None
    lines = seen.decode().replace("\r", "").split("\n")[:-1]
    assert len(lines) == 16 + 7 and lines[-1] == "changed", (seen, process.stderr.read())
    assert {line.split()[1] for line in lines[:16]} == {str(errno.EPERM)}
    assert all(line.endswith(" refused") for line in lines[16:-1]), lines
    assert pushed(slave) == b""
    assert (termios.tcgetattr(slave), os.fstat(slave).st_mode, os.get_terminal_size(slave)) == before
