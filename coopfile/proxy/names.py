"""Hosts as clients name them, in the one spelling that rules are compared with.

What ``language.hosts`` refuses in a Coopfile is refused here: programs disagree about
what it means, and so would the rule and the resolver.
"""

from __future__ import annotations

from _socket import AF_INET, AF_INET6, inet_ntop, inet_pton

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")
_DIGITS = frozenset("0123456789")
_HEXADECIMAL = frozenset("0123456789abcdef")
_LONGEST, _LONGEST_LABEL = 253, 63  # characters: RFC 1035
_LONGEST_PORT = 5
_MAPPED = bytes(10) + b"\xff\xff"  # ::ffff:0:0/96: RFC 4291


class BadNameError(ValueError):
    """Not the name of a host; the text says why, and is safe to show."""


def canonical(text: bytes) -> str:
    """Return a host in lower case without the final dot, or an address as ``inet_ntop`` writes it.

    An IPv6 address is in brackets. Raises BadNameError for every other spelling.
    """
    if text[:1] == b"[":
        return _ipv6(text)
    try:
        host = text.decode("ascii").lower()
    except UnicodeDecodeError:
        raise BadNameError("the name is not in ASCII: use its xn-- form") from None
    host = host[:-1] if host.endswith(".") else host
    labels = host.split(".")
    if len(host) > _LONGEST or not all(map(_is_label, labels)):
        raise BadNameError("not the name of a host")
    if is_ipv4(host):
        return host
    if _is_number(labels[-1]):
        raise BadNameError("an address is written as four decimal numbers")
    return host


def authority(text: bytes, default: int | None = None) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; without a default the port must be there."""
    host, colon, port = text.rpartition(b":")
    if not colon or text.endswith(b"]"):
        host, port = text, b"" if default is None else b"%d" % default
    if not port.isdigit() or len(port) > _LONGEST_PORT or not 0 < int(port) < 1 << 16:
        raise BadNameError("there is no such port")
    return canonical(host), int(port)


def from_packed(address: bytes) -> str:
    """Return the text of an address of 4 or 16 bytes, in the spelling of ``canonical``."""
    if len(address) == 4:
        return inet_ntop(AF_INET, address)
    if address.startswith(_MAPPED):
        raise BadNameError("an IPv4 address in disguise")
    return inet_ntop(AF_INET6, address)


def packed(host: str) -> bytes | None:
    """Return the bytes of a host in canonical spelling that is an address; None for a name."""
    if ":" in host:
        return inet_pton(AF_INET6, host)
    return inet_pton(AF_INET, host) if is_ipv4(host) else None


def show(host: str, port: int) -> str:
    """Return ``HOST:PORT`` for people."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_ipv4(host: str) -> bool:
    """Tell whether a text is an IPv4 address in the one spelling that nobody doubts."""
    try:
        return inet_ntop(AF_INET, inet_pton(AF_INET, host)) == host
    except (OSError, ValueError):
        return False


def _ipv6(text: bytes) -> str:
    inner = text[1:-1]
    if not text.endswith(b"]") or b"%" in inner or b"\0" in inner or not inner.isascii():
        raise BadNameError("not an IPv6 address")
    try:
        return from_packed(inet_pton(AF_INET6, inner.decode("ascii")))
    except OSError:
        raise BadNameError("not an IPv6 address") from None


def _is_label(label: str) -> bool:
    if not 0 < len(label) <= _LONGEST_LABEL or label[0] == "-" or label[-1] == "-":
        return False
    return _LETTERS.issuperset(label.replace("-", ""))


def _is_number(label: str) -> bool:
    """Tell whether a last label is what resolvers take for a part of an address."""
    digits, allowed = (label[2:], _HEXADECIMAL) if label.startswith("0x") else (label, _DIGITS)
    return allowed.issuperset(digits)
