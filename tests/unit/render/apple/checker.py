"""A reader of argv of Apple's ``container``, written from what its sources do with them.

It knows the flags of each verb and the format of each value, refuses what the command
line refuses (``RefusedError``), and otherwise says what it was told. It shares nothing with
``coopfile.render``. Source: apple/container 1.2.2, Sources/Services/ContainerAPIService/
Client/{Flags,Parser,Utility}.swift, Sources/ContainerCommands.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any


class RefusedError(Exception):
    """The command line, or the service behind it, would not take this."""


@dataclass(frozen=True)
class World:
    """The host's paths that exist."""

    directories: Collection[str] = ()
    files: Collection[str] = ()


@dataclass(frozen=True)
class Show:
    """What is mounted at a path of the sandbox: ``kind`` is bind, tmpfs, volume, mask or keep."""

    kind: str
    source: str
    target: str
    read_only: bool = False
    options: tuple[str, ...] = ()


@dataclass
class Call:
    """What an argv says: its verb, the values of its flags, and its positional arguments."""

    verb: str
    values: dict[str, list[Any]] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    subject: str = ""
    command: tuple[str, ...] = ()

    def one(self, name: str, default: Any = None) -> Any:
        """Return the value of a flag that counts once: the last."""
        return self.values.get(name, [default])[-1]

    @property
    def environment(self) -> dict[str, str | None]:
        """Return variables and their values; None is the host's, if it has one."""
        return dict(self.values.get("env", ()))

    @property
    def network(self) -> str:
        """Return the network: not naming one means the default one, with the internet."""
        return str(self.one("network", "default"))

    def process(self, entrypoint: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the command that an image with an entry point would run."""
        override = self.one("entrypoint", "")
        return ((override,) if override else tuple(entrypoint)) + self.command


def split(text: str, separator: str, most: int = -1, *, empty: bool = False) -> list[str]:
    """Split at characters as Swift does: at those that nothing combines with, empty parts left out."""
    parts: list[str] = []
    current = ""
    for index, character in enumerate(text):
        if character == separator and len(parts) != most and _alone(text, index):
            if current or empty:
                parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current] if current or empty else parts


def _alone(text: str, index: int) -> bool:
    after = text[index + 1 : index + 2]
    before = text[index - 1 : index] if index else ""
    combines = after and (
        unicodedata.category(after) in ("Mn", "Me", "Mc")
        or after in "\u200c\u200d\uff9e\uff9f\u0e33\u0eb3"
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or "\U000e0020" <= after <= "\U000e007f"
    )
    prepended = before and (
        before
        in "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\U000110bd\U000110cd"
        or before in "\U000111c2\U000111c3\U000113d1\U0001193f\U00011941\U00011a3a\U00011d46\U00011f02"
        or "\U00011a84" <= before <= "\U00011a89"
    )
    return not (combines or prepended)


def _number(text: str, low: int, high: int, what: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text) or not low <= int(text) <= high:
        raise RefusedError(f"{what}: {text!r}")
    return int(text)


def size(text: str) -> int:
    """Return bytes (Measurement+Parse.swift): a number, a letter, and perhaps b or ib."""
    found = re.fullmatch(r"([0-9.]+)\s*([a-z]?)(|b|ib)", text.strip().lower())
    if not found:
        raise RefusedError(f"size: {text!r}")
    try:
        number = float(found[1])
    except ValueError:
        raise RefusedError(f"size: {text!r}") from None
    units = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
    if found[2] not in units or (not found[2] and found[3]):
        raise RefusedError(f"unit: {text!r}")
    return int(number * 1024 ** units[found[2]])


def _memory(text: str, _: World) -> int:
    mebibytes = size(text) // 2**20
    if mebibytes < 200:
        raise RefusedError(f"minimum memory amount allowed is 200 MiB, not {text}")
    return mebibytes * 2**20


def _env(text: str, _: World) -> tuple[str, str | None]:
    parts = split(text, "=", 1, empty=True)
    if not parts[0]:
        raise RefusedError(f"no variable name in {text!r}")
    return (parts[0], parts[1] if len(parts) == 2 else None)


def _label(text: str, _: World) -> tuple[str, str]:
    if not text:
        raise RefusedError("label cannot be an empty string")
    parts = split(text, "=", 2)
    if len(parts) not in (1, 2):
        raise RefusedError(f"invalid label format {text}")
    return (parts[0], parts[1] if len(parts) == 2 else "")


_ULIMITS = (
    *("core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss"),
    *("rtprio", "rttime", "sigpending", "stack"),
)


def _ulimit(text: str, _: World) -> tuple[str, int, int]:
    parts = split(text, "=", 1)
    if len(parts) != 2 or parts[0].lower() not in _ULIMITS:
        raise RefusedError(f"ulimit: {text!r}")
    values = [
        2**64 - 1 if value in ("unlimited", "-1") else _number(value, 0, 2**64 - 1, "ulimit")
        for value in split(parts[1], ":", 1)
    ]
    if not values or values[0] > values[-1]:
        raise RefusedError(f"ulimit: {text!r}")
    return (parts[0].lower(), values[0], values[-1])


_KEYS = {
    **dict.fromkeys(("source", "src"), "source"),
    **dict.fromkeys(("target", "dst", "destination"), "target"),
    **dict.fromkeys(("readonly", "ro"), "ro"),
    **{key: key for key in ("type", "size", "mode")},
}


def _mount(text: str, world: World) -> Show:
    found = {"type": "virtiofs"}
    parts = split(text, ",")
    if not parts:
        raise RefusedError(f"invalid mount format: {text}")
    for part in parts:
        pair = split(part, "=", 2)
        key = _KEYS.get(pair[0] if pair else "")
        if key is None:
            raise RefusedError(f"unknown directive {part!r} in {text!r}")
        if key != "ro" and len(pair) != 2:
            raise RefusedError(f"invalid directive {part!r} in {text!r}")
        found[key] = "" if key == "ro" else pair[1]
    kind, source = found["type"], found.get("source")
    if kind not in ("bind", "virtiofs", "tmpfs", "volume"):
        raise RefusedError(f"unsupported mount type {kind}")
    if kind != "tmpfs" and found.keys() & {"size", "mode"}:
        raise RefusedError(f"unsupported option for a {kind} mount")
    if not found.get("target"):
        raise RefusedError("mount destination cannot be empty")
    options: tuple[str, ...] = ()
    if kind == "tmpfs":
        if source is not None:
            raise RefusedError("cannot specify source for tmpfs mount")
        if "size" in found:
            options += (f"size={size(found['size']) // 2**20 * 2**20}",)
        if "mode" in found:
            if not re.fullmatch("[0-7]{3,4}", found["mode"]):
                raise RefusedError(f"mode: {found['mode']}")
            options += (f"mode={found['mode']}",)
    elif kind in ("bind", "virtiofs"):
        if source is None or not source.startswith("/"):
            raise RefusedError(f"{source} is not an absolute path on the host")
        if source not in world.directories:
            raise RefusedError(f"path {source!r} is not a directory")
    return Show("bind" if kind == "virtiofs" else kind, source or "", found["target"], "ro" in found, options)


def _volume(text: str, world: World) -> Show:
    parts = split(text.lstrip(":"), ":")
    if len(parts) == 1:
        return Show("volume", "", parts[0])
    if len(parts) not in (2, 3):
        raise RefusedError(f"invalid volume format {text}")
    source, target = parts[:2]
    options = tuple(split(parts[2], ",")) if len(parts) == 3 else ()
    if "/" not in source and source not in (".", ".."):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", source):
            raise RefusedError(f"invalid volume name {source!r}")
        return Show("volume", source, target, "ro" in options, options)
    if source not in world.directories and source not in world.files:
        raise RefusedError(f"path {source!r} does not exist")
    return Show("bind", source, target, "ro" in options, options)


def _publish(text: str, _: World) -> tuple[str, int, int, str]:
    found = re.fullmatch(r"(?:(?:\[([^\]]*)\]|([^:].*)):)?([^:].*):([^:/]*)(?:/(.*))?", text)
    if not found or (found[5] or "tcp").lower() not in ("tcp", "udp"):
        raise RefusedError(f"invalid publish value: {text}")
    try:
        if found[1]:
            ipaddress.IPv6Address(found[1])
        elif found[2]:
            ipaddress.IPv4Address(found[2])
    except ValueError:
        raise RefusedError(f"invalid publish address: {text}") from None
    address = found[1] or found[2] or "0.0.0.0"
    ports = [_number(port, 2, 65535, "port") for port in found.group(3, 4)]
    return (address, ports[0], ports[1], (found[5] or "tcp").lower())


def _network(text: str, _: World) -> str:
    name, *properties = split(text, ",", empty=True)
    for item in properties:
        key, _equals, value = item.partition("=")
        if key == "mtu":
            _number(value, 1280, 65535, "mtu")
        elif key != "mac" or not re.fullmatch("(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}", value):
            raise RefusedError(f"network: {text!r}")
    if not name:
        raise RefusedError("network name cannot be empty")
    return name


def _path_in(text: str, _: World) -> str:
    trimmed = text
    while trimmed and (unicodedata.category(trimmed[0]) == "Zs" or trimmed[0] == "\t"):
        trimmed = trimmed[1:]
    while trimmed and (unicodedata.category(trimmed[-1]) == "Zs" or trimmed[-1] == "\t"):
        trimmed = trimmed[:-1]
    if trimmed.upper() != "NONE" and not trimmed.startswith("/"):
        raise RefusedError(f"path must be absolute: {text!r}")
    return trimmed if trimmed == "/" else trimmed.rstrip("/")


def _name(text: str, _: World = World()) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", text) or len(text) > 63:
        raise RefusedError(f"container ID {text!r} is not a valid container ID")
    return text


def _capability(text: str, _: World) -> str:
    if text.upper() != "ALL" and not re.fullmatch("(CAP_)?[A-Z_]+", text.upper()):
        raise RefusedError(f"capability: {text!r}")
    return text.upper()


def _user(text: str, _: World) -> str:
    if not re.fullmatch(r"[^:]+(:[^:]+)?", text):
        raise RefusedError(f"user: {text!r}")
    return text


def _choice(*names: str) -> Callable[[str, World], str]:
    def read(text: str, _: World) -> str:
        if text not in names:
            raise RefusedError(f"{text!r} is none of {names}")
        return text

    return read


def _integer(low: int, high: int) -> Callable[[str, World], int]:
    return lambda text, _: _number(text, low, high, "number")


def _text(text: str, _: World) -> str:
    return text


_PROCESS = {
    "env e": _env,
    "env-file": _text,
    "gid": _integer(0, 2**32 - 1),
    "uid": _integer(0, 2**32 - 1),
    "user u": _user,
    "ulimit": _ulimit,
    "workdir cwd w": _text,
}
_PROCESS_FLAGS = ("interactive i", "tty t")
_MANAGEMENT = {
    "cpus c": _integer(1, 2**31),
    "memory m": _memory,
    **dict.fromkeys(("arch a", "os", "platform", "cidfile", "init-image", "kernel k", "kernel-arg"), _text),
    **dict.fromkeys(("dns", "dns-domain", "dns-option", "dns-search", "runtime", "publish-socket"), _text),
    **dict.fromkeys(("cap-add", "cap-drop"), _capability),
    "entrypoint": _text,
    "label l": _label,
    **dict.fromkeys(("masked-path", "read-only-path"), _path_in),
    "mount": _mount,
    "name": _name,
    "network": _network,
    "publish p": _publish,
    "shm-size": lambda text, _: size(text),
    "tmpfs": lambda text, _: Show("tmpfs", "", text),
    "volume v": _volume,
    "scheme": _choice("http", "https", "auto"),
    "max-concurrent-downloads": _integer(1, 2**31),
}
_MANAGEMENT_FLAGS = (
    *("detach d", "init", "no-dns", "read-only", "rm remove", "rosetta", "ssh"),
    "virtualization",
)
_RUN_ONLY = {"progress": _choice("auto", "none", "ansi", "plain", "color")}

_VERBS: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    # verb: options, flags, and what the positional arguments are
    "run": ({**_PROCESS, **_MANAGEMENT, **_RUN_ONLY}, (*_PROCESS_FLAGS, *_MANAGEMENT_FLAGS), "image command"),
    "create": ({**_PROCESS, **_MANAGEMENT}, (*_PROCESS_FLAGS, *_MANAGEMENT_FLAGS), "image command"),
    "exec": (_PROCESS, (*_PROCESS_FLAGS, "detach d"), "name command!"),
    "start": ({}, ("attach a", "interactive i"), "name"),
    "stop": ({"signal s": _text, "time t": _integer(0, 2**31 - 1)}, ("all a",), "names"),
    "delete": ({}, ("all a", "force f"), "names"),
    "rm": ({}, ("all a", "force f"), "names"),
    "export": ({"output o": _text}, (), "name"),
    "build": (
        {
            **dict.fromkeys(("arch a", "os", "platform", "build-arg", "label l", "output o"), _text),
            **dict.fromkeys(("secret", "ssh", "target", "dns", "dns-domain", "dns-option"), _text),
            **{"dns-search": _text, "file f": _text, "tag t": _text, "cpus c": _integer(1, 2**31)},
            **{"memory m": lambda text, _: size(text), "progress": _choice("auto", "plain", "tty")},
        },
        ("no-cache", "quiet q", "pull"),
        "context",
    ),
    "image inspect": ({}, (), "image"),
    "image pull": (
        {
            **dict.fromkeys(("arch a", "os", "platform"), _text),
            **_RUN_ONLY,
            "scheme": _choice("http", "https", "auto"),
            "max-concurrent-downloads": _integer(1, 2**31),
        },
        (),
        "image",
    ),
    "list": ({"format": _choice("json", "table", "yaml", "toml")}, ("all a", "quiet q"), ""),
}


def read(argv: Sequence[str], world: World = World(), program: str = "container") -> Call:
    """Return what an argv says; raise RefusedError for one that the command line does not take."""
    if not argv or argv[0] != program:
        raise RefusedError(f"not {program}")
    words = list(argv[1:])
    for word in words:
        if "\0" in word or re.search("[\ud800-\udfff]", word):
            raise RefusedError(f"no argument can be {word!a}")
    verb = " ".join(words[:2]) if words[:1] == ["image"] else "".join(words[:1])
    if verb not in _VERBS:
        raise RefusedError(f"unknown verb {verb}")
    call = Call(verb)
    rest = _options(call, words[len(verb.split()) :], world)
    _positionals(call, rest, _VERBS[verb][2])
    _check(call)
    return call


def _options(call: Call, words: list[str], world: World) -> list[str]:
    """Read options up to the first positional argument, where ``captureForPassthrough`` begins."""
    options, flags, _ = _VERBS[call.verb]
    readers = {
        alias: (names.split()[0], reader) for names, reader in options.items() for alias in names.split()
    }
    known = {alias: names.split()[0] for names in flags for alias in names.split()}
    while words and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0)
        if word == "--":
            raise RefusedError("-- is the command's, or an image")
        dashes = 2 if word.startswith("--") else 1
        name, *joined = split(word[dashes:], "=", 1, empty=True)
        if (len(name) == 1) != (dashes == 1):
            raise RefusedError(f"unknown option {word!r}")
        if name in known and not joined:
            call.flags.add(known[name])
        elif name in readers:
            if not joined and (not words or (words[0].startswith("-") and words[0] != "-")):
                raise RefusedError(f"missing value for {word}")
            key, reader = readers[name]
            call.values.setdefault(key, []).append(reader(joined[0] if joined else words.pop(0), world))
        else:
            raise RefusedError(f"unknown option {word!r}")
    return words


def _positionals(call: Call, words: list[str], form: str) -> None:
    if not form:
        if words:
            raise RefusedError(f"unexpected {words}")
        return
    if not words or not words[0]:
        raise RefusedError(f"missing {form.split()[0]}")
    call.subject, rest = words[0], words[1:]
    if form.startswith("image") and not re.fullmatch(r"[a-z0-9][a-zA-Z0-9._/:@-]*", call.subject):
        raise RefusedError(f"not an image: {call.subject!r}")
    if form.startswith("name"):
        _name(call.subject)
    if "command" in form:
        # All of it is the command's, and nobody names a program --.
        if rest and rest[0] == "--" and not call.one("entrypoint"):
            raise RefusedError("-- after the image is the command's")
        if form.endswith("!") and not rest:
            raise RefusedError("no command specified for exec")
        call.command = tuple(rest)
    elif form == "names":
        for name in rest:
            _name(name)
    elif rest:
        raise RefusedError(f"unexpected {rest}")


def _check(call: Call) -> None:
    networks = call.values.get("network", [])
    if "none" in networks and len(networks) > 1:
        raise RefusedError("no other networks may be created along with network none")
    if "no-dns" in call.flags and any(key.startswith("dns") for key in call.values):
        raise RefusedError("--no-dns with DNS options")
    types = [kind for kind, _, _ in call.values.get("ulimit", [])]
    if len(set(types)) < len(types):
        raise RefusedError("duplicate ulimit type")
    ports = call.values.get("publish", [])
    if len(ports) > 64 or len({(port[1], port[3]) for port in ports}) < len(ports):
        raise RefusedError("too many published ports, or the same twice")
    if call.verb in ("stop", "delete", "rm") and "all" in call.flags:
        raise RefusedError("explicitly supplied container IDs conflict with the --all flag")
