"""Addresses that stay local: what a sandbox calls itself, and what NAT must not reach."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ipaddress

# What a sandbox with the internet asks for names, however it is connected; slirp4netns(1) has it so.
NAMESERVER, DNS = "10.0.2.3", 53

# First and last of every range that is the host itself, its neighbours or the cloud's metadata, in order.
LOCAL_IPV4 = (
    ("0.0.0.0", "0.255.255.255"),
    ("10.0.0.0", "10.255.255.255"),
    ("100.64.0.0", "100.127.255.255"),
    ("127.0.0.0", "127.255.255.255"),
    ("168.63.129.16", "168.63.129.16"),  # Azure's, which is not in a range of its own
    ("169.254.0.0", "169.254.255.255"),
    ("172.16.0.0", "172.31.255.255"),
    ("192.0.0.0", "192.0.0.255"),
    ("192.168.0.0", "192.168.255.255"),
    ("198.18.0.0", "198.19.255.255"),
    ("224.0.0.0", "255.255.255.255"),
)
# All that is not global (2000::/3), what leads to IPv4 past the rules for it (Teredo, 6to4), and
# the local ranges of IPv4 behind the well-known NAT64: RFC 4291, 4380, 3056, 6052.
LOCAL_IPV6 = (
    ("::", "64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff"),
    *((f"64:ff9b::{first}", f"64:ff9b::{last}") for first, last in LOCAL_IPV4),
    ("64:ff9b::1:0:0", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
)


def is_loopback(host: str) -> bool:
    """Tell whether a host (lower-case name or IP address) is whoever asks."""
    found = _address(host)
    return found.is_loopback if found else host == "localhost" or host.endswith(".localhost")


def is_local(host: str) -> bool:
    """Tell whether a host is an IP address that does not belong to the internet."""
    import ipaddress

    found = _address(host)
    if found is None:
        return False
    ranges = LOCAL_IPV4 if found.version == 4 else LOCAL_IPV6
    parse = ipaddress.ip_address
    return any(int(parse(first)) <= int(found) <= int(parse(last)) for first, last in ranges)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    import ipaddress

    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
