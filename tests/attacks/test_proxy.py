"""Past the proxy's list: by odd names, by what names resolve to, by smuggling, by TLS, by exhaustion."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest

from tests.netlab import (
    FORBIDDEN,
    HOSTS,
    INTERNET,
    LOOPBACK_PORT,
    NEIGHBOUR,
    PORT,
    Lab,
)
from tests.proxylab import HTTPS, Secure, allow, proxy_of
from tests.sandboxes import Project

pytestmark = pytest.mark.native

SITE = "four.example.org"
BLOCKED_BY_SOCKS = b"\x05\x02"

# Sends the pieces of every conversation (port, [hex, ...]) on stdin, waiting for an answer after each but
# the last; prints in hex what came until the end of each.
TALK = """
import json, socket, sys, threading
conversations = json.load(sys.stdin)
answers = [""] * len(conversations)
def talk(number, port, pieces):
    data = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            for piece in pieces[:-1]:
                client.sendall(bytes.fromhex(piece))
                data += client.recv(65536)
            client.sendall(bytes.fromhex(pieces[-1]))
            client.settimeout(2)
            while piece := client.recv(65536):
                data += piece
    except OSError as error:
        pass
    answers[number] = data.hex()
threads = [threading.Thread(target=talk, args=(number, *pair)) for number, pair in enumerate(conversations)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(answers))
"""


def talk(project: Project, port: int, *conversations: bytes | tuple[bytes, ...]) -> list[bytes]:
    """Have conversations with a port of the sandbox's loopback; return what was answered in each."""
    asked = [
        [port, [piece.hex() for piece in ([pieces] if isinstance(pieces, bytes) else pieces)]]
        for pieces in conversations
    ]
    result = project.run("/usr/bin/python3", "-Ic", TALK, stdin=json.dumps(asked).encode())
    assert result.status == 0, result
    return [bytes.fromhex(answer) for answer in json.loads(result.out)]


def http(project: Project, *heads: bytes | tuple[bytes, ...]) -> list[bytes]:
    """Send requests to the HTTP proxy."""
    return talk(project, 3128, *heads)


def socks(host: bytes, port: int, *, command: int = 1, kind: int = 3) -> bytes:
    """Return a greeting and a request of SOCKS in one piece."""
    target = bytes([len(host)]) + host if kind == 3 else host
    return b"\x05\x01\x00" + bytes([5, command, 0, kind]) + target + struct.pack(">H", port)


def tunnel(host: str, port: int) -> bytes:
    """Return a request for a tunnel."""
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()


def reached(lab: Lab, since: int) -> list[str]:
    """Return what was connected to, apart from questions to the name server."""
    return [line for line in lab.connections()[since:] if not line.startswith("udp")]


def test_addresses(proxied: Project, lab: Lab) -> None:
    """No address passes that is not listed: the host's, its neighbours', the metadata's, the internet's."""
    since = len(lab.connections())
    hosts = (*FORBIDDEN, *HOSTS, INTERNET)
    answers = http(proxied, *(tunnel(host, PORT) for host in hosts))
    assert [answer[:13] for answer in answers] == [b"HTTP/1.1 403 "] * len(hosts), answers
    assert reached(lab, since) == []


def test_names_of_local_addresses(proxied: Project, lab: Lab) -> None:
    """A name that is listed leads to no local address, and the answer says which it was."""
    names = (
        "metadata.example.org",
        "neighbour.example.org",
        "neighbour6.example.org",
        "host.example.org",
        "localhost",
    )
    allow(proxied, *(f"{name}:{port}" for name in names for port in (PORT, LOOPBACK_PORT)))
    since = len(lab.connections())
    answers = http(proxied, *(tunnel(name, PORT) for name in names), tunnel("localhost", LOOPBACK_PORT))
    assert all(answer.startswith(b"HTTP/1.1 403 ") for answer in answers), answers
    assert b"it is 169.254.169.254 here" in answers[0] and NEIGHBOUR.encode() in answers[1]
    answers = talk(proxied, 1080, *(socks(name.encode(), PORT) for name in names))
    assert [answer[2:4] for answer in answers] == [BLOCKED_BY_SOCKS] * len(names)
    assert reached(lab, since) == []


def test_name_with_both(proxied: Project, lab: Lab) -> None:
    """Of a name that has a neighbour's address and one of the internet only the latter is connected to."""
    allow(proxied, f"mixed.example.org:{PORT}")
    since = len(lab.connections())
    answers = http(proxied, *[tunnel("mixed.example.org", PORT)] * 5)
    assert all(answer.endswith(b"hello") for answer in answers), answers
    assert set(reached(lab, since)) == {f"tcp {INTERNET} {PORT}"}


def test_the_hosts_own_by_a_route(proxied: Project, lab: Lab) -> None:
    """What the host takes in by a route of its table ``local`` is its own, without being its address."""
    since = len(lab.connections())
    route = ("local", f"{INTERNET}/32", "dev", "lo")
    lab.run("ip", "route", "add", *route)
    try:
        (answer,) = http(proxied, tunnel(SITE, PORT))
    finally:
        lab.run("ip", "route", "del", *route)
    assert answer.startswith(b"HTTP/1.1 403 ") and b"local to this machine" in answer
    assert reached(lab, since) == []


@pytest.mark.parametrize("listed", ["127.0.0.1", "0.0.0.0", "[::1]", "[::]"])
def test_the_hosts_loopback(proxied: Project, lab: Lab, listed: str) -> None:
    """The host's loopback is out of reach by every spelling, even when an address of it is listed."""
    allow(proxied, f"{listed}:{LOOPBACK_PORT}", f"{listed}:{PORT}", f"localhost:{LOOPBACK_PORT}")
    since = len(lab.connections())
    spellings = (
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "127.000.000.001",
        "0x7f000001",
        "0x7f.0.0.1",
        "017700000001",
        "2130706433",
        "127.0.0.2",
        "0",
        "0.0.0.0",
        "::1",
        "::",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "::127.0.0.1",
        "64:ff9b::127.0.0.1",
        "0:0:0:0:0:0:0:1",
        "::1%lo",
        "localhost",
        "LOCALHOST.",
        "localhost.localdomain",
    )
    answers = http(proxied, *(tunnel(name, port) for name in spellings for port in (LOOPBACK_PORT, PORT)))
    for answer in answers:
        assert answer[:13] in (b"HTTP/1.1 403 ", b"HTTP/1.1 400 "), answers
    packed = (
        bytes((127, 0, 0, 1)),
        bytes(4),
        bytes(15) + b"\1",
        bytes(16),
        bytes(10) + b"\xff\xff\x7f\0\0\1",
    )
    answers = talk(
        proxied, 1080, *(socks(item, LOOPBACK_PORT, kind=1 if len(item) == 4 else 4) for item in packed)
    )
    assert [answer[2:4] for answer in answers] == [BLOCKED_BY_SOCKS] * len(packed)
    assert reached(lab, since) == []


def test_odd_names(proxied: Project, lab: Lab) -> None:
    """Names that a rule and a resolver could read differently are refused, over HTTP and SOCKS."""
    names = (
        b"neighbour.example.org\0.wild.example.org",
        b"neighbour.example.org\0",
        b"four.example.org\0.evil.example.org",
        b"neighbour.example.org\n.wild.example.org",
        b"neighbour.example.org#.wild.example.org",
        b"neighbour.example.org/.wild.example.org",
        b"neighbour.example.org .wild.example.org",
        b"four.example.org@neighbour.example.org",
        b"*.wild.example.org",
        b".wild.example.org",
        b"wild.example.org",
        b"a..wild.example.org",
        b"four.example.org..",
        b"four.example.org.example.org",
        b"xfour.example.org",
        b"four\xe3\x80\x82example\xe3\x80\x82org",
        "fo\u00fcr.example.org".encode(),
        b"%66our.example.org",
        b"",
        b"a" * 64 + b".wild.example.org",
        b".".join([b"a" * 60, *[b"a" * 58] * 3]) + b".wild.example.org",
    )
    since = len(lab.connections())
    answers = talk(proxied, 1080, *(socks(name, PORT) for name in names))
    assert [answer[2:4] for answer in answers] == [BLOCKED_BY_SOCKS] * len(names)
    heads = [b"CONNECT %b:%d HTTP/1.1\r\nHost: x\r\n\r\n" % (name, PORT) for name in names]
    heads += [b"CONNECT %b:%d HTTP/1.1\r\n\r\n" % (name, PORT) for name in names]
    for answer in http(proxied, *heads):
        assert answer[:13] in (b"HTTP/1.1 403 ", b"HTTP/1.1 400 "), answer
    assert lab.connections()[since:] == []


def test_same_name(proxied: Project) -> None:
    """Case and a final dot make no other name; a listed name below a wildcard passes the list."""
    answers = http(proxied, *(tunnel(name, PORT) for name in ("FOUR.example.ORG", "four.example.org.")))
    assert all(answer.endswith(b"hello") for answer in answers), answers
    (answer,) = http(proxied, tunnel("a.wild.example.org", 80))
    assert b" 502 " in answer and b"cannot be resolved" in answer


def test_ports(proxied: Project, lab: Lab) -> None:
    """A host is reached on the ports that are listed for it alone."""
    since = len(lab.connections())
    answers = http(proxied, *(tunnel(SITE, port) for port in (22, 81, LOOPBACK_PORT, 65535)))
    assert all(answer.startswith(b"HTTP/1.1 403 ") for answer in answers), answers
    for port in (b"0", b"65536", b"-1", b"080080", b"", b"80 ", b"0x50"):
        (answer,) = http(proxied, b"CONNECT four.example.org:%b HTTP/1.1\r\n\r\n" % port)
        assert answer.startswith(b"HTTP/1.1 400 "), (port, answer)
    assert reached(lab, since) == []


def test_socks_commands(proxied: Project, lab: Lab) -> None:
    """SOCKS has CONNECT alone: no BIND, no UDP, no log-in, no other version, no other type of address."""
    since = len(lab.connections())
    name = SITE.encode()
    answers = talk(
        proxied,
        1080,
        socks(name, PORT, command=2),
        socks(name, PORT, command=3),
        socks(name, PORT, kind=9),
        b"\x05\x01\x02" + socks(name, PORT)[3:],
        b"\x04\x01" + struct.pack(">H", PORT) + bytes((0, 0, 0, 1)) + b"\0" + name + b"\0",
        b"\x05\x00" + socks(name, PORT)[3:],
        socks(name, 0),
        tunnel(SITE, PORT),
    )
    assert [answer[:4] for answer in answers] == [
        b"\x05\x00\x05\x07",
        b"\x05\x00\x05\x07",
        b"\x05\x00\x05\x08",
        b"\x05\xff",
        b"",
        b"\x05\xff",
        b"\x05\x00\x05\x02",
        b"",
    ]
    assert reached(lab, since) == []


def vector(size: int, data: bytes) -> bytes:
    """Return data with its length in front."""
    return len(data).to_bytes(size, "big") + data


def hello(name: bytes | None, *, hidden: bool = False, shares: bytes = b"") -> bytes:
    """Return a hello of TLS 1.3, as a message of the handshake."""
    extensions = [
        (43, vector(1, b"\x03\x04")),
        (10, vector(2, b"\x00\x1d")),
        (13, vector(2, b"\x04\x03\x08\x04\x04\x01")),
        (51, vector(2, shares)),
    ]
    if name is not None:
        extensions.append((0, vector(2, b"\0" + vector(2, name))))
    if hidden:
        extensions.append((0xFE0D, b"\0\0\1\0\1\7" + vector(2, bytes(32)) + vector(2, bytes(200))))
    packed = b"".join(struct.pack(">H", kind) + vector(2, data) for kind, data in extensions)
    body = (
        b"\3\3"
        + bytes(range(32))
        + vector(1, bytes(32))
        + vector(2, b"\x13\x01")
        + b"\1\0"
        + vector(2, packed)
    )
    return b"\1" + vector(3, body)


def record(data: bytes, kind: int = 22) -> bytes:
    """Return a record of TLS."""
    return bytes((kind, 3, 1)) + vector(2, data)


REFUSED = bytes.fromhex("15030300020270")
ALIEN = hello(b"other.example.org")
HELLOS = {
    "another name": record(ALIEN),
    "another name in pieces": record(ALIEN[:3]) + record(ALIEN[3:60]) + record(ALIEN[60:]),
    "no name": record(hello(None)),
    "a hidden name": record(hello(b"four.example.org", hidden=True)),
    "a NUL": record(hello(b"four.example.org\0other")),
    "an address": record(hello(INTERNET.encode())),
    "an empty name": record(hello(b"")),
    "two hellos": record(hello(b"four.example.org") + ALIEN),
    "a longer hello": record(hello(b"four.example.org")[:-1] + b"x" * 40),
    "no hello": record(b"\2" + ALIEN[1:]),
    "something in between": record(ALIEN[:60]) + record(b"x", 23) + record(ALIEN[60:]),
    "a hundred pieces": b"".join(record(ALIEN[at : at + 1]) for at in range(len(ALIEN))),
    "another version": b"\x16\x02" + record(hello(b"four.example.org"))[2:],
    "plain HTTP": b"GET / HTTP/1.1\r\nHost: other.example.org\r\n\r\n",
    "plain TLS of old": b"\x80\x2e\x01\x03\x01" + bytes(43),
}


def test_tls_names(proxied: Project, secure: Secure) -> None:
    """A hello that does not name the host that the tunnel leads to does not get there."""
    before = secure.names()
    answers = http(proxied, *(tunnel(SITE, HTTPS) + data for data in HELLOS.values()))
    for name, answer in zip(HELLOS, answers, strict=True):
        head, _, rest = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200") and rest == REFUSED, (name, answer)
    answers = talk(proxied, 1080, *(socks(SITE.encode(), HTTPS) + data for data in HELLOS.values()))
    assert [answer[12:] for answer in answers] == [REFUSED] * len(HELLOS)
    assert secure.names() == before


def test_second_hello(proxied: Project, secure: Secure) -> None:
    """A server that asks for another hello gets none with another name."""
    before = len(secure.names())
    first = record(hello(SITE.encode()))
    again = bytes((20, 3, 3, 0, 1, 1)) + record(ALIEN)
    good = bytes((20, 3, 3, 0, 1, 1)) + record(hello(SITE.encode()))
    bad, fine = http(proxied, (tunnel(SITE, HTTPS), first, again), (tunnel(SITE, HTTPS), first, good))
    assert b"\xcf\x21\xad\x74" in bad and bad.endswith(REFUSED), bad
    assert not fine.endswith(REFUSED)
    assert "other.example.org" not in secure.names()[before:]


def test_dawdlers(proxied: Project) -> None:
    """Thousands of connections that say nothing, or little at a time, keep nobody out."""
    script = """
import resource, socket, urllib.request
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held = []
for number in range(2500):
    try:
        client = socket.create_connection(("127.0.0.1", (3128, 1080)[number % 2]), timeout=10)
    except OSError:
        break
    client.send((b"G", b"\\x05")[number % 2] if number % 3 else b"")
    held.append(client)
print(len(held), urllib.request.urlopen("http://four.example.org/", timeout=30).status)
"""
    result = proxied.python(script)
    assert result.status == 0, result
    count, status = result.out.split()
    assert int(count) > 900 and status == "200", result


def test_memory(proxied: Project, secure: Secure) -> None:
    """Clients that have the proxy keep as much as it can get no more than its bound, and keep nobody out."""
    script = """
import resource, socket, sys, urllib.request
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held = []
def hold(port, *pieces):
    try:
        client = socket.create_connection(("127.0.0.1", port), timeout=20)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for piece in pieces:
            client.sendall(piece)
    except OSError:
        return
    held.append(client)
for number in range(900):
    hold(3128, b"GET http://four.example.org/x HTTP/1.1\\r\\nX: " + b"x" * 60000)
    hello = b"\\x16\\x03\\x01\\x40\\x00\\x01\\x00\\xff\\xff" + b"x" * 16000
    hold(3128, b"CONNECT four.example.org:443 HTTP/1.1\\r\\n\\r\\n", hello)
print(len(held), flush=True)
sys.stdin.readline()
print(urllib.request.urlopen("http://four.example.org/", timeout=60).status)
"""
    process = proxied.popen("/usr/bin/python3", "-Ic", script, stdin=-1)
    assert process.stdout is not None
    assert int(process.stdout.readline()) > 400
    (proxy,) = proxy_of(process.pid)
    status = Path(f"/proc/{proxy}/status").read_text()
    (kept,) = re.findall(r"RssAnon:\s+(\d+) kB", status)
    assert int(kept) < 512 << 10, status
    assert re.search(r"Max data size +536870912 +536870912", Path(f"/proc/{proxy}/limits").read_text())
    out, err = process.communicate(b"\n", timeout=120)
    assert out == b"200\n", (out, err)


def test_flood_of_denials(proxied: Project) -> None:
    """However much is blocked, the log and what is told at the end stay short."""
    names = [f"n{number}.example.com" for number in range(700)]
    script = """
import socket
for number in range(700):
    with socket.create_connection(("127.0.0.1", 3128)) as client:
        client.sendall(b"CONNECT n%d.example.com:443 HTTP/1.1\\r\\n\\r\\n" % number)
        assert b" 403 " in client.recv(4096)
"""
    result = proxied.python(script)
    assert result.status == 0, result
    told = [line for line in result.err.splitlines() if "blocked" in line]
    assert len(told) == 11 and "coop log" in told[-1]
    logged = json.loads(proxied.coop("log", "--json").out)
    assert [entry["host"] for entry in logged[:500]] == names[:500] and len(logged) < 700


def test_nothing_else(proxied: Project, lab: Lab) -> None:
    """Past the proxy there is nothing: no route, no name server, no datagrams."""
    script = f"""
import socket
for family, kind, address in (
    (socket.AF_INET, socket.SOCK_STREAM, ("{INTERNET}", 80)),
    (socket.AF_INET, socket.SOCK_DGRAM, ("{INTERNET}", 53)),
    (socket.AF_INET6, socket.SOCK_STREAM, ("2001:db8:80::80", 80)),
    (socket.AF_INET, socket.SOCK_STREAM, ("{NEIGHBOUR}", 80)),
):
    client = socket.socket(family, kind)
    client.settimeout(5)
    try:
        client.connect(address)
        print("connected", address)
    except OSError as error:
        print(error.errno == 101)
try:
    socket.getaddrinfo("four.example.org", 80)
    print("resolved")
except OSError:
    print(True)
"""
    since = len(lab.connections())
    assert proxied.python(script).out.split() == ["True"] * 5
    assert lab.connections()[since:] == []
