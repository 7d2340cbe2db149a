"""What passes by address: the internet's, and what is listed itself."""

from __future__ import annotations

from socket import AF_INET, AF_INET6, inet_pton

import pytest

from coopfile.language.hosts import HostPatternType
from coopfile.language.items import HostPattern
from coopfile.plan.endpoints import LOCAL_IPV4, LOCAL_IPV6
from coopfile.proxy.policy import BlockedError, Policy
from coopfile.proxy.tls import Hello


def policy(*allow: str) -> Policy:
    """Return a policy on a host that has no networks of its own."""
    local4 = tuple((inet_pton(AF_INET, first), inet_pton(AF_INET, last)) for first, last in LOCAL_IPV4)
    local6 = tuple((inet_pton(AF_INET6, first), inet_pton(AF_INET6, last)) for first, last in LOCAL_IPV6)
    return Policy(tuple(HostPatternType().parse(item) for item in allow), lambda: (local4, local6))


@pytest.mark.parametrize("address", ["192.0.2.7", "2001:db8::7", "8.8.8.8", "2606:4700::1"])
def test_internet(address: str) -> None:
    """An address of the internet passes, as it is."""
    (place,) = policy().look_up(address, 443)
    assert place.address[:2] == (address, 443)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "169.254.169.254",
            "168.63.129.16",
            "198.18.0.1",
        ),
        *("127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "240.0.0.1"),
        *("::1", "::", "fe80::1", "fd00::1", "fec0::1", "ff02::1", "::ffff:192.0.2.7", "::ffff:127.0.0.1"),
        *("64:ff9b::10.1.2.3", "64:ff9b::127.0.0.1", "64:ff9b:1::1", "2002:7f00:1::", "2001::1"),
    ],
)
def test_local(address: str) -> None:
    """An address of this machine, its network or its cloud does not, whatever name led there."""
    with pytest.raises(BlockedError, match="blocked"):
        policy("example.org").look_up(address, 443)


@pytest.mark.parametrize("address", ["10.1.2.3", "169.254.169.254", "fd00::1", "192.168.1.1"])
def test_listed(address: str) -> None:
    """A local address passes that is listed itself, on its port."""
    item = f"[{address}]" if ":" in address else address
    allowed = policy(f"{item}:8080", "example.org")
    assert allowed.look_up(address, 8080)[0].address[:2] == (address, 8080)
    with pytest.raises(BlockedError, match="local to this machine"):
        allowed.look_up(address, 443)


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "127.0.0.53", "0.0.0.0", "::1", "::", "224.0.0.1", "ff02::1"]
)
def test_never(address: str) -> None:
    """The host's loopback, and what is no single host, does not pass although it is listed."""
    item = f"[{address}]" if ":" in address else address
    with pytest.raises(BlockedError, match="no address of another machine"):
        policy(item).look_up(address, 80)


def test_message() -> None:
    """Who is blocked learns by which setting, what is allowed, and how to ask for more."""
    with pytest.raises(BlockedError) as caught:
        policy("pypi.org", "*.github.com:443").check("evil.example", 443)
    text = str(caught.value)
    assert "evil.example:443 is blocked by network.allow of the plan; " in text
    assert "allowed: pypi.org, *.github.com:443." in text
    assert "`coop why connect evil.example:443`" in text
    with pytest.raises(BlockedError, match="allowed: nothing"):
        policy().check("pypi.org", 443)
    allowed = Policy((HostPattern("a.example"),), lambda: ((), ()), "Coopfile:14")
    with pytest.raises(
        BlockedError, match=r"by network\.allow in Coopfile:14; allowed: a\.example"
    ) as caught:
        allowed.check("evil.example", 443)
    assert caught.value.short == "Blocked by network.allow in Coopfile:14; allowed: a.example"
    with pytest.raises(BlockedError, match="and 30 more"):
        policy(*(f"h{number}.example" for number in range(50))).check("pypi.org", 443)


def test_hello() -> None:
    """A hello names the host that the tunnel leads to; for an address it may name none, or a listed one."""
    allowed = policy("pypi.org", "10.0.0.1")
    allowed.check_hello(Hello(b"PyPI.org.", False, 0), "pypi.org", 443)
    allowed.check_hello(Hello(None, False, 0), "10.0.0.1", 443)
    allowed.check_hello(Hello(b"pypi.org", False, 0), "10.0.0.1", 443)
    for name, hidden, host in (
        (b"evil.example", False, "pypi.org"),
        (None, False, "pypi.org"),
        (b"pypi.org", True, "pypi.org"),
        (b"evil.example", False, "10.0.0.1"),
        (b"a\0b", False, "pypi.org"),
    ):
        with pytest.raises(BlockedError):
            allowed.check_hello(Hello(name, hidden, 0), host, 443)
