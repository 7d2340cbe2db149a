"""What globs match, and that no glob can make the matching slow or large."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.plan import globs
from coopfile.plan.globs import compile_globs

ALPHABET = "ab-*\n"
TAKES = {
    **{character: character for character in "ab-\n"},
    "?": ALPHABET,
    "[ab]": "ab",
    "[a-b]": "ab",
    "[-a]": "-a",
    "[b-]": "-b",
    "[*]": "*",
    "[!a]": "b-*\n",
    "[!*-a]": "b\n",
}
"""What takes exactly one character of a name: each with the characters of the alphabet that it takes."""

Part = tuple[str, ...]
PARTS = (
    st.lists(st.sampled_from(["*", *TAKES]), min_size=1, max_size=5)
    .filter(lambda tokens: "**" not in "".join(tokens))
    .map(tuple)
)
GLOBS = st.lists(PARTS | st.just(("**",)), min_size=1, max_size=5)
PATHS = st.lists(st.text(ALPHABET, min_size=1, max_size=5), min_size=1, max_size=5)


def takes_name(part: Part, name: str) -> bool:
    """Tell whether one part of a glob matches one name, by trying everything."""
    if not part:
        return not name
    if part[0] == "*":
        return any(takes_name(part[1:], name[end:]) for end in range(len(name) + 1))
    return bool(name) and name[0] in TAKES[part[0]] and takes_name(part[1:], name[1:])


def takes_path(parts: Sequence[Part], names: Sequence[str]) -> bool:
    """Tell whether a glob matches a path, by trying everything."""
    if not parts:
        return not names
    if parts[0] == ("**",):
        if len(parts) == 1:
            return bool(names)
        return any(takes_path(parts[1:], names[end:]) for end in range(len(names) + 1))
    return bool(names) and takes_name(parts[0], names[0]) and takes_path(parts[1:], names[1:])


def written(parts: Sequence[Part]) -> str:
    """Return a glob as its user would write it."""
    return "/".join("".join(part) for part in parts)


@given(st.lists(GLOBS, max_size=3), st.lists(PATHS, min_size=1, max_size=8))
def test_matcher_agrees_with_trying_everything(several: list[list[Part]], paths: list[list[str]]) -> None:
    """A path is matched exactly if one of the globs can be laid over it, whatever was matched before."""
    matches = compile_globs([written(parts) for parts in several])
    for names in paths:
        assert matches("/".join(names)) is any(takes_path(parts, names) for parts in several)


@given(st.data(), GLOBS)
def test_paths_made_from_a_glob_match_it(data: st.DataObject, parts: list[Part]) -> None:
    """What is written by filling the wildcards of a glob in is matched."""
    names: list[str] = []
    for part in parts:
        if part == ("**",):
            names += data.draw(PATHS | st.just([]))
            continue
        fill = [
            data.draw(st.text(ALPHABET, max_size=3) if token == "*" else st.sampled_from(TAKES[token]))
            for token in part
        ]
        names.append("".join(fill) or "a")
    if parts[-1] == ("**",):
        names.append("a")
    assert compile_globs([written(parts)])("/".join(names))


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("**/" * 40 + "x", "a/" * 1000 + "y"),
        ("**/a/" * 20 + "x", "a/" * 1000 + "y"),
        ("**/*a*a" * 20 + "b", "aaaa/" * 800 + "c"),
        ("*a" * 20 + "*b", "a" * 250),
        ("?*" * 60 + "[!a]", "a" * 250),
        ("*[a-m]" + "?" * 100, "az" * 50),
    ],
)
def test_hostile_globs(glob: str, path: str) -> None:
    """What a backtracking matcher would try for years, once for each way to fill the stars, is soon over."""
    assert not compile_globs([glob])(path)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that lead to ever new places in a glob fill no memory, and are matched as before."""
    monkeypatch.setattr(globs, "_REMEMBERED", 100)
    matches = compile_globs(["*[a-m]" + "?" * 80 + "x"])
    chance = random.Random(1)
    names = ["".join(chance.choices("abcxyz", k=200)) for _ in range(60)]
    tracemalloc.start()
    try:
        found = [matches(name) for name in names]
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()
    assert found == [name[-1] == "x" and name[-82] <= "m" for name in names]
