"""Interfaces, addresses and routes: rtnetlink(7).

Addresses are packed, 4 or 16 bytes, as inet_pton gives them.
"""

from __future__ import annotations

import errno
from _socket import AF_INET, AF_INET6
from _struct import pack, unpack_from

from coopfile.native.netlink import (
    F_ACK,
    F_CREATE,
    F_DUMP,
    F_EXCL,
    Channel,
    Message,
    attribute,
    attributes,
    nested,
    text,
)
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_NEWLINK, _DELLINK, _GETLINK, _SETLINK = 16, 17, 18, 19
_NEWADDR, _GETADDR = 20, 22
_NEWROUTE, _GETROUTE = 24, 26

_LINK_ADDRESS_MTU, _LINK_NAME, _LINK_INFO, _LINK_FAMILIES, _LINK_NAMESPACE = 4, 3, 18, 26, 28
_LINK_STATE, _OPERATIONAL = 16, b"\6"  # IFLA_OPERSTATE, IF_OPER_UP
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_INET_SETTINGS, _INET6_GENERATION = 1, 8
_NO_LINK_LOCAL = 1  # IN6_ADDR_GEN_MODE_NONE
FORWARDING, ROUTE_LOCALNET = 1, 26  # IPV4_DEVCONF_*: include/uapi/linux/ip.h
_UP = 0x1
_NO_NEIGHBOURS = 0x80  # IFF_NOARP: tunnels, among them VPNs that everything is sent through
_GATEWAYS = {5, 18}  # RTA_GATEWAY, RTA_VIA
_NO_DETECTION = 0x02  # IFA_F_NODAD
_MATCH = 0x2000  # RTM_F_FIB_MATCH: answer with the route, not with what it means for one address
_UNICAST, _LOCAL, _STATIC, _MAIN = 1, 2, 4, 254
_FORBIDDEN = (errno.EINVAL, errno.EACCES)  # routes of the types blackhole and prohibit
_NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ESRCH)


class Interface(Record):
    """An interface: its number, how long a packet may be, whether it forwards IPv4, and whether it sends."""

    index: int
    mtu: int
    forwards: bool
    sends: bool


def _family(address: bytes) -> int:
    return int(AF_INET if len(address) == 4 else AF_INET6)


def _link(index: int = 0, flags: int = 0) -> bytes:
    return pack("=BxHiII", 0, 0, index, flags, flags)  # struct ifinfomsg


def add_veth(name: str, peer: str, namespace: int, mtu: int) -> Message:
    """Make a pair, ``peer`` in the network namespace of a descriptor. EEXIST: the name is taken."""
    other = _link() + text(_LINK_NAME, peer) + attribute(_LINK_NAMESPACE, pack("=I", namespace))
    other += attribute(_LINK_ADDRESS_MTU, pack("=I", mtu))
    body = _link() + text(_LINK_NAME, name) + attribute(_LINK_ADDRESS_MTU, pack("=I", mtu))
    body += nested(_LINK_INFO, text(_INFO_KIND, "veth"), nested(_INFO_DATA, attribute(_VETH_PEER, other)))
    return Message(_NEWLINK, F_ACK | F_CREATE | F_EXCL, body)


def delete(index: int) -> Message:
    """Remove an interface, and a pair's other end with it."""
    return Message(_DELLINK, F_ACK, _link(index))


def configure(index: int, *settings: int) -> Message:
    """Switch settings of IPv4 on for an interface, such as FORWARDING."""
    values = [attribute(setting, pack("=I", 1)) for setting in settings]
    inet = nested(int(AF_INET), nested(_INET_SETTINGS, *values))
    return Message(_SETLINK, F_ACK, _link(index) + nested(_LINK_FAMILIES, inet))


def without_link_local(index: int) -> Message:
    """Keep an interface from giving itself an IPv6 address when it goes up."""
    mode = attribute(_INET6_GENERATION, pack("=B", _NO_LINK_LOCAL))
    return Message(_SETLINK, F_ACK, _link(index) + nested(_LINK_FAMILIES, nested(int(AF_INET6), mode)))


def raise_link(index: int) -> Message:
    """Bring an interface up."""
    return Message(_SETLINK, F_ACK, _link(index, _UP))


def add_address(index: int, address: bytes, length: int) -> Message:
    """Give an interface an address; ``length`` is its network's in bits."""
    head = pack("=BBBBI", _family(address), length, _NO_DETECTION, 0, index)  # struct ifaddrmsg
    body = head + attribute(1, address) + attribute(2, address)  # IFA_ADDRESS, IFA_LOCAL
    return Message(_NEWADDR, F_ACK | F_CREATE | F_EXCL, body)


def add_default_route(gateway: bytes) -> Message:
    """Send what is for no network nearer to a gateway."""
    head = pack("=BBBBBBBBI", _family(gateway), 0, 0, 0, _MAIN, _STATIC, 0, _UNICAST, 0)  # struct rtmsg
    return Message(_NEWROUTE, F_ACK | F_CREATE | F_EXCL, head + attribute(5, gateway))  # RTA_GATEWAY


def route(channel: Channel, address: bytes) -> tuple[int, int] | None:
    """Return the interface and the length in bits of the route that leads to an address; None: none does.

    The interface is 0 where the route ends at this machine.
    """
    bits = 8 * len(address)
    head = pack("=BBBBBBBBI", _family(address), bits, 0, 0, 0, 0, 0, 0, _MATCH)
    try:
        (answer,) = channel.ask(Message(_GETROUTE, 0, head + attribute(1, address)))  # RTA_DST
    except OSError as error:
        if error.errno in _NO_ROUTE:
            return None
        if error.errno in _FORBIDDEN:
            return (0, bits)
        raise
    if answer[7] != _UNICAST:
        return (0, answer[1])
    found = attributes(answer[12:])
    if 4 in found:  # RTA_OIF
        return unpack_from("=i", found[4])[0], answer[1]
    if 9 in found:  # RTA_MULTIPATH: struct rtnexthop, whose last field is the interface
        return unpack_from("=HBBi", found[9])[3], answer[1]
    return (0, answer[1])


def interface(channel: Channel, index: int) -> Interface:
    """Look at an interface."""
    (answer,) = channel.ask(Message(_GETLINK, 0, _link(index)))
    found = attributes(answer[16:])
    inet = attributes(attributes(found.get(_LINK_FAMILIES, b"")).get(int(AF_INET), b""))
    settings = inet.get(_INET_SETTINGS, b"")
    forwards = len(settings) >= 4 * FORWARDING and unpack_from("=I", settings, 4 * (FORWARDING - 1))[0]
    sends = found.get(_LINK_STATE) == _OPERATIONAL
    return Interface(index, unpack_from("=I", found[_LINK_ADDRESS_MTU])[0], bool(forwards), sends)


def networks(channel: Channel) -> Iterator[tuple[bytes, int]]:
    """Yield the namespace's networks: an address in each, and how many bits of it are the network's.

    Besides those of its own addresses they are those with a route straight onto a line with others: DHCPv6
    gives a single address, and clouds do, and the network's prefix comes as such a route. Those with a route
    to the namespace itself are its own as well: clouds' agents make them for the addresses of balancers.
    """
    for answer in channel.ask(Message(_GETADDR, F_DUMP, pack("=BBBBI", 0, 0, 0, 0, 0))):
        found = attributes(answer[8:])
        # They differ on a line from point to point: the other end's, and one's own.
        for kind in (1, 2):  # IFA_ADDRESS, IFA_LOCAL
            if kind in found:
                yield found[kind], answer[1]
    shared = set()
    for answer in channel.ask(Message(_GETLINK, F_DUMP, _link())):
        index, flags = unpack_from("=4xiI", answer)
        if not flags & _NO_NEIGHBOURS:
            shared.add(index)
    for answer in channel.ask(Message(_GETROUTE, F_DUMP, bytes(12))):
        found = attributes(answer[12:])
        straight = answer[7] == _UNICAST and 4 in found and not _GATEWAYS & found.keys()
        here = answer[7] == _LOCAL
        if 1 in found and (here or (straight and unpack_from("=i", found[4])[0] in shared)):
            yield found[1], answer[1]
