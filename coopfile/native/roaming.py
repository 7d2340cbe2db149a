"""Networks that the host joins while a sandbox is connected, which its fence does not know.

A laptop that moves gets neighbours with other global addresses, and addresses of its own.
Nobody can change the fence by then; so the sandbox is cut off.
"""

from __future__ import annotations

import errno
from _socket import AF_NETLINK, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_RAW, socket

from coopfile.native.netlink import ROUTE, Channel
from coopfile.native.rtnetlink import networks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.native.fence import Fence

# RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_IFADDR, RTMGRP_IPV6_ROUTE: rtnetlink(7)
_CHANGES = 0x10 | 0x40 | 0x100 | 0x400
_BUFFER = 65536  # bytes


class Roaming:
    """Changes of the host's addresses and routes, from the moment when this is made."""

    def __init__(self) -> None:
        self._socket = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, ROUTE)
        self._socket.bind((0, _CHANGES))

    def fileno(self) -> int:
        """Return the descriptor that is readable after a change."""
        return self._socket.fileno()

    def outside(self, limits: Fence) -> bool:
        """Tell, after a change, whether the host has a network now that a fence leaves open."""
        try:
            while self._socket.recv(_BUFFER):
                pass
        except OSError as error:
            # Some may be lost; what they led to is read below.
            if error.errno not in (errno.EAGAIN, errno.ENOBUFS):
                raise
        channel = Channel(ROUTE)
        try:
            return not limits.covers(networks(channel))
        finally:
            channel.close()
