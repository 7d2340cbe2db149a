"""Host patterns and published ports, and the spellings that must not get through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.language.items import HostPattern, PublishedPort
from coopfile.language.values import BadValue, HostPatternType, ListOf, PublishedPortType


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("pypi.org", HostPattern("pypi.org")),
        ("PyPI.ORG.", HostPattern("pypi.org")),
        ("*.github.com:443", HostPattern("github.com", True, 443)),
        ("localhost:8080", HostPattern("localhost", False, 8080)),
        ("xn--bcher-kva.de", HostPattern("xn--bcher-kva.de")),
        ("_dmarc.example.com", HostPattern("_dmarc.example.com")),
        ("10.0.0.1:53", HostPattern("10.0.0.1", False, 53)),
        ("[2001:DB8:0::1]:443", HostPattern("2001:db8::1", False, 443)),
        ("[::1]", HostPattern("::1")),
    ],
)
def test_a_host_has_one_spelling(text: str, pattern: HostPattern) -> None:
    """Case, the final dot and long forms of IPv6 do not make another host."""
    assert HostPatternType().parse(text) == pattern


@pytest.mark.parametrize(
    "text",
    [
        "127.1",
        "0x7f000001",
        "0x7f.1",
        "2130706433",
        "017700000001",
        "127.0.0.01",
        "0177.0.0.1",
        "1.2.3.4.5",
        "256.1.1.1",
        "1.2.3",
        "127.1:80",
        "0x",
        "127.1.",
        "a.0x10",
        "a.1",
    ],
)
def test_odd_spellings_of_addresses_are_refused(text: str) -> None:
    """What resolvers disagree about is never allowed, and the help names the address that may be meant."""
    with pytest.raises(BadValue, match="programs disagree"):
        HostPatternType().parse(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.1", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
    ],
)
def test_the_help_for_an_odd_address_says_what_it_may_mean(text: str, address: str) -> None:
    """The C library's reading is offered in plain decimal."""
    with pytest.raises(BadValue) as error:
        HostPatternType().parse(text)
    assert error.value.help == f"write {address}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "a..b",
        ".com",
        "-a.com",
        "a-.com",
        "a" * 64 + ".com",
        "a." * 127 + "com",
        "a b.com",
        "a\0b.com",
        "a\nb.com",
        "pypi.org\r",
        "bücher.de",
        "pypi。org",
        "*",
        "*:443",
        "*.",
        "*.*.com",
        "a.*.com",
        "*a.com",
        "**.com",
        "*.10.0.0.1",
        "https://pypi.org/x",
        "pypi.org/x",
        "10.0.0.0/8",
        "user@pypi.org",
        "pypi.org:",
        "pypi.org:0",
        "pypi.org:65536",
        "pypi.org:70000",
        "pypi.org:99999999999",
        "pypi.org:http",
        "pypi.org:+80",
        "pypi.org:٤٤٣",
        "pypi.org:*",
        "a:b:c",
        "::1",
        "2001:db8::1:443",
        "[::1",
        "[::1]x",
        "[]",
        "[1.2.3.4]",
        "[::1%eth0]",
        "[fe80::1%25eth0]",
        "[::ffff:127.0.0.1]",
        "[*.a]",
        "[::g]",
        "%31",
    ],
)
def test_what_is_no_host_is_refused(text: str) -> None:
    """Nothing that a proxy could read differently from its reader gets through."""
    with pytest.raises(BadValue):
        HostPatternType().parse(text)


@given(st.text(alphabet=st.sampled_from("aZ0.1x:[]*-_f% \0é"), max_size=16))
def test_a_parsed_host_reads_back_as_itself(text: str) -> None:
    """The text of a pattern parses to the same pattern, and is ASCII without control characters."""
    try:
        pattern = HostPatternType().parse(text)
    except BadValue:
        return
    assert HostPatternType().parse(str(pattern)) == pattern
    assert str(pattern).isascii() and str(pattern).isprintable() and pattern.host == pattern.host.lower()


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("3000", PublishedPort("127.0.0.1", 3000, 3000)),
        ("8080:80", PublishedPort("127.0.0.1", 8080, 80)),
        ("127.0.0.1:8080:80", PublishedPort("127.0.0.1", 8080, 80)),
        ("0.0.0.0:1:65535", PublishedPort("0.0.0.0", 1, 65535)),
        ("[0:0::1]:1:2", PublishedPort("::1", 1, 2)),
    ],
)
def test_a_published_port_has_three_forms(text: str, port: PublishedPort) -> None:
    """The host's address is loopback unless one is given."""
    assert PublishedPortType().parse(text) == port


@pytest.mark.parametrize(
    "text",
    [
        "",
        "70000",
        "0",
        "65536:1",
        "1:0",
        "http",
        "80/tcp",
        "53/udp",
        "3000-3010",
        "1:2:3:4",
        "localhost:1:2",
        "127.1:1:2",
        "256.0.0.1:1:2",
        ":1:2",
        "::1:1:2",
        "[::1]:80",
        "[::ffff:1.2.3.4]:1:2",
        "[fe80::1%eth0]:1:2",
        "1:",
        ":1",
        "-1",
        "٣",
        "8 0",
        "80\0",
        "[x]:1:2",
    ],
)
def test_what_is_no_published_port_is_refused(text: str) -> None:
    """Ports out of range, names, ranges and protocols are refused."""
    with pytest.raises(BadValue):
        PublishedPortType().parse(text)


def test_a_number_for_a_published_port_is_answered_with_the_string() -> None:
    """The help shows the number in quotes."""
    with pytest.raises(BadValue) as error:
        PublishedPortType().parse(3000)
    assert error.value.help == 'write "3000"'


def test_one_port_of_the_host_leads_to_one_place() -> None:
    """Two targets for one port of the host are an error at the second; a repetition is none."""
    kind = ListOf(PublishedPortType(), ordered=False)
    with pytest.raises(BadValue) as error:
        kind.parse(["8080:80", "1:1", "8080:81"])
    assert error.value.path == (2,)
    assert len(kind.parse(["8080:80", "127.0.0.1:8080:80", "[::1]:8080:81"])) == 2
