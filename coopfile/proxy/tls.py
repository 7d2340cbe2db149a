"""What the first bytes of a TLS connection say of where it goes: RFC 8446, 6066, 9849.

Only what is sent in the clear can be judged. A hello that hides the name
(encrypted_client_hello) is refused: whoever fronts many sites would take it to any of them.
"""

from __future__ import annotations

from coopfile.record import Record

CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, APPLICATION_DATA = 20, 21, 22, 23
RECORD_HEADER = 5  # bytes
_MOST_RECORD = 1 << 14  # bytes
_ENCRYPTED_EXTRA = 2048
MOST_HELLO = 1 << 16  # bytes
_MOST_RECORDS = 32  # of a hello: nobody has a reason for more than a few
_CLIENT_HELLO, _SERVER_HELLO = 1, 2
_SERVER_NAME, _ENCRYPTED_HELLO = 0, 0xFE0D
_HOST_NAME = 0
# "Try again": the client sends a second hello. RFC 8446, 4.1.3.
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
SERVER_START = RECORD_HEADER + 4 + 2 + len(_RETRY)  # bytes that tell whether it is that
# Fatal, unrecognized_name: what people's programs say then names the cause.
UNKNOWN_NAME = bytes((ALERT, 3, 3, 0, 2, 2, 112))


class BadTlsError(ValueError):
    """Not what a TLS client sends; the text says why, and is safe to show."""


class Hello(Record):
    """The name that a hello asks for, if any; ``hidden`` tells of one that others cannot read.

    ``size`` is how many bytes of the stream it took.
    """

    server_name: bytes | None
    hidden: bool
    size: int


def record_size(header: bytes) -> int:
    """Return how many bytes a record has behind its header. Raises BadTlsError."""
    kind, major, size = header[0], header[1], int.from_bytes(header[3:5], "big")
    most = _MOST_RECORD if kind == HANDSHAKE else _MOST_RECORD + _ENCRYPTED_EXTRA
    if major != 3 or not CHANGE_CIPHER_SPEC <= kind <= APPLICATION_DATA or not 0 < size <= most:
        raise BadTlsError("not a record of TLS")
    return size


def read_hello(data: bytes) -> Hello | None:
    """Read the hello that a stream begins with, in one record or more; None when there is more to come.

    Raises BadTlsError.
    """
    message = b""
    place = 0
    for _ in range(_MOST_RECORDS):
        if len(data) < place + RECORD_HEADER:
            return None
        if data[place] != HANDSHAKE:
            raise BadTlsError("the hello of TLS is cut off")
        size = record_size(data[place : place + RECORD_HEADER])
        place += RECORD_HEADER
        piece = data[place : place + size]
        place += size
        message += piece
        if message and message[0] != _CLIENT_HELLO:
            raise BadTlsError("not a hello of TLS")
        length = 4 + int.from_bytes(message[1:4], "big") if len(message) >= 4 else 4
        if length > MOST_HELLO:
            raise BadTlsError("the hello of TLS is too long")
        if len(piece) < size:
            return None
        if len(message) > length:
            raise BadTlsError("something follows the hello of TLS in its record")
        if len(message) == length and length > 4:
            name, hidden = _hello(message[4:])
            return Hello(name, hidden, place)
    raise BadTlsError("the hello of TLS is in too many pieces")


def tells(start: bytes) -> bool:
    """Tell whether a server's first bytes are enough for ``is_retry``."""
    return len(start) >= SERVER_START or (start != b"" and start[0] != HANDSHAKE)


def is_retry(data: bytes) -> bool:
    """Tell whether a server's first ``SERVER_START`` bytes ask for a second hello."""
    return (
        len(data) >= SERVER_START
        and data[0] == HANDSHAKE
        and data[RECORD_HEADER] == _SERVER_HELLO
        and data[SERVER_START - len(_RETRY) : SERVER_START] == _RETRY
    )


class _Reader:
    """Bytes, from the front; asking for more than there are is BadTlsError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._place

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise BadTlsError("the hello of TLS is malformed")
        self._place += count
        return self._data[self._place - count : self._place]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        """Return what a length of ``size`` bytes stands in front of."""
        return self.take(self.number(size))

    def end(self) -> None:
        if self.left:
            raise BadTlsError("the hello of TLS is malformed")


def _hello(body: bytes) -> tuple[bytes | None, bool]:
    reader = _Reader(body)
    reader.take(2 + 32)  # version, random
    reader.vector(1)  # session
    reader.vector(2)  # ciphers
    reader.vector(1)  # compressions
    if not reader.left:
        return None, False
    extensions = _Reader(reader.vector(2))
    reader.end()
    found: dict[int, bytes] = {}
    while extensions.left:
        kind = extensions.number(2)
        if kind in found:
            raise BadTlsError("the hello of TLS has an extension twice")
        found[kind] = extensions.vector(2)
    name = _server_name(found[_SERVER_NAME]) if _SERVER_NAME in found else None
    return name, _ENCRYPTED_HELLO in found


def _server_name(data: bytes) -> bytes:
    reader = _Reader(data)
    names = _Reader(reader.vector(2))
    reader.end()
    if names.number(1) != _HOST_NAME:
        raise BadTlsError("the server name of TLS is no host's")
    name = names.vector(2)
    names.end()
    return name
