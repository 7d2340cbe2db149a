"""Texts that are not TOML, and bytes that are not text: what is said about them."""

from __future__ import annotations

import pytest

from coopfile.language.sources import MAX_BYTES
from tests.unit.language.texts import marked, problem, problems, settings


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "\r\n", "coop = 1"])
def test_an_empty_file_means_the_defaults(text: str) -> None:
    """Every key is optional."""
    assert settings(text).values == settings().values


def test_windows_line_ends_are_fine_and_do_not_move_positions() -> None:
    """CR LF is one line end."""
    assert settings('coop = 1\r\n[limits]\r\nmemory = "1g"\r\n').value("limits.memory") == 1 << 30
    assert marked(problem("coop = 1\r\n[limits]\r\npids = true\r\n")) == "3:true"


def test_a_carriage_return_alone_is_an_error() -> None:
    """Some programs would show two lines where the parser sees one."""
    found = problem('network.mode = "none"\rcoop = 1')
    assert "carriage return" in found.message
    assert found.position and (found.position.line, found.position.column) == (1, 22)


def test_a_byte_order_mark_is_named_and_the_rest_is_read() -> None:
    """The mark is one problem, and does not hide others."""
    found = problems(b"\xef\xbb\xbfpids = 1")
    assert [one.code for one in found] == ["bom", "unknown-key"]
    assert "byte order mark" in found[0].message


@pytest.mark.parametrize("mark", [b"\xff\xfe", b"\xfe\xff"])
def test_utf_16_is_named(mark: bytes) -> None:
    """Its mark is recognised, whatever follows."""
    assert "UTF-16" in problem(mark + b"c\0o\0o\0p\0").message


@pytest.mark.parametrize(
    ("text", "line", "column", "byte"),
    [
        (b"\xff", 1, 1, "0xff"),
        (b"a = 1\n# \xc3\xa9\xc3\xa9 \x80", 2, 6, "0x80"),
        (b"a = 1\r\nb = '\xc3", 2, 6, "0xc3"),
        (b"# \xed\xa0\x80", 1, 3, "0xed"),
    ],
)
def test_the_first_bad_byte_is_located(text: bytes, line: int, column: int, byte: str) -> None:
    """Columns count characters, so that an editor finds the place."""
    found = problem(text)
    assert found.position and (found.position.line, found.position.column) == (line, column)
    assert byte in found.message


def test_a_huge_text_is_refused_before_it_is_read() -> None:
    """One byte too many is enough, and the most that is allowed is allowed."""
    assert problem(b"#" * (MAX_BYTES + 1)).code == "too-long"
    assert settings("#" * MAX_BYTES).value("network.mode") == "none"


@pytest.mark.parametrize(
    ("text", "mark", "message", "help"),
    [
        ("[network]\nmode = veth", "2:veth", "veth is not a value", '"veth"'),
        ("limits.memory = 2g", "1:2g", "2g is not a value", '"2g"'),
        ("limits.timeout = 10 s # x", "1:10 s", "10 s is not a value", '"10 s"'),
        ("sandbox.enabled = True", "1:True", "not a value", "write true"),
        ("agent.install = None", "1:None", "TOML has no None", "leave the key out"),
        ("base.image =", "1:", "no value", "such as"),
        ("base.image = # x", "1:#", "no value", "such as"),
        ("network: none", "1::", "no = behind network", "not a colon"),
        ("[network]\nmode", "2:", "no = behind mode", 'key = "value"'),
        ('base.image = "debian', '1:"debian', "no closing quote", None),
        ("base.image = 'debian", "1:'debian", "no closing quote", None),
        ('base.image = """debian\n', '1:"""debian', "no closing quote", None),
        ('files.hide = ["a\\d"]', "1:\\d", "backslash", "two of them"),
        ("[network", "1:", "not closed", None),
        ("[[users]", "1:]", "not closed", None),
        ("= 1", "1:=", "expected a key", "[table]"),
        ('coop = 1 network.mode = "none"', '1:network.mode = "none"', "something behind", "one line"),
        ('base.image = "a\0b"', "1:\0", "a NUL", None),
        ("\0", "1:\0", "a NUL", None),
        ("coop = \x1b", "1:\x1b", "an escape", None),
        ("limits.pids = " + "9" * 5000, "1:" + "9" * 5000, "too long", None),
        ("x = [1,", "1:", "no value", None),
        ('packages.apt = ["a" "b"]', '1:"', "neither a comma nor ]", "commas"),
        ('base = { image = "a"', "1:", "neither a comma nor }", "commas"),
    ],
)
def test_a_syntax_error_is_explained(text: str, mark: str, message: str, help: str | None) -> None:
    """Position, plain words, and what to write instead."""
    found = problem(text)
    assert found.code == "syntax"
    assert message in found.message
    assert help is None or help in str(found.help)
    position, line = found.position, found.source_line
    assert position and line is not None
    assert f"{position.line}:{line[position.column - 1 :][: position.length]}" == mark


@pytest.mark.parametrize(
    ("text", "name", "mark"),
    [
        ('network = { mode = "none" }\nnetwork = { mode = "host" }', "network", "2:network"),
        ("network.mode = 'none'\n# x\nnetwork.mode = 'host'", "network.mode", "3:mode"),
        ("[limits]\n[network]\n[limits]\npids = 9", "limits", "3:[limits]"),
        ("limits = { pids = 9, pids = 8 }", "limits.pids", "1:pids"),
        ('"coop" = 1\ncoop = 1', "coop", "2:coop"),
    ],
)
def test_a_key_that_is_defined_twice_names_the_first_place(text: str, name: str, mark: str) -> None:
    """The second one is marked, the first one's line is in the help."""
    found = problem(text)
    assert found.message == f"{name} is defined twice"
    assert found.help == "the first time is on line 1"
    assert marked(found) == mark


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("limits.pids = 9\n[limits]\n", "limits"),
        ("network = { mode = 'none' }\n[network.x]\n", "network"),
        ("users = []\n[[users]]\n", "users"),
        ("[limits]\npids = 9\n[limits.pids]\n", "limits.pids"),
    ],
)
def test_a_table_that_is_opened_in_two_ways_names_the_first_place(text: str, name: str) -> None:
    """TOML lets a table be written in one way only."""
    found = problem(text)
    assert found.message == f"{name} is defined already, in another way"
    line = 2 if name == "limits.pids" else 1
    assert found.help == f"the first time is on line {line}"


def test_problems_behind_a_syntax_error_are_found_too() -> None:
    """A line that does not parse hides no other line's mistakes, and invents none."""
    text = "[limits]\nmemory = 2g\npids = true\ntimeout = 5m\n[networks]\n[[users]]\nname = bob\n"
    assert [marked(found) for found in problems(text)] == ["2:2g", "3:true", "4:5m", "5:networks", "7:bob"]


def test_what_follows_a_broken_header_is_not_judged() -> None:
    """Its keys could belong anywhere."""
    found = problems("pids = 1\n[limits\nmode = 1\n")
    assert [marked(one) for one in found] == ["1:pids", "2:"]


def test_what_follows_a_broken_value_of_several_lines_is_not_judged() -> None:
    """Where it ends is not known."""
    found = problems('packages.apt = [\n  "git"\n  "zsh"\n]\nnetworks = 1\n')
    assert [one.code for one in found] == ["syntax"]


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a = " + "{a=" * 100_000,
        ".".join("a" * 300_000) + "=1",
        "[" + ".".join("a" * 300_000),
    ],
)
def test_deep_nesting_is_an_error_like_any_other(text: str) -> None:
    """No recursion limit and no endless parsing stands between the text and its error."""
    found = problem(text)
    assert found.code == "too-deep" and found.position and found.position.line == 1


@pytest.mark.parametrize("key", ["limits.pids", "limits.cpus", "limits.memory", "coop", "base.image"])
@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "9" * 40, "-" + "9" * 40, "0b" + "1" * 64])
def test_numbers_of_more_than_64_bits_are_refused_once(key: str, number: str) -> None:
    """They are too large for every key, and some are too large to be printed."""
    assert marked(problem(f"{key} = {number}")) == f"1:{number}"
