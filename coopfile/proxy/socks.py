"""SOCKS 5, taken apart: RFC 1928. CONNECT alone, to names and addresses, without a log-in."""

from __future__ import annotations

from coopfile.proxy.names import BadNameError, canonical, from_packed

VERSION = 5
METHOD = b"\x05\x00"
NO_METHOD = b"\x05\xff"
GRANTED, FAILED, BLOCKED, UNREACHABLE, NO_SUCH_COMMAND, NO_SUCH_ADDRESS = 0, 1, 2, 4, 7, 8
NAME = 3
ADDRESSES = {1: 4, 4: 16}  # bytes by type
_CONNECT = 1


class RefusedError(Exception):
    """A request that is not passed on; ``code`` is that of the reply."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def check_request(head: bytes) -> int:
    """Return the type of address that follows a request's first four bytes. Raises RefusedError."""
    version, command, reserved, kind = head
    if version != VERSION or reserved:
        raise RefusedError(FAILED, "not a request of SOCKS 5")
    if command != _CONNECT:
        raise RefusedError(NO_SUCH_COMMAND, "only CONNECT is there")
    if kind != NAME and kind not in ADDRESSES:
        raise RefusedError(NO_SUCH_ADDRESS, "there is no such type of address")
    return kind


def target(kind: int, host: bytes, port: bytes) -> tuple[str, int]:
    """Return host and port of a request. Raises RefusedError."""
    number = int.from_bytes(port, "big")
    try:
        name = canonical(host) if kind == NAME else from_packed(host)
    except BadNameError as error:
        raise RefusedError(BLOCKED, str(error)) from None
    if not number:
        raise RefusedError(BLOCKED, "there is no port 0")
    return name, number


def reply(code: int) -> bytes:
    """Return the answer to a request; where the connection comes from is nobody's business."""
    return bytes((VERSION, code, 0, 1)) + bytes(6)
