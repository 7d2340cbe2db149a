"""Comparing plans: exact for every setting, and the same seen from either side."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from coopfile.language.items import HostPattern, ImageReference, PublishedPort, Variable
from coopfile.language.settings import BY_KEY
from coopfile.plan.compare import Change, compare, widening
from coopfile.plan.model import STORES, TOOLS, Plan, leaf, with_leaf
from tests.unit.plan.samples import ACCESS, PLAN
from tests.unit.plan.strategies import PLANS

MIRROR = {"widens": "narrows", "narrows": "widens", "differs": "differs"}

#: Per key of the table: a value that gives more than the sample's, and what to say of it.
WIDER: dict[str, tuple[Any, str]] = {
    "packages.apt": (("git", "ripgrep"), "+ ripgrep"),
    "packages.apk": (("git",), "+ git"),
    "packages.dnf": (("git",), "+ git"),
    "packages.pip": (("pytest",), "+ pytest"),
    "packages.npm": (("typescript",), "+ typescript"),
    "packages.cargo": (("ripgrep",), "+ ripgrep"),
    "setup.network": ("veth", "none → veth"),
    "workspace.protect": (("Coopfile",), "- .git/hooks"),
    "files.read": (("~/.gitconfig", "~/.ssh"), "+ ~/.ssh"),
    "files.write": (("~/.cache/go", "~/src"), "+ ~/src"),
    "files.hide": ((), "- **/.env*"),
    "network.mode": ("host", "none → host"),
    "network.allow": (
        (HostPattern("github.com", subdomains=True), HostPattern("pypi.org")),
        "+ *.github.com",
    ),
    "network.publish": (
        (PublishedPort("0.0.0.0", 80, 80), PublishedPort("127.0.0.1", 3000, 3000)),
        "+ 0.0.0.0:80:80",
    ),
    "session.persist": ((".claude", ".npm"), "+ .npm"),
    "session.commit": ("auto", "never → auto"),
    "session.caches": (("npm", "pip"), "+ npm"),
    "env": ((*PLAN.env[:1], Variable("SECRET", None, "SECRET"), *PLAN.env[1:]), "+ SECRET from $SECRET"),
    "limits.memory": (2**32, "2g → 4g"),
    "limits.cpus": (None, "2 → not set"),
    "limits.pids": (513, "512 → 513"),
    "limits.tmp": (2**30, "512m → 1g"),
    "limits.timeout": (180_000, "2m → 3m"),
    "limits.output": (200 * 1024, "100k → 200k"),
    "sandbox.enabled": (False, "true → false"),
    "sandbox.backend": (("native", "apple"), 'apple → ["native", "apple"]'),
    "sandbox.min_isolation": ("namespace", "vm → namespace"),
    "sandbox.fallback": ("host", "refuse → host"),
    "sandbox.profile": ("~/own.sb", "restrictive → ~/own.sb"),
    "tools.confirm": ("never", "ask → never"),
}

#: Keys of which every choice brings in something of its own: another choice than the sample's.
CHOSEN: dict[str, Any] = {
    "base.image": ImageReference("docker.io", "library/debian", "trixie"),
    "setup.run": ("make",),
    "agent.install": "npm install -g another",
    "sandbox.runtime": "crun",
}

#: Keys of which no value is wider: another value than the sample's.
OTHER: dict[str, Any] = {
    "agent.command": ("sh",),
    "workspace.path": "host",
    "session.user": "me",
}


def seen(changes: tuple[Change, ...]) -> set[tuple[str, str, Any, Any]]:
    """The changes without their order."""
    return {(change.key, change.kind, change.old, change.new) for change in changes}


def test_every_setting_is_tried() -> None:
    """Every key of the table is in one of the three tables of this test."""
    assert sorted([*WIDER, *CHOSEN, *OTHER]) == sorted(BY_KEY)


@pytest.mark.parametrize("key", WIDER)
def test_wider(key: str) -> None:
    """A wider value is one change that widens, and nothing else; going back narrows."""
    value, text = WIDER[key]
    wide = with_leaf(PLAN, key, value)
    (change,) = compare(PLAN, wide)
    assert (change.key, change.kind) == (key, "widens")
    assert change.describe().startswith(f"widens  {key}: {text}")
    (back,) = compare(wide, PLAN)
    assert (back.key, back.kind, back.old, back.new) == (key, "narrows", change.new, change.old)


@pytest.mark.parametrize("key", CHOSEN)
def test_chosen(key: str) -> None:
    """Another choice gives up the one and brings in the other; none at all only gives up."""
    old, new = leaf(PLAN, key), CHOSEN[key]
    nothing = () if isinstance(new, tuple) else None
    other, none = with_leaf(PLAN, key, new), with_leaf(PLAN, key, nothing)
    expected = {(key, "narrows", old, nothing), (key, "widens", nothing, new)}
    assert seen(compare(PLAN, other)) == expected
    assert seen(compare(PLAN, none)) == {(key, "narrows", old, nothing)}
    assert seen(compare(none, PLAN)) == {(key, "widens", nothing, old)}


@pytest.mark.parametrize("key", OTHER)
def test_other(key: str) -> None:
    """A value that is neither wider nor narrower is one change that differs, in both directions."""
    other = with_leaf(PLAN, key, OTHER[key])
    (change,) = compare(PLAN, other)
    assert (change.key, change.kind, change.old, change.new) == (key, "differs", leaf(PLAN, key), OTHER[key])
    assert [back.kind for back in compare(other, PLAN)] == ["differs"]


@given(PLANS, PLANS)
def test_mirror(old: Plan, new: Plan) -> None:
    """What widens one way narrows the other, change by change."""
    mirrored = {(key, MIRROR[kind], after, before) for key, kind, before, after in seen(compare(old, new))}
    assert seen(compare(new, old)) == mirrored


@given(PLANS, PLANS)
def test_no_change_exactly_for_equal_plans(old: Plan, new: Plan) -> None:
    """A plan compared with itself has no change, and different plans have one."""
    assert compare(old, old) == ()
    assert (compare(old, new) == ()) == (old == new)


@given(PLANS, PLANS)
def test_descriptions_are_safe_to_print(old: Plan, new: Plan) -> None:
    """Whatever plans hold, a description is one line that cannot steer the terminal."""
    assert all(change.describe().isprintable() for change in compare(old, new))


def test_moving_a_path_from_reading_to_writing_widens_once() -> None:
    """What could be read and may now be written widens ``files.write``; reading only differs."""
    files = PLAN.files.replace(read=(), write=("~/.cache/go", "~/.gitconfig"))
    assert [change.describe() for change in compare(PLAN, PLAN.replace(files=files))] == [
        "differs files.read: - ~/.gitconfig",
        "widens  files.write: + ~/.gitconfig",
    ]


def test_widening_picks_what_widens() -> None:
    """``widening`` keeps the changes that need an approval, in their order."""
    other = with_leaf(with_leaf(with_leaf(PLAN, "network.mode", "veth"), "limits.pids", 8), "files.hide", ())
    assert [change.key for change in widening(compare(PLAN, other))] == ["files.hide", "network.mode"]


FULL = ACCESS.replace(trust="full", tools=TOOLS, stores=STORES)
ACCESS_STEPS = [
    (None, FULL.replace(trust="owner"), "widens  access: not set → bob (owner)"),
    (None, FULL, "differs access: not set → bob (full)"),
    (FULL.replace(trust="owner"), None, "narrows access: bob (owner) → not set"),
    (FULL.replace(stores=()), None, "widens  access: bob (full) → not set"),
    (None, ACCESS.replace(user=None), "narrows access: not set → an unknown user (familiar)"),
    (ACCESS, ACCESS.replace(user="al\x1b"), r"differs access.user: bob → al\x1b"),
    (ACCESS, ACCESS.replace(trust="inner"), "widens  access.trust: familiar → inner"),
    (ACCESS, ACCESS.replace(place="group"), "differs access.place: direct → group"),
    (ACCESS, ACCESS.replace(tools=("bash", "read_file")), "widens  access.tools: + bash"),
    (ACCESS, ACCESS.replace(stores=()), "narrows access.stores: - social"),
    (ACCESS, ACCESS.replace(sandboxed=False), "widens  access.sandboxed: true → false"),
]


@pytest.mark.parametrize(("old", "new", "text"), ACCESS_STEPS, ids=[step[2] for step in ACCESS_STEPS])
def test_access(old: Any, new: Any, text: str) -> None:
    """Who asks, and what trust gives, is compared like a setting."""
    changes = compare(PLAN.replace(access=old), PLAN.replace(access=new))
    assert [change.describe() for change in changes] == [text]


def test_more_trust_with_fewer_tools() -> None:
    """Where nobody is named, all tools are there: that widens a plan that gave its owner only some."""
    some = PLAN.replace(access=FULL.replace(trust="owner", tools=("read_file",)))
    text = "access: bob (owner) → not set"
    changes = [change.describe() for change in compare(some, PLAN.replace(access=None))]
    assert changes == [f"narrows {text}", f"widens  {text}"]


def test_version() -> None:
    """Plans of two versions of the format differ."""
    assert [change.describe() for change in compare(PLAN, PLAN.replace(version=2))] == [
        "differs version: 1 → 2"
    ]
