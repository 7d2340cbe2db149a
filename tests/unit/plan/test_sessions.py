"""What outlives runs: ids, places, and which of them a launch mounts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.language.settings import SETTINGS
from coopfile.plan.bind import bind
from coopfile.plan.launch import Mount
from coopfile.plan.model import Access, Plan, with_leaf
from coopfile.plan.promises import unkept
from coopfile.plan.sessions import (
    CACHES,
    flat,
    is_name,
    is_own_name,
    kept,
    own_name,
    place,
    project_id,
    session_id,
    slug,
    variables,
)
from tests.unit.plan.samples import PLAN
from tests.unit.plan.strategies import RELATIVE
from tests.unit.plan.test_bind import HOST

ROOT = HOST.workspace
DATA = "/home/dev/.local/share/coop"
SESSION = f"{DATA}/sessions/{session_id(ROOT, None)}/persist"
SHARED = f"{DATA}/caches/{project_id(ROOT, None)}"


def access(user: str | None, trust: str = "full") -> Access:
    """Return what somebody has in direct conversation."""
    return Access(user, trust, "direct", ("bash",), (), sandboxed=True)


def launched(
    persist: tuple[str, ...] = (), caches: tuple[str, ...] = (), leaves: Mapping[str, object] = {}
) -> tuple[tuple[Mount, ...], tuple[str, ...]]:
    """Return what a launch keeps and leaves out."""
    plan: Plan = with_leaf(with_leaf(PLAN, "session.persist", persist), "session.caches", caches)
    for key, value in {"files.read": (), "files.write": (), **leaves}.items():
        plan = with_leaf(plan, key, value)
    bound = bind(plan, HOST.replace(data=DATA, environment={"API_TOKEN": "x"}), ())
    return bound.kept, bound.skipped


def test_ids_stay_what_they_are() -> None:
    """A session is found again by the next version of coop too."""
    assert session_id("/home/me/Shop Front", None) == "shop-front-9ba1c44e636be41769c6"
    assert session_id("/home/me/Shop Front", access("ann")) == "shop-front-670c9f8565d89a0dcec2"
    assert project_id("/home/me/Shop Front", None) == "shop-front-790bee5ae2b8987ab2ce"


def test_ids_tell_apart() -> None:
    """Project, user and name of a session each make another one; the caller is the owner at the terminal."""
    roots, names = ("/a/b", "/a-b", "/c/b", "/a/b\n", "/a/b\udc80"), ("default", "other")
    users = (None, access(None), access("caller"), access("nobody"), access("user"), access("a"), access("b"))
    found = {session_id(root, user, name) for root in roots for user in users for name in names}
    found |= {project_id(root, user) for root in roots for user in users}
    assert len(found) == len(roots) * len(users) * (len(names) + 1)
    assert session_id("/a", access(None, "owner")) == session_id("/a", None)
    assert session_id("/a", access("a", "owner")) != session_id("/a", None)


def test_ids_without_the_c_module() -> None:
    """Where hashlib has it from elsewhere the ids are the same."""
    script = (
        "import hashlib, sys; sys.modules['_blake2'] = None\n"
        "from coopfile.plan.sessions import session_id\n"
        f"print(session_id({ROOT!r}, None))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == session_id(ROOT, None)


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ("/home/me/Shop", "shop"),
        ("/", "project"),
        ("/a/...", "project"),
        ("/a/été 1", "t--1"),
        ("/a/" + "x" * 99, "x" * 32),
    ],
)
def test_slug(root: str, expected: str) -> None:
    """Ids begin with what every file system and engine takes as a name."""
    assert slug(root) == expected


@given(st.lists(RELATIVE | st.text("%/25F.", min_size=1, max_size=8), unique=True, max_size=6))
def test_flat_names(paths: list[str]) -> None:
    """Each path is one name, another one for every path, that stands for itself in a directory."""
    names = [flat(path) for path in paths]
    assert len(set(names)) == len(paths)
    for name in names:
        assert "/" not in name and len(name.encode()) <= 255
        assert name not in (".", "..")


def test_kept_are_places_of_their_own() -> None:
    """No kept directory of any plan lies below another on the host."""
    plan = with_leaf(
        with_leaf(PLAN, "session.persist", ("a", "a/b", ".npm")), "session.caches", tuple(CACHES)
    )
    places = [item.place for item in kept(plan, ROOT)]
    assert len(set(places)) == len(places)
    assert not [a for a in places for b in places if a.startswith(f"{b}/")]


def test_mounts() -> None:
    """Persisted directories are the session's, caches the project's; both are below the home inside."""
    found, skipped = launched(persist=(".claude", "a/b"), caches=("pip",))
    assert found == (
        Mount(f"{SESSION}/.claude", "/root/.claude", True),
        Mount(f"{SESSION}/a%2Fb", "/root/a/b", True),
        Mount(f"{SHARED}/pip/.cache%2Fpip", "/root/.cache/pip", True),
    )
    assert skipped == ()


def test_without_a_place_nothing_is_kept() -> None:
    """A machine without coop's data has neither mounts nor the variables of caches."""
    bound = bind(with_leaf(PLAN, "session.caches", ("cargo",)), HOST, ())
    assert bound.kept == () and "CARGO_HOME" not in bound.environment and bound.environment["COOP_SESSION"]


def test_persisted_before_cached() -> None:
    """What is persisted holds a cache in it; a cache may hold what is persisted."""
    assert len(launched(persist=(".npm",), caches=("npm",))[0]) == 1
    assert len(launched(persist=(".cache",), caches=("pip",))[0]) == 1
    assert len(launched(persist=(".npm/deep",), caches=("npm",))[0]) == 2


@pytest.mark.parametrize(
    ("leaves", "kept_ones", "said"),
    [
        ({"files.write": ("~/a",)}, 0, "/root/a is in /root/a, which"),
        ({"files.read": ("~/a",)}, 0, "/root/a is in /root/a, which"),
        ({"files.read": ("/root",)}, 0, "/root/a is in /root, which"),
        ({"files.read": ("~/a/b",)}, 1, ""),
        ({"files.read": ("~/ab",)}, 1, ""),
        ({"workspace.path": "/root/a"}, 0, "/root/a is in the workspace"),
        ({"workspace.path": "/root/a/b"}, 1, ""),
    ],
)
def test_what_is_given_by_name(leaves: dict[str, object], kept_ones: int, said: str) -> None:
    """Where the plan gives a path of the host nothing else is mounted, and that is said."""
    found, skipped = launched(("a",), leaves=leaves)
    assert len(found) == kept_ones
    assert [said in text for text in skipped] == ([True] if said else [])


def test_every_cache_of_the_language() -> None:
    """A cache that the language knows is kept, or listed as not kept."""
    names = ("apt", "apk", "cargo", "dnf", "go", "npm", "pip")
    (setting,) = [setting for setting in SETTINGS if setting.key == "session.caches"]
    assert str(list(setting.type.schema()["items"]["enum"])) == str(list(names))
    for name in names:
        listed = any(
            item.key == "session.caches" for item in unkept(with_leaf(PLAN, "session.caches", (name,)))
        )
        assert listed == (name not in CACHES)


def test_variables_name_kept_directories() -> None:
    """A variable leads to a directory that is kept, or to one that holds such."""
    for name, cache in CACHES.items():
        for path in variables((name,), "/h").values():
            assert any(f"/h/{directory}/".startswith(f"{path}/") for directory in cache.directories)


@pytest.mark.parametrize("name", ["default", "a", "A.b_c-1", "_", "0", "a" * 64, "_.", "a--"])
def test_names(name: str) -> None:
    """Letters, digits, dots, hyphens and underscores make a name."""
    assert is_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "-", "-a", ".a", "a/b", "a b", "é", "a" * 65, "a\n", "²"])
def test_no_names(name: str) -> None:
    """What could be taken for an option, a hidden file or a path is no name."""
    assert not is_name(name)


def test_named_sessions_have_directories_of_their_own() -> None:
    """What one session keeps is not another's; caches are shared."""
    plan = with_leaf(with_leaf(PLAN, "session.persist", (".claude",)), "session.caches", ("pip",))
    first, second = (bind(plan, HOST.replace(data=DATA, session=name), ()) for name in ("default", "work"))
    assert first.kept[0].source != second.kept[0].source and first.kept[1] == second.kept[1]
    assert second.kept[0].source == f"{place(DATA, ROOT, None, 'work')}/persist/.claude"
    assert second.environment["COOP_SESSION"] == session_id(ROOT, None, "work")


@given(st.integers(1, 1 << 22), st.binary(min_size=4, max_size=4))
def test_the_names_that_programs_have_for_themselves(process: int, token: bytes) -> None:
    """They are names, and what makes them is known again by what looks for them."""
    name = own_name(process, token.hex())
    assert is_name(name) and is_own_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "python",
        "python--0123abcd",
        "python-1",
        "python-1-0123ABCD",
        "python-1-0123abc",
        "python-1-0123abcd-1",
        "python-1-0123abcde",
        "python-1-0123abcg",
        "python-x-0123abcd",
        "pythons-1-0123abcd",
    ],
)
def test_other_names_are_not_taken_for_them(name: str) -> None:
    """What is kept under a name that somebody has given is not thrown away."""
    assert not is_own_name(name)
