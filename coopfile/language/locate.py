"""Where every key and value of a TOML text stands.

No TOML library tells. This reads the text once more, knowing only where things
begin and end, not what they mean. It takes everything that a TOML parser takes,
up to the first error, and something beyond; so it also serves as the guard in
front of the parser, for what is nested so deeply that parsing it takes forever.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping, Sequence

from coopfile.record import Record

Path = tuple[str | int, ...]

# Tables within tables, lists within lists, parts of a dotted key. The language needs six.
MAX_DEPTH = 32

_BLANK = re.compile(r"(?:[ \t\n]+|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""[^"\\]*(?:(?:\\.|"{1,2}(?!"))[^"\\]*)*"{3,5}'
    r"|'''[^']*(?:'{1,2}(?!')[^']*)*'{3,5}"
    r'|"(?!"")[^"\\\n]*(?:\\.[^"\\\n]*)*"'
    r"|'(?!'')[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n\"']+")


class Span(Record):
    """A stretch of the text, as offsets of its characters; ``end`` is the first behind it."""

    start: int
    end: int


class Located(Record):
    """The places of keys and values, by path: ``("users", 0, "name")``.

    A table's value is its header, or what stands between its braces. ``statements``
    are the offsets at which statements begin, ``subjects`` the paths that those at an
    offset are about. ``repeated`` are (path, first, second)
    of keys and tables that are defined twice. ``too_deep`` is what is nested deeper
    than ``MAX_DEPTH``; nothing behind it was read. ``complete`` tells whether
    everything was.
    """

    keys: Mapping[Path, Span]
    values: Mapping[Path, Span]
    statements: Sequence[int]
    subjects: Mapping[int, Path]
    repeated: Sequence[tuple[Path, Span, Span]]
    too_deep: Span | None
    complete: bool


class Lines:
    """Turns offsets of a text into lines and columns, which count from 1."""

    def __init__(self, text: str) -> None:
        """Find the beginnings of the text's lines."""
        self._text = text
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        # A line may be long and have many problems: it is copied once.
        self._lines: dict[int, str] = {}

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset."""
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def text(self, line: int) -> str:
        """Return a line without its line feed."""
        if line not in self._lines:
            start = self._starts[line - 1]
            end = self._text.find("\n", start)
            self._lines[line] = self._text[start : end if end >= 0 else len(self._text)]
        return self._lines[line]


def locate(text: str) -> Located:
    """Return the places of the keys and values of a TOML text, as far as it can be read."""
    scanner = _Scanner(text)
    complete, too_deep = True, None
    try:
        scanner.document()
    except _TooDeep as error:
        complete, too_deep = False, error.span
    except _Stop:
        complete = False
    return Located(
        scanner.keys,
        scanner.values,
        scanner.statements,
        scanner.subjects,
        scanner.repeated,
        too_deep,
        complete=complete,
    )


class _Stop(Exception):  # not an error: a syntax error is the parser's to report
    pass


class _TooDeep(_Stop):
    def __init__(self, span: Span) -> None:
        self.span = span


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.keys: dict[Path, Span] = {}
        self.values: dict[Path, Span] = {}
        self.statements: list[int] = []
        self.subjects: dict[int, Path] = {}
        self.repeated: list[tuple[Path, Span, Span]] = []
        self.table: Path = ()
        self.lengths: dict[Path, int] = {}  # of arrays of tables
        self.headers: dict[Path, Span] = {}

    def document(self) -> None:
        while True:
            self.skip(_BLANK)
            if self.at >= len(self.text):
                return
            self.statements.append(self.at)
            if self.text[self.at] == "[":
                self.header()
            else:
                self.pair(self.table, len(self.table))

    def header(self) -> None:
        start = self.at
        double = self.text.startswith("[[", start)
        self.at += 2 if double else 1
        parts = self.key()
        self.expect("]]" if double else "]")
        path: Path = ()
        for index, (name, span) in enumerate(parts):
            path = (*path, name)
            self.keys.setdefault(path, span)
            last = index == len(parts) - 1
            if last and double:
                self.values.setdefault(path, Span(start, self.at))
                self.lengths[path] = self.lengths.get(path, 0) + 1
            if path in self.lengths:
                path = (*path, self.lengths[path] - 1)
                self.keys.setdefault(path, span)
            self.values.setdefault(path, Span(start, self.at) if last else span)
        span = Span(start, self.at)
        first = self.headers.setdefault(path, span)
        if first != span:
            self.repeated.append((path, first, span))
        self.values[path] = first
        self.table = path
        self.subjects[start] = path

    def pair(self, table: Path, depth: int) -> None:
        start = self.at
        parts = self.key()
        if depth + len(parts) > MAX_DEPTH:
            raise _TooDeep(parts[-1][1])
        self.expect("=")
        self.skip(_SPACE)
        path = table
        for name, span in parts[:-1]:
            path = (*path, name)
            self.keys.setdefault(path, span)
            self.values.setdefault(path, span)
        name, span = parts[-1]
        path = (*path, name)
        if path in self.values:
            self.repeated.append((path, self.keys[path], span))
        self.keys.setdefault(path, span)
        self.subjects[start] = path
        value = self.value(path, depth + len(parts))
        self.values.setdefault(path, value)

    def key(self) -> list[tuple[str, Span]]:
        parts: list[tuple[str, Span]] = []
        while True:
            self.skip(_SPACE)
            start = self.at
            match = _BARE.match(self.text, start) or _STRING.match(self.text, start)
            if not match:
                raise _Stop
            self.at = match.end()
            parts.append((_name(match[0]), Span(start, self.at)))
            if len(parts) > MAX_DEPTH:
                raise _TooDeep(Span(start, self.at))
            self.skip(_SPACE)
            if not self.text.startswith(".", self.at):
                return parts
            self.at += 1

    def value(self, path: Path, depth: int) -> Span:
        start = self.at
        if depth > MAX_DEPTH:
            raise _TooDeep(Span(start, start + 1))
        first = self.text[start : start + 1]
        if first == "[":
            self.array(path, depth)
        elif first == "{":
            self.inline_table(path, depth)
        else:
            match = _STRING.match(self.text, start) or _SCALAR.match(self.text, start)
            if not match:
                raise _Stop
            self.at = start + len(match[0].rstrip(" \t"))
        return Span(start, self.at)

    def array(self, path: Path, depth: int) -> None:
        self.at += 1
        index = 0
        while True:
            self.skip(_BLANK)
            if self.text.startswith("]", self.at):
                break
            inner = (*path, index)
            self.values[inner] = self.value(inner, depth + 1)
            index += 1
            self.skip(_BLANK)
            if not self.text.startswith(",", self.at):
                break
            self.at += 1
        self.expect("]")

    def inline_table(self, path: Path, depth: int) -> None:
        self.at += 1
        while True:
            self.skip(_BLANK)
            if self.text.startswith("}", self.at):
                break
            self.pair(path, depth)
            self.skip(_BLANK)
            if not self.text.startswith(",", self.at):
                break
            self.at += 1
        self.expect("}")

    def skip(self, what: re.Pattern[str]) -> None:
        match = what.match(self.text, self.at)
        assert match
        self.at = match.end()

    def expect(self, token: str) -> None:
        if not self.text.startswith(token, self.at):
            raise _Stop
        self.at += len(token)


def _name(token: str) -> str:
    if token[0] not in "\"'":
        return token
    if token[0] == "'" or "\\" not in token:
        return token[1:-1]
    import tomli

    try:
        name: str = tomli.loads(f"key = {token}")["key"]
    except tomli.TOMLDecodeError:
        raise _Stop from None
    return name
