"""What is not the internet from here: ranges of addresses. Pure."""

from __future__ import annotations

from _socket import AF_INET, AF_INET6, inet_pton

from coopfile.plan.endpoints import LOCAL_IPV4, LOCAL_IPV6

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

Range = tuple[bytes, bytes]


def ranges(networks: Iterable[tuple[bytes, int]]) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
    """Return the local ranges, and those of the host's own networks: (address, its network's bits).

    First and last of each, of IPv4 and of IPv6, in order and apart. Neighbours may have addresses that are
    global: all of them have, with IPv6.
    """
    found: dict[int, list[Range]] = {
        4: [(inet_pton(AF_INET, first), inet_pton(AF_INET, last)) for first, last in LOCAL_IPV4],
        16: [(inet_pton(AF_INET6, first), inet_pton(AF_INET6, last)) for first, last in LOCAL_IPV6],
    }
    for address, length in networks:
        found[len(address)].append(network(address, length))
    return _merge(found[4]), _merge(found[16])


def network(address: bytes, length: int) -> Range:
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
