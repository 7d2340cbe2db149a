"""Hosts as clients name them: one spelling, which is the language's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.language.hosts import HostPatternType
from coopfile.language.value_type import BadValue
from coopfile.plan.reach import allowing
from coopfile.proxy.names import BadNameError, authority, canonical, from_packed, packed

PARTS = st.sampled_from(
    [*"abcxz0129.-_:[]%*@/ \0\n", "0x", "xn--", "127", "::", "ffff", "example", "org", "ü", "A", "255", "256"]
)
TEXTS = st.lists(PARTS, max_size=12).map("".join) | st.text(max_size=20)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pypi.org", "pypi.org"),
        ("PyPI.Org.", "pypi.org"),
        ("_dmarc.example.org", "_dmarc.example.org"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("192.0.2.1", "192.0.2.1"),
        ("[2001:DB8:0::1]", "2001:db8::1"),
    ],
)
def test_canonical(text: str, found: str) -> None:
    """Case, a final dot and the ways to write an IPv6 address make no difference."""
    assert canonical(text.encode()) == found


@pytest.mark.parametrize(
    "text",
    [
        *(
            "127.1",
            "0x7f000001",
            "0x7f.0.0.1",
            "017700000001",
            "2130706433",
            "127.0.0.01",
            "1.2.3.4.5",
            "256.1.1.1",
        ),
        *("[::ffff:127.0.0.1]", "[fe80::1%eth0]", "[::1", "::1", "[127.0.0.1]", "[]", "[::1]x", "[::\x001]"),
        *(
            "",
            ".",
            "a..b",
            ".a",
            "a..",
            "-a.b",
            "a-.b",
            "a b",
            "a\0b",
            "a\nb",
            "a/b",
            "a@b",
            "*.a",
            "ü.a",
            "a%2eb",
        ),
        *("x" * 64, ".".join(["x" * 60] * 5), "1.0x", "a.0"),
    ],
)
def test_refused(text: str) -> None:
    """What programs disagree about is refused."""
    with pytest.raises(BadNameError):
        canonical(text.encode())


@given(TEXTS)
def test_as_in_a_coopfile(text: str) -> None:
    """What is taken here is taken in a Coopfile, and is the same there; what is not, is not there."""
    try:
        found = canonical(text.encode("utf-8", "surrogatepass"))
    except BadNameError:
        found = None
    try:
        pattern = HostPatternType().parse(text)
        wanted = None if pattern.subdomains or pattern.port else pattern.host
    except BadValue:
        wanted = None
    assert found == wanted


@given(TEXTS)
def test_nothing_else_comes_out(text: str) -> None:
    """A canonical host is itself again, and holds nothing that a resolver, a log or HTTP takes for more."""
    try:
        found = canonical(text.encode("utf-8", "surrogatepass"))
    except BadNameError:
        return
    assert set(found) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.:") and found
    assert canonical((f"[{found}]" if ":" in found else found).encode()) == found


@given(st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16))
def test_packed(address: bytes) -> None:
    """An address has one text, which is the address again."""
    try:
        text = from_packed(address)
    except BadNameError:
        assert address.startswith(bytes(10) + b"\xff\xff")
        return
    assert packed(text) == address
    assert canonical((f"[{text}]" if ":" in text else text).encode()) == text


@pytest.mark.parametrize(
    ("text", "found"),
    [("a:443", ("a", 443)), ("[::1]:80", ("::1", 80)), ("A.:0080", ("a", 80)), ("1.2.3.4:1", ("1.2.3.4", 1))],
)
def test_authority(text: str, found: tuple[str, int]) -> None:
    """Host and port are told apart."""
    assert authority(text.encode()) == found


@pytest.mark.parametrize(
    "text", ["a", "a:", "a:0", "a:65536", "a:+1", "a: 1", "a:1:2", "::1:80", "[::1]", "a:\u0661"]
)
def test_no_authority(text: str) -> None:
    """Without a port, or with what is none, there is no authority."""
    with pytest.raises(BadNameError):
        authority(text.encode())


@given(TEXTS, st.sampled_from([22, 80, 443, 8443]))
def test_rule(text: str, port: int) -> None:
    """Only the very name, names below a wildcard, and the ports of a pattern are let through."""
    listed = ("example.org", "*.example.com:8443", "127.0.0.1:22")
    patterns = tuple(HostPatternType().parse(item) for item in listed)
    try:
        host = canonical(text.encode("utf-8", "surrogatepass"))
    except BadNameError:
        return
    wanted = (
        (host == "example.org" and port in (80, 443))
        or (host.endswith(".example.com") and port == 8443)
        or (host == "127.0.0.1" and port == 22)
    )
    assert (allowing(patterns, host, port) is not None) == wanted
    assert allowing((), host, port) is None
