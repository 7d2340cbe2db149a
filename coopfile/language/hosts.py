"""Hosts that may be reached, and ports that are offered."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Any

from coopfile.language.diagnostics import quoted
from coopfile.language.items import HostPattern, PublishedPort
from coopfile.language.value_type import BadValue, Problem, ValueType, check_string

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
# What resolvers take for an address: a last label that is a number, in any base.
_NUMERIC = re.compile(r"0x[0-9a-f]*|[0-9]+", re.ASCII)


class HostPatternType(ValueType):
    """A host, ``*.`` and a domain for every name below it, or an IP address; then ``:port``.

    Typed: a ``HostPattern``, lower-case and without the final dot. Every other
    spelling of a host is refused, because programs disagree about what it means:
    ``127.1``, ``0x7f000001``, ``010.0.0.1``, ``[::ffff:127.0.0.1]``, names that are
    not ASCII (write their ``xn--`` form).
    """

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "string", "pattern": r"^[^\s/]+$"}

    def parse(self, raw: object) -> HostPattern:
        """Return the pattern. Raises BadValue."""
        text = check_string(raw, "a host", '"pypi.org"')
        if "://" in text:
            bare = text.partition("://")[2].partition("/")[0]
            raise BadValue(
                f"{quoted(text)} is an address of the web", f"write the host alone: {quoted(bare)}"
            )
        if "/" in text:
            raise BadValue(f"{quoted(text)} has a path or a range", "write the host alone, one for each")
        if any(char.isspace() or char in "@,;%?#" for char in text):
            raise BadValue(f"{quoted(text)} is not a host", "such as pypi.org, *.github.com or pypi.org:443")
        if text == "*" or text.startswith("*:"):
            raise BadValue("* would allow every host", 'for the whole internet write mode = "veth"')
        host, port = _split(text)
        subdomains = host.startswith("*.")
        host = host[2:] if subdomains else host
        if "*" in host:
            raise BadValue(
                f"* stands for whole names in front, so not in {quoted(text)}", "write *. and a domain"
            )
        if text.startswith("["):
            return HostPattern(_ipv6(host), port=port)
        host = _name(host.lower(), text)
        if subdomains and _NUMERIC.fullmatch(host.rpartition(".")[2]):
            raise BadValue("an address has no names below it", f"write {quoted(host)}")
        return HostPattern(host, subdomains, port)


class PublishedPortType(ValueType):
    """A TCP port of the sandbox to offer on the host: ``PORT``, ``HOST:PORT``, ``ADDRESS:HOST:PORT``.

    Typed: a ``PublishedPort``. The address is an IP address of the host, an IPv6 one
    in brackets, and 127.0.0.1 by default; with the port alone, it is the same on both sides.
    """

    _forms = 'it is "3000", "8080:80" (host, sandbox) or "127.0.0.1:8080:80"'

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "string", "pattern": r"^(([0-9.]+|\[[0-9a-fA-F:.]+\]):[0-9]+:|[0-9]+:)?[0-9]+$"}

    def parse(self, raw: object) -> PublishedPort:
        """Return the port. Raises BadValue."""
        if isinstance(raw, int) and not isinstance(raw, bool):
            raise BadValue("a published port is a string", f'write "{raw}"')
        text = check_string(raw, "a published port", '"3000"')
        if "/" in text:
            raise BadValue(f"{quoted(text)} names a protocol", "only TCP is published; leave it out")
        if re.fullmatch(r"[0-9:.\[\]a-fA-F]*[0-9]+-[0-9]+.*", text, re.ASCII):
            raise BadValue(f"{quoted(text)} is a range", "write one port for each")
        bracketed = re.fullmatch(r"\[([^\]]*)\]:(.*)", text)
        address, ports = (bracketed[1], bracketed[2].split(":")) if bracketed else ("", text.split(":"))
        if not bracketed and len(ports) == 3:
            address, *ports = ports
            self._check_ipv4(address)
        if len(ports) > 2 or (bracketed and len(ports) != 2):
            raise BadValue(f"{quoted(text)} is not a published port", self._forms)
        numbers = [_port(port, self._forms) for port in ports]
        return PublishedPort(_ipv6(address) if bracketed else address or "127.0.0.1", numbers[0], numbers[-1])

    def finish(self, items: Sequence[PublishedPort]) -> list[Problem]:
        """Return one problem per port of the host that would lead to two places."""
        seen: dict[tuple[str, int], PublishedPort] = {}
        problems = []
        for index, item in enumerate(items):
            first = seen.setdefault((item.address, item.host), item)
            if first != item:
                message = f"port {item.host} of {item.address} leads to {first.sandbox} already"
                problems.append(
                    Problem(message, "one port of the host leads to one of the sandbox", (index,))
                )
        return problems

    @staticmethod
    def _check_ipv4(address: str) -> None:
        try:
            ipaddress.IPv4Address(address)
        except ValueError:
            hint = (
                "write 127.0.0.1"
                if address == "localhost"
                else "such as 127.0.0.1, or 0.0.0.0 for all of them"
            )
            raise BadValue(f"{quoted(address)} is not an address of the host", hint) from None


def _split(text: str) -> tuple[str, int | None]:
    """Split the host from its port, and the brackets from an IPv6 address."""
    if text.startswith("["):
        match = re.fullmatch(r"\[([^\]]*)\](?::(.*))?", text)
        if not match:
            raise BadValue(f"{quoted(text)} is not a host", "an IPv6 address is written [2001:db8::1]:443")
        host, port = match[1], match[2]
    elif text.count(":") > 1:
        raise BadValue(f"{quoted(text)} is not a host", "an IPv6 address goes in brackets: [2001:db8::1]:443")
    else:
        host, colon, port = text.partition(":")
        port = port if colon else None
    return host, None if port is None else _port(port, "after the colon comes a port")


def _port(text: str, forms: str) -> int:
    if not re.fullmatch(r"[0-9]+", text, re.ASCII):
        raise BadValue(f"{quoted(text)} is not a port", forms)
    if len(text) > 9 or not 0 < int(text) < 65536:
        raise BadValue(f"port {quoted(text)[1:-1]} does not exist", "ports are 1 to 65535")
    return int(text)


def _name(host: str, text: str) -> str:
    host = host[:-1] if host.endswith(".") else host
    if not host.isascii():
        try:
            punycode = f"write {quoted(host.encode('idna').decode('ascii'))}"
        except UnicodeError:
            punycode = "write the name as DNS has it, in ASCII"
        raise BadValue(f"{quoted(text)} is not in ASCII", punycode)
    try:
        return str(ipaddress.IPv4Address(host))
    except ValueError:
        pass
    if _NUMERIC.fullmatch(host.rpartition(".")[2]):
        meant = _loose_ipv4(host)
        hint = f"write {meant}" if meant else "write four numbers from 0 to 255, in decimal"
        raise BadValue(f"programs disagree about which address {quoted(text)} is", hint)
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.split(".")):
        raise BadValue(
            f"{quoted(text)} is not a host", "a name has letters, digits and -, up to 63 of them between dots"
        )
    return host


def _ipv6(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise BadValue(f"{quoted(text)} is not an IPv6 address", "such as [2001:db8::1]") from None
    if address.scope_id:
        raise BadValue(f"{quoted(text)} names an interface", "leave out what is behind the %")
    if address.ipv4_mapped:
        raise BadValue(f"{quoted(text)} is an IPv4 address in disguise", f"write {address.ipv4_mapped}")
    return address.compressed


def _loose_ipv4(host: str) -> str | None:
    """Return what the C library's inet_aton makes of a host, if it makes anything of it."""
    numbers = []
    for part in host.split("."):
        base = 16 if part.startswith("0x") else 8 if part.startswith("0") and part != "0" else 10
        try:
            numbers.append(int(part[2:] or "0", 16) if base == 16 else int(part, base))
        except ValueError:
            return None
    *front, last = numbers
    if len(numbers) > 4 or any(number > 255 for number in front) or last >= 256 ** (4 - len(front)):
        return None
    value = sum(number << (24 - 8 * index) for index, number in enumerate(front)) + last
    return str(ipaddress.IPv4Address(value))
