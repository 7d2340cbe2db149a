"""The servers of tests/netlab.py: ``netserver.py LOG host`` or ``netserver.py LOG world PORT DIRECTORY``.

Greets over TCP and UDP whoever comes to any address, and writes the address into LOG. In the
world it also serves files over HTTP, and the names of ``NAMES`` over DNS.
"""

from __future__ import annotations

import functools
import http.server
import ipaddress
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable

PORT, LOOPBACK_PORT, DNS = 8080, 8081, 53
GREETING = b"hello"
INTERNET, INTERNET6 = "198.51.100.80", "2001:db8:80::80"
NAMES = {
    "www.example.org": (INTERNET, INTERNET6),
    "four.example.org": (INTERNET,),
    "six.example.org": (INTERNET6,),
    "neighbour.example.org": ("192.168.77.3",),
    "metadata.example.org": ("169.254.169.254",),
    "host.example.org": ("203.0.113.77", "2001:db8:cafe::77"),
    "neighbour6.example.org": ("2001:db8:77::3",),
    "mixed.example.org": ("192.168.77.3", INTERNET),
}
_PKTINFO = 50  # IPV6_PKTINFO: ipv6(7); the socket module of Python 3.10 has it on some systems only
_RECVPKTINFO = 49


class Log:
    """Which addresses were reached, a line each."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)

    def write(self, protocol: str, address: str, port: int) -> None:
        """Add a line: ``tcp ADDRESS PORT``."""
        os.write(self._descriptor, f"{protocol} {plain(address)} {port}\n".encode())


def plain(address: str) -> str:
    """Return an address as people write it: IPv4 without the prefix that IPv6 sockets show."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


def listen(address: str, port: int) -> tuple[socket.socket, socket.socket]:
    """Return TCP and UDP sockets for an address; ``::`` is every address of both families."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    both = address == "::"
    tcp = socket.create_server((address, port), family=family, dualstack_ipv6=both, backlog=512)
    udp = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET6:
        udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not both)
        udp.setsockopt(socket.IPPROTO_IPV6, _RECVPKTINFO, 1)
    udp.bind((address, port))
    return tcp, udp


def datagrams(udp: socket.socket, log: Log, answer: Callable[[bytes], bytes]) -> None:
    """Answer datagrams from the address that they were sent to."""
    port = udp.getsockname()[1]
    while True:
        data, ancillary, _, client = udp.recvmsg(2048, 256)
        where = [item for item in ancillary if item[1] == _PKTINFO]
        reached = socket.inet_ntop(socket.AF_INET6, where[0][2][:16]) if where else udp.getsockname()[0]
        log.write("udp", reached, port)
        try:
            udp.sendmsg([answer(data)], where, 0, client)
        except (OSError, IndexError):
            continue  # no query, or nobody to answer to


def connections(tcp: socket.socket, log: Log, serve: Callable[[socket.socket], None]) -> None:
    """Serve each connection in a thread of its own."""
    while True:
        connection, _ = tcp.accept()
        log.write("tcp", *connection.getsockname()[:2])
        start(serve, connection)


def greet(connection: socket.socket) -> None:
    """Greet, and close when the client does."""
    with connection:
        connection.sendall(GREETING)
        connection.recv(1)


def resolve_stream(connection: socket.socket) -> None:
    """Answer one query over TCP: RFC 1035, 4.2.2."""
    with connection, connection.makefile("rb") as stream:
        size = int.from_bytes(stream.read(2), "big")
        try:
            answer = resolve(stream.read(size))
        except IndexError:
            return  # no query
        connection.sendall(struct.pack("!H", len(answer)) + answer)


def resolve(query: bytes) -> bytes:
    """Return the answer to a DNS query with one question: RFC 1035, 4.1."""
    labels, place = [], 12
    while query[place]:
        labels.append(query[place + 1 : place + 1 + query[place]].decode())
        place += 1 + query[place]
    question = query[12 : place + 5]
    (kind,) = struct.unpack("!H", query[place + 1 : place + 3])
    known = NAMES.get(".".join(labels).lower())
    records = b""
    count = 0
    for text in known or ():
        address = ipaddress.ip_address(text)
        if kind == (1 if address.version == 4 else 28):  # A, AAAA
            packed = address.packed
            records += b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 60, len(packed)) + packed
            count += 1
    flags = 0x8180 if known else 0x8183  # an answer, or NXDOMAIN
    return query[:2] + struct.pack("!HHHHH", flags, 1, count, 0, 0) + question + records


def start(function: Callable[..., None], *arguments: object) -> None:
    """Call a function in a thread that ends with the process."""
    threading.Thread(target=function, args=arguments, daemon=True).start()


class Server(http.server.ThreadingHTTPServer):
    """HTTP on every address of both families."""

    address_family = socket.AF_INET6


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files, without a line on standard error for each."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def serve_names(address: str, log: Log) -> None:
    """Answer DNS on one address, or on all."""
    tcp, udp = listen(address, DNS)
    start(connections, tcp, log, resolve_stream)
    start(datagrams, udp, log, resolve)


def main() -> None:
    """Serve until killed; say ``ready`` when everything listens."""
    log = Log(sys.argv[1])
    places = [("::", PORT)]
    if sys.argv[2] == "host":
        places += [("127.0.0.1", LOOPBACK_PORT), ("::1", LOOPBACK_PORT)]
        serve_names("127.0.0.1", log)
    for address, port in places:
        tcp, udp = listen(address, port)
        start(connections, tcp, log, greet)
        start(datagrams, udp, log, lambda data: GREETING)
    if sys.argv[2] == "world":
        serve_names("::", log)
        files = functools.partial(Quiet, directory=sys.argv[4])
        start(Server(("::", int(sys.argv[3])), files).serve_forever)
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
