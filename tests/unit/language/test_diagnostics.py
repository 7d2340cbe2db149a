"""How problems look on a terminal and as JSON."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.errors import CoopError
from coopfile.language.diagnostics import (
    WHOLE,
    CoopfileError,
    Diagnostic,
    Position,
    quoted,
    render,
    to_json,
    visible,
)


def problem(line: str, column: int, length: int, number: int = 3) -> Diagnostic:
    """Return a problem on a line."""
    return Diagnostic("error", "value", "bad", "mend it", Position("Coopfile", number, column, length), line)


def columns(text: str) -> int:
    """Return how many columns a terminal needs for a text."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def underlined(diagnostic: Diagnostic) -> str:
    """Return what of the shown line stands above the caret, column by column."""
    _, source, caret, *_ = render([diagnostic]).split("\n")
    before = columns(caret[: caret.index("^")])
    found, at = "", 0
    for char in source:
        if before <= at < before + caret.count("^") and columns(char):
            found += char
        at += columns(char)
    return found


def test_a_problem_has_place_line_caret_and_help() -> None:
    """The whole form, to the letter."""
    assert render([problem('memory = "2 gb"', 10, 6)]) == (
        'Coopfile:3:10: error: bad\n 3 | memory = "2 gb"\n   |          ^^^^^^\n   = help: mend it'
    )


def test_a_problem_of_a_whole_source_has_no_line() -> None:
    """A variable or an option is named, and nothing more."""
    found = Diagnostic("error", "value", "bad", None, Position("COOP_NETWORK_MODE", *WHOLE))
    assert render([found]) == "COOP_NETWORK_MODE: error: bad"


def test_colours_add_nothing_but_escape_sequences() -> None:
    """Without them the text is the plain one."""
    found = problem("abc", 2, 1)
    colored = render([found], color=True)
    for code in ("\x1b[1;31m", "\x1b[1m", "\x1b[2m", "\x1b[0m"):
        assert code in colored
        colored = colored.replace(code, "")
    assert colored == render([found])


@pytest.mark.parametrize(
    ("line", "column", "length", "marked"),
    [
        ("\tkey = 1", 2, 3, "key"),
        ("a\tb\tkey", 5, 3, "key"),
        ('name = "漢字" # key', 15, 3, "key"),
        ('name = "漢字"', 9, 2, "漢字"),
        ("e\u0301e\u0301 key", 6, 3, "key"),
        ("x" * 5000 + "key" + "y" * 5000, 5001, 3, "key"),
        ("漢" * 500 + "key" + "\t" * 500, 501, 3, "key"),
        ("key", 1, 3, "key"),
        ("ab\x1b[31mkey", 8, 3, "key"),
    ],
)
def test_the_caret_stands_below_what_is_wrong(line: str, column: int, length: int, marked: str) -> None:
    """Tabs, wide, combining and escaped characters, and long lines do not shift it."""
    assert underlined(problem(line, column, length)) == marked


def test_a_long_line_is_cut_around_the_problem() -> None:
    """A line of a megabyte takes one line of the terminal, and both ends show that they were cut."""
    text = render([problem("x" * 500_000 + "key" + "y" * 500_000, 500_001, 3)])
    source = text.split("\n")[1]
    assert len(source) < 120
    assert source.startswith(" 3 | …x") and source.endswith("y…") and "key" in source


def test_a_long_value_is_cut_too() -> None:
    """The caret ends where the shown part of the line ends."""
    _, source, caret, _ = render([problem("x" * 100_000, 1, 100_000)]).split("\n")
    assert len(source) < 120 and len(caret) <= len(source)


def test_a_place_behind_the_end_of_the_line_has_a_caret() -> None:
    """Where something is missing there is nothing to underline."""
    assert render([problem("a =", 4, 1)]).split("\n")[2] == "   |    ^"


@given(
    st.text(alphabet=st.characters(), max_size=150),
    st.integers(1, 160),
    st.integers(0, 200),
    st.text(alphabet=st.characters(), min_size=1, max_size=20),
)
def test_nothing_of_a_file_reaches_the_terminal_raw(line: str, column: int, length: int, text: str) -> None:
    """Whatever a line, a name or a message holds, only printable characters come out."""
    position = Position(text, 1, column, length)
    shown = render([Diagnostic("error", "value", text, text, position, line)])
    assert all(char.isprintable() or unicodedata.combining(char) for char in shown.replace("\n", ""))
    assert len(shown.split("\n")) == 4


def test_escapes_are_shown_as_what_they_are() -> None:
    """Control characters, reordering characters and bytes that are not UTF-8 can be told apart."""
    assert visible("a\x1b[2J\u202e\udcffé\n") == "a\\x1b[2J\\u202e\\xffé\\n"


def test_quoting_keeps_values_short_and_closed() -> None:
    """A quote inside is escaped, and a long text is cut."""
    assert quoted('a"b\\') == '"a\\"b\\\\"'
    assert len(quoted("x" * 1000)) < 70


def test_the_error_carries_all_problems_and_their_text() -> None:
    """It is an error like coop's others, for those who do not know more."""
    found = [problem("a", 1, 1), problem("b", 1, 1, 4)]
    error = CoopfileError(found)
    assert isinstance(error, CoopError)
    assert error.diagnostics == tuple(found) and error.message == render(found)


def test_json_has_every_fact() -> None:
    """Places are numbers, and null where there is none."""
    whole = Diagnostic("warning", "user", "w", None, Position("--set x", *WHOLE))
    assert json.loads(json.dumps(to_json([problem("abc", 2, 1), whole, Diagnostic("error", "x", "y")]))) == [
        {
            "severity": "error",
            "code": "value",
            "message": "bad",
            "help": "mend it",
            "source": "Coopfile",
            "line": 3,
            "column": 2,
            "length": 1,
        },
        {
            "severity": "warning",
            "code": "user",
            "message": "w",
            "help": None,
            "source": "--set x",
            "line": None,
            "column": None,
            "length": None,
        },
        {
            "severity": "error",
            "code": "x",
            "message": "y",
            "help": None,
            "source": None,
            "line": None,
            "column": None,
            "length": None,
        },
    ]
