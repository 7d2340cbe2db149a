"""The internet as root: a pair of interfaces, and address translation by the kernel.

The rules are in a table that the kernel drops when the last process that holds its channel
is gone, and the interfaces go with the sandbox's namespace: nothing is left, however
coop ends. What other tables say stays in force; nothing of the host's settings is changed.

On the host's side nothing but name service answers the sandbox, and what is forwarded for it
is for the internet. It is judged twice: as the sandbox sent it, and as it leaves, since the host's
other rules may send it elsewhere. Nothing reaches the sandbox but answers.
"""

from __future__ import annotations

import errno
import os
import select
import time
from _socket import (
    AF_INET,
    AF_INET6,
    SO_ERROR,
    SOCK_CLOEXEC,
    SOCK_NONBLOCK,
    SOCK_STREAM,
    SOL_SOCKET,
    if_nametoindex,
    inet_pton,
    socket,
)
from _struct import unpack

from coopfile.native import dns, fence, nftables, rtnetlink, syscalls
from coopfile.native.netlink import ROUTE, Channel, Message
from coopfile.native.network import UnusableError
from coopfile.plan.endpoints import DNS, NAMESERVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from coopfile.native.nftables import Rule

INTERFACE = "eth0"
_PREFIX = "coop"
# A sandbox's number, free when its interface's name is, chooses two addresses next to each other.
_FIRST, _COUNT = (10, 213), 1 << 15
_FIRST6 = inet_pton(AF_INET6, "fd63:6f6f:7000::")
_TRIES = 500

# Addresses of nobody's (RFC 7600, RFC 5180), to find out what the host's other rules let pass.
_NOBODY = {4: "192.0.0.8", 16: "2001:2::1"}
_HTTPS, _ARRIVED = 443, 1  # ports there
_PROBE = 2.0  # seconds
_LOOK = 0.001  # seconds between two looks at what the kernel has done

_NAMESERVER = inet_pton(AF_INET, NAMESERVER)
_LOOPBACK = inet_pton(AF_INET, "127.0.0.1")
_FORWARDING6 = "/proc/sys/net/ipv6/conf/all/forwarding"
_FORWARDING4 = "/proc/sys/net/ipv4/ip_forward"
_DEFAULT_MTU = 1500
_NEIGHBOURS = (135, 136)


def look() -> None:
    """See whether the host forwards packets at all; raises UnusableError."""
    try:
        channel = Channel(ROUTE)
        _uplink(channel)
    except OSError as error:
        raise _unusable(error) from None
    channel.close()


def _unusable(error: OSError) -> UnusableError:
    needed = "as root: modprobe -a veth nf_tables nft_nat nft_masq nft_fib_inet nft_reject_inet"
    if error.errno == errno.EPERM:
        needed = "give coop the capability CAP_NET_ADMIN"
    return UnusableError(f"the network for the sandbox cannot be made: {error.strerror}", needed)


def _server() -> bytes:
    """Return the host's first name server; as resolv.conf(5) says, without one it is the host itself."""
    servers = dns.servers() or ("127.0.0.1",)
    for server in servers:
        try:
            address = inet_pton(AF_INET, server)
        except OSError:
            continue
        if address[0] != _LOOPBACK[0] or _is_served(address):
            return address
    raise UnusableError(
        f"{dns.RESOLV_CONF} names no server with an IPv4 address to which packets can be passed on",
        f'add a line "nameserver ADDRESS" to {dns.RESOLV_CONF}',
    )


def _is_served(address: bytes) -> bool:
    """Tell whether somebody listens for names there: some have the host's own packets redirected instead.

    proc_pid_net(5): the local address is the second column, in the machine's order of bytes.
    """
    own = {f"{unpack('=I', item)[0]:08X}:{DNS:04X}".encode() for item in (address, bytes(4))}
    own.add(f"{0:032X}:{DNS:04X}".encode())
    return any(
        line.split()[1] in own
        for path in ("/proc/net/udp", "/proc/net/udp6")
        if os.path.exists(path)
        for line in syscalls.read_file(path).splitlines()[1:]
    )


def _uplink(channel: Channel) -> int:
    """Return the longest packet that goes to the internet; raises UnusableError when the host is no router.

    The kernel asks the interface on which a packet comes in: answers come in on the uplink.
    """
    way = rtnetlink.route(channel, _nobody(4))
    if way is None or not way[0]:
        forwards, mtu = _switched_on(_FORWARDING4), _DEFAULT_MTU
    else:
        uplink = rtnetlink.interface(channel, way[0])
        forwards, mtu = uplink.forwards, uplink.mtu
    if not forwards:
        raise UnusableError(
            "this machine forwards no packets (net.ipv4.ip_forward)",
            "sysctl -w net.ipv4.ip_forward=1 (and in /etc/sysctl.d to keep it)",
        )
    return mtu


def _nobody(size: int) -> bytes:
    return inet_pton(AF_INET if size == 4 else AF_INET6, _NOBODY[size])


def _forwards_ipv6(channel: Channel) -> bool:
    return (
        _switched_on(_FORWARDING6)
        and rtnetlink.route(channel, _nobody(16)) is not None
        and _is_free(channel, _FIRST6)
    )


def _switched_on(path: str) -> bool:
    try:
        return syscalls.read_file(path).strip() == b"1"
    except OSError:
        return False


def _is_free(channel: Channel, address: bytes) -> bool:
    """Tell whether no route but the default one leads to an address."""
    way = rtnetlink.route(channel, address)
    return way is None or way[1] == 0


class Pair:
    """A pair of interfaces and its rules; they go with the sandbox's namespace and with a channel.

    The rules are made first: what takes the kernel time does not make a sandbox wait.
    """

    tcp_dns = True

    def __init__(self, rules: Channel, limits: fence.Fence) -> None:
        """Take a number and make the rules. ``limits`` is what must stay out of reach.

        Raises UnusableError where this host lacks something; nothing is left then.
        """
        self._rules = rules
        self._limits = limits
        self._server = _server()
        self._channel = Channel(ROUTE)
        self._index = 0
        try:
            self._mtu = _uplink(self._channel)
            self._reserve(ipv6=_forwards_ipv6(self._channel))
        except OSError as error:
            raise _unusable(error) from None

    def connect(self, namespace: int) -> None:
        """Connect a network namespace (a descriptor).

        Raises UnusableError where the host's own rules forbid it too; nothing is left then.
        """
        try:
            passes = self._connect(namespace)
            if not passes and len(self._ends) > 1:
                self._undo()
                self._reserve(ipv6=False)
                passes = self._connect(namespace)
        except OSError as error:
            self._undo()
            raise _unusable(error) from None
        if not passes:
            self._undo()
            raise UnusableError(
                "a packet filter of this machine drops what sandboxes send",
                f"let it forward what is of interfaces named {_PREFIX}* (with Docker: "
                f"iptables -I DOCKER-USER -i {_PREFIX}+ -j ACCEPT, and the same with -o)",
            )

    def close(self) -> None:
        """Disconnect the sandbox, and let the rules go."""
        try:
            self._channel.request([rtnetlink.delete(self._index)])
        except OSError:
            pass  # it went with the sandbox's namespace
        self._rules.close()

    def _reserve(self, *, ipv6: bool) -> None:
        """Take a number, of which the kernel is the judge: nobody has a table of that name."""
        for _ in range(_TRIES):
            number = int.from_bytes(os.urandom(2), "big") % _COUNT
            self._name = f"{_PREFIX}{number}"
            self._ends = [(_ipv4(2 * number), _ipv4(2 * number + 1))]
            if ipv6:
                self._ends.append((_ipv6(2 * number), _ipv6(2 * number + 1)))
            if _exists(self._name) or not _is_free(self._channel, self._ends[0][0]):
                continue
            own = [inside for _, inside in self._ends]
            self._table = ruleset(self._name, self._server, self._limits, own)
            try:
                self._rules.request(self._table.transaction())
            except OSError as error:
                if error.errno != errno.EEXIST:
                    raise
            else:
                return
        raise UnusableError("the host has routes to all addresses that sandboxes could have")

    def _connect(self, namespace: int) -> bool:
        """Connect the namespace; tell whether the host's rules let it through."""
        self._channel.request([rtnetlink.add_veth(self._name, INTERFACE, namespace, self._mtu)])
        self._index = if_nametoindex(self._name)
        settings = [rtnetlink.FORWARDING]
        if self._server[0] == _LOOPBACK[0]:
            settings.append(rtnetlink.ROUTE_LOCALNET)
        messages = [rtnetlink.configure(self._index, *settings)]
        messages += _configured(self._index, [outside for outside, _ in self._ends])
        self._channel.request(messages)
        own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        syscalls.setns(namespace, syscalls.CLONE_NEWNET)
        try:
            self._connect_inside()
            _settle(self._channel, [outside for outside, _ in self._ends])
            _wait(lambda: rtnetlink.interface(self._channel, self._index).sends)
            return all(_passes(len(outside)) for outside, _ in self._ends if self._has_route(outside))
        finally:
            syscalls.setns(own, syscalls.CLONE_NEWNET)
            os.close(own)

    def _connect_inside(self) -> None:
        channel = Channel(ROUTE)
        messages = _configured(if_nametoindex(INTERFACE), [inside for _, inside in self._ends])
        messages += [rtnetlink.add_default_route(outside) for outside, _ in self._ends]
        channel.request(messages)
        _settle(channel, [inside for _, inside in self._ends])
        channel.close()

    def _has_route(self, outside: bytes) -> bool:
        """Tell whether there is an internet at the moment, without which nothing can be tried."""
        return rtnetlink.route(self._channel, _nobody(len(outside))) is not None

    def _undo(self) -> None:
        """Remove what there is."""
        self._rules.request(self._table.removal())
        if self._index:
            self._channel.request([rtnetlink.delete(self._index)])
            self._index = 0


def ruleset(name: str, server: bytes, limits: fence.Fence, own: list[bytes]) -> nftables.Table:
    """Return the host's rules for the sandbox behind an interface, with ``own`` addresses.

    ``server`` is the name server that answers for NAMESERVER.
    """
    table = nftables.Table(name, owned=True)
    fence.define(table, limits)
    accept, drop = (nftables.ACCEPT,), (nftables.DROP,)
    nobody = [_nobody(size) for size in _NOBODY]
    discovery = [(*nftables.icmpv6(kind), *accept) for kind in _NEIGHBOURS]
    asked = [(*nftables.to(_NAMESERVER), *nftables.port(kind, DNS)) for kind in (nftables.UDP, nftables.TCP)]
    passed_on = [(*nftables.to(server), *nftables.port(kind, DNS)) for kind in (nftables.UDP, nftables.TCP)]
    local = [
        (*nftables.to_one_of("local4", nftables.IPV4), *drop),
        (*nftables.to_one_of("local6", nftables.IPV6), *drop),
    ]
    foreign = [(*nftables.not_of(address), *drop) for address in own]
    if len(own) == 1:
        foreign.append((*nftables.family(nftables.IPV6), *drop))
    only_answers = [(*nftables.answers(), *accept), *discovery, drop]

    def probed(port: int) -> list[Rule]:
        return [(*nftables.to(address), *nftables.port(nftables.TCP, port)) for address in nobody]

    def base(chain: str, hook: int, priority: int, rules: list[Rule]) -> None:
        elsewhere = nftables.not_leaving if hook == nftables.OUTPUT else nftables.not_entering
        table.base_chain(chain, hook, priority, [(*elsewhere(name), *accept), *rules])

    base(
        "sent",
        nftables.PREROUTING,
        nftables.AFTER_CONNTRACK,
        [
            *foreign,
            *((*match, *accept) for match in (*asked, *probed(_HTTPS))),
            *((*match, nftables.RESET) for match in probed(_ARRIVED)),
            *discovery,
            (*nftables.not_unicast(), *drop),
            *local,
        ],
    )
    base("to-host", nftables.INPUT, nftables.LAST, [*((*m, *accept) for m in passed_on), *discovery, drop])
    base("from-host", nftables.OUTPUT, nftables.LAST, only_answers)
    table.chain("to-sandbox", only_answers)
    table.base_chain(
        "forwarded",
        nftables.FORWARD,
        nftables.LAST,
        [
            (*nftables.leaving(name), nftables.goto("to-sandbox")),
            (*nftables.not_entering(name), *accept),
            *((*match, nftables.RESET) for match in probed(_HTTPS)),
            *((*match, *accept) for match in passed_on),
            *local,
        ],
    )
    _translate(table, name, server, asked, own)
    return table


def _translate(table: nftables.Table, name: str, server: bytes, asked: list[Rule], own: list[bytes]) -> None:
    """Add what changes addresses: only the first packet of a connection passes these chains."""
    entering = nftables.entering(name)
    to_server = nftables.translate(server)
    rules = [(*entering, *match, *to_server) for match in asked]
    table.base_chain("names", nftables.PREROUTING, nftables.DNAT, rules, "nat")
    rules = [(*nftables.of(address), nftables.MASQUERADE) for address in own]
    table.base_chain("masquerade", nftables.POSTROUTING, nftables.SNAT, rules, "nat")
    if server[0] == 127:
        # Servers on the loopback answer the host only.
        rules = [(*entering, *nftables.translate(_LOOPBACK, source=True))]
        table.base_chain("as-host", nftables.INPUT, nftables.SNAT, rules, "nat")


def _ipv4(number: int) -> bytes:
    return bytes((*_FIRST, number >> 8, number & 0xFF))


def _ipv6(number: int) -> bytes:
    return _FIRST6[:12] + number.to_bytes(4, "big")


def _exists(name: str) -> bool:
    try:
        return if_nametoindex(name) > 0
    except OSError:
        return False


def _configured(index: int, addresses: list[bytes]) -> list[Message]:
    messages = [rtnetlink.without_link_local(index)] if len(addresses) > 1 else []
    messages += [rtnetlink.add_address(index, address, 8 * len(address) - 1) for address in addresses]
    return [*messages, rtnetlink.raise_link(index)]


def _settle(channel: Channel, addresses: list[bytes]) -> None:
    """Wait until a namespace takes in what is sent to its new addresses."""
    ends = [(0, 8 * len(address)) for address in addresses]
    _wait(lambda: [rtnetlink.route(channel, address) for address in addresses] == ends)


def _wait(settled: Callable[[], bool]) -> None:
    """Wait until the kernel's workers have done what they have been left: a moment, with others' work before.

    They have the host's end send (net/core/link_watch.c) and IPv6 addresses receive (addrconf_dad_work).
    Until then answers to ARP and neighbour discovery are lost, and asked for again after a second only.
    Where that takes longer, the probe will show.
    """
    deadline = time.monotonic() + _PROBE
    while not settled() and time.monotonic() < deadline:
        time.sleep(_LOOK)


def _passes(size: int) -> bool:
    """Tell whether the host forwards a connection, when nobody has an address in the host's own routes.

    Our rules answer two: the first behind all others, the second before them. With the second
    answered and not the first, something in between dropped it.
    """
    streams = [
        socket(AF_INET if size == 4 else AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)
        for _ in range(2)
    ]
    try:
        for stream, port in zip(streams, (_HTTPS, _ARRIVED), strict=True):
            stream.connect_ex((_NOBODY[size], port))
        for stream, patience in zip(reversed(streams), (_PROBE, 0.05), strict=True):
            poll = select.poll()
            poll.register(stream.fileno(), select.POLLOUT)
            poll.poll(patience * 1000)
        return bool(streams[0].getsockopt(SOL_SOCKET, SO_ERROR) == errno.ECONNREFUSED)
    finally:
        for stream in streams:
            stream.close()
