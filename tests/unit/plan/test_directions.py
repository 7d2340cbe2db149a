"""Which way is wider: the promises of every direction, and the rules of each."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.language import directions
from coopfile.language.directions import Delta, Direction
from coopfile.language.items import HostPattern, PublishedPort, Variable
from tests.unit.plan import strategies

MIRROR = {"widens": "narrows", "narrows": "widens", "differs": "differs"}
RANKED = directions.Ranked("none", "proxy", "veth", "host")

CASES: dict[str, tuple[Direction, st.SearchStrategy[Any]]] = {
    "ascending": (directions.ASCENDING, st.none() | st.integers(1, 4)),
    "ranked": (RANKED, st.sampled_from(["none", "proxy", "veth", "host"])),
    "ranked flag": (directions.Ranked(True, False), st.booleans()),
    "growing paths": (directions.GROWING, strategies.unordered(strategies.PATHS)),
    "growing hosts": (directions.GROWING, strategies.unordered(strategies.HOST_PATTERNS)),
    "growing ports": (directions.GROWING, strategies.PUBLISHED_LISTS),
    "growing read": (directions.GROWING_READ, strategies.unordered(strategies.PATHS)),
    "shrinking": (directions.SHRINKING, strategies.unordered(strategies.RELATIVE)),
    "differs": (directions.DIFFERS, strategies.ordered(st.sampled_from("ab"))),
    "environment": (directions.ENVIRONMENT, strategies.ENVIRONMENTS),
    "back ends": (directions.BACKENDS, strategies.BACKEND_LISTS),
    "profile": (directions.PROFILE, st.sampled_from(["restrictive", "permissive", "/a", "/b"])),
}
EVERY = pytest.mark.parametrize("name", CASES)


def mirrored(deltas: tuple[Delta, ...]) -> set[tuple[str, Any, Any]]:
    """The deltas as the other way round has to show them."""
    return {(MIRROR[delta.kind], delta.new, delta.old) for delta in deltas}


def plain(deltas: tuple[Delta, ...]) -> set[tuple[str, Any, Any]]:
    """The deltas without their order."""
    return {(delta.kind, delta.old, delta.new) for delta in deltas}


@EVERY
@given(data=st.data())
def test_mirror(name: str, data: st.DataObject) -> None:
    """What widens one way narrows the other, item by item."""
    direction, values = CASES[name]
    old, new = data.draw(values), data.draw(values)
    assert plain(direction.compare(new, old)) == mirrored(direction.compare(old, new))


@EVERY
@given(data=st.data())
def test_a_delta_exactly_where_values_differ(name: str, data: st.DataObject) -> None:
    """Equal values give no delta; unequal ones give at least one, and never a delta of nothing."""
    direction, values = CASES[name]
    old, new = data.draw(values), data.draw(values)
    deltas = direction.compare(old, new)
    assert (deltas == ()) == (old == new)
    assert all(delta.old != delta.new for delta in deltas)


PATHS = strategies.unordered(strategies.PATHS)


@given(PATHS, PATHS, PATHS, PATHS)
def test_mirror_of_reading_beside_writing(
    old: tuple[str, ...], new: tuple[str, ...], old_write: tuple[str, ...], new_write: tuple[str, ...]
) -> None:
    """The mirror holds for the paths to read when those to write change too."""
    there = directions.GROWING_READ.compare_beside(old, new, old_write, new_write)
    back = directions.GROWING_READ.compare_beside(new, old, new_write, old_write)
    assert plain(back) == mirrored(there)


HOST = Variable("A", None, "A")
OTHER_HOST = Variable("A", None, "B")
LITERAL = Variable("A", "x", None)

STEPS: list[tuple[str, Direction, Any, Any, list[tuple[str, Any, Any]]]] = [
    ("more", directions.ASCENDING, 1, 2, [("widens", 1, 2)]),
    ("no limit is the most", directions.ASCENDING, 2**40, None, [("widens", 2**40, None)]),
    ("a further rank", RANKED, "none", "host", [("widens", "none", "host")]),
    ("an item more", directions.GROWING, (), ("~/a",), [("widens", None, "~/a")]),
    ("an item less", directions.GROWING, ("~/a",), (), [("narrows", "~/a", None)]),
    ("an item that is covered", directions.GROWING, ("~/a",), ("~/a", "~/a/b"), [("differs", None, "~/a/b")]),
    (
        "a name that only begins alike",
        directions.GROWING,
        ("~/a",),
        ("~/a", "~/ab"),
        [("widens", None, "~/ab")],
    ),
    (
        "the directory around an item",
        directions.GROWING,
        ("~/a/b",),
        ("~/a",),
        [("differs", "~/a/b", None), ("widens", None, "~/a")],
    ),
    (
        "a host below a star",
        directions.GROWING,
        (HostPattern("github.com", subdomains=True),),
        (HostPattern("api.github.com"),),
        [
            ("narrows", HostPattern("github.com", subdomains=True), None),
            ("differs", None, HostPattern("api.github.com")),
        ],
    ),
    (
        "another port of a host",
        directions.GROWING,
        (HostPattern("a.org"),),
        (HostPattern("a.org"), HostPattern("a.org", port=22)),
        [("widens", None, HostPattern("a.org", port=22))],
    ),
    (
        "another address of a port",
        directions.GROWING,
        (PublishedPort("127.0.0.1", 80, 80),),
        (PublishedPort("0.0.0.0", 80, 80),),
        [
            ("narrows", PublishedPort("127.0.0.1", 80, 80), None),
            ("widens", None, PublishedPort("0.0.0.0", 80, 80)),
        ],
    ),
    ("hiding more", directions.SHRINKING, (), (".env",), [("narrows", None, ".env")]),
    ("hiding less", directions.SHRINKING, (".env",), (), [("widens", ".env", None)]),
    (
        "hiding a file instead of its directory",
        directions.SHRINKING,
        ("a",),
        ("a/b",),
        [("widens", "a", None), ("differs", None, "a/b")],
    ),
    ("any other list", directions.DIFFERS, ("a",), ("a", "b"), [("differs", ("a",), ("a", "b"))]),
    ("a host variable more", directions.ENVIRONMENT, (), (HOST,), [("widens", None, HOST)]),
    ("a host variable less", directions.ENVIRONMENT, (HOST,), (), [("narrows", HOST, None)]),
    (
        "another host variable",
        directions.ENVIRONMENT,
        (HOST,),
        (OTHER_HOST,),
        [("narrows", HOST, None), ("widens", None, OTHER_HOST)],
    ),
    ("a literal more", directions.ENVIRONMENT, (), (LITERAL,), [("differs", None, LITERAL)]),
    ("a literal less", directions.ENVIRONMENT, (LITERAL,), (), [("differs", LITERAL, None)]),
    (
        "a host's value for a literal",
        directions.ENVIRONMENT,
        (LITERAL,),
        (HOST,),
        [("widens", LITERAL, HOST)],
    ),
    (
        "a literal for a host's value",
        directions.ENVIRONMENT,
        (HOST,),
        (LITERAL,),
        [("narrows", HOST, LITERAL)],
    ),
    (
        "a weaker back end",
        directions.BACKENDS,
        ("auto",),
        ("seatbelt",),
        [("widens", ("auto",), ("seatbelt",))],
    ),
    (
        "a weaker back end at the end of the list",
        directions.BACKENDS,
        ("apple",),
        ("apple", "docker"),
        [("widens", ("apple",), ("apple", "docker"))],
    ),
    (
        "a back end as strong",
        directions.BACKENDS,
        ("native",),
        ("podman", "docker"),
        [("differs", ("native",), ("podman", "docker"))],
    ),
    (
        "a laxer profile",
        directions.PROFILE,
        "restrictive",
        "permissive",
        [("widens", "restrictive", "permissive")],
    ),
    (
        "a profile of one's own",
        directions.PROFILE,
        "permissive",
        "/p.sb",
        [("widens", "permissive", "/p.sb")],
    ),
    ("another of one's own", directions.PROFILE, "/p.sb", "/q.sb", [("differs", "/p.sb", "/q.sb")]),
]


@pytest.mark.parametrize(
    ("direction", "old", "new", "expected"), [s[1:] for s in STEPS], ids=[s[0] for s in STEPS]
)
def test_steps(direction: Direction, old: Any, new: Any, expected: list[tuple[str, Any, Any]]) -> None:
    """Each direction classifies a hand-picked step as its rule says."""
    assert [(delta.kind, delta.old, delta.new) for delta in direction.compare(old, new)] == expected


READS = [
    ("already read", ("~/a",), ("~/a", "~/a/b"), (), (), [("differs", None, "~/a/b")]),
    ("written before", (), ("~/a",), ("~/a",), (), [("differs", None, "~/a")]),
    ("written from now on", ("~/a",), (), (), ("~/a",), [("differs", "~/a", None)]),
    ("below what is written", (), ("~/a/b",), ("~/a",), ("~/a",), [("narrows", None, "~/a/b")]),
    ("no longer below what is written", ("~/a/b",), (), ("~/a",), ("~/a",), [("widens", "~/a/b", None)]),
    ("around what is written", (), ("~/a",), ("~/a/b",), ("~/a/b",), [("widens", None, "~/a")]),
    ("in both lists", (), ("~/a",), ("~/a",), ("~/a",), [("differs", None, "~/a")]),
]


@pytest.mark.parametrize(
    ("old", "new", "old_write", "new_write", "expected"), [r[1:] for r in READS], ids=[r[0] for r in READS]
)
def test_reading_beside_writing(
    old: tuple[str, ...],
    new: tuple[str, ...],
    old_write: tuple[str, ...],
    new_write: tuple[str, ...],
    expected: list[tuple[str, Any, Any]],
) -> None:
    """The innermost path decides, and writing wins over reading."""
    deltas = directions.GROWING_READ.compare_beside(old, new, old_write, new_write)
    assert [(delta.kind, delta.old, delta.new) for delta in deltas] == expected
