"""What a sandbox with the internet must not reach, and the rules in its own namespace against it.

The command has no capability there, so it cannot change the rules. They answer at once
what would otherwise be dropped on the way, and hold whatever connects the sandbox.
"""

from __future__ import annotations

from _socket import AF_INET, inet_pton
from _struct import calcsize, pack, unpack_from

from coopfile.native import nftables
from coopfile.native.netlink import NETFILTER, Channel
from coopfile.plan.endpoints import DNS, NAMESERVER
from coopfile.proxy.local import network, ranges
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from coopfile.proxy.local import Range

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
            first, last = network(address, length)
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
    """Return what is to be out of reach; ``networks`` are the host's own, as ``local.ranges`` takes them."""
    return Fence(*ranges(networks))


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
