"""Where a proxy listens that is for sandboxes without a network of their own, such as Seatbelt's."""

from __future__ import annotations

import errno

from coopfile.errors import CoopError
from coopfile.proxy.listening import listening

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

_BACKLOG = 128
_TRIES = 16  # ports, until one is free on both loopback addresses
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def listeners(port: int) -> list[socket]:
    """Return sockets that listen on a port of the loopback, 0 for any; on both its addresses.

    A sandbox that may reach ``localhost:PORT`` may reach both, and nobody else is to be at either.
    Raises CoopError.
    """
    for _ in range(_TRIES):
        first = _listener("127.0.0.1", port)
        found = int(first.getsockname()[1])
        try:
            return [first, _listener("::1", found)]
        except CoopError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in _NO_IPV6:
                return [first]
            first.close()
            if port:
                raise
    raise CoopError("no port is free on both 127.0.0.1 and ::1", "coop proxy --port PORT")


def _listener(address: str, port: int) -> socket:
    try:
        return listening(address, port, _BACKLOG)
    except OSError as error:
        text = f"cannot listen on port {port} of {address}: {error.strerror}"
        raise CoopError(text, "coop proxy takes any free port without --port") from error
