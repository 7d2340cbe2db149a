"""Past the proxy's list by HTTP: requests that two programs read in two ways, and others inside tunnels."""

from __future__ import annotations

import json

import pytest

from tests.attacks.test_proxy import SITE, http, reached, socks, talk, tunnel
from tests.netlab import Lab
from tests.proxylab import Secure
from tests.sandboxes import Project

pytestmark = pytest.mark.native

GET = b"GET http://four.example.org/ HTTP/1.1\r\n"
HOST = b"Host: four.example.org\r\n"

SMUGGLED = {
    "another host": GET + b"Host: other.example.org\r\n\r\n",
    "another port": GET + b"Host: four.example.org:81\r\n\r\n",
    "two hosts": GET + HOST + b"Host: other.example.org\r\n\r\n",
    "the same host twice": GET + HOST * 2 + b"\r\n",
    "no host": GET + b"\r\n",
    "an account": b"GET http://four.example.org@other.example.org/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "a fragment": b"GET http://other.example.org#@four.example.org/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "a backslash": b"GET http://four.example.org\\.other.org/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "no scheme": b"GET / HTTP/1.1\r\n" + HOST + b"\r\n",
    "another scheme": b"GET ftp://four.example.org/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "TLS without a tunnel": b"GET https://four.example.org/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "both lengths": GET + HOST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks": GET + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": GET + HOST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "a list of lengths": GET + HOST + b"Content-Length: 5, 5\r\n\r\nhello",
    "a signed length": GET + HOST + b"Content-Length: +5\r\n\r\nhello",
    "a folded field": GET + HOST + b"X: y\r\n z\r\n\r\n",
    "a space before the colon": GET + b"Host : four.example.org\r\n\r\n",
    "bare line feeds": b"GET http://four.example.org/ HTTP/1.1\nHost: four.example.org\n\n\r\n\r\n",
    "a line feed in a field": GET + HOST + b"X: y\nHost: other.example.org\r\n\r\n",
    "a return in a field": GET + HOST + b"X: y\rHost: other.example.org\r\n\r\n",
    "a NUL in a field": GET + HOST + b"X: \0\r\n\r\n",
    "two spaces": b"GET  http://four.example.org/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "another version": b"GET http://four.example.org/ HTTP/2.0\r\n" + HOST + b"\r\n",
    "a tunnel elsewhere": b"CONNECT four.example.org:80 HTTP/1.1\r\nHost: other.example.org:80\r\n\r\n",
    "a tunnel with a body": b"CONNECT four.example.org:80 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    "a tunnel to an address of the web": b"CONNECT http://four.example.org:80/ HTTP/1.1\r\n\r\n",
    "a tunnel without a port": b"CONNECT four.example.org HTTP/1.1\r\n\r\n",
    "too long": GET + HOST + b"X: " + b"y" * 70000 + b"\r\n\r\n",
    "too many fields": GET + HOST + b"X: y\r\n" * 300 + b"\r\n",
}


def test_smuggling(proxied: Project) -> None:
    """Requests that two programs could read in two ways are refused, and not passed on."""
    answers = http(proxied, *SMUGGLED.values())
    for name, answer in zip(SMUGGLED, answers, strict=True):
        assert answer[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 411", b"HTTP/1.1 431"), (name, answer)


def test_one_request(proxied: Project) -> None:
    """Of requests that come behind each other only the first is passed on, and what it says it has."""
    second = b"GET http://four.example.org/other HTTP/1.1\r\nHost: other.example.org\r\n\r\n"
    answers = http(
        proxied,
        GET + HOST + b"\r\n" + second,
        GET + HOST + b"Connection: keep-alive\r\n\r\n" + second,
        b"POST http://four.example.org/ HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\nxx" + second,
    )
    assert [answer.count(b"HTTP/1.") for answer in answers] == [1, 1, 1], answers


INSIDE = {
    "another host": b"GET / HTTP/1.1\r\nHost: other.example.org\r\n\r\n",
    "another port": b"GET / HTTP/1.1\r\nHost: four.example.org:8080\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: four.example.org\r\nHost: other.example.org\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "an address in full": b"GET http://other.example.org/ HTTP/1.1\r\nHost: four.example.org\r\n\r\n",
    "a tunnel": b"CONNECT other.example.org:80 HTTP/1.1\r\nHost: four.example.org\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: other.example.org\n\n\r\n\r\n",
    "chunks": b"POST / HTTP/1.1\r\nHost: four.example.org\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "no HTTP": b"SSH-2.0-x\r\n\r\n",
}


def test_plain_http_through_a_tunnel(proxied: Project) -> None:
    """A tunnel to port 80 has one request of HTTP, whose Host is where the tunnel leads to."""
    good = b"GET / HTTP/1.1\r\nHost: Four.example.org.\r\n\r\n"
    second = b"GET / HTTP/1.1\r\nHost: other.example.org\r\n\r\n"
    for answers in (
        [answer.partition(b"\r\n\r\n")[2] for answer in http(proxied, *tunnels(good, good + second))],
        [answer[12:] for answer in talk(proxied, 1080, *sockets(good, good + second))],
    ):
        assert [answer.count(b"HTTP/1.") for answer in answers] == [1, 1], answers
        assert all(answer.split(b" ")[1] == b"200" for answer in answers), answers
    answers = http(proxied, *tunnels(*INSIDE.values()))
    answers += talk(proxied, 1080, *sockets(*INSIDE.values()))
    for name, answer in zip([*INSIDE] * 2, answers, strict=True):
        inside = answer.partition(b"\r\n\r\n")[2] if answer.startswith(b"HTTP") else answer[12:]
        assert inside[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 411"), (name, answer)


def tunnels(*inside: bytes) -> list[tuple[bytes, bytes]]:
    """Return conversations through tunnels to port 80, over HTTP."""
    return [(tunnel(SITE, 80), data) for data in inside]


def sockets(*inside: bytes) -> list[bytes]:
    """Return conversations through tunnels to port 80, over SOCKS."""
    return [socks(SITE.encode(), 80) + data for data in inside]


def test_only_tls_to_its_port(proxied: Project, secure: Secure, lab: Lab) -> None:
    """Plain HTTP does not get to port 443 by its address either, and that is logged."""
    since = len(lab.connections())
    (answer,) = http(
        proxied, b"GET http://four.example.org:443/ HTTP/1.1\r\nHost: four.example.org:443\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 403 ") and b"only TLS passes" in answer
    assert reached(lab, since) == []
    (entry,) = json.loads(proxied.coop("log", "--denied", "--json").out)
    assert (entry["host"], entry["port"]) == (SITE, 443)
