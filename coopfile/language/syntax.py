"""Text to a TOML document: parsing, and saying in plain words why a text does not parse."""

from __future__ import annotations

import re
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
        self, code: str, message: str, help: str | None, path: Path, key: bool = False, severity: str = "error"
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
        problems += _drop_huge_integers(data, found)
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


def _without_error(text: str, pos: int, statements: Any) -> str:
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


def _drop_huge_integers(data: dict[str, Any], found: Text) -> list[Diagnostic]:
    """Take out integers that are not TOML's 64 bits wide: some cannot even be printed."""
    problems: list[Diagnostic] = []
    pending: list[tuple[Path, Any]] = [((), data)]
    while pending:
        path, value = pending.pop()
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in list(inner):
            if isinstance(item, dict | list):
                pending.append(((*path, key), item))
            elif isinstance(item, int) and item not in _INT64:
                message = "the number is out of range: TOML's integers have 64 bits"
                problems.append(found.problem("value", message, None, (*path, key)))
                value[key] = 0
    return problems
