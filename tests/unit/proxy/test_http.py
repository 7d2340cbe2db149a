"""Requests to the proxy: what is passed on is unambiguous, whatever came in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.proxy.http import RefusedError, Request, answer, is_for_proxy, parse

LINES = st.sampled_from(
    [
        *(
            b"Host: a",
            b"Host: b",
            b"host:a:80",
            b"Content-Length: 3",
            b"Content-Length: 4",
            b"Transfer-Encoding: chunked",
        ),
        *(
            b"Connection: x-y, close",
            b"X-Y: 1",
            b"Upgrade: h2c",
            b" folded",
            b"X\0: 1",
            b"X: \r",
            b"X: \n",
            b"X : 1",
            b"",
        ),
        *(b"Proxy-Authorization: secret", b"Cookie: c", b"Expect: 100-continue", b"TE: trailers"),
    ]
)
FIRST = st.sampled_from(
    [
        *(
            b"GET http://a/ HTTP/1.1",
            b"GET http://a HTTP/1.0",
            b"POST http://a:80/x?y HTTP/1.1",
            b"GET / HTTP/1.1",
        ),
        *(
            b"CONNECT a:80 HTTP/1.1",
            b"GET http://b@a/ HTTP/1.1",
            b"GET HTTP://A./ HTTP/1.1",
            b"get\thttp://a/ HTTP/1.1",
        ),
    ]
)


def test_forwarded() -> None:
    """A request goes on in the form of origins, for one answer, without what is the proxy's own."""
    request = parse(
        b"POST http://Example.org.:8080/a?b HTTP/1.1\r\nhost: example.org:8080\r\nProxy-Authorization: x\r\n"
        b"Connection: keep-alive, X-Own\r\nX-Own: 1\r\nUpgrade: h2c\r\nContent-Length: 3\r\nAccept: */*\r\n"
        b"\r\n"
    )
    assert request == Request(
        "example.org",
        8080,
        b"POST /a?b HTTP/1.1\r\nHost: example.org:8080\r\naccept: */*\r\nContent-Length: 3\r\n"
        b"Connection: close\r\n\r\n",
        3,
    )


def test_addresses() -> None:
    """IPv6 is in brackets on both sides, and an address without a path has one."""
    request = parse(b"GET http://[2001:db8::1]?x HTTP/1.0\r\n\r\n")
    assert (request.host, request.port) == ("2001:db8::1", 80)
    assert request.head.startswith(b"GET /?x HTTP/1.0\r\nHost: [2001:db8::1]\r\n")


def test_tunnel() -> None:
    """A tunnel has nothing to pass on; clients name its host with the port or without."""
    for host in (b"", b"Host: a.example:443\r\n", b"Host: a.example\r\n"):
        assert parse(b"CONNECT a.example:443 HTTP/1.1\r\n" + host + b"\r\n") == Request("a.example", 443)


@given(FIRST, st.lists(LINES, max_size=6))
def test_unambiguous(first: bytes, lines: list[bytes]) -> None:
    """Whatever is passed on has one host, which is the one that was checked, and one length at most."""
    try:
        request = parse(b"\r\n".join([first, *lines, b"", b""]))
    except RefusedError as error:
        assert error.status in (400, 411, 431)
        return
    assert (request.host, request.port) == ("a", 80)
    if not request.head:
        return
    fields = request.head.split(b"\r\n")
    names = [line.partition(b":")[0].lower() for line in fields[1:-2]]
    assert fields[-2:] == [b"", b""] and b"" not in names
    assert names.count(b"host") == 1 and b"Host: a" in fields
    assert names.count(b"content-length") == (b"Content-Length: 3" in lines or b"Content-Length: 4" in lines)
    assert fields[-3] == b"Connection: close" and names.count(b"connection") == 1
    assert not {b"transfer-encoding", b"upgrade", b"proxy-authorization", b"te", b"x-y" * 9} & set(names)


@given(st.binary(max_size=200))
def test_anything(data: bytes) -> None:
    """No bytes are an error of the proxy's own."""
    for head in (
        data,
        data + b"\r\n\r\n",
        b"CONNECT " + data + b" HTTP/1.1\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\n" + data,
    ):
        try:
            parse(head)
        except RefusedError:
            pass


def test_answer() -> None:
    """An answer has the length that it says, and nothing of a name breaks out of it."""
    text = 'a\u00fcb\x1b\r\nX: "y\\'
    head, _, body = answer(403, text, "Blocked by network.allow in Coopfile:1\r\nY: z").partition(b"\r\n\r\n")
    assert body.startswith(b"coop: a\\xfcb")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 403 Blocked by network.allow in Coopfile:1??Y: z"
    assert lines[1] == b'Proxy-Status: coop; error=http_request_denied; details="a?b???X: \\"y\\\\"'
    assert f"Content-Length: {len(body)}".encode() in lines and len(lines) == 5
    assert len(answer(403, "x", "y" * 5000).split(b"\r\n")[0]) < 400


def test_questions_for_the_proxy() -> None:
    """A question for the proxy itself is told from requests that are to be passed on."""
    assert is_for_proxy(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n\r\n")
    for head in (
        b"GET http://a/ HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
    ):
        assert not is_for_proxy(head)


def test_names_are_tokens() -> None:
    """A method or the name of a field is a token."""
    for head in (
        b"G(T http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\nHost: a\r\nA(: b\r\n\r\n",
    ):
        with pytest.raises(RefusedError):
            parse(head)
