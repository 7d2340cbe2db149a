"""What a Seatbelt profile decides, under every reading of the order of its rules.

How the kernel chooses among rules that match is not documented, and has been measured
in part: the last match wins; but an unfiltered rule does not undo an earlier filtered
one, and a denied single operation is not allowed again by a later wildcard. A profile
whose meaning depends on more than is known is wrong here: ``Profile.allows`` fails
unless all readings agree. What the evaluator does not know is an error, never skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from coopfile.record import Record
from tests.unit.render.seatbelt.reader import Symbol, read

FILE_OPERATIONS = (
    "file-clone",
    "file-ioctl",
    "file-link",
    "file-map-executable",
    "file-read-data",
    "file-read-metadata",
    "file-read-xattr",
    "file-test-existence",
    "file-write-create",
    "file-write-data",
    "file-write-mode",
    "file-write-unlink",
    "file-write-xattr",
    "process-exec",
)
OPERATIONS = (
    *FILE_OPERATIONS,
    "iokit-get-properties",
    "iokit-open",
    "ipc-posix-sem",
    "ipc-posix-shm",
    "mach-lookup",
    "network-bind",
    "network-inbound",
    "network-outbound",
    "process-fork",
    "process-info-pidinfo",
    "pseudo-tty",
    "signal",
    "sysctl-read",
    "sysctl-write",
    "system-socket",
    "user-preference-read",
)
WILDCARDS = ("file-read*", "file-write*", "process-info*")


class Query(Record):
    """One thing that a process tries.

    ``path`` is that of a file or a UNIX socket, ``host`` and ``port`` the other end of a
    connection (or the own end of a listening socket), ``name`` that of a service or a
    sysctl, ``target`` whose process, ``domain`` and ``protocol`` a socket's, ``command``
    that of a file-ioctl. ``udp`` tells of datagrams.
    """

    operation: str
    path: str | None = None
    host: str | None = None
    port: int | None = None
    name: str | None = None
    vnode: str = "REGULAR-FILE"
    extensions: tuple[str, ...] = ()
    target: str = "others"
    domain: str = "AF_INET"
    protocol: int = 0
    command: int = 0
    udp: bool = False


class Rule(Record):
    """One rule: its filters are alternatives, none means everything."""

    allow: bool
    operations: tuple[str, ...]
    filters: tuple[object, ...]


class Match(Record):
    """A rule that matches a query, as far as it matters for precedence."""

    allow: bool
    filtered: bool
    specific: bool


class Style(Record):
    """How texts are compared: regular expressions on bytes or characters, and what subpath denies."""

    bytes: bool
    subpath_denies_itself: bool


STYLES = tuple(Style(by_bytes, itself) for by_bytes in (True, False) for itself in (True, False))


def _last(matches: Sequence[Match]) -> bool:
    return matches[-1].allow


def _filtered_first(matches: Sequence[Match]) -> Sequence[Match]:
    return [match for match in matches if match.filtered] or matches


def _specific_first(matches: Sequence[Match]) -> Sequence[Match]:
    return [match for match in matches if match.specific] or matches


def _specific_deny_sticks(matches: Sequence[Match]) -> Sequence[Match]:
    kept: list[Match] = []
    for match in matches:
        stuck = kept and kept[-1].specific and not kept[-1].allow
        if not (stuck and match.allow and not match.specific):
            kept.append(match)
    return kept


READINGS: dict[str, Callable[[Sequence[Match]], bool]] = {
    "last match": _last,
    "filtered before unfiltered": lambda found: _last(_filtered_first(found)),
    "a specific deny sticks": lambda found: _last(_specific_deny_sticks(found)),
    "specific before wildcard": lambda found: _last(_specific_first(found)),
    "filtered, then sticking": lambda found: _last(_specific_deny_sticks(_filtered_first(found))),
    "sticking, then filtered": lambda found: _last(_filtered_first(_specific_deny_sticks(found))),
    "filtered, then specific": lambda found: _last(_specific_first(_filtered_first(found))),
    "specific, then filtered": lambda found: _last(_filtered_first(_specific_first(found))),
    "any deny": lambda found: all(match.allow for match in found),
}


class DisagreementError(AssertionError):
    """The verdict depends on the reading."""


class Profile:
    """A profile with its parameters."""

    def __init__(self, text: str, parameters: dict[str, str]) -> None:
        self.forms = read(text)
        self._texts: dict[tuple[int, bool], str] = {}
        self._parameters = parameters
        self.strings: list[str] = []
        """The values of all path filters and regular expressions."""
        first = self.forms[0]
        assert isinstance(first, list) and first == ["version", Symbol("1")], "the version comes first"
        self.rules: list[Rule] = []
        self.messages: list[str | None] = []
        default = None
        for form in self.forms[1:]:
            assert isinstance(form, list) and form[0] in ("allow", "deny"), form
            rule = self._rule(form)
            if "default" in rule.operations:
                assert rule.operations == ("default",) and not rule.filters and default is None
                default = rule.allow
            else:
                self.rules.append(rule)
        assert default is False, "a profile denies by default"

    def allows(self, query: Query) -> bool:
        """Return the verdict. Raises DisagreementError when the readings differ."""
        assert query.operation in OPERATIONS, query.operation
        verdicts: dict[str, bool] = {}
        for style in STYLES:
            found = self._matches(query, style)
            for name, reading in READINGS.items():
                verdicts[f"{name}, {style}"] = reading(found) if found else False
        if len(set(verdicts.values())) != 1:
            raise DisagreementError(f"{query}: {verdicts}")
        return next(iter(verdicts.values()))

    def _rule(self, form: list[object]) -> Rule:
        operations: list[str] = []
        filters: list[object] = []
        message = None
        for part in form[1:]:
            if isinstance(part, Symbol):
                assert not filters, f"an operation after a filter: {form}"
                known = part == "default" or part in OPERATIONS or part in WILDCARDS
                assert known, f"unknown operation: {part}"
                operations.append(part)
            elif isinstance(part, list) and part[0] == "with":
                assert part[1] == "message" and isinstance(part[2], str) and len(part) == 3, part
                message = part[2]
            else:
                filters.append(part)
        assert operations, form
        self.messages.append(message)
        for filter in filters:
            for operation in operations:
                for concrete in (name for name in OPERATIONS if _covers(operation, name)):
                    # Looked at once by themselves, so that nothing unknown stays unseen.
                    self._true(filter, Query(concrete, path="/"), STYLES[0], deny=False)
        for filter in filters:
            self._collect(filter)
        return Rule(form[0] == "allow", tuple(operations), tuple(filters))

    def _collect(self, filter: object) -> None:
        assert isinstance(filter, list)
        for part in filter[1:]:
            if filter[0] in ("subpath", "literal", "regex"):
                self.strings.append(self._value(part))
            elif isinstance(part, list):
                self._collect(part)

    def _matches(self, query: Query, style: Style) -> list[Match]:
        found = []
        for rule in self.rules:
            names = [name for name in rule.operations if _covers(name, query.operation)]
            if not names:
                continue
            # Without a short cut: every filter has to make sense.
            verdicts = [self._true(filter, query, style, deny=not rule.allow) for filter in rule.filters]
            if verdicts and not any(verdicts):
                continue
            found.append(Match(rule.allow, bool(rule.filters), query.operation in names))
        return found

    def _true(self, filter: object, query: Query, style: Style, *, deny: bool) -> bool:
        assert isinstance(filter, list) and isinstance(filter[0], Symbol), f"not a filter: {filter}"
        kind, *parts = filter
        if kind in ("require-all", "require-any", "require-not"):
            inner = [self._true(part, query, style, deny=deny and kind != "require-not") for part in parts]
            assert inner and (kind != "require-not" or len(inner) == 1), filter
            return {"require-all": all(inner), "require-any": any(inner), "require-not": not inner[0]}[kind]
        operation = query.operation
        if kind in ("subpath", "literal", "regex"):
            assert operation in FILE_OPERATIONS or operation in ("network-bind", "network-outbound"), filter
            (part,) = parts
            return query.path is not None and self._path(str(kind), part, query.path, style, deny)
        if kind == "vnode-type":
            assert operation in FILE_OPERATIONS and parts[0] == "DIRECTORY", filter
            return bool(query.vnode == parts[0])
        if kind == "extension":
            assert operation in FILE_OPERATIONS, filter
            return parts[0] in query.extensions
        if kind in ("local", "remote"):
            return self._endpoint(str(kind), parts, query, style, deny)
        if kind in ("global-name", "sysctl-name", "sysctl-name-prefix", "iokit-registry-entry-class"):
            about = {"global-name": "mach-lookup", "iokit-registry-entry-class": "iokit-open"}
            assert operation.startswith(about.get(kind, "sysctl-")), filter
            wanted = self._text(parts[0], style)
            name = query.name or ""
            return name.startswith(wanted) if kind.endswith("-prefix") else name == wanted
        if kind == "target":
            assert parts == ["same-sandbox"], filter
            return query.target == "same-sandbox"
        if kind == "socket-domain":
            assert operation == "system-socket" and parts[0] in ("AF_SYSTEM", "AF_UNIX"), filter
            return bool(query.domain == parts[0])
        if kind == "ioctl-command":
            # A name is not bound on every macOS, and then the whole profile fails.
            assert operation == "file-ioctl" and str(parts[0]).isdecimal(), filter
            return query.command == int(str(parts[0]))
        if kind == "socket-protocol":
            assert operation == "system-socket", filter
            return query.protocol == int(str(parts[0]))
        raise AssertionError(f"unknown filter: {filter}")

    def _path(self, kind: str, part: object, path: str, style: Style, deny: bool) -> bool:
        text = self._text(part, style)
        if kind == "regex":
            subject = path.encode().decode("latin-1") if style.bytes else path
            assert text.startswith("^") and text.endswith("$") and "(?" not in text, text
            return re.search(text, subject, re.DOTALL) is not None
        if style.bytes:
            path = path.encode().decode("latin-1")
        assert text.startswith("/") and "//" not in text and "/./" not in text and "/../" not in text, text
        assert text == "/" or not text.endswith("/"), text
        if kind == "literal":
            return path == text
        below = path.startswith(text.rstrip("/") + "/")
        return below or (path == text and (style.subpath_denies_itself or not deny))

    def _endpoint(self, kind: str, parts: list[object], query: Query, style: Style, deny: bool) -> bool:
        if parts[0] == "unix-socket":
            wanted = "network-outbound" if kind == "remote" else "network-bind"
            assert query.operation == wanted and len(parts) == 2, parts
            return query.path is not None and self._true(parts[1], query, style, deny=deny)
        assert parts[0] in ("ip", "tcp") and len(parts) == 2, parts
        # (local ip …) on outbound is about the own end, and lets everything out.
        wanted_operations = ("network-outbound",) if kind == "remote" else ("network-bind", "network-inbound")
        assert query.operation in wanted_operations, f"({kind} ip …) on {query.operation}"
        host, _, port = self._text(parts[1], style).rpartition(":")
        assert host in ("*", "localhost"), "host must be * or localhost"
        assert port == "*" or 0 < int(port) < 65536, port
        if query.host is None or (parts[0] == "tcp" and query.udp):
            return False
        right_host = host == "*" or query.host in ("127.0.0.1", "::1")
        return right_host and port in ("*", str(query.port))

    def _text(self, form: object, style: Style) -> str:
        """Return the value of an expression; as bytes, one character is one byte."""
        key = (id(form), style.bytes)
        if key not in self._texts:
            value = self._value(form)
            self._texts[key] = value.encode().decode("latin-1") if style.bytes else value
        return self._texts[key]

    def _value(self, form: object) -> str:
        if isinstance(form, str) and not isinstance(form, Symbol):
            return form
        assert isinstance(form, list), f"expected pattern, got {form}"
        if form[0] == "param":
            assert len(form) == 2 and form[1] in self._parameters, "expected pattern, got boolean"
            return self._parameters[str(form[1])]
        if form[0] == "string-append":
            return "".join(self._value(part) for part in form[1:])
        if form[0] == "regex-quote":
            assert len(form) == 2
            return re.sub(r"[\\.^$*+?()\[\]{}|]", r"\\\g<0>", self._value(form[1]))
        raise AssertionError(f"unknown expression: {form}")


def _covers(name: str, operation: str) -> bool:
    return operation.startswith(name[:-1]) if name.endswith("*") else name == operation
