"""From an identity to trust, and what trust gives."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from coopfile.access.trust import GRANTS, access_for, lowered, may_run_commands
from coopfile.errors import CoopError
from coopfile.language.settings import TRUST_LEVELS
from coopfile.record import Record

ALL_TOOLS = ("bash", "edit_file", "read_file", "write_file")
ALL_STORES = ("private", "shared", "social")


class Person(Record):
    """A user as trust sees one."""

    name: str
    trust: str | None
    match: tuple[str, ...]


USERS: Any = tuple(Person(trust, trust, (f"signal:{trust}", f"mail:{trust}@x.org")) for trust in TRUST_LEVELS)

TABLE = [
    # trust, sandboxed, tools, stores, may run commands
    ("owner", False, ALL_TOOLS, ALL_STORES, True),
    ("full", True, ALL_TOOLS, ALL_STORES, True),
    ("inner", True, ALL_TOOLS, ("shared", "social"), True),
    ("familiar", True, ("read_file",), ("social",), False),
    ("public", True, (), (), False),
]


@pytest.mark.parametrize(
    ("trust", "sandboxed", "tools", "stores", "commands"), TABLE, ids=[row[0] for row in TABLE]
)
def test_table(
    trust: str, sandboxed: bool, tools: tuple[str, ...], stores: tuple[str, ...], commands: bool
) -> None:
    """Each trust level gives what its row of the design's table says."""
    user, access = access_for(USERS, f"signal:{trust}", "direct", True)
    assert user is not None and user.name == access.user == trust
    assert (access.trust, access.place) == (trust, "direct")
    assert (access.sandboxed, access.tools, access.stores) == (sandboxed, tools, stores)
    assert may_run_commands(access) is commands


def test_table_is_whole() -> None:
    """Every trust level of the language has a row, from the most trusted to the least."""
    assert tuple(GRANTS) == TRUST_LEVELS == tuple(row[0] for row in TABLE)


def test_less_trust_never_gives_more() -> None:
    """Going down the table takes away only."""
    rows = [GRANTS[trust] for trust in TRUST_LEVELS]
    for more, less in itertools.pairwise(rows):
        assert set(less.tools) <= set(more.tools)
        assert set(less.stores) <= set(more.stores)
        assert less.sandboxed >= more.sandboxed


@pytest.mark.parametrize(
    ("trust", "lowest"),
    [
        ("owner", "familiar"),
        ("full", "familiar"),
        ("inner", "familiar"),
        ("familiar", "familiar"),
        ("public", "public"),
    ],
)
def test_group(trust: str, lowest: str) -> None:
    """In a group nobody has more than familiar trust, the owner included, and nobody gains any."""
    user, access = access_for(USERS, f"signal:{trust}", "group", True)
    assert user is not None and user.name == trust
    assert (access.trust, access.place) == (lowest, "group")
    assert (access.tools, access.stores) == (GRANTS[lowest].tools, GRANTS[lowest].stores)
    assert access.sandboxed


def test_lowered_is_the_lesser() -> None:
    """The lesser of two levels is the later in the order, whichever is named first."""
    for first, more in enumerate(TRUST_LEVELS):
        for less in TRUST_LEVELS[first:]:
            assert lowered(more, less) == lowered(less, more) == less


UNMATCHED = [
    ("terminal:default", "direct", True, "owner"),
    ("terminal:default", "direct", False, "public"),
    ("terminal:default", "group", True, "familiar"),
    ("terminal:other", "direct", True, "public"),
    ("signal:stranger", "direct", True, "public"),
    ("signal:stranger", "group", True, "public"),
]


@pytest.mark.parametrize(("identity", "place", "enabled", "trust"), UNMATCHED)
def test_unmatched(identity: str, place: str, enabled: bool, trust: str) -> None:
    """A stranger is public; the terminal is its owner's when the sandbox is on."""
    user, access = access_for(USERS, identity, place, enabled)
    assert user is None and access.user is None
    assert access.trust == trust


def test_matched_terminal_is_not_the_owner() -> None:
    """A user who matches the terminal has that user's trust."""
    users: Any = (Person("guest", "inner", ("terminal:default",)),)
    _, access = access_for(users, "terminal:default", "direct", True)
    assert (access.user, access.trust) == ("guest", "inner")


def test_user_without_trust_is_public() -> None:
    """To be named is not to be trusted."""
    users: Any = (Person("bob", None, ("signal:bob",)),)
    _, access = access_for(users, "signal:bob")
    assert (access.user, access.trust) == ("bob", "public")


def test_sender_may_hold_colons() -> None:
    """Only the first colon separates; identities are compared whole."""
    users: Any = (Person("bob", "full", ("matrix:@bob:example.org",)),)
    assert access_for(users, "matrix:@bob:example.org")[1].user == "bob"
    assert access_for(users, "matrix:@bob")[1].user is None


@pytest.mark.parametrize(
    "identity",
    [
        "",
        ":",
        "alice",
        "terminal:",
        ":default",
        "a b:c",
        "signal:*",
        "a:b c",
        "a:b\n",
        "a:\x1b[2J",
        "a:\u202eb",
        "a:\x00",
    ],
)
def test_malformed_identity(identity: str) -> None:
    """What is not channel:sender is refused, without the terminal being steered by it."""
    with pytest.raises(CoopError) as caught:
        access_for(USERS, identity)
    assert caught.value.message.isprintable()
    assert caught.value.remedy is not None


def test_unknown_place() -> None:
    """A place that has no ceiling is refused, not taken for one without limits."""
    with pytest.raises(CoopError, match="no such place: 'Group'"):
        access_for(USERS, "terminal:default", "Group")


def test_nobody_named_may_run_commands() -> None:
    """Without an identity the caller acts for themselves."""
    assert may_run_commands(None)
