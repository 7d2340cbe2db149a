"""What every type of value shares: its schema, its parser, its printer, and its error."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from coopfile.language.diagnostics import quoted
from coopfile.record import Record

# Characters that change the direction of what follows them: a line that is shown
# for approval must read as it will be executed.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


# Line and paragraph separator, which YAML takes for the end of a line.
_BREAKS = "\u2028\u2029"


class Problem(Record):
    """One thing that is wrong with a value; ``path`` leads to it inside the raw value.

    With ``at_key`` it is the last key of the path that is wrong, not what stands there.
    """

    message: str
    help: str | None
    path: tuple[str | int, ...]
    at_key: bool = False


class BadValue(Exception):  # it says what is bad; CoopErrors say "error"
    """A value that its type refuses, for one reason or, in a list or table, for several."""

    def __init__(
        self,
        message: str,
        help: str | None = None,
        path: tuple[str | int, ...] = (),
        at_key: bool = False,
    ) -> None:
        """Take the one problem that there is, in ``Problem``'s terms."""
        super().__init__(message)
        self.problems: tuple[Problem, ...] = (Problem(message, help, path, at_key),)

    @classmethod
    def several(cls, problems: Sequence[Problem]) -> BadValue:
        """Return the error that stands for all of the problems; there is at least one."""
        error = cls(problems[0].message)
        error.problems = tuple(problems)
        return error

    @property
    def message(self) -> str:
        """What is wrong, first of all."""
        return self.problems[0].message

    @property
    def help(self) -> str | None:
        """What to do about the first problem."""
        return self.problems[0].help

    @property
    def path(self) -> tuple[str | int, ...]:
        """The keys and indexes that lead to the first problem inside the raw value."""
        return self.problems[0].path

    def below(self, *path: str | int) -> list[Problem]:
        """Return the problems as those of a value that stands at ``path`` in another one."""
        return [problem.replace(path=(*path, *problem.path)) for problem in self.problems]


class ValueType:
    """Checks a raw TOML value, and turns it into the form that it has in settings and plans."""

    #: Whether a variable or an option may give the value as it is, without TOML's quotes.
    takes_text = True

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value; it refuses nothing that ``parse`` accepts."""
        return {"type": "string"}

    def parse(self, raw: object) -> Any:
        """Return the typed value. Raises BadValue."""
        raise NotImplementedError

    def show(self, value: Any) -> str:
        """Return a typed value as one would write it in a Coopfile."""
        return toml_string(str(value))

    def finish(self, items: Sequence[Any]) -> list[Problem]:
        """Return what is wrong with a list of these values, each of which is right by itself."""
        return []


def check_string(raw: object, what: str, example: str, multiline: bool = False) -> str:
    """Return ``raw`` if it is a string that is safe to hand on; ``what`` names it, as in ``a size``.

    Control characters are refused (with ``multiline``, save tabs and line feeds), and
    so are those that reorder a line and bytes that are not UTF-8. Without
    ``multiline``, so are other line breaks, and what is empty or begins or ends with a space.
    """
    if not isinstance(raw, str):
        raise BadValue(f"expected {what}, a string such as {example}, not {describe(raw)}")
    allowed, refused = ("\t\n", "") if multiline else ("", _BREAKS)
    for char in "" if raw.isprintable() else raw:
        if char in refused or not (_harmless(char) or char in allowed):
            raise BadValue(f"{what} may not have {character(char)} in it")
    if not multiline and not raw.strip():
        raise BadValue(f"{what} may not be empty", f"such as {example}")
    if not multiline and raw != raw.strip():
        raise BadValue(f"{quoted(raw)} begins or ends with a space", f"write {quoted(raw.strip())}")
    return raw


def character(char: str) -> str:
    """Return the name of a character that cannot be shown."""
    code = ord(char)
    if 0xD800 <= code <= 0xDFFF:
        return f"a byte that is not UTF-8 (0x{code & 0xFF:02x})"
    names = {0: "a NUL", 0x1B: "an escape", 0x09: "a tab", 0x0A: "a line feed", 0x0D: "a carriage return"}
    if char in _BREAKS:
        return f"a line break (U+{code:04X})"
    kind = "a character that changes the direction of writing" if char in _BIDI else "a control character"
    return f"{names.get(code, kind)} (U+{code:04X})"


def describe(raw: object) -> str:
    """Return what a raw TOML value is, for the end of "not …"."""
    if isinstance(raw, str):
        return f"the string {quoted(raw)}"
    if isinstance(raw, bool):
        return f"the boolean {quoted(raw)}"
    if isinstance(raw, int):
        return f"the integer {raw}" if abs(raw) < 2**63 else "an integer of more than 64 bits"
    if isinstance(raw, float):
        return f"the number {raw}"
    if isinstance(raw, dict):
        return "a table"
    if isinstance(raw, list | tuple):
        return "an array"
    if isinstance(raw, datetime.date | datetime.time):
        return "a date or time"
    return quoted(raw)


def toml_string(text: str) -> str:
    """Return a text as a TOML basic string, in which everything unprintable is escaped."""
    return '"' + "".join(_escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    short = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}.get(char)
    if short or char.isprintable():
        return short or char
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _harmless(char: str) -> bool:
    code = ord(char)
    return not (code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code <= 0xDFFF or char in _BIDI)
