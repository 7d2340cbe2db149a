"""The networks of this machine, asked of libc, and what systems with other structures make of that."""

from __future__ import annotations

import socket

import pytest

from coopfile.native.netlink import ROUTE, Channel
from coopfile.native.rtnetlink import networks as of_the_kernel
from coopfile.proxy.interfaces import length, networks, packed


def test_networks() -> None:
    """libc and the kernel name the same addresses; of long IPv6 prefixes the whole line counts."""
    channel = Channel(ROUTE)
    try:
        expected = {(address, bits) for address, bits in of_the_kernel(channel)}
    finally:
        channel.close()
    found = networks()
    assert (bytes((127, 0, 0, 1)), 8) in found
    for address, bits in found:
        exact = {wanted for known, wanted in expected if known == address}
        assert bits in exact or (bits == 64 and len(address) == 16 and max(exact) > 64)


@pytest.mark.parametrize(
    ("mask", "family", "bits"),
    [
        (bytes((7, 0, 0, 0, 255, 255, 255)), socket.AF_INET, 24),  # BSD: what is zero at the end is cut off
        (bytes((0,)), socket.AF_INET, 0),
        (b"", socket.AF_INET, 0),
        (None, socket.AF_INET, 32),
        (bytes((28, 30)) + bytes(6) + b"\xff" * 8 + bytes(12), socket.AF_INET6, 64),
        (bytes((28, 30)) + bytes(6) + b"\xff" * 16 + bytes(4), socket.AF_INET6, 64),
        (bytes((14, 30)) + bytes(6) + b"\xff" * 6, socket.AF_INET6, 48),
    ],
)
def test_masks(mask: bytes | None, family: int, bits: int) -> None:
    """A mask has as many bits as it says, in a structure that may be shorter than its type."""
    assert length(mask, family) == bits


def test_address_that_is_cut_off() -> None:
    """What is not there of an address is zero."""
    assert packed(bytes((6, 2, 0, 0, 10, 1)), socket.AF_INET) == bytes((10, 1, 0, 0))
