"""Text to a TOML document: parsing, and saying in plain words why a text does not parse."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import tomli

from coopfile.language.diagnostics import Diagnostic, Position, quoted
from coopfile.language.locate import MAX_DEPTH, Lines, Located, Path, Span, locate
from coopfile.language.sources import Source, decode
from coopfile.language.value_type import character
from coopfile.record import Record

# After so many syntax errors the rest is not worth reading.
_MAX_ERRORS = 20
_INT64 = range(-(2**63), 2**63)

_MEANT = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}


class Text(Record):
    """A source that has been read: its tables, where everything in it stands, and its problems.

    ``data`` is None when the source could not be read at all. ``cut`` says that parts
    of it had to be left out, so that what is missing may just not have been understood.
    """

    source: Source
    data: dict[str, Any] | None
    lines: Lines
    located: Located
    problems: tuple[Diagnostic, ...]
    cut: bool = False

    def at(self, span: Span) -> tuple[Position, str]:
        """Return the position of a stretch of the text, and the line that it begins on."""
        line, column = self.lines.position(span.start)
        return Position(self.source.name, line, column, span.end - span.start), self.lines.text(line)

    def place(self, path: Path, key: bool = False) -> tuple[Position | None, str | None]:
        """Return where the value at a path stands (or its key), or the nearest thing around it."""
        while path:
            first, second = self.located.values, self.located.keys
            span = (second.get(path) or first.get(path)) if key else (first.get(path) or second.get(path))
            if span:
                return self.at(span)
            path = path[:-1]
        return None, None

    def line(self, path: Path) -> int | None:
        """Return the line of what stands at a path."""
        position, _ = self.place(path, key=True)
        return position.line if position else None

    def problem(
        self,
        code: str,
        message: str,
        help: str | None,
        path: Path,
        key: bool = False,
        severity: str = "error",
    ) -> Diagnostic:
        """Return the diagnostic of what stands at a path."""
        return Diagnostic(severity, code, message, help, *self.place(path, key))


def read_text(source: Source) -> Text:
    """Decode and parse a source. Its problems are part of the result; nothing is raised."""
    text, problems = decode(source)
    if text is None:
        return Text(source, None, Lines(""), locate(""), tuple(problems))
    found = Text(source, None, Lines(text), locate(text), ())
    if found.located.too_deep:
        where = found.at(found.located.too_deep)
        message = f"nested more than {MAX_DEPTH} levels deep"
        problems.append(Diagnostic("error", "too-deep", message, None, *where))
        return found.replace(problems=tuple(problems))
    data, cut = _parse(text, found, problems)
    if data is not None:
        _clamp_integers(data)
    return found.replace(data=data, problems=tuple(problems), cut=cut)


def parse_value(text: str) -> tuple[bool, Any]:
    """Return whether a text is one TOML value, and the value."""
    document = f"value = {text}"
    if "\n" in text or locate(document).too_deep:
        return False, None
    try:
        data = tomli.loads(document)
    except ValueError:
        return False, None
    value = data["value"]
    if isinstance(value, int) and value not in _INT64:
        return False, None
    return True, value


def _parse(text: str, found: Text, problems: list[Diagnostic]) -> tuple[dict[str, Any] | None, bool]:
    """Parse, and go on behind an error if what comes there cannot depend on it."""
    cut = False
    for _ in range(_MAX_ERRORS):
        try:
            return tomli.loads(text), cut
        except tomli.TOMLDecodeError as error:
            pos = min(error.pos, len(text))
            problems.append(_explain(error.msg, pos, text, found))
        except ValueError:  # an integer of thousands of digits
            match = re.search(r"[0-9_]{1000,}|0x[0-9a-fA-F_]{1000,}", text)
            pos = match.start() if match else 0
            where = found.at(Span(pos, match.end() if match else 0))
            problems.append(Diagnostic("error", "syntax", "the number is too long", None, *where))
        cut = True
        text = _without_error(text, pos, found.located.statements)
    return None, True


def _without_error(text: str, pos: int, statements: Sequence[int]) -> str:
    """Return the text without the statement that has the error, all else at its old place.

    If that statement may reach over several lines, or decides where the following
    ones belong, everything behind it goes too.
    """
    start = max((offset for offset in statements if offset <= pos), default=0)
    end = text.find("\n", start)
    end = end if end >= 0 else len(text)
    statement = text[start:end]
    balanced = all(statement.count(left) == statement.count(right) for left, right in ("[]", "{}"))
    if start <= pos <= end and balanced and not re.match(r"\[|.*(\"\"\"|''')", statement):
        return text[:start] + " " * (end - start) + text[end:]
    return text[:start]


def _clamp_integers(data: dict[str, Any]) -> None:
    """Make integers beyond TOML's 64 bits just too large: some cannot even be printed.

    No setting accepts either, so they are still reported, each where it stands.
    """
    pending: list[dict[str, Any] | list[Any]] = [data]
    while pending:
        value = pending.pop()
        inner: Any = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in list(inner):
            if isinstance(item, dict | list):
                pending.append(item)
            elif isinstance(item, int):
                value[key] = item if item in _INT64 else 2**63 if item > 0 else -(2**63) - 1


def _explain(reason: str, pos: int, text: str, found: Text) -> Diagnostic:
    """Say what a parser's error means; ``pos`` is where it gave up."""
    for pattern, explain in _REASONS:
        if re.match(pattern, reason):
            message, help, span = explain(reason, pos, text, found)
            break
    else:
        message, help, span = reason[:1].lower() + reason[1:], None, Span(pos, pos + 1)
    return Diagnostic("error", "syntax", message, help, *found.at(span))


def _repeated(reason: str, pos: int, text: str, found: Text) -> _Explained:
    start = max((offset for offset in found.located.statements if offset <= pos), default=0)
    for path, first, second in found.located.repeated:
        if start <= second.start <= max(pos, start) or start <= second.end <= pos:
            name = _short(".".join(str(part) for part in path))
            line, _ = found.lines.position(first.start)
            return f"{name} is defined twice", f"the first time is on line {line}", second
    span = Span(start, _line_end(text, start))
    path = found.located.subjects.get(start, ())
    while path:
        earlier = found.located.keys.get(path)
        if earlier and earlier.start < start:
            line, _ = found.lines.position(earlier.start)
            name = _short(".".join(str(part) for part in path))
            return f"{name} is defined already, in another way", f"the first time is on line {line}", span
        path = path[:-1]
    return "this is defined already, in another way", None, span


def _bad_value(reason: str, pos: int, text: str, found: Text) -> _Explained:
    rest = text[pos : _line_end(text, pos)]
    word = re.match(r"[^\s,\]}#]*", rest)
    token = word[0] if word else ""
    span = Span(pos, pos + max(len(token), 1))
    if not token:
        return "there is no value here", 'such as "text", 42, true or ["a", "b"]', span
    if token in _MEANT:
        return f"{quoted(token)} is not a value", f"write {_MEANT[token]}", span
    if token[0] in "\0\x0b\x0c" or not token.isprintable():
        return f"there is {character(token[0])} in the text", None, Span(pos, pos + 1)
    if token in ("null", "nil", "none", "None"):
        return (
            f"TOML has no {token}",
            f"leave the key out, or write {quoted(token)} if the word is meant",
            span,
        )
    return f"{_short(token)} is not a value", f"strings are in quotes: {quoted(token)}", span


def _after_value(reason: str, pos: int, text: str, found: Text) -> _Explained:
    start = max((offset for offset in found.located.statements if offset <= pos), default=0)
    end = _line_end(text, pos)
    assignment = re.match(r"[^=\n]*=[ \t]*([^\"'\[{#\s][^#\n]*)", text[start:end])
    if assignment and start + assignment.start(1) <= pos and text[pos : pos + 1] != "\r":
        value = assignment[1].rstrip()
        span = Span(start + assignment.start(1), start + assignment.start(1) + len(value))
        if "=" not in value:
            return f"{_short(value)} is not a value", f"strings are in quotes: {quoted(value)}", span
    if text[pos : pos + 1] == "\r":
        return (
            "there is a carriage return without a line feed",
            "end lines with LF or CR LF",
            Span(pos, pos + 1),
        )
    return (
        "there is something behind the value",
        "one line has one key and its value",
        Span(pos, max(end, pos + 1)),
    )


def _no_equals(reason: str, pos: int, text: str, found: Text) -> _Explained:
    start = max((offset for offset in found.located.statements if offset <= pos), default=0)
    help = 'a key and its value are written key = "value"'
    if text[pos : pos + 1] == ":":
        help = f"TOML has = between them, not a colon; {help}"
    return f"there is no = behind {_short(text[start:pos].strip())}", help, Span(pos, pos + 1)


def _bad_character(reason: str, pos: int, text: str, found: Text) -> _Explained:
    char = text[pos : pos + 1]
    if char == "\n":
        return (
            "the string does not end on its line",
            'write \\n for a line feed, or use """',
            Span(pos, pos + 1),
        )
    name = character(char) if char else "something"
    return (
        f"there is {name} in the text",
        f"write it as \\u{ord(char or ' '):04x} where it is meant",
        Span(pos, pos + 1),
    )


def _unterminated(reason: str, pos: int, text: str, found: Text) -> _Explained:
    start = max((offset for offset in found.located.statements if offset <= pos), default=0)
    quote = re.search("[\"']", text[start:])
    at = start + quote.start() if quote else start
    return "the string has no closing quote", None, Span(at, _line_end(text, at))


def _bad_escape(reason: str, pos: int, text: str, found: Text) -> _Explained:
    at = max(text.rfind("\\", 0, pos), 0)
    help = "write two of them for a backslash, or the string in '…', where nothing is escaped"
    return "the backslash begins no escape that TOML knows", help, Span(at, max(pos, at + 1))


def _bad_key(reason: str, pos: int, text: str, found: Text) -> _Explained:
    char = text[pos : pos + 1]
    if char and not char.isprintable() and char != "\n":
        return f"there is {character(char)} in the text", None, Span(pos, pos + 1)
    help = 'a line is key = "value", [table], or begins with #; names of keys have letters, digits, - and _'
    return "expected a key", help, Span(pos, pos + 1)


def _unclosed(reason: str, pos: int, text: str, found: Text) -> _Explained:
    bracket, items = ("]", "items") if "array" in reason else ("}", "keys")
    return (
        f"there is neither a comma nor {bracket} here",
        f"{items} are separated by commas",
        Span(pos, pos + 1),
    )


def _no_bracket(reason: str, pos: int, text: str, found: Text) -> _Explained:
    bracket = "]]" if "]]" in reason else "]"
    return f"the name of the table is not closed with {bracket}", None, Span(pos, pos + 1)


def _short(text: str) -> str:
    return quoted(text)[1:-1]


def _line_end(text: str, pos: int) -> int:
    end = text.find("\n", pos)
    return end if end >= 0 else len(text)


_Explained = tuple[str, "str | None", Span]
_REASONS: tuple[tuple[str, Callable[[str, int, str, Text], _Explained]], ...] = (
    ("Cannot |Duplicate ", _repeated),
    ("Invalid value", _bad_value),
    ("Expected newline or end of document", _after_value),
    ("Expected '=' after a key", _no_equals),
    ("Illegal character|Found invalid character", _bad_character),
    ("Unterminated string|Expected [\"']['\"]+$", _unterminated),
    ("Unescaped|Escaped character|Invalid hex", _bad_escape),
    ("Invalid statement|Invalid initial character", _bad_key),
    ("Expected ']", _no_bracket),
    ("Unclosed ", _unclosed),
)
