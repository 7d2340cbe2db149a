"""nf_tables: packet filters and address translation, through netlink.

Constants and attributes: include/uapi/linux/netfilter/nf_tables.h; what an expression
does: nft(8). A rule is a run of expressions; each may end it, else the next one follows.
Numbers in attributes are big-endian.
"""

from __future__ import annotations

from _struct import pack

from coopfile.native.netlink import (
    F_ACK,
    F_APPEND,
    F_CREATE,
    F_EXCL,
    Message,
    attribute,
    nested,
    text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

IPV4, IPV6 = 2, 10
ICMP, TCP, UDP, ICMPV6 = 1, 6, 17, 58

PREROUTING, INPUT, FORWARD, OUTPUT, POSTROUTING = range(5)
# Where a chain stands among others at its hook: include/uapi/linux/netfilter_ipv4.h.
AFTER_CONNTRACK, DNAT, FILTER, SNAT, LAST = -150, -100, 0, 100, 1000

_INET = 1  # NFPROTO_INET: both families
_SUBSYSTEM = 10 << 8
_NEWTABLE, _DELTABLE, _NEWCHAIN, _NEWRULE, _NEWSET, _NEWSETELEM = 0, 2, 3, 6, 9, 12
_BATCH_BEGIN, _BATCH_END = 16, 17
_OWNED = 0x2  # NFT_TABLE_F_OWNER
_CONSTANT, _INTERVAL, _INTERVAL_END = 0x2, 0x4, 0x1
_VERDICT, _REGISTER = 0, 1
_DROP, _ACCEPT, _GOTO = 0, 1, -4
_EQUAL, _DIFFERENT = 0, 1
_NETWORK, _TRANSPORT = 1, 2  # headers
_IFNAMSIZ = 16
_IPV4_ADDRESS, _IPV6_ADDRESS = 7, 8  # what nft(8) shows keys as
_ELEMENTS = 1000  # in one message: the length of an attribute has 16 bits

Rule = tuple[bytes, ...]


def _number(kind: int, value: int) -> bytes:
    return attribute(kind, pack(">I", value & 0xFFFFFFFF))


def _data(kind: int, value: bytes) -> bytes:
    return nested(kind, attribute(1, value))  # NFTA_DATA_VALUE


def _expression(name: str, *attributes: bytes) -> bytes:
    return nested(1, text(1, name), nested(2, *attributes))  # NFTA_LIST_ELEM, NFTA_EXPR_NAME, NFTA_EXPR_DATA


def _compare(value: bytes, how: int) -> bytes:
    return _expression("cmp", _number(1, _REGISTER), _number(2, how), _data(3, value))


def _meta(key: int) -> bytes:
    return _expression("meta", _number(1, _REGISTER), _number(2, key))


def _payload(base: int, offset: int, size: int) -> bytes:
    return _expression(
        "payload", _number(1, _REGISTER), _number(2, base), _number(3, offset), _number(4, size)
    )


def _interface(key: int, name: str, how: int) -> Rule:
    return (_meta(key), _compare(name.encode().ljust(_IFNAMSIZ, b"\0"), how))


def entering(name: str) -> Rule:
    """Match what came in through an interface."""
    return _interface(6, name, _EQUAL)  # NFT_META_IIFNAME


def leaving(name: str) -> Rule:
    """Match what goes out through an interface."""
    return _interface(7, name, _EQUAL)  # NFT_META_OIFNAME


def not_entering(name: str) -> Rule:
    """Match what came in elsewhere."""
    return _interface(6, name, _DIFFERENT)


def not_leaving(name: str) -> Rule:
    """Match what goes out elsewhere."""
    return _interface(7, name, _DIFFERENT)


def family(version: int) -> Rule:
    """Match IPV4 or IPV6."""
    return (_meta(15), _compare(bytes([version]), _EQUAL))  # NFT_META_NFPROTO


def _address(size: int, *, source: bool) -> bytes:
    if size == 4:
        return _payload(_NETWORK, 12 if source else 16, 4)
    return _payload(_NETWORK, 8 if source else 24, 16)


def _version(address: bytes) -> int:
    return IPV4 if len(address) == 4 else IPV6


def to(address: bytes) -> Rule:
    """Match packets to an address."""
    match = (_address(len(address), source=False), _compare(address, _EQUAL))
    return (*family(_version(address)), *match)


def of(address: bytes) -> Rule:
    """Match packets from an address."""
    match = (_address(len(address), source=True), _compare(address, _EQUAL))
    return (*family(_version(address)), *match)


def not_of(address: bytes) -> Rule:
    """Match packets of an address's family that are from another one."""
    match = (_address(len(address), source=True), _compare(address, _DIFFERENT))
    return (*family(_version(address)), *match)


def to_one_of(name: str, version: int) -> Rule:
    """Match packets to the addresses of a set of one family."""
    return (*family(version), _address(_size(version), source=False), _lookup(name))


def _size(version: int) -> int:
    return 4 if version == IPV4 else 16


def _lookup(name: str) -> bytes:
    return _expression("lookup", text(1, name), _number(2, _REGISTER))


def protocol(number: int) -> Rule:
    """Match packets of TCP, UDP, ICMP or ICMPV6."""
    return (_meta(16), _compare(bytes([number]), _EQUAL))  # NFT_META_L4PROTO


def port(number: int, destination: int) -> Rule:
    """Match packets of TCP or UDP to a port."""
    return (*protocol(number), _payload(_TRANSPORT, 2, 2), _compare(pack(">H", destination), _EQUAL))


def icmpv6(kind: int) -> Rule:
    """Match one type of ICMPv6, such as 135 and 136, neighbour discovery: RFC 4861."""
    match = (_payload(_TRANSPORT, 0, 1), _compare(bytes([kind]), _EQUAL))
    return (*family(IPV6), *protocol(ICMPV6), *match)


def not_unicast() -> Rule:
    """Match packets to what is no single machine's address, or one of this machine's own."""
    # NFT_FIB_RESULT_ADDRTYPE, NFTA_FIB_F_DADDR; RTN_UNICAST
    fib = _expression("fib", _number(1, _REGISTER), _number(2, 3), _number(3, 0x2))
    return (fib, _compare(pack("=I", 1), _DIFFERENT))


def answers() -> Rule:
    """Match packets of connections that exist, and errors about them."""
    mask = pack("=I", 0x2 | 0x4)  # NF_CT_STATE_BIT of established and related
    load = _expression("ct", _number(1, _REGISTER), _number(2, 0))  # NFT_CT_STATE
    registers = (_number(1, _REGISTER), _number(2, _REGISTER), _number(3, 4))
    masked = _expression("bitwise", *registers, _data(4, mask), _data(5, bytes(4)))
    return (load, masked, _compare(bytes(4), _DIFFERENT))


def _verdict(code: int, chain: str | None = None) -> bytes:
    verdict = _number(1, code) + (text(2, chain) if chain else b"")
    return _expression("immediate", _number(1, _VERDICT), nested(2, nested(2, verdict)))


ACCEPT = _verdict(_ACCEPT)
DROP = _verdict(_DROP)
# Answers that a program understands at once: "connection refused", and "prohibited by an administrator".
RESET = _expression("reject", _number(1, 1), attribute(2, b"\0"))  # NFT_REJECT_TCP_RST
PROHIBIT = _expression("reject", _number(1, 2), attribute(2, b"\3"))  # NFT_REJECT_ICMPX_UNREACH
MASQUERADE = _expression("masq")


def goto(chain: str) -> bytes:
    """Go on in another chain, and do not come back."""
    return _verdict(_GOTO, chain)


def translate(address: bytes, *, source: bool = False) -> Rule:
    """Give packets another destination, or another source."""
    load = _expression("immediate", _number(1, _REGISTER), _data(2, address))
    numbers = (_number(1, 0 if source else 1), _number(2, _version(address)), _number(3, _REGISTER))
    return (load, _expression("nat", *numbers))


class Table:
    """One table of both families, put together here and handed over in one transaction."""

    def __init__(self, name: str, *, owned: bool) -> None:
        """Begin. The kernel removes an ``owned`` one when the channel that made it is closed."""
        self._name = name
        flags = _number(2, _OWNED) if owned else b""
        self._messages = [self._message(_NEWTABLE, F_CREATE | F_EXCL, text(1, name) + flags)]

    def chain(self, name: str, rules: Sequence[Rule]) -> None:
        """Add a chain that others go to."""
        self._add_chain(name, b"", rules)

    def base_chain(
        self, name: str, hook: int, priority: int, rules: Sequence[Rule], kind: str = "filter"
    ) -> None:
        """Add a chain at a hook of the kernel's: a ``filter`` or a ``nat``. What no rule ends is accepted."""
        place = nested(4, _number(1, hook), _number(2, priority))
        self._add_chain(name, place + _number(5, _ACCEPT) + text(7, kind), rules)

    def _add_chain(self, name: str, place: bytes, rules: Sequence[Rule]) -> None:
        names = text(1, self._name) + text(3, name)
        self._messages.append(self._message(_NEWCHAIN, F_CREATE | F_EXCL, names + place))
        names = text(1, self._name) + text(2, name)
        for rule in rules:
            body = names + nested(4, *rule)
            self._messages.append(self._message(_NEWRULE, F_CREATE | F_APPEND, body))

    def ranges(self, name: str, ranges: Iterable[tuple[bytes, bytes]]) -> None:
        """Add a set of addresses of one family, by the first and last of each range, in order."""
        keys: list[tuple[bytes, int]] = []
        for first, last in ranges:
            if keys and keys[-1] == (first, _INTERVAL_END):
                keys.pop()  # one range goes on where the one before ends
            else:
                keys.append((first, 0))
            after = int.from_bytes(last, "big") + 1
            if after < 1 << 8 * len(last):
                keys.append((after.to_bytes(len(last), "big"), _INTERVAL_END))
        self._set(name, _CONSTANT | _INTERVAL, keys)

    def _set(self, name: str, flags: int, keys: list[tuple[bytes, int]]) -> None:
        number = len(self._messages)
        size = len(keys[0][0])
        names = text(1, self._name) + text(2, name)
        kind = _IPV4_ADDRESS if size == 4 else _IPV6_ADDRESS
        body = names + _number(3, flags) + _number(4, kind) + _number(5, size) + _number(10, number)
        self._messages.append(self._message(_NEWSET, F_CREATE | F_EXCL, body))
        for start in range(0, len(keys), _ELEMENTS):
            elements = [
                nested(1, _data(1, key), *([_number(3, flag)] if flag else []))
                for key, flag in keys[start : start + _ELEMENTS]
            ]
            body = names + nested(3, *elements) + _number(4, number)
            self._messages.append(self._message(_NEWSETELEM, F_CREATE, body))

    @staticmethod
    def _message(kind: int, flags: int, attributes: bytes) -> Message:
        return Message(_SUBSYSTEM | kind, flags, pack(">BBH", _INET, 0, 0) + attributes)

    def removal(self) -> list[Message]:
        """Return the messages that remove the table."""
        return _transaction([self._message(_DELTABLE, F_ACK, text(1, self._name))])

    def transaction(self) -> list[Message]:
        """Return the messages that make the table, all of it or nothing."""
        *others, last = self._messages
        return _transaction([*others, last.replace(flags=last.flags | F_ACK)])


def _transaction(messages: list[Message]) -> list[Message]:
    frame = pack(">BBH", 0, 0, 10)  # NFNL_SUBSYS_NFTABLES
    return [Message(_BATCH_BEGIN, 0, frame), *messages, Message(_BATCH_END, 0, frame)]
