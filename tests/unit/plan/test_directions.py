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
    "growing names": (
        directions.GROWING_NAMES,
        strategies.unordered(st.sampled_from(["a", "a/b", "b"])),
    ),
    "growing hosts": (directions.GROWING, strategies.unordered(strategies.HOST_PATTERNS)),
    "growing ports": (directions.GROWING, strategies.PUBLISHED_LISTS),
    "growing read": (directions.GROWING_READ, strategies.unordered(strategies.PATHS)),
    "shrinking": (directions.SHRINKING, strategies.unordered(strategies.GLOBS)),
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


@given(strategies.HOST_PATTERNS, strategies.HOST_PATTERNS)
def test_what_covers_a_host_can_be_told_without_looking_for_it(one: HostPattern, other: HostPattern) -> None:
    """A pattern names exactly those that cover it."""
    assert one.covers(other) == (one == other or one in set(other.covering()))


PATHS = strategies.unordered(strategies.PATHS)


PROBES = ["~/a", "~/a/x", "~/a/b/x", "~/a/b/c/x", "~/ab/x", "~/b/x", "/opt/y", "/opt/x/y", "/srv/x", "/tmp"]


def level(path: str, read: tuple[str, ...], write: tuple[str, ...]) -> int:
    """What the runner gives of a path: mounts from the outermost to the innermost, writable ones first."""
    mounts = [*((outer, 2) for outer in write), *((outer, 1) for outer in read)]
    found = 0
    for outer, gives in sorted(mounts, key=lambda mount: mount[0].count("/")):
        if path == outer or path.startswith(outer + "/"):
            found = gives
    return found


@given(PATHS, PATHS, PATHS, PATHS)
def test_files_are_exact(
    old: tuple[str, ...], old_write: tuple[str, ...], new: tuple[str, ...], new_write: tuple[str, ...]
) -> None:
    """Something widens exactly when some path of the host may be used more than before, and so for less."""
    read, write = directions.compare_files(old, old_write, new, new_write)
    kinds = {delta.kind for delta in (*read, *write)}
    steps = [(level(path, old, old_write), level(path, new, new_write)) for path in PROBES]
    assert ("widens" in kinds) == any(before < after for before, after in steps)
    assert ("narrows" in kinds) == any(before > after for before, after in steps)


@given(PATHS, PATHS, PATHS, PATHS)
def test_files_mirror(
    old: tuple[str, ...], old_write: tuple[str, ...], new: tuple[str, ...], new_write: tuple[str, ...]
) -> None:
    """The mirror holds for the paths to read and for those to write, path by path."""
    there = directions.compare_files(old, old_write, new, new_write)
    back = directions.compare_files(new, new_write, old, old_write)
    assert [plain(deltas) for deltas in back] == [mirrored(deltas) for deltas in there]


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
        "an engine before the native back end",
        directions.BACKENDS,
        ("auto",),
        ("podman", "native"),
        [("widens", ("auto",), ("podman", "native"))],
    ),
    (
        "an engine after it",
        directions.BACKENDS,
        ("auto",),
        ("native", "docker"),
        [("differs", ("auto",), ("native", "docker"))],
    ),
    (
        "a package that begins like another",
        directions.GROWING_NAMES,
        ("lodash",),
        ("lodash", "lodash/x"),
        [("widens", None, "lodash/x")],
    ),
    (
        "something chosen",
        directions.CHOSEN,
        None,
        "runc",
        [("widens", None, "runc")],
    ),
    (
        "something else",
        directions.CHOSEN,
        ("a",),
        ("b",),
        [("narrows", ("a",), ()), ("widens", (), ("b",))],
    ),
    (
        "nothing any more",
        directions.CHOSEN,
        "runc",
        None,
        [("narrows", "runc", None)],
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
    (
        "another of one's own",
        directions.PROFILE,
        "/p.sb",
        "/q.sb",
        [("narrows", "/p.sb", None), ("widens", None, "/q.sb")],
    ),
]


@pytest.mark.parametrize(
    ("direction", "old", "new", "expected"), [s[1:] for s in STEPS], ids=[s[0] for s in STEPS]
)
def test_steps(direction: Direction, old: Any, new: Any, expected: list[tuple[str, Any, Any]]) -> None:
    """Each direction classifies a hand-picked step as its rule says."""
    assert [(delta.kind, delta.old, delta.new) for delta in direction.compare(old, new)] == expected


FILES: list[tuple[str, str, str, str, str, list[str]]] = [
    # what, read and write before, read and write after, deltas of reading and writing
    ("already read", "~/a", "", "~/a ~/a/b", "", ["differs +~/a/b"]),
    ("from writing to reading", "", "~/a", "~/a", "", ["differs +~/a", "narrows -~/a"]),
    ("from reading to writing", "~/a", "", "", "~/a", ["differs -~/a", "widens +~/a"]),
    ("read-only inside", "", "~/a", "~/a/b", "~/a", ["narrows +~/a/b"]),
    ("no longer read-only inside", "~/a/b", "~/a", "", "~/a", ["widens -~/a/b"]),
    ("writable inside again", "~/a/b", "~/a", "~/a/b", "~/a ~/a/b/c", ["widens +~/a/b/c"]),
    ("reading around", "", "~/a/b", "~/a", "~/a/b", ["widens +~/a"]),
    ("to write what stays read-only", "~/a", "", "~/a", "~/a", ["differs +~/a"]),
    ("written already", "", "~/a", "", "~/a ~/a/b", ["differs +~/a/b"]),
]


@pytest.mark.parametrize(
    ("read", "write", "new_read", "new_write", "expected"),
    [row[1:] for row in FILES],
    ids=[row[0] for row in FILES],
)
def test_files(read: str, write: str, new_read: str, new_write: str, expected: list[str]) -> None:
    """The innermost path decides, and reading wins where one path is in both lists."""
    lists = [tuple(text.split()) for text in (read, write, new_read, new_write)]
    of_reading, of_writing = directions.compare_files(*lists)
    found = [
        f"{delta.kind} {'+' if delta.old is None else '-'}{delta.old or delta.new}" for delta in of_reading
    ]
    found += [
        f"{delta.kind} {'+' if delta.old is None else '-'}{delta.old or delta.new}" for delta in of_writing
    ]
    assert found == expected
