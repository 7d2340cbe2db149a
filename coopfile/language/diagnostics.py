"""What is wrong with a Coopfile, where, and how to mend it: as text and as JSON."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from coopfile.errors import CoopError
from coopfile.record import Record

# The line, column and length of a position that is a source as a whole: a variable
# of the environment, an option, a file that is too long.
WHOLE = (0, 0, 0)

# How much of a line is shown, in columns of the terminal.
_WINDOW = 100
_TAB = 4
_CUT = "…"

_COLORS = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "bold": "\x1b[1m", "dim": "\x1b[2m"}
_PLAIN = "\x1b[0m"


class Position(Record):
    """A place in a source: line and column count from 1, in characters; line 0 is all of it.

    ``length`` is how many characters the thing has on that line and the next ones.
    """

    source: str
    line: int
    column: int
    length: int

    def __str__(self) -> str:
        """Return ``Coopfile:3:7``, or the source's name alone."""
        name = visible(self.source)
        return f"{name}:{self.line}:{self.column}" if self.line else name


class Diagnostic(Record):
    """One problem: what is wrong (``message``), and what to do (``help``).

    ``severity`` is error or warning; ``code`` is a stable name for programs;
    ``source_line`` is the raw text of the line, which may hold anything.
    """

    severity: str
    code: str
    message: str
    help: str | None = None
    position: Position | None = None
    source_line: str | None = None


class CoopfileError(CoopError):
    """A Coopfile, or what adds to it, has errors: all of them are in ``diagnostics``."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        """Take the problems in the order in which they are to be shown."""
        super().__init__(render(diagnostics))
        self.diagnostics = tuple(diagnostics)


def render(diagnostics: Iterable[Diagnostic], color: bool = False) -> str:
    """Return the problems as text for a terminal, one paragraph each, without a newline at the end."""
    return "\n".join(_render(diagnostic, color) for diagnostic in diagnostics)


def to_json(diagnostics: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    """Return the problems as JSON-able objects; line, column and length are null without a place."""
    objects = []
    for diagnostic in diagnostics:
        position = diagnostic.position
        placed = position is not None and position.line > 0
        objects.append(
            {
                "severity": diagnostic.severity,
                "code": diagnostic.code,
                "message": diagnostic.message,
                "help": diagnostic.help,
                "source": position.source if position else None,
                "line": position.line if position and placed else None,
                "column": position.column if position and placed else None,
                "length": position.length if position and placed else None,
            }
        )
    return objects


def visible(text: str) -> str:
    r"""Return the text with everything escaped that a terminal would not simply show.

    Escape sequences, control and format characters (which can reorder a line) and
    lone surrogates (bytes that were not UTF-8) come out as ``\x1b``, ``\u202e``.
    """
    if text.isprintable():
        return text
    return "".join(_visible(char) for char in text)


def quoted(value: object, limit: int = 60) -> str:
    """Return a value as it would stand in TOML, safe to print and not longer than ``limit`` or so."""
    if isinstance(value, str):
        short = value if len(value) <= limit else value[:limit] + _CUT
        return '"' + visible(short.replace("\\", "\\\\").replace('"', '\\"')) + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    return visible(str(value))[: limit + 20]


def _render(diagnostic: Diagnostic, color: bool) -> str:
    def paint(text: str, style: str) -> str:
        return f"{_COLORS[style]}{text}{_PLAIN}" if color else text

    where = f"{diagnostic.position}: " if diagnostic.position else ""
    severity = paint(f"{diagnostic.severity}:", diagnostic.severity)
    lines = [f"{paint(where, 'bold')}{severity} {paint(visible(diagnostic.message), 'bold')}"]
    position = diagnostic.position
    margin = " "
    if position is not None and position.line > 0 and diagnostic.source_line is not None:
        shown, before, width = _excerpt(diagnostic.source_line, position)
        number = str(position.line)
        margin = " " * (len(number) + 1)
        lines.append(paint(f" {number} | ", "dim") + shown)
        lines.append(paint(f"{margin} | ", "dim") + " " * before + paint("^" * width, diagnostic.severity))
    if diagnostic.help:
        lines.append(paint(f"{margin} = ", "dim") + f"help: {visible(diagnostic.help)}")
    return "\n".join(lines)


def _excerpt(line: str, position: Position) -> tuple[str, int, int]:
    """Return the part of a line to show, and where its caret starts and how wide it is, in columns."""
    start = min(position.column - 1, len(line))
    end = min(start + max(position.length, 1), len(line))
    if len(line) <= _WINDOW:
        cells = [_cell(char) for char in line]
        if _width(cells) <= _WINDOW:
            shown = "".join(text for text, _ in cells).rstrip()
            return shown, _width(cells[:start]), max(_width(cells[start:end]), 1)
    # Characters far from the caret are never looked at: a line may be a megabyte long.
    first = max(0, start - _WINDOW)
    last = min(len(line), min(end, start + _WINDOW) + _WINDOW)
    cells = [_cell(char) for char in line[first:last]]
    before, marked, after = cells[: start - first], cells[start - first : end - first], cells[end - first :]

    budget = _WINDOW
    marked, cut_marked = _fit(marked, budget)
    budget -= _width(marked)
    after_kept, cut_after = ([], True) if cut_marked else _fit(after, max(budget // 2, 10))
    before_kept, cut_before = _fit(before[::-1], max(budget - _width(after_kept), 10))
    before_kept.reverse()
    cut_before = cut_before or first > 0
    cut_after = cut_after or cut_marked or last < len(line)

    head = (_CUT if cut_before else "") + "".join(text for text, _ in before_kept)
    middle = "".join(text for text, _ in marked)
    tail = "".join(text for text, _ in after_kept) + (_CUT if cut_after else "")
    return (head + middle + tail).rstrip(), _width(before_kept) + cut_before, max(_width(marked), 1)


def _fit(cells: list[tuple[str, int]], columns: int) -> tuple[list[tuple[str, int]], bool]:
    used = 0
    for index, (_, width) in enumerate(cells):
        used += width
        if used > columns:
            return cells[:index], True
    return cells, False


def _width(cells: Iterable[tuple[str, int]]) -> int:
    return sum(width for _, width in cells)


def _cell(char: str) -> tuple[str, int]:
    """Return how a character is shown, and how many columns that takes."""
    if char == "\t":
        return " " * _TAB, _TAB
    if unicodedata.combining(char):
        return char, 0
    shown = _visible(char)
    if shown != char:
        return shown, len(shown)
    return char, 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _visible(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8, as surrogateescape keeps it
        return f"\\x{code - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")
