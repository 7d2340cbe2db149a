"""The reader and the evaluator themselves: they have to be able to say no."""

from __future__ import annotations

import pytest

from tests.unit.render.seatbelt.evaluator import DisagreementError, Profile, Query
from tests.unit.render.seatbelt.reader import Symbol, UnreadableError, read

DATA = Query("file-read-data", "/a/b")


def profile(*rules: str) -> Profile:
    """Return a profile of some rules that denies the rest."""
    return Profile("\n".join(["(version 1)", "(deny default)", *rules]), {"P": "/a"})


def test_forms() -> None:
    """Strings, raw strings, symbols, booleans, lists and both kinds of comment are read."""
    assert read('(a "b\\"\\\\" #"c\\d" #t) ; e )\n#| ( |# x') == [["a", 'b"\\', "c\\d", True], "x"]
    (word,) = read("a*")
    assert isinstance(word, Symbol)


@pytest.mark.parametrize(
    "text", ["(", ")", '"a', "#|", '"\\n"', f'"{"x" * 1026}"', '"a\nb"', "é", "#x", '#"']
)
def test_unreadable(text: str) -> None:
    """What sandbox-exec might refuse or read in another way is refused."""
    with pytest.raises(UnreadableError):
        read(text)


@pytest.mark.parametrize(
    "rules",
    [
        # The later rule wins in some readings only.
        ('(deny file-read* (subpath "/a"))', "(allow file-read*)"),
        ("(allow file-read*)", '(deny file-read* (subpath "/a"))', '(allow file-read* (subpath "/a/b"))'),
        ('(deny file-read-data (subpath "/a"))', '(allow file-read* (subpath "/a"))'),
        ('(allow file-read-data (subpath "/a"))', '(deny file-read* (subpath "/a"))'),
        ('(deny file-read* (subpath (param "P")))', '(allow file-read* (literal "/a/b"))'),
        # A subpath may or may not deny its root.
        ('(allow file-read* (subpath "/"))', '(deny file-read* (subpath "/a/b"))'),
        # A character of two bytes.
        ('(allow file-read* (regex "^/é[^/]$"))',),
    ],
)
def test_disagreement(rules: tuple[str, ...]) -> None:
    """Profiles whose meaning depends on the reading are found out."""
    query = Query("file-read-data", "/éé") if "é" in rules[0] else DATA
    with pytest.raises(DisagreementError):
        profile(*rules).allows(query)


@pytest.mark.parametrize(
    "rule",
    [
        "(allow file-raed*)",
        '(allow file-read* (subpth "/a"))',
        '(allow file-read* (subpath "/a/"))',
        '(allow file-read* (subpath "/a//b"))',
        '(allow file-read* (subpath (param "Q")))',
        '(allow file-read* (require-any (literal "/x") (unknown "/a")))',
        '(allow file-read* (regex "^/(?:a)$"))',
        '(allow network-outbound (local ip "*:*"))',
        '(allow network-outbound (remote ip "127.0.0.1:80"))',
        '(allow network-outbound (remote ip "localhost:99999"))',
        '(allow mach-lookup (subpath "/a"))',
        "(allow file-read* #f)",
        "(allow)",
        "(permit file-read*)",
    ],
)
def test_unknown(rule: str) -> None:
    """What would kill or void a rule fails, also where no query comes by."""
    with pytest.raises(AssertionError):
        profile(rule)


def test_verdicts() -> None:
    """A profile that means one thing has verdicts."""
    found = profile(
        '(allow file-read* (subpath (param "P")))',
        '(deny file-read* (require-all (subpath "/a/c") (require-not (literal "/a/c/d"))))',
    )
    assert found.allows(DATA) and found.allows(Query("file-read-data", "/a/c/d"))
    assert not found.allows(Query("file-read-data", "/a/c/e"))
    assert not found.allows(Query("file-read-data", "/ab"))
    assert not found.allows(Query("file-write-data", "/a/b"))
