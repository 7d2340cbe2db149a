"""The hello of TLS: the name that it asks for, however it is cut up, and nothing by mistake."""

from __future__ import annotations

import ssl
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.proxy.tls import BadTlsError, is_retry, read_hello, record_size, tells


def real_hello(name: str | None) -> bytes:
    """Return what Python's own client sends first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = name is not None
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


HELLO = real_hello("pypi.org")


def test_name() -> None:
    """A real client's hello tells the name that it asks for, or that it asks for none."""
    found = read_hello(HELLO)
    assert found is not None
    assert (found.server_name, found.hidden, found.size) == (b"pypi.org", False, len(HELLO))
    nameless = read_hello(real_hello(None))
    assert nameless is not None and nameless.server_name is None


@given(st.lists(st.integers(1, len(HELLO) - 6), max_size=20, unique=True), st.integers(0, 3000))
def test_pieces(cuts: list[int], seen: int) -> None:
    """However a hello is cut into records, and whatever follows, it is read whole or not yet."""
    message = HELLO[5:]
    places = [0, *sorted(cuts), len(message)]
    pieces = [message[first:last] for first, last in pairwise(places)]
    stream = b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)
    found = read_hello(stream + b"more")
    assert found is not None and (found.server_name, found.size) == (b"pypi.org", len(stream))
    assert read_hello(stream[: min(seen, len(stream) - 1)]) is None


@given(st.integers(0, len(HELLO) - 1), st.integers(0, 255))
def test_damage(place: int, byte: int) -> None:
    """A damaged hello is refused, not finished yet, or a hello; never an error of the proxy's own."""
    damaged = bytearray(HELLO)
    damaged[place] = byte
    try:
        read_hello(bytes(damaged))
    except BadTlsError:
        pass


@given(st.binary(max_size=300))
def test_anything(data: bytes) -> None:
    """No bytes are an error of the proxy's own."""
    for stream in (data, b"\x16\x03\x01\x00\x20" + data, HELLO[:60] + data):
        try:
            read_hello(stream)
        except BadTlsError:
            pass
        tells(stream)
        is_retry(stream)


def test_bounded() -> None:
    """A hello that never ends is refused before it has taken much memory, or many looks."""
    endless = b"\x01\xff\xff\xff" + bytes(1 << 17)
    with pytest.raises(BadTlsError, match="too long"):
        pieces = [endless[at : at + 4096] for at in range(0, 1 << 17, 4096)]
        read_hello(b"".join(b"\x16\x03\x01\x10\x00" + piece for piece in pieces))
    with pytest.raises(BadTlsError, match="pieces"):
        read_hello(b"".join(b"\x16\x03\x01\x00\x01" + bytes((byte,)) for byte in HELLO[5:]))


@pytest.mark.parametrize("header", ["1602010010", "1503030000", "1703034801", "1603014001", "ff03010010"])
def test_no_record(header: str) -> None:
    """A record has a type, a version and a length of TLS."""
    with pytest.raises(BadTlsError):
        record_size(bytes.fromhex(header))
