"""A socket that listens: for published ports, and for a proxy that people start themselves."""

from __future__ import annotations

from _socket import (
    AF_INET,
    AF_INET6,
    IPPROTO_IPV6,
    IPV6_V6ONLY,
    SO_REUSEADDR,
    SOCK_STREAM,
    SOL_SOCKET,
    socket,
)


def listening(address: str, port: int, backlog: int) -> socket:
    """Return a socket that listens on a port of an address, 0 for any port. Raises OSError."""
    made = socket(AF_INET6 if ":" in address else AF_INET, SOCK_STREAM)
    try:
        # What was connected before, and is about to be forgotten, does not keep the port.
        made.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        if ":" in address:
            made.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, 1)
        made.bind((address, port))
        made.listen(backlog)
    except BaseException:
        made.close()
        raise
    return made
