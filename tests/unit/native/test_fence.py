"""What a sandbox with the internet must not reach, and that ``coop why`` and the rules agree on it."""

from __future__ import annotations

import ipaddress
import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coopfile.native.fence import Fence, decode, fence
from coopfile.plan.endpoints import is_local

LOCAL = fence(())
OTHERS = (
    "169.254.169.254",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::a9fe:a9fe",
    "::ffff:10.0.0.1",
    "::10.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::1",
    "2002:0a00:0001::",
    "2001:0:a00:1::",
    "fec0::1",
    "ff02::1",
    "::1",
    "::",
    "127.0.0.1",
    "0.0.0.0",
    "255.255.255.255",
)
INTERNET = ("1.1.1.1", "8.8.8.8", "11.0.0.0", "223.255.255.255", "2606:4700::1111", "64:ff9b::1.1.1.1")


def fenced(against: Fence, text: str) -> bool:
    """Tell whether an address is in one of a fence's ranges."""
    address = ipaddress.ip_address(text)
    ranges = against.ipv4 if address.version == 4 else against.ipv6
    return any(first <= address.packed <= last for first, last in ranges)


@pytest.mark.parametrize("address", OTHERS)
def test_out_of_reach(address: str) -> None:
    """Metadata services, private networks, and the ways to them by way of IPv6 are fenced."""
    assert fenced(LOCAL, address)


@pytest.mark.parametrize("address", INTERNET)
def test_within_reach(address: str) -> None:
    """The internet is not, behind NAT64 either."""
    assert not fenced(LOCAL, address)


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
@example(ipaddress.ip_address("172.15.255.255"))
@example(ipaddress.ip_address("172.32.0.0"))
@example(ipaddress.ip_address("2001:1::"))
def test_agrees_with_why(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    """``coop why connect`` says of an address what the rules do, where the host has no other networks."""
    assert fenced(LOCAL, str(address)) == is_local(str(address))


@given(st.ip_addresses(v=4))
def test_all_that_is_not_global(address: ipaddress.IPv4Address) -> None:
    """What IANA's registry has as not global is fenced, less documentation and deprecated relays."""
    documentation = ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
    if not address.is_global and not any(address in ipaddress.ip_network(text) for text in documentation):
        assert fenced(LOCAL, str(address))


def test_networks_of_the_hosts() -> None:
    """The host's addresses are fenced with their networks, and never the whole internet."""
    networks = [("203.0.113.7", 24), ("198.51.100.9", 32), ("8.8.8.8", 0), ("2606:4700::7", 64)]
    found = fence((ipaddress.ip_address(text).packed, length) for text, length in networks)
    for address in ("203.0.113.200", "198.51.100.9", "8.8.8.8", "2606:4700::ffff"):
        assert fenced(found, address)
    for address in ("203.0.112.255", "198.51.100.8", "1.1.1.1", "2606:4700:0:1::"):
        assert not fenced(found, address)


def test_ranges_are_apart() -> None:
    """Ranges are in order and do not overlap, which the kernel insists on."""
    networks = [("10.1.2.3", 8), ("9.255.255.255", 7), ("8.0.0.1", 32), ("fe80::1", 64)]
    found = fence((ipaddress.ip_address(text).packed, length) for text, length in networks)
    for ranges in (found.ipv4, found.ipv6):
        assert all(last < first for (_, last), (first, _) in itertools.pairwise(ranges))


@pytest.mark.parametrize("tcp", [True, False])
def test_there_and_back(tcp: bool) -> None:
    """A fence survives the way to another process."""
    given_ = LOCAL.replace(tcp_dns=tcp)
    assert decode(given_.encode()) == given_


@pytest.mark.parametrize("size", [0, 1, 8, 9, 50, -1])
def test_part_of_a_fence(size: int) -> None:
    """Part of a fence, such as from a process that was killed, is not taken for one."""
    with pytest.raises(ValueError, match="fence"):
        decode(LOCAL.encode()[:size])
