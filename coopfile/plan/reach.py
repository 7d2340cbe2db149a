"""Proxy mode: which item of ``network.allow`` lets a connection pass, and where programs find the proxy."""

from __future__ import annotations

from coopfile.language.items import HostPattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# On the sandbox's own loopback.
HTTP_PORT, SOCKS_PORT = 3128, 1080

_OWN = "localhost,127.0.0.1,::1"


def variables(port: int) -> dict[str, str]:
    """Return the environment that leads programs to a proxy at a port of the loopback.

    By both spellings: curl reads http_proxy in lower case only, others the capitals only. all_proxy leads
    over HTTP too: programs made with httpx end at a SOCKS one unless a package for it is there.
    NODE_USE_ENV_PROXY: Node 22.21 and 24.5, for fetch and its own clients.
    """
    names = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
    return {
        **dict.fromkeys(names, f"http://127.0.0.1:{port}"),
        **dict.fromkeys(("no_proxy", "NO_PROXY"), _OWN),
        "NODE_USE_ENV_PROXY": "1",
    }


VARIABLES = variables(HTTP_PORT)


def allowing(allow: Iterable[HostPattern], host: str, port: int) -> HostPattern | None:
    """Return the pattern that allows a host, written as the language writes it, on a port; None for none."""
    wanted = HostPattern(host, port=port)
    return next((pattern for pattern in allow if pattern.covers(wanted)), None)
