"""network.mode none and host: what can be reached. Veth has its own tests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from coopfile.native import landlock
from tests.sandboxes import Project

pytestmark = pytest.mark.native

LOOPBACK = """
import socket, sys, threading
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    server = socket.create_server((address, 0), family=family)
    client = socket.create_connection(server.getsockname()[:2], timeout=5)
    client.sendall(b"x")
    print(server.accept()[0].recv(1))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(("127.0.0.1", 0))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"y", udp.getsockname())
print(udp.recv(1))
"""
CONNECT = """
import socket, sys
address = sys.argv[1:]
family = socket.AF_UNIX if len(address) == 1 else socket.AF_INET6 if ":" in address[0] else socket.AF_INET
client = socket.socket(family)
client.settimeout(3)
try:
    client.connect(address[0].replace("@", chr(0), 1) if len(address) == 1 else (address[0], int(address[1])))
    print(client.recv(5).decode())
except OSError as error:
    print(type(error).__name__, error.errno)
"""


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield a server on the host's loopback and an abstract socket that greets whoever comes."""
    made = Server()
    yield made
    made.close()


class Server:
    """Greets on TCP and on an abstract socket of the host."""

    def __init__(self) -> None:
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.abstract = socket.socket(socket.AF_UNIX)
        self.port = str(self.tcp.getsockname()[1])
        self.name = f"coop-test-{self.port}"
        self.abstract.bind("\0" + self.name)
        self.abstract.listen()
        self.greeted = 0
        for listener in (self.tcp, self.abstract):
            listener.settimeout(0.1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._stop.is_set():
            for listener in (self.tcp, self.abstract):
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    continue
                with connection:
                    self.greeted += 1
                    connection.sendall(b"hello")

    def close(self) -> None:
        """Stop serving."""
        self._stop.set()
        self._thread.join()
        self.tcp.close()
        self.abstract.close()


def test_none_has_loopback_only(project: Project) -> None:
    """Without a network there is one interface, the loopback, and it is up."""
    lines = project.output("cat /proc/net/dev").split("\n")[2:]
    assert [line.split(":")[0].strip() for line in lines] == ["lo"]
    assert project.output("cat /proc/net/route | wc -l; ls /etc/resolv.conf 2>/dev/null | wc -l").split() == [
        "1",
        "0",
    ]


def test_none_loopback_works(project: Project) -> None:
    """Servers and clients inside find each other on 127.0.0.1 and ::1."""
    result = project.python(LOOPBACK)
    assert result.out == "b'x'\nb'x'\nb'y'\n", result


def test_none_names(project: Project) -> None:
    """localhost is known without a resolver, and nothing else is."""
    script = "import socket; print(sorted({a[4][0] for a in socket.getaddrinfo('localhost', 1)}))"
    assert project.python(script).out == "['127.0.0.1', '::1']\n"
    assert project.python("import socket; socket.getaddrinfo('example.org', 1)").status == 1


def test_none_cannot_reach_the_host(project: Project, server: Server) -> None:
    """A server on the host's loopback, and an abstract socket of the host, are out of reach."""
    # ECONNREFUSED: there is nobody on the sandbox's own loopback, nor of that name in its namespace.
    assert project.python(CONNECT, "127.0.0.1", server.port).out == "ConnectionRefusedError 111\n"
    assert project.python(CONNECT, "@" + server.name).out == "ConnectionRefusedError 111\n"
    assert server.greeted == 0


@pytest.mark.parametrize("address", ["169.254.169.254", "10.0.0.1", "192.0.2.1", "2001:db8::1", "fe80::1"])
def test_none_cannot_reach_others(project: Project, address: str) -> None:
    """No other address can be reached, over IPv4 or IPv6."""
    out = project.python(CONNECT, address, "80").out
    assert out.startswith("OSError"), out


def test_host_reaches_the_host(project: Project, server: Server) -> None:
    """network.mode = "host" is the host's network, its loopback included."""
    project.coopfile('network.mode = "host"\n')
    assert project.python(CONNECT, "127.0.0.1", server.port).out == "hello\n"
    host = Path("/proc/net/dev").read_text().split("\n")[2:-1]
    inside = project.output("cat /proc/net/dev").split("\n")[2:]
    assert [line.split(":")[0] for line in inside] == [line.split(":")[0] for line in host]


def test_host_abstract_sockets(project: Project, server: Server) -> None:
    """Abstract sockets of the host stay out of reach where Landlock can fence them, else it is said."""
    project.coopfile('network.mode = "host"\n')
    result = project.python(CONNECT, "@" + server.name)
    if landlock.abi() >= 6:
        assert result.out == "PermissionError 1\n"
        assert server.greeted == 0
    else:
        assert "network.mode" in result.err


def test_host_resolver(project: Project) -> None:
    """With the host's network its resolver's configuration is there."""
    path = Path("/etc/resolv.conf")
    if not path.exists():
        pytest.skip("this host has no /etc/resolv.conf")
    project.coopfile('network.mode = "host"\n')
    assert project.run("cat", "/etc/resolv.conf").stdout == path.read_bytes()


def test_host_configuration_is_read_only(project: Project) -> None:
    """Even with the host's network nothing of it can be configured."""
    project.coopfile('network.mode = "host"\n')
    script = """
import fcntl, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    fcntl.ioctl(s, 0x8914, b"lo".ljust(16, b"\\0") + bytes(24))
except PermissionError:
    print("denied")
try:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
except PermissionError:
    print("denied")
"""
    assert project.python(script).out == "denied\ndenied\n"


def test_proxy_without_a_list(project: Project) -> None:
    """A proxy that leads nowhere says so, and is all that there is."""
    project.coopfile('network.mode = "proxy"\n')
    script = """
import socket, urllib.error, urllib.request
try:
    urllib.request.urlopen("http://example.org/", timeout=30)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
print(*[name for _, name in socket.if_nameindex()])
"""
    result = project.python(script)
    assert result.out.startswith("403 coop: example.org:80 is blocked by network.allow"), result
    assert "allowed: nothing" in result.out and result.out.endswith("\nlo\n")
    assert "coop: example.org:80 is blocked" in result.err


@pytest.mark.parametrize("family", ["AF_PACKET", "AF_VSOCK", "AF_ALG", "AF_CAN", "AF_TIPC", "AF_BLUETOOTH"])
def test_other_families(project: Project, family: str) -> None:
    """Sockets of families that tools do not need cannot be made."""
    script = f"""
import errno, socket
try:
    socket.socket(socket.{family}, socket.SOCK_RAW)
except OSError as error:
    print(errno.errorcode[error.errno])
"""
    assert project.python(script).out == "EAFNOSUPPORT\n"
