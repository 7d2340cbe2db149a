"""What a sandbox with the internet must not reach, and the rules in its own namespace against it.

The command has no capability there, so it cannot change the rules. They answer at once
what would otherwise be dropped on the way, and hold whatever connects the sandbox.
"""

from __future__ import annotations

from _socket import AF_INET, AF_INET6, inet_pton
from _struct import calcsize, pack, unpack_from

from coopfile.native import nftables
from coopfile.native.netlink import NETFILTER, Channel
from coopfile.plan.endpoints import DNS, LOCAL_IPV4, LOCAL_IPV6, NAMESERVER
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

Range = tuple[bytes, bytes]

_NAMESERVER = inet_pton(AF_INET, NAMESERVER)
# Router and neighbour discovery: RFC 4861.
_DISCOVERY = (133, 134, 135, 136)

_HEADER = "=?II"  # whether the name server has TCP, and how many ranges there are of each family
_HEADER_SIZE = calcsize(_HEADER)


class Fence(Record):
    """What to keep the sandbox from: first and last of every range, in order and apart.

    ``tcp_dns`` tells whether NAMESERVER may be asked over TCP too.
    """

    ipv4: tuple[Range, ...]
    ipv6: tuple[Range, ...]
    tcp_dns: bool = True

    def encode(self) -> bytes:
        """Return it as bytes, for another process."""
        head = pack(_HEADER, self.tcp_dns, len(self.ipv4), len(self.ipv6))
        return head + b"".join(first + last for first, last in (*self.ipv4, *self.ipv6))

    def covers(self, networks: Iterable[tuple[bytes, int]]) -> bool:
        """Tell whether it keeps the sandbox from all of some networks, given as ``fence`` takes them."""
        for address, length in networks:
            first, last = _network(address, length)
            ranges = self.ipv4 if len(address) == 4 else self.ipv6
            if not any(low <= first and last <= high for low, high in ranges):
                return False
        return True


def decode(data: bytes) -> Fence:
    """Return what ``encode`` made into bytes; ValueError when something is missing."""
    if len(data) < _HEADER_SIZE:
        raise ValueError("no fence")
    tcp_dns, count4, count6 = unpack_from(_HEADER, data)
    middle = _HEADER_SIZE + 8 * count4
    if len(data) != middle + 32 * count6:
        raise ValueError("part of a fence")
    return Fence(_pairs(data[_HEADER_SIZE:middle], 4), _pairs(data[middle:], 16), tcp_dns)


def _pairs(data: bytes, size: int) -> tuple[Range, ...]:
    places = range(0, len(data), 2 * size)
    return tuple((data[place : place + size], data[place + size : place + 2 * size]) for place in places)


def fence(networks: Iterable[tuple[bytes, int]]) -> Fence:
    """Return the local ranges, and those of the host's own networks: (address, its network's bits).

    Neighbours may have addresses that are global: all of them have, with IPv6.
    """
    ranges: dict[int, list[Range]] = {
        4: [(inet_pton(AF_INET, first), inet_pton(AF_INET, last)) for first, last in LOCAL_IPV4],
        16: [(inet_pton(AF_INET6, first), inet_pton(AF_INET6, last)) for first, last in LOCAL_IPV6],
    }
    for address, length in networks:
        ranges[len(address)].append(_network(address, length))
    return Fence(_merge(ranges[4]), _merge(ranges[16]))


def _network(address: bytes, length: int) -> Range:
    """Return the range of an address's network; of the whole internet it is the address alone."""
    free = (1 << 8 * len(address) - length) - 1 if length else 0
    number = int.from_bytes(address, "big")
    return (number & ~free).to_bytes(len(address), "big"), (number | free).to_bytes(len(address), "big")


def _merge(ranges: list[Range]) -> tuple[Range, ...]:
    """Return ranges in order, without overlaps."""
    merged: list[Range] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def define(table: nftables.Table, against: Fence) -> None:
    """Add the sets ``local4`` and ``local6`` to a table."""
    table.ranges("local4", against.ipv4)
    table.ranges("local6", against.ipv6)


def install(against: Fence) -> None:
    """Put the rules into the network namespace of this process."""
    table = nftables.Table("coop", owned=False)
    define(table, against)
    accept = (nftables.ACCEPT,)
    discovery = [(*nftables.icmpv6(kind), *accept) for kind in _DISCOVERY]
    protocols = (nftables.UDP, nftables.TCP) if against.tcp_dns else (nftables.UDP,)
    table.base_chain(
        "out",
        nftables.OUTPUT,
        nftables.FILTER,
        [
            (*nftables.leaving("lo"), *accept),
            *discovery,
            *((*nftables.to(_NAMESERVER), *nftables.port(kind, DNS), *accept) for kind in protocols),
            (*nftables.to_one_of("local4", nftables.IPV4), nftables.PROHIBIT),
            # A connection over IPv6 does not take the other answer at once: net/ipv6/tcp_ipv6.c, tcp_v6_err.
            (
                *nftables.to_one_of("local6", nftables.IPV6),
                *nftables.protocol(nftables.TCP),
                nftables.RESET,
            ),
            (*nftables.to_one_of("local6", nftables.IPV6), nftables.PROHIBIT),
        ],
    )
    table.base_chain(
        "in",
        nftables.INPUT,
        nftables.FILTER,
        [
            (*nftables.entering("lo"), *accept),
            # Errors of routers on the way, whose addresses may be local.
            (*nftables.protocol(nftables.ICMP), *accept),
            (*nftables.protocol(nftables.ICMPV6), *accept),
            # slirp4netns takes in datagrams from anyone, once the sandbox has sent one from that port.
            (*nftables.answers(), *accept),
            (nftables.DROP,),
        ],
    )
    # It may forward, as the host does (ip-sysctl: devconf_inherit_init_net), and what a source route leads
    # back out has left for "lo" at first.
    table.base_chain("through", nftables.FORWARD, nftables.FILTER, [(nftables.DROP,)])
    channel = Channel(NETFILTER)
    try:
        channel.request(table.transaction())
    finally:
        channel.close()
