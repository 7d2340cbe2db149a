"""Name servers: which the host asks, and which a sandbox that has the internet."""

from __future__ import annotations

from coopfile.plan.endpoints import NAMESERVER

RESOLV_CONF = "/etc/resolv.conf"
# What systemd-resolved asks itself, where the file above names its stub: systemd-resolved.service(8).
_UPSTREAM = "/run/systemd/resolve/resolv.conf"
_STUBS = ("127.0.0.53", "127.0.0.54")
_LARGEST = 65536  # bytes of a file that are read


def resolv_conf() -> str:
    """Return the resolv.conf(5) of a sandbox.

    The host's search list stays out: it names the networks that the host belongs to. edns0 allows
    answers that a plain datagram does not hold.
    """
    return f"nameserver {NAMESERVER}\noptions edns0\n"


def servers(path: str = RESOLV_CONF) -> tuple[str, ...]:
    """Return the numeric addresses of the host's name servers, in order.

    systemd-resolved's stub answers nobody but the host; its own servers are taken instead.
    """
    found = named(read(path))
    if any(address in _STUBS for address in found):
        found = named(read(_UPSTREAM)) or found
    return found


def named(text: str) -> tuple[str, ...]:
    """Return the addresses that a resolv.conf(5) names, as they stand there."""
    lines = (line.split() for line in text.splitlines())
    return tuple(fields[1] for fields in lines if len(fields) > 1 and fields[0] == "nameserver")


def read(path: str) -> str:
    """Return a resolver's configuration; empty where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_LARGEST)
    except OSError:
        return ""
