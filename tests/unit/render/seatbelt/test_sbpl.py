"""Globs as regular expressions, names in any case, and strings of any length."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coopfile.language.value_type import BadValue
from coopfile.language.values import HideGlob
from coopfile.plan.globs import compile_globs
from coopfile.render.sbpl import LITERAL_MAX, Writer, glob_pattern, name_pattern, quote
from tests.unit.render.seatbelt.reader import read


def hides(glob: str, path: str) -> bool:
    """Return whether the regular expression of a glob matches a path."""
    return re.search("^" + glob_pattern(glob), path, re.DOTALL) is not None


def shall_hide(glob: str, path: str) -> bool:
    """Return whether the glob matches the path or something above it."""
    matches = compile_globs([glob])
    parts = path.split("/")
    return any(matches("/".join(parts[: end + 1])) for end in range(len(parts)))


def _is_glob(text: str) -> bool:
    try:
        return HideGlob().parse(text) == text
    except BadValue:
        return False


# Without letters there is no case, so the two have to agree exactly.
_parts = st.lists(
    st.sampled_from(["1", "2", ".", "-", "^", "+", "$", "(", "é", "*", "?", "[12]", "[!1]", "[+-9]", "[^.]"])
    | st.text("12.-^+,", min_size=1, max_size=4).map("[{}]".format),
    min_size=1,
    max_size=4,
).map("".join)
_globs = st.lists(_parts | st.just("**"), min_size=1, max_size=3).map("/".join).filter(_is_glob)
_path = st.lists(st.text("12.-^+,$(é", min_size=1, max_size=4), min_size=1, max_size=4).map("/".join)


@given(glob=_globs, path=_path)
@example(glob="[-^]", path="1")
@example(glob="[/^-a]", path="]")
def test_globs(glob: str, path: str) -> None:
    """A regular expression matches what its glob hides, and nothing else."""
    if unicodedata.normalize("NFC", path).upper() == path:
        assert hides(glob, path) is shall_hide(glob, path)
    else:
        assert hides(glob, path) or not shall_hide(glob, path)


@given(
    glob=st.text("aB[]!*-/?.", min_size=1, max_size=8).filter(_is_glob), path=st.text("aAbB-./", min_size=1)
)
def test_globs_in_any_case(glob: str, path: str) -> None:
    """Case aside, nothing that a glob hides is missed."""
    path = "/".join(part for part in path.split("/") if part)
    if shall_hide(glob, path):
        assert hides(glob, path)
        assert "[" in glob or (hides(glob, path.upper()) and hides(glob, path.lower()))


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("**/.env*", [".env", "a/.env", "a/b/.envs/x", ".ENV"], ["env", "a.env", "x/env"]),
        ("*.pem", ["a.pem", "A.PEM", "a.pem/x"], ["a/b.pem", "apem"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b/z"], ["ab", "a/xb", "b"]),
        ("k[a-c]", ["ka", "kB"], ["kd", "k"]),
        ("k[!a]", ["kb", "kA"], ["ka", "k/"]),
        ("k[*]", ["k*"], ["kx"]),
        ("k[+-9]", ["k+", "k0"], ["k/", "k/x"]),
        ("k[1^]", ["k^", "k1"], ["k2"]),
        ("k[-^-a]", ["k-", "k^", "k_", "ka"], ["k]", "kz", "k,"]),
        ("k[-1]", ["k-", "k1"], ["k2"]),
        ("a+(b)$", ["a+(b)$"], ["aab", "a+b"]),
    ],
)
def test_particular_globs(glob: str, yes: list[str], no: list[str]) -> None:
    """Wildcards mean what the language says."""
    assert [path for path in yes if not hides(glob, path)] == []
    assert [path for path in no if hides(glob, path)] == []


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"], max_codepoint=0x2FFF), min_size=1, max_size=12))
@example("\u0130\u05a2")
def test_names_in_any_case(text: str) -> None:
    """A name is matched as written, in upper and lower case, and in either normal form."""
    pattern = re.compile("^" + name_pattern(text, "$"), re.DOTALL)
    composed = unicodedata.normalize("NFC", text)
    for form in (composed, unicodedata.normalize("NFD", text)):
        assert pattern.search(form)
    for character in (str.upper, str.lower):
        # A letter that becomes several leaves the normal forms where other marks follow it.
        assert pattern.search(unicodedata.normalize("NFC", "".join(map(character, composed))))


@pytest.mark.parametrize("name", ["Coop\ufb01le.lock", "COOPFILE.LOC\u212a", "coopfile.lock"])
def test_characters_that_count_as_others(name: str) -> None:
    """Ligatures and the letters of other blocks that fold to ASCII are no way around a name."""
    assert re.search("^" + name_pattern("Coopfile.lock", "$"), name)


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=3000))
def test_strings(text: str) -> None:
    """A text comes back whole from literals that are short enough."""
    (form,) = read(quote(text))
    parts = form[1:] if isinstance(form, list) else [form]
    assert "".join(map(str, parts)) == text
    assert all(len(quote(str(part)).encode()) <= LITERAL_MAX + 2 for part in parts)
    assert len(parts) == 1 or len(text.encode()) > LITERAL_MAX / 2


def test_parameters() -> None:
    """A path is written from the innermost parameter that it is at or below."""
    writer = Writer({"HOME": "/u", "WORKSPACE": "/u/w"})
    assert writer.path("/u/w") == '(param "WORKSPACE")'
    assert writer.path("/u/w/a b") == '(string-append (param "WORKSPACE") "/a b")'
    assert writer.path("/u/ww") == '(string-append (param "HOME") "/ww")'
    assert writer.path("/v") == '"/v"'
