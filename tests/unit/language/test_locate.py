"""The locator finds every key and value of every valid document."""

from __future__ import annotations

from typing import Any

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from coopfile.language.locate import MAX_DEPTH, Lines, Path, locate

DOCUMENT = '''\
# comment with = and [brackets]
coop = 1
network.mode = "none"   # trailing
"quoted key" = 'x'
'lit.eral' = """
two " lines ""
"""
site."a.b" . c = 1979-05-27 07:32:00
[limits]
memory="2g" # "
  cpus   =   1.5
list = [ # comment ]
  "a]",
  ['b', "c#"],
  { k = [1, 2], "l" = "}" },
]
[[users]]
name = "a"
[users.override]
network.mode = "veth"
limits = { memory = "1g", nested.key = true }
[[users]]
name = "b"
[ deep . "er" ]
end = """"quoted""""
'''


def leaves(value: Any, path: Path = ()) -> list[Path]:
    """Return the path of everything in a document, tables and lists included."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in inner for found in ((*path, key), *leaves(item, (*path, key)))]


def at(text: str, path: Path) -> str:
    """Return the text of the value at a path."""
    span = locate(text).values[path]
    return text[span.start : span.end]


def test_every_path_of_a_document_is_located() -> None:
    """Tables, dotted and quoted keys, inline tables, arrays of tables, strings of all kinds."""
    located = locate(DOCUMENT)
    assert located.complete
    paths = leaves(tomli.loads(DOCUMENT))
    assert set(paths) == set(located.values)
    assert {path for path in paths if isinstance(path[-1], str)} <= set(located.keys)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("coop",), "1"),
        (("network", "mode"), '"none"'),
        (("quoted key",), "'x'"),
        (("lit.eral",), '"""\ntwo " lines ""\n"""'),
        (("site", "a.b", "c"), "1979-05-27 07:32:00"),
        (("limits",), "[limits]"),
        (("limits", "memory"), '"2g"'),
        (("limits", "cpus"), "1.5"),
        (("limits", "list", 0), '"a]"'),
        (("limits", "list", 1, 1), '"c#"'),
        (("limits", "list", 2, "k", 1), "2"),
        (("limits", "list", 2, "l"), '"}"'),
        (("users", 0), "[[users]]"),
        (("users", 0, "override", "network", "mode"), '"veth"'),
        (("users", 0, "override", "limits", "nested", "key"), "true"),
        (("users", 1, "name"), '"b"'),
        (("deep", "er", "end"), '""""quoted""""'),
    ],
)
def test_a_value_is_located_exactly(path: Path, text: str) -> None:
    """The stretch of text is the value's, without what surrounds it."""
    assert at(DOCUMENT, path) == text


def test_the_second_table_of_an_array_has_its_own_place() -> None:
    """Elements of an array of tables are told apart by their index."""
    lines = Lines(DOCUMENT)
    located = locate(DOCUMENT)
    first, second = (lines.position(located.values["users", index, "name"].start) for index in (0, 1))
    assert (first, second) == ((18, 8), (23, 8))


def test_repeated_keys_and_tables_are_noticed() -> None:
    """Both places are known, so that an error can name the first."""
    text = "a = 1\n[t]\nb.c = 1\nb.c = 2\n[t]\n"
    found = [(path, text[second.start : second.end]) for path, _, second in locate(text).repeated]
    assert found == [(("t", "b", "c"), "c"), (("t",), "[t]")]


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * (MAX_DEPTH + 2),
        "a = " + "{a=" * (MAX_DEPTH + 2),
        "a = " + "[{a=" * MAX_DEPTH,
        ".".join("a" * (MAX_DEPTH + 1)) + " = 1",
        "[" + ".".join("a" * (MAX_DEPTH + 1)) + "]",
        "[" + ".".join("a" * (MAX_DEPTH - 1)) + "]\nb.c = 1",
    ],
)
def test_what_is_nested_too_deeply_is_found_before_the_parser_sees_it(text: str) -> None:
    """Brackets, braces and dots count together."""
    assert locate(text).too_deep is not None


def test_brackets_in_strings_and_comments_are_not_nesting() -> None:
    """Only structure counts."""
    text = f"a = '{'[' * 100}'\nb = \"{'.'.join('a' * 100)}\" # {'{' * 100}\n"
    assert locate(text).complete


def test_a_line_is_found_with_its_column() -> None:
    """Lines and columns count from 1, and a line comes without its end."""
    lines = Lines("ab\n\ncd")
    assert [lines.position(offset) for offset in range(6)] == [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (3, 2)]
    assert [lines.text(line) for line in (1, 2, 3)] == ["ab", "", "cd"]


KEYS = st.sampled_from(["a", "b", "key-1", '"q.k"', "'l k'", '"\\u0041"'])
SCALARS = st.sampled_from(
    [
        "1",
        "-0.5e3",
        "true",
        '"s"',
        "'l'",
        '"""m\n"q" \\\n l"""',
        "'''\n'l' ]'''",
        "1979-05-27T07:32:00Z",
        "inf",
        '"#}]"',
    ]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[ " + ",\n # ]\n".join(items) + " ]")
        | st.lists(st.tuples(KEYS, inner), max_size=3, unique_by=lambda pair: pair[0]).map(
            lambda pairs: "{ " + ", ".join(f"{key} = {value}" for key, value in pairs) + " }"
        )
    ),
    max_leaves=8,
)
NAMES = st.lists(KEYS, min_size=1, max_size=3).map(" . ".join)
STATEMENTS = (
    st.tuples(NAMES, VALUES).map(lambda pair: f"{pair[0]} = {pair[1]} # c")
    | NAMES.map(lambda name: f"[{name}]")
    | NAMES.map(lambda name: f"[[ {name} ]] #")
    | st.just("# [x")
)


@given(st.lists(STATEMENTS, max_size=6).map("\n".join))
def test_the_locator_agrees_with_the_parser(text: str) -> None:
    """For whatever the parser accepts, every path has a place and every place a path; and
    reading the text at a scalar's place gives the scalar."""
    try:
        data = tomli.loads(text)
    except tomli.TOMLDecodeError:
        return
    located = locate(text)
    assert located.complete and not located.repeated
    assert set(located.values) == set(leaves(data))
    for path in leaves(data):
        value: Any = data
        for part in path:
            value = value[part]
        if not isinstance(value, dict | list):
            span = located.values[path]
            assert repr(tomli.loads(f"v = {text[span.start : span.end]}")["v"]) == repr(value)


@given(st.text(alphabet=st.sampled_from("ab.=[]{}\"'#\\\n, 1"), max_size=40))
def test_the_locator_reads_at_least_what_the_parser_reads(text: str) -> None:
    """The guard against deep nesting must not stop before the parser does."""
    try:
        tomli.loads(text)
    except tomli.TOMLDecodeError:
        locate(text)
        return
    assert locate(text).complete
