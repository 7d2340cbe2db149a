"""Addresses that stay local: what a sandbox calls itself, and what NAT must not reach."""

from __future__ import annotations

import ipaddress

# The host itself, its neighbours and the cloud's metadata.
LOCAL_NETWORKS = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "224.0.0.0/3",
        "::/128",
        "::1/128",
        "64:ff9b:1::/48",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)


def is_loopback(host: str) -> bool:
    """Tell whether a host (lower-case name or IP address) is whoever asks."""
    found = _address(host)
    return found.is_loopback if found else host == "localhost" or host.endswith(".localhost")


def is_local(host: str) -> bool:
    """Tell whether a host is an IP address that does not belong to the internet."""
    found = _address(host)
    return found is not None and any(found in network for network in LOCAL_NETWORKS)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
