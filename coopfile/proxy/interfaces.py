"""The networks that this machine is on, by getifaddrs(3): for systems without rtnetlink."""

from __future__ import annotations

import _socket
import os
from _socket import AF_INET, AF_INET6

# Where an address is in a sockaddr of its family, and how many bytes it has.
_PLACES = {AF_INET: (4, 4), AF_INET6: (8, 16)}
_SIZE = 28  # bytes of a sockaddr_in6, the longer one
_POINT_TO_POINT = 0x10  # IFF_POINTOPOINT, everywhere
_LONGEST = 64  # bits: DHCPv6 gives single addresses of a line's network, and routes are not asked for
# BSD's sockaddr begins with its length, and a mask's may end where it has no more bits.
_SIZED = hasattr(_socket, "AF_LINK")


def networks() -> list[tuple[bytes, int]]:
    """Return an address in each of them, and how many bits of it are the network's. Raises OSError."""
    import ctypes

    class Entry(ctypes.Structure):
        pass

    Entry._fields_ = [
        ("next", ctypes.POINTER(Entry)),
        ("name", ctypes.c_char_p),
        ("flags", ctypes.c_uint),
        ("address", ctypes.c_void_p),
        ("mask", ctypes.c_void_p),
        ("other", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
    ]
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(Entry)()
    if libc.getifaddrs(ctypes.byref(first)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    found: list[tuple[bytes, int]] = []
    try:
        entry = first
        while entry:
            one = entry.contents
            family = 0 if one.address is None else _family(ctypes.string_at(one.address, 2))
            if family in _PLACES:
                here = packed(ctypes.string_at(one.address, _size(one.address, family)), family)
                mask = None if one.mask is None else ctypes.string_at(one.mask, _size(one.mask, family))
                found.append((here, length(mask, family)))
                if one.flags & _POINT_TO_POINT and one.other is not None:
                    other = packed(ctypes.string_at(one.other, _size(one.other, family)), family)
                    found.append((other, 8 * len(other)))
            entry = one.next
    finally:
        libc.freeifaddrs(first)
    if not any(here[:1] == b"\x7f" or here == bytes(15) + b"\x01" for here, _ in found):
        raise OSError(0, "getifaddrs told of no loopback interface")
    return found


def _family(start: bytes) -> int:
    import sys

    return start[1] if _SIZED else int.from_bytes(start, sys.byteorder)


def _size(place: int, family: int) -> int:
    """Return how many bytes a sockaddr has: what follows it may not be ours to read."""
    import ctypes

    offset, count = _PLACES[family]
    return ctypes.string_at(place, 1)[0] if _SIZED else offset + count


def packed(name: bytes, family: int) -> bytes:
    """Return the address in a sockaddr; bytes that are cut off at its end are zero."""
    offset, count = _PLACES[family]
    return name.ljust(_SIZE, b"\0")[offset : offset + count]


def length(mask: bytes | None, family: int) -> int:
    """Return how many bits a netmask has; without one it is an address of its own."""
    count = 8 * _PLACES[family][1]
    bits = count if mask is None else int.from_bytes(packed(mask, family), "big").bit_count()
    return min(bits, _LONGEST) if family == AF_INET6 else bits
