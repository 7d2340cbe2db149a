"""Users: their identities, trust and overrides."""

from __future__ import annotations

import pytest

from coopfile.language.merging import Origin
from tests.unit.language.texts import marked, problem, problems, reading

TWO = """\
[[users]]
name = "alice"
trust = "owner"
match = ["terminal:default", "signal:1"]

[[users]]
name = "bob"
match = ["signal:2"]
[users.override]
network.mode = "veth"
limits = { memory = "1g" }
env.ROLE = "guest"
packages.apt = ["git"]
"""


def test_users_are_read_with_their_places() -> None:
    """Without a trust level a user is public, the least."""
    alice, bob = reading(TWO).users
    assert (alice.name, alice.trust, alice.match) == ("alice", "owner", ("signal:1", "terminal:default"))
    assert (bob.name, bob.trust, bob.match) == ("bob", "public", ("signal:2",))
    assert alice.override is None
    assert (alice.origin, bob.origin) == (Origin("project", "Coopfile", 1), Origin("project", "Coopfile", 6))


def test_an_override_counts_between_the_files_and_the_environment() -> None:
    """It is above Coopfile.local and below COOP_* variables, and its values say where they come from."""
    found = reading(
        TWO, local='network.mode = "none"\nlimits.memory = "2g"', environment={"COOP_LIMITS_MEMORY": "3g"}
    )
    bob = found.users[1]
    theirs = found.settings(bob)
    assert theirs.value("network.mode") == "veth"
    assert theirs.origins("network.mode") == (Origin("override", "Coopfile", 10),)
    assert theirs.value("limits.memory") == 3 << 30
    assert found.settings().value("network.mode") == "none"
    assert found.settings(bob, layers=("project", "local")).value("network.mode") == "none"
    assert found.settings(bob, layers=("project", "override")).value("packages.apt") == ("git",)


def test_a_user_of_the_same_name_is_replaced_by_a_later_layer() -> None:
    """The earlier entry is gone, with its identities."""
    found = reading(TWO, local='[[users]]\nname = "bob"\ntrust = "inner"\nmatch = ["signal:3"]')
    bob = found.users[1]
    assert (bob.trust, bob.match, bob.override) == ("inner", ("signal:3",), None)
    assert bob.origin == Origin("local", "Coopfile.local", 1)
    assert [user.trust for user in found.users_of(("project",))] == ["owner", "public"]


def test_one_identity_of_two_users_is_an_error_that_names_both_places() -> None:
    """In one file, and across files."""
    found = problem(TWO.replace('"signal:2"', '"signal:2", "signal:1"'))
    assert found.code == "identity" and marked(found) == '8:"signal:1"'
    assert "alice" in found.message and "Coopfile:4" in str(found.help)
    across = problem(TWO, local='[[users]]\nname = "eve"\nmatch = ["signal:2"]')
    assert str(across.position) == "Coopfile.local:3:10" and "Coopfile:8" in str(across.help)


def test_an_identity_moves_with_a_replaced_user() -> None:
    """Only entries that count can be in each other's way."""
    local = '[[users]]\nname = "bob"\nmatch = []\n[[users]]\nname = "eve"\nmatch = ["signal:2"]'
    assert [user.name for user in reading(TWO, local=local).users] == ["alice", "bob", "eve"]


def test_two_users_of_one_name_in_one_file_are_an_error() -> None:
    """Which of them would count?"""
    found = problem(TWO.replace('"bob"', '"alice"'))
    assert marked(found) == '7:"alice"' and "line 1" in str(found.help)


def test_a_user_that_matches_nobody_is_a_warning() -> None:
    """It has no effect, which is hardly what was meant."""
    (warning,) = reading('[[users]]\nname = "a"').warnings
    assert warning.severity == "warning" and "matches nobody" in warning.message


def test_a_repeated_identity_of_one_user_is_harmless() -> None:
    """A list of identities is a set."""
    assert reading('[[users]]\nname = "a"\nmatch = ["a:b", "a:b"]').users[0].match == ("a:b",)


@pytest.mark.parametrize(
    ("lines", "mark", "help"),
    [
        ('match = ["a:b"]', "1:users", "name"),
        ('name = "a b"', '2:"a b"', "letters"),
        ("name = 1", "2:1", None),
        ('nam = "a"', "2:nam", "did you mean name?"),
        ('name = "a"\ntrust = "owners"\nmatch = ["a:b"]', '3:"owners"', 'did you mean "owner"?'),
        ('name = "a"\nmatch = "a:b"', '3:"a:b"', '["a:b"]'),
        ('name = "a"\nmatch = ["a:b", "bob"]', '3:"bob"', "channel:sender"),
        ('name = "a"\nmatch = ["a:b"]\nnetwork.mode = "veth"', "4:network", "users.override.network"),
        ('name = "a"\nmatch = ["a:b"]\n[users.override]\nusers = []', "5:users", "top of the file"),
        ('name = "a"\nmatch = ["a:b"]\n[users.override.network]\nmode = "x"', '5:"x"', "one of"),
        ('name = "a"\nmatch = ["a:b"]\n[users.override.networks]\nmode = "x"', "4:networks", "[network]"),
    ],
)
def test_mistakes_in_a_user_are_reported_once_at_their_place(lines: str, mark: str, help: str | None) -> None:
    """Missing and misspelt keys, wrong values, and settings outside the override."""
    found = [one for one in problems(f"[[users]]\n{lines}") if one.severity == "error"]
    assert [marked(one) for one in found] == [mark]
    assert help is None or help in str(found[0].help)
