"""Published ports for tests: programs that listen in sandboxes, and clients outside."""

from __future__ import annotations

import errno
import random
import socket
import subprocess
from pathlib import Path

from tests.sandboxes import DEADLINE, Project

# Where the ports begin that the kernel gives to whoever asks for any, and to connections: ip(7).
_EPHEMERAL = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
_given: set[int] = set()

# Servers in the sandbox, on the port that the first argument names. Each tells when it listens.
_LISTEN = """
import os, socket, sys, threading
threading.stack_size(1 << 18)  # they count as memory where there is no control group
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=512)
print("ready", flush=True)
"""
# Sends back what comes when no more comes, with the number of bytes in front.
ANSWER = f"""{_LISTEN}
def answer(connection):
    data = b""
    while piece := connection.recv(1 << 20):
        data += piece
    connection.sendall(b"%d " % len(data) + data)
    connection.close()

while True:
    threading.Thread(target=answer, args=listener.accept()[:1]).start()
"""
# Accepts and never reads; on the next port it sends back what comes.
DEAF = f"""
import socket, sys, threading
held, deaf = [], socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=512)

def accept():
    while True:
        held.append(deaf.accept()[0])

threading.Thread(target=accept, daemon=True).start()
sys.argv[1] = int(sys.argv[1]) + 1
{ANSWER}
"""
# Sends without end to everybody.
FLOOD = f"""{_LISTEN}
def flood(connection):
    try:
        while True:
            connection.sendall(bytes(1 << 16))
    except OSError:
        pass

while True:
    threading.Thread(target=flood, args=listener.accept()[:1], daemon=True).start()
"""
# Sends so many bytes to the first who comes, and ends.
FAREWELL = f"""{_LISTEN}
connection, _ = listener.accept()
connection.sendall(bytes(int(sys.argv[2])))
"""


def free_port() -> int:
    """Return a port that nobody has on any address, and that nobody gets who does not ask for this one."""
    while True:
        port = random.SystemRandom().randrange(10000, _EPHEMERAL)
        if port in _given:
            continue
        try:
            for family, everywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
                socket.create_server((everywhere, port), family=family).close()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
        _given.add(port)
        return port


def publish(project: Project, *ports: str, mode: str = "none") -> None:
    """Have the project publish ports."""
    listed = ", ".join(f'"{port}"' for port in ports)
    project.coopfile(f'[network]\nmode = "{mode}"\npublish = [{listed}]\n')


def start(project: Project, program: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Start one of the servers above in the sandbox; return coop's process when it listens."""
    argv = ["/usr/bin/python3", "-I", "-c", program, *(str(argument) for argument in arguments)]
    process = project.popen(*argv)
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        _, said = process.communicate(timeout=DEADLINE)
        raise AssertionError(said)
    return process


def connect(port: int, address: str = "127.0.0.1") -> socket.socket:
    """Connect to a port of the host."""
    return socket.create_connection((address, port), timeout=DEADLINE)


def is_listening(port: int, address: str = "127.0.0.1") -> bool:
    """Tell whether somebody listens on a port of the host."""
    try:
        connect(port, address).close()
    except ConnectionRefusedError:
        return False
    except ConnectionResetError:
        pass
    return True


def receive(end: socket.socket) -> bytes:
    """Return what comes until the end."""
    found = bytearray()
    while data := end.recv(1 << 20):
        found += data
    return bytes(found)


def ask(port: int, data: bytes = b"", address: str = "127.0.0.1") -> bytes:
    """Send something to ``ANSWER`` and return its answer."""
    with connect(port, address) as end:
        end.sendall(data)
        end.shutdown(socket.SHUT_WR)
        return receive(end)
