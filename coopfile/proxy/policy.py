"""What passes: the list by name and port, then the address that the name has here and now."""

from __future__ import annotations

from _socket import AF_INET, AF_INET6, SOCK_STREAM, gaierror, getaddrinfo, inet_pton

from coopfile.plan.reach import allowing
from coopfile.proxy.names import BadNameError, canonical, from_packed, packed, show
from coopfile.proxy.tls import Hello
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from coopfile.language.items import HostPattern

    Ranges = tuple[tuple[bytes, bytes], ...]

_SHOWN, _SHOWN_SHORT = 20, 6  # items of the list that an answer names
_NAMED = "in proxy mode TLS has to name the host that the connection is for"
HTTPS = 443
# The host itself, whoever asks, and what is no single host: not even by being listed.
_NEVER = {
    4: (("0.0.0.0", "0.255.255.255"), ("127.0.0.0", "127.255.255.255"), ("224.0.0.0", "255.255.255.255")),
    16: (("::", "::ffff:ffff:ffff"), ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")),
}


class BlockedError(Exception):
    """A connection that the plan does not allow; the text says why, and what would help.

    ``short`` is the same in a line that programs show when they show nothing else.
    """

    def __init__(self, text: str, short: str = "") -> None:
        super().__init__(text)
        self.short = short or text


class UnreachableError(Exception):
    """A connection that is allowed, and cannot be made."""


class Place(Record):
    """An address to connect to, as ``socket`` takes it."""

    family: int
    address: tuple[Any, ...]


class Policy:
    """``local`` returns first and last of the ranges that are not the internet, of IPv4 and of IPv6.

    ``listed`` says where the list was written, empty if that is not known.
    """

    def __init__(
        self, allow: tuple[HostPattern, ...], local: Callable[[], tuple[Ranges, Ranges]], listed: str = ""
    ) -> None:
        self._allow = allow
        self._local = local
        self.rule = f"network.allow in {listed}" if listed else "network.allow of the plan"
        if not allow:
            self.rule = "network.allow, which names no host"
        families = ((4, AF_INET), (16, AF_INET6))
        self._never = {
            size: tuple((inet_pton(family, first), inet_pton(family, last)) for first, last in _NEVER[size])
            for size, family in families
        }

    def check(self, host: str, port: int) -> None:
        """Refuse what the list does not name. Raises BlockedError."""
        if allowing(self._allow, host, port) is None:
            shown = show(host, port)
            raise BlockedError(
                f"{shown} is blocked by {self.rule}; allowed: {self.listed()}. "
                f"Outside of the sandbox, `coop why connect {shown}` tells what would allow it.",
                f"Blocked by {self.rule}; allowed: {self.listed(_SHOWN_SHORT)}",
            )

    def look_up(self, host: str, port: int) -> list[Place]:
        """Return where a host is that the list names. Raises BlockedError, UnreachableError.

        This blocks, and may be called by any thread.
        """
        try:
            found = getaddrinfo(host.encode(), port, 0, SOCK_STREAM)
        except (gaierror, OSError) as error:
            reason = error.strerror or "it has no address"
            raise UnreachableError(f"{host} cannot be resolved: {reason}") from None
        families = (AF_INET, AF_INET6)
        places = [Place(family, address) for family, _, _, _, address in found if family in families]
        local4, local6 = self._local()
        ranges = {4: local4, 16: local6}
        passing = [place for place in places if self._passes(place, port, ranges)]
        if passing:
            return passing
        if not places:
            raise UnreachableError(f"{host} cannot be resolved: it has no address")
        address = str(places[0].address[0])
        raise BlockedError(f"{show(host, port)} is blocked: {self._why(host, address)}")

    def check_hello(self, hello: Hello, host: str, port: int) -> None:
        """Refuse a TLS hello that asks the server for another name. Raises BlockedError."""
        shown = show(host, port)
        if hello.hidden:
            raise BlockedError(
                f"{shown} is blocked: the TLS hello hides the server's name (ECH), which the client can "
                f"leave out; {_NAMED}"
            )
        literal = packed(host) is not None
        if hello.server_name is None:
            if literal:
                return
            raise BlockedError(f"{shown} is blocked: the TLS hello names no server (SNI); {_NAMED}")
        try:
            name = canonical(hello.server_name)
        except BadNameError:
            raise BlockedError(f"{shown} is blocked: the TLS hello names no host; {_NAMED}") from None
        if name != host and not (literal and allowing(self._allow, name, port)):
            raise BlockedError(f"{shown} is blocked: the TLS hello asks for {name}; {_NAMED}")

    @staticmethod
    def check_plain(host: str, port: int) -> None:
        """Refuse what is not TLS where nothing else is spoken. Raises BlockedError."""
        if port == HTTPS:
            raise BlockedError(f"{show(host, port)} is blocked: only TLS passes to this port")

    def _passes(self, place: Place, port: int, ranges: dict[int, Ranges]) -> bool:
        """Tell whether an address is on the internet, or is listed itself."""
        text = str(place.address[0])
        address = inet_pton(place.family, text.partition("%")[0])
        if _within(address, self._never[len(address)]) or "%" in text:
            return False
        if not _within(address, ranges[len(address)]):
            return True
        try:
            return allowing(self._allow, from_packed(address), port) is not None
        except BadNameError:
            return False

    def _why(self, host: str, address: str) -> str:
        plain = address.partition("%")[0]
        number = inet_pton(AF_INET6 if ":" in plain else AF_INET, plain)
        is_here = "" if host == address else f"it is {address} here, "
        if _within(number, self._never[len(number)]):
            return f"{is_here}which is no address of another machine; the sandbox's own need no proxy"
        item = f"[{plain}]" if ":" in plain else plain
        return (
            f"{is_here}which is local to this machine, its network or its cloud; names of {self.rule} lead "
            f'to the internet alone, and "{item}" in the list would allow the address'
        )

    def listed(self, most: int = _SHOWN) -> str:
        """Return the list, or the beginning of it, for people and programs."""
        more = len(self._allow) - most
        listed = ", ".join(map(str, self._allow[:most])) or "nothing"
        return f"{listed} and {more} more" if more > 0 else listed


def _within(address: bytes, ranges: Ranges) -> bool:
    return any(first <= address <= last for first, last in ranges)
