"""What registries ask for, as they write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.errors import CoopError
from coopfile.rootfs.challenge import challenges
from coopfile.rootfs.wire import is_loopback, origin


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("", {}),
        ("Negotiate", {}),
        ('Basic realm="a, b"', {"basic": {"realm": "a, b"}}),
        ("basic realm=x", {"basic": {"realm": "x"}}),
        (
            'Bearer realm="https://auth.docker.io/token",service="registry.docker.io"',
            {"bearer": {"realm": "https://auth.docker.io/token", "service": "registry.docker.io"}},
        ),
        (
            'Bearer realm="https://a/t", scope="repository:x:pull,push" , Basic realm="say \\"hi\\""',
            {
                "bearer": {"realm": "https://a/t", "scope": "repository:x:pull,push"},
                "basic": {"realm": 'say "hi"'},
            },
        ),
        ('Bearer Realm = "https://a/t"', {"bearer": {"realm": "https://a/t"}}),
        ('Bearer realm="https://a/", realm="https://b/"', {"bearer": {"realm": "https://a/"}}),
        ('Basic realm="Bearer realm=https://b/"', {"basic": {"realm": "Bearer realm=https://b/"}}),
    ],
)
def test_challenges_are_read(header: str, found: dict[str, dict[str, str]]) -> None:
    """Several in one header, with commas and quotes in their values; the first of a name counts."""
    assert challenges(header) == found


@given(st.text(alphabet='Bearerbasic ="\\,:/\t', max_size=200))
def test_any_header_is_read(header: str) -> None:
    """Nothing that a registry writes is a crash, and schemes are only those that are known."""
    assert set(challenges(header)) <= {"bearer", "basic"}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "[::1]", "::1"])
def test_the_loopback_interface_is_known(host: str) -> None:
    """By its addresses and its one name."""
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "localhost.example",
        "127.1",
        "0x7f000001",
        "2130706433",
        "0.0.0.0",
        "127.0.0.1.nip.io",
        "::",
        "10.0.0.1",
        "",
    ],
)
def test_what_only_looks_like_it_is_not(host: str) -> None:
    """Odd spellings get TLS, as every other host."""
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://Registry.Example/v2/", ("https", "registry.example", 443)),
        ("http://127.0.0.1:5000/v2/", ("http", "127.0.0.1", 5000)),
        ("http://[::1]:5000/", ("http", "[::1]", 5000)),
        ("https://a.example\\@b.example/", None),
        ("https://me:secret@a.example/", None),
        ("https://a.example@b.example/", None),
        ("ftp://a.example/", None),
        ("//a.example/", None),
        ("https:///v2/", None),
        ("https://a.example:99999/", None),
        ("", None),
    ],
)
def test_an_origin_is_where_the_connection_goes(url: str, found: tuple[str, str, int] | None) -> None:
    """What could be read in two ways is no address."""
    if found is None:
        with pytest.raises(CoopError):
            origin(url)
    else:
        assert origin(url) == found
