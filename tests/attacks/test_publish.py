"""Attacks by way of published ports: out of the sandbox, on the publisher, and on those who connect."""

from __future__ import annotations

import fcntl
import socket
import sys
import termios
import time
from contextlib import ExitStack

import pytest

from tests.publishlab import (
    ANSWER,
    DEAF,
    FLOOD,
    ask,
    connect,
    free_port,
    is_listening,
    publish,
    receive,
    start,
)
from tests.sandboxes import DEADLINE, Project, wait_until

pytestmark = pytest.mark.native

# Tells what can be reached: of the loopback, of the host's other addresses, of anything at all.
REACH = """
import os, socket, sys
port, other = map(int, sys.argv[1:])
reached = []
for address in ("127.0.0.1", "::1", "127.0.0.2", "10.0.2.2", "169.254.1.1", socket.gethostname()):
    for number in (port, other):
        try:
            socket.create_connection((address, number), timeout=3).close()
            reached.append((address, number))
        except OSError:
            pass
print(reached, [name for _, name in socket.if_nameindex()])
held = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd") if int(name) > 2]
print([os.readlink(name) for name in held if os.path.lexists(name)])
print(sorted(name for name in os.listdir("/proc") if name.isdigit()))
for name in ("tcp", "tcp6"):
    print(len(open(f"/proc/net/{name}").readlines()))
"""


def test_no_way_out(project: Project) -> None:
    """In a sandbox without a network nothing of the host's is reached, held or seen, its own port neither."""
    port = free_port()
    with socket.create_server(("0.0.0.0", 0)) as other:
        publish(project, f"0.0.0.0:{port}:3000")
        result = project.python(REACH, str(port), str(other.getsockname()[1]))
    assert result.out.splitlines() == ["[] ['lo']", "[]", "['1', '2']", "1", "1"], result


def test_the_same_port_inside(project: Project) -> None:
    """A command that listens on the host's port inside gets what is inside only, and disturbs nobody."""
    port = free_port()
    publish(project, f"{port}:3000")
    start(project, ANSWER, port)
    with pytest.raises(ConnectionResetError), connect(port) as end:
        end.recv(1)


def test_deaf(project: Project) -> None:
    """A command that accepts and never reads holds up neither other ports' connections nor the run's end."""
    deaf, other = free_port(), free_port()
    publish(project, f"{deaf}:3000", f"{other}:3001")
    process = start(project, DEAF, 3000)
    with ExitStack() as stack:
        for _ in range(20):
            end = stack.enter_context(connect(deaf))
            end.setblocking(False)
            with pytest.raises(BlockingIOError):
                while True:
                    end.send(bytes(1 << 20))
        assert ask(other, b"hello") == b"5 hello"
        process.terminate()
        assert process.wait(DEADLINE) == 143


def are_full(ends: list[socket.socket]) -> bool:
    """Tell whether nothing more arrives at connections, after more than one piece of the flood."""

    def waiting() -> list[int]:
        return [int.from_bytes(fcntl.ioctl(end, termios.FIONREAD, bytes(4)), sys.byteorder) for end in ends]

    before = waiting()
    time.sleep(0.5)
    return waiting() == before and min(before) > 1 << 16


def test_flood(project: Project) -> None:
    """A command that sends without end to clients that do not read is ended as any other, soon."""
    port = free_port()
    publish(project, f"{port}:3000")
    process = start(project, FLOOD, 3000)
    with ExitStack() as stack:
        held = [stack.enter_context(connect(port)) for _ in range(5)]
        for end in held:
            assert end.recv(1) == b"\0"
        assert wait_until(lambda: are_full(held)), "what was sent before would arrive whole"
        process.terminate()
        assert process.wait(DEADLINE) == 143
        assert wait_until(lambda: not is_listening(port))
        for end in held:
            with pytest.raises(ConnectionResetError):
                receive(end)  # what is cut off is not taken for whole


def test_killing_all(project: Project) -> None:
    """A command that kills and stops all that it can does nothing to the publisher."""
    port = free_port()
    publish(project, f"{port}:3000")
    script = f"""
import os, signal
for number in (signal.SIGSTOP, signal.SIGKILL):
    try:
        os.kill(-1, number)
    except OSError:
        pass
{ANSWER}
"""
    start(project, script, 3000)
    assert ask(port, b"hello") == b"5 hello"


def test_silent_clients(project: Project) -> None:
    """Clients that connect and say nothing do not keep others out."""
    port = free_port()
    publish(project, f"{port}:3000")
    start(project, ANSWER, 3000)
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(connect(port))
        assert ask(port, b"hello") == b"5 hello"
    assert ask(port) == b"0 "
