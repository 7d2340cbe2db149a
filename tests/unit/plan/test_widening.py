"""Promises across modules: a ceiling holds whatever asks, and what is not wider permits no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from coopfile.errors import UsageError
from coopfile.language.reading import read
from coopfile.language.sources import Source
from coopfile.plan.ceiling import exceeding
from coopfile.plan.compare import compare, widening
from coopfile.plan.explain import BUILT_IN, Action, explain
from coopfile.plan.model import Plan, with_leaf
from coopfile.plan.resolve import resolve
from tests.unit.plan.strategies import ACCESSES, ENVIRONMENTS, LEAVES, PLANS

HOME, WORKSPACE = "/home/me", "/home/me/shop"
# What a verdict with one of these keys allows is the sandbox's own, or in every sandbox.
OWN = (BUILT_IN, "session.persist", "session.caches", "base.image")

PLACES = st.sampled_from(
    [
        *(
            "~/a",
            "~/a/b",
            "~/a/b/c",
            "~/a/b/c/d",
            "~/ab",
            "~/b",
            "~/.ssh/id",
            "~/.bashrc",
            "/opt",
            "/opt/x/y",
        ),
        *(
            "/srv",
            "/etc/shadow",
            "/usr/bin/env",
            ".",
            "a",
            "a/b",
            "a/b/c",
            "b",
            ".env",
            "x.pem",
            ".git/hooks/p",
        ),
        *(".gitconfig", ".git", "Coopfile", "/home/me", "/home/me/a/b", "/tmp/x"),
    ]
)
HOSTS = ("pypi.org", "github.com", "api.github.com", "deep.api.github.com", "10.0.0.1", "169.254.169.254")
ACTIONS = (
    st.builds(Action, st.sampled_from(["read", "write", "exec"]), PLACES)
    | st.builds(Action, st.just("exec"), st.just("sh"))
    | st.builds(Action, st.just("env"), st.sampled_from(["A", "B", "C", "API_KEY", "SECRET"]))
    | st.builds(
        Action,
        st.just("connect"),
        st.builds("{}:{}".format, st.sampled_from(HOSTS), st.sampled_from([22, 80, 443, 8080])),
    )
)


def permitted(plan: Plan, action: Action) -> bool:
    """Tell whether a plan gives something of the host's for an action."""
    try:
        verdict = explain(plan, action, home=HOME, workspace=WORKSPACE)
    except UsageError:
        return False
    if action.verb == "env":  # a text of the Coopfile's is nothing of the host's
        return any(item.name == action.target and item.host is not None for item in plan.env)
    return verdict.allowed and verdict.key not in OWN


@st.composite
def not_wider(draw: st.DrawFn) -> tuple[Plan, Plan]:
    """Return two plans, the second of which is not wider, as ``compare`` says, and mostly another one."""
    old = new = draw(PLANS)
    leaves = {**LEAVES, "env": ENVIRONMENTS}
    keys = draw(st.lists(st.sampled_from([*leaves, "access"]), min_size=1, max_size=12))
    for key in keys:
        if key == "access":
            other = new.replace(access=draw(st.none() | ACCESSES))
        else:
            other = with_leaf(new, key, draw(leaves[key]))
        if not widening(compare(old, other)):
            new = other
    return old, new


@given(not_wider(), st.lists(ACTIONS, min_size=5, max_size=25))
def test_what_is_not_wider_permits_no_more(plans: tuple[Plan, Plan], actions: list[Action]) -> None:
    """Nothing of the host's that one plan forbids is permitted by one that ``compare`` calls not wider."""
    old, new = plans
    more = [action for action in actions if permitted(new, action) and not permitted(old, action)]
    assert not more, [change.describe() for change in compare(old, new)]


MODES = ("none", "proxy", "veth", "host")
ISOLATIONS = ("namespace", "userspace-kernel", "vm")
LISTED = st.lists(
    st.sampled_from(["~/a", "~/a/b", "~/a/b/c", "~/ab", "/opt", "/opt/x", "/srv"]), max_size=3, unique=True
)
GUARDS = st.lists(st.sampled_from(["a", "a/b", "b", "c"]), max_size=2, unique=True)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "network.mode": st.sampled_from(MODES),
    "limits.memory": st.sampled_from(["1g", "2g", "3g", "4096m"]),
    "limits.pids": st.integers(100, 600),
    "limits.cpus": st.sampled_from([0.5, 1, 2]),
    "sandbox.min_isolation": st.sampled_from(ISOLATIONS),
    "sandbox.fallback": st.sampled_from(["refuse", "host"]),
    "sandbox.enabled": st.booleans(),
    "tools.confirm": st.sampled_from(["ask", "never"]),
    "files.read": LISTED,
    "files.write": LISTED,
    "files.hide": GUARDS,
    "workspace.protect": GUARDS,
}
BYTES = {"1g": 1 << 30, "2g": 2 << 30, "3g": 3 << 30, "4096m": 4 << 30}
ASKED = st.fixed_dictionaries({}, optional=VALUES)


def _text(values: dict[str, Any]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def _below(paths: tuple[str, ...], allowed: list[str]) -> bool:
    return all(any(path == most or path.startswith(most + "/") for most in allowed) for path in paths)


def within(plan: Plan, most: dict[str, Any]) -> bool:
    """Tell, in other words than the code's, whether a plan is below a ceiling."""
    reads = (*plan.files.read, *(() if "files.write" in most else plan.files.write))
    checks: dict[str, Callable[[Any], bool]] = {
        "network.mode": lambda top: MODES.index(plan.network.mode) <= MODES.index(top),
        "limits.memory": lambda top: plan.limits.memory <= BYTES[top],
        "limits.pids": lambda top: plan.limits.pids <= top,
        "limits.cpus": lambda top: plan.limits.cpus is not None and plan.limits.cpus / 1000 <= top,
        "sandbox.min_isolation": lambda top: (
            ISOLATIONS.index(plan.sandbox.min_isolation) >= ISOLATIONS.index(top)
        ),
        "sandbox.fallback": lambda top: plan.sandbox.fallback in ("refuse", top),
        "sandbox.enabled": lambda top: plan.sandbox.enabled or not top,
        "tools.confirm": lambda top: plan.tools.confirm in ("ask", top),
        "files.read": lambda top: _below(reads, [*top, *most.get("files.write", [])]),
        "files.write": lambda top: _below(plan.files.write, top),
        "files.hide": lambda top: _below(tuple(top), list(plan.files.hide)),
        "workspace.protect": lambda top: _below(tuple(top), list(plan.workspace.protect)),
    }
    return all(checks[key](top) for key, top in most.items())


@given(ASKED, ASKED, ASKED, ASKED, ASKED, ASKED, ASKED)
def test_the_ceiling_holds(
    ceiling: dict[str, Any],
    own: dict[str, Any],
    project: dict[str, Any],
    local: dict[str, Any],
    override: dict[str, Any],
    environment: dict[str, Any],
    flags: dict[str, Any],
) -> None:
    """Whatever the layers, a user's override, the environment and the command line ask for together:

    what they come to is an error exactly if it is beyond the ceiling.
    """
    user = f'[[users]]\nname = "bob"\nmatch = ["x:bob"]\n[users.override]\n{_text(override)}'
    reading = read(
        [
            Source("user", "own", f"{_text(own)}\n[ceiling]\n{_text(ceiling)}".encode()),
            Source("project", "Coopfile", f"{_text(project)}\n{user}".encode()),
            Source("local", "Coopfile.local", _text(local).encode()),
        ],
        environment={
            "COOP_" + key.upper().replace(".", "_"): value if isinstance(value, str) else json.dumps(value)
            for key, value in environment.items()
        },
        assignments=tuple(
            f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in flags.items()
        ),
    )
    for who in (None, *reading.users):
        merged = reading.settings(who)
        plan = resolve(merged)
        assert (exceeding(reading, merged, plan) == ()) == within(plan, ceiling)
