"""Messages to the kernel: netlink, routes and packet filters, byte by byte."""

from __future__ import annotations

import errno
import socket
import struct

import pytest

from coopfile.native import nftables, rtnetlink
from coopfile.native.netlink import (
    F_ACK,
    NETFILTER,
    ROUTE,
    Channel,
    Message,
    attribute,
    attributes,
    nested,
    text,
)


def test_attribute() -> None:
    """An attribute has its length without padding, and is padded to four bytes."""
    assert attribute(3, b"abcde") == struct.pack("=HH", 9, 3) + b"abcde\0\0\0"
    assert text(1, "lo") == struct.pack("=HH", 7, 1) + b"lo\0\0"


def test_attributes_are_taken_apart() -> None:
    """What was put together comes apart again; the mark of a nested one is no part of its type."""
    data = attribute(1, b"x") + nested(2, text(7, "name"), attribute(8, b"1234"))
    found = attributes(data)
    assert found[1] == b"x"
    assert attributes(found[2]) == {7: b"name\0", 8: b"1234"}


@pytest.mark.parametrize("data", [b"", b"\1", b"\0\0\0\0", struct.pack("=HH", 3, 1)])
def test_broken_attributes(data: bytes) -> None:
    """What is no attribute ends the list instead of being read for ever."""
    assert attributes(data) == {}


def test_loopback_is_found() -> None:
    """The kernel understands what is asked and is understood: the first interface, and its address."""
    channel = Channel(ROUTE)
    try:
        assert rtnetlink.interface(channel, 1).mtu > 0
        assert rtnetlink.route(channel, b"\x7f\0\0\1") == (0, 32)
        own = {address for address, _ in rtnetlink.networks(channel)}
    finally:
        channel.close()
    assert own == set() or socket.inet_aton("127.0.0.1") in own


def test_refusals_are_raised() -> None:
    """An error of the kernel's becomes an OSError, and what follows is not taken for it."""
    channel = Channel(ROUTE)
    try:
        with pytest.raises(OSError) as raised:
            channel.request([rtnetlink.raise_link(1 << 30), rtnetlink.raise_link(1 << 30)])
        assert raised.value.errno in (errno.ENODEV, errno.EPERM)
        assert rtnetlink.interface(channel, 1).index == 1
    finally:
        channel.close()


def test_unknown_interface() -> None:
    """Asking for what does not exist is an error too."""
    channel = Channel(ROUTE)
    try:
        with pytest.raises(OSError) as raised:
            rtnetlink.interface(channel, 1 << 30)
        assert raised.value.errno == errno.ENODEV
    finally:
        channel.close()


def test_veth_message() -> None:
    """A pair is asked for with its names, its length of packets, and the other end's namespace."""
    message = rtnetlink.add_veth("coop1", "eth0", 7, 1400)
    found = attributes(message.body[16:])
    assert found[3] == b"coop1\0"
    info = attributes(found[18])
    assert info[1] == b"veth\0"
    other = attributes(attributes(info[2])[1][16:])
    assert other[3] == b"eth0\0"
    assert struct.unpack("=I", other[28]) == (7,)
    assert struct.unpack("=I", other[4]) == struct.unpack("=I", found[4]) == (1400,)


def keys(messages: list[Message]) -> list[tuple[bytes, bool]]:
    """Return the keys of a transaction's only set, and which of them end an interval."""
    (elements,) = [message for message in messages if message.kind == 10 << 8 | 12]
    data = attributes(elements.body[4:])[3]
    found = []
    while data:
        size = struct.unpack_from("=H", data)[0]
        element = attributes(data[4:size])
        found.append((attributes(element[1])[1], 3 in element))
        data = data[(size + 3) & ~3 :]
    return found


def test_ranges() -> None:
    """A range ends before the next address; two that touch are one; the last has no end."""
    table = nftables.Table("test", owned=False)
    first, last = b"\x0a\0\0\0", b"\x0a\0\0\xff"
    touching = (b"\x0a\0\1\0", b"\x0a\0\1\xff")
    highest = (b"\xe0\0\0\0", b"\xff\xff\xff\xff")
    table.ranges("local", [(first, last), touching, highest])
    assert keys(table.transaction()) == [(first, False), (b"\x0a\0\2\0", True), (highest[0], False)]


def test_transaction() -> None:
    """A transaction is framed, and its last message asks for the answer to all of it."""
    table = nftables.Table("test", owned=True)
    table.base_chain("in", nftables.INPUT, nftables.FILTER, [(nftables.DROP,)])
    begin, make, *rest, last, end = table.transaction()
    assert (begin.kind, end.kind) == (16, 17)
    assert attributes(make.body[4:]) == {1: b"test\0", 2: struct.pack(">I", 2)}  # NFT_TABLE_F_OWNER
    assert last.flags & F_ACK
    assert not any(message.flags & F_ACK for message in (begin, make, *rest, end))


def test_tables_that_cannot_be() -> None:
    """A table that the kernel refuses, or that this user may not make, is an error and is not made."""
    channel = Channel(NETFILTER)
    table = nftables.Table("coop-test", owned=True)
    table.base_chain("none", 99, nftables.FILTER, [])
    try:
        with pytest.raises(OSError) as raised:
            channel.request(table.transaction())
        assert raised.value.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL)
    finally:
        channel.close()
