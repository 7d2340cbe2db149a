"""Requests to an HTTP proxy, taken apart: RFC 9110 and 9112.

Everything that two programs may read in two ways is refused: it is how requests are
smuggled. Each connection has one request.
"""

from __future__ import annotations

from coopfile.plan.reach import HTTP_PORT
from coopfile.proxy.names import BadNameError, authority
from coopfile.record import Record

MOST_HEAD = 64 * 1024  # bytes, of the request line and all fields
_MOST_FIELDS = 200
_MOST_LENGTH = 1 << 50
_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_VERSIONS = (b"HTTP/1.0", b"HTTP/1.1")
_TUNNEL = b"CONNECT"
_SCHEME = b"http://"
PORT = 80
# Of this connection, not of the request: RFC 9110, 7.6.1, and what came before it.
_OF_THE_CONNECTION = frozenset(
    (
        b"connection",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"upgrade",
    )
)
_REASONS = {
    400: "Bad Request",
    403: "Blocked",
    411: "Length Required",
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
}
# Types of RFC 9209, 2.3.
_ERRORS = {
    **dict.fromkeys((400, 411, 431), "http_request_error"),
    403: "http_request_denied",
    502: "destination_unavailable",
}
_OWN = (b"127.0.0.1:%d", b"localhost:%d")
_MOST_REASON = 300  # characters
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Request(Record):
    """Where a request wants to go, and what to send there: nothing for a tunnel.

    ``length`` is that of the body which follows the head, in bytes.
    """

    host: str
    port: int
    head: bytes = b""
    length: int = 0


class RefusedError(Exception):
    """A request that is not passed on; ``status`` is that of the answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def parse(head: bytes) -> Request:
    """Take a request to the proxy apart, up to and with the empty line. Raises RefusedError."""
    method, target, version, fields = _split(head)
    try:
        if method == _TUNNEL:
            return _tunnel(target, fields)
        if target[: len(_SCHEME)].lower() != _SCHEME:
            raise RefusedError(
                400, "this is a proxy: it takes http:// addresses in full, and CONNECT for all others"
            )
        rest = target[len(_SCHEME) :]
        end = min((place for place in map(rest.find, (b"/", b"?", b"#")) if place >= 0), default=len(rest))
        host, port = authority(rest[:end], PORT)
        return _forward(host, port, method, rest[end:], version, fields)
    except BadNameError as error:
        raise RefusedError(400, str(error)) from None


def parse_inside(head: bytes, host: str, port: int) -> Request:
    """Take a request apart that comes through a tunnel, to the host itself. Raises RefusedError."""
    method, target, version, fields = _split(head)
    if method == _TUNNEL or target[:1] != b"/":
        raise RefusedError(400, "a request inside a tunnel is for the host that the tunnel leads to")
    try:
        return _forward(host, port, method, target, version, fields)
    except BadNameError as error:
        raise RefusedError(400, str(error)) from None


def _split(head: bytes) -> tuple[bytes, bytes, bytes, list[tuple[bytes, bytes]]]:
    """Return a request's method, target and version, and its fields."""
    lines = head[:-4].split(b"\r\n")
    if not head.endswith(b"\r\n\r\n") or any(_has_controls(line) for line in lines):
        raise RefusedError(400, "control characters in the head of the request")
    if len(lines) > _MOST_FIELDS:
        raise RefusedError(431, "too many header fields")
    parts = lines[0].split(b" ")
    if len(parts) != 3 or parts[2] not in _VERSIONS or not _is_token(parts[0]):
        raise RefusedError(400, "not a request of HTTP/1.1")
    method, target, version = parts
    return method, target, version, [_field(line) for line in lines[1:]]


def answer(status: int, text: str, reason: str = "") -> bytes:
    """Return a whole answer that says why there is no other.

    Of an answer to CONNECT programs show the status line at most: it has the ``reason``. For those that
    understand it there is a Proxy-Status, as of RFC 9209.
    """
    said = _printable(text)
    body = f"coop: {text}\n".encode("ascii", "backslashreplace")
    details = said.replace("\\", "\\\\").replace('"', '\\"')
    head = (
        f"HTTP/1.1 {status} {_printable(reason)[:_MOST_REASON] or _REASONS[status]}\r\n"
        f'Proxy-Status: coop; error={_ERRORS[status]}; details="{details}"\r\n'
        f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def page(text: str) -> bytes:
    """Return an answer to a question for the proxy itself."""
    body = text.encode("utf-8", "backslashreplace")
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def is_for_proxy(head: bytes, own: int = HTTP_PORT) -> bool:
    """Tell whether somebody asks the proxy itself, by its own name and port: `curl http://127.0.0.1:3128/`.

    Raises RefusedError.
    """
    if not head.startswith(b"GET / HTTP/1."):
        return False
    return [value for name, value in _split(head)[3] if name == b"host"] in [[name % own] for name in _OWN]


def _printable(text: str) -> str:
    return "".join(char if " " <= char <= "~" else "?" for char in text)


def _tunnel(target: bytes, fields: list[tuple[bytes, bytes]]) -> Request:
    host, port = authority(target)
    _check_host(fields, host, port, port)
    if _length(fields):
        raise RefusedError(400, "CONNECT has no body")
    return Request(host, port)


def _forward(
    host: str, port: int, method: bytes, path: bytes, version: bytes, fields: list[tuple[bytes, bytes]]
) -> Request:
    if b"#" in path:
        raise RefusedError(400, "an address has no fragment in a request")
    if not _check_host(fields, host, port, PORT) and version == b"HTTP/1.1":
        raise RefusedError(400, "a request names its host once")
    length = _length(fields)
    dropped = _OF_THE_CONNECTION | {
        name.strip().lower() for key, value in fields if key == b"connection" for name in value.split(b",")
    }
    shown = f"[{host}]" if ":" in host else host
    lines = [
        b"%b %b %b" % (method, path if path[:1] == b"/" else b"/" + path, version),
        b"Host: " + (shown if port == PORT else f"{shown}:{port}").encode(),
        *(b"%b: %b" % field for field in fields if field[0] not in dropped | {b"host", b"content-length"}),
    ]
    if any(name == b"content-length" for name, _ in fields):
        lines.append(b"Content-Length: %d" % length)
    lines += [b"Connection: close", b"", b""]
    return Request(host, port, b"\r\n".join(lines), length)


def _check_host(fields: list[tuple[bytes, bytes]], host: str, port: int, default: int) -> bool:
    """Refuse a Host field that does not agree with the target; tell whether there is one."""
    values = [value for name, value in fields if name == b"host"]
    if len(values) > 1 or any(authority(value, default) != (host, port) for value in values):
        raise RefusedError(400, "the Host field does not agree with the target of the request")
    return bool(values)


def _length(fields: list[tuple[bytes, bytes]]) -> int:
    """Return how many bytes follow the head; only a Content-Length tells."""
    lengths = [value for name, value in fields if name == b"content-length"]
    if any(name == b"transfer-encoding" for name, _ in fields):
        if lengths:
            raise RefusedError(400, "both Content-Length and Transfer-Encoding")
        raise RefusedError(411, "send a Content-Length: bodies in chunks are not passed on without TLS")
    if not lengths:
        return 0
    if len(lengths) > 1 or not lengths[0].isdigit() or len(lengths[0]) > 16:
        raise RefusedError(400, "not a Content-Length")
    length = int(lengths[0])
    if length > _MOST_LENGTH:
        raise RefusedError(400, "not a Content-Length")
    return length


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if not colon or not _is_token(name):
        raise RefusedError(400, "not a header field")
    return name.lower(), value.strip(b" \t")


def _is_token(text: bytes) -> bool:
    return bool(text) and _TOKEN.issuperset(text)


def _has_controls(line: bytes) -> bool:
    return any((byte < 0x20 and byte != 0x09) or byte == 0x7F for byte in line)
