"""The profile and ``coop why`` give the same answers, wherever Seatbelt can keep the plan."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coopfile.errors import CoopError
from coopfile.plan.explain import Action, explain
from coopfile.plan.model import Plan
from coopfile.render.facts import Facts
from coopfile.render.seatbelt import weakenings
from tests.unit.render.seatbelt.samples import (
    HOME,
    HOST,
    REPRESENTATIVE,
    WORKSPACE,
    Rendered,
    compiled,
    rendered,
    sample,
    with_network,
)

OPERATIONS = {"read": "file-read-data", "write": "file-write-data", "exec": "process-exec"}


def why(plan: Plan, verb: str, target: str) -> bool:
    """Return the plan's own answer."""
    if verb == "exec" and "/" not in target:
        target = f"./{target}"  # a file, not a program to be looked for
    return explain(plan, Action(verb, target), home=HOME, workspace=WORKSPACE).allowed


def answer(found: Rendered, verb: str, target: str) -> bool:
    """Return the profile's answer to the same question."""
    if verb == "connect":
        host, _, port = target.rpartition(":")
        return found.may_connect(host.strip("[]"), int(port))
    path = posixpath.normpath(posixpath.join(WORKSPACE, target.replace("~", HOME, 1)))
    return found.may(OPERATIONS[verb], path)


ACTIONS = [
    *((verb, path) for verb in ("read", "write", "exec") for path in (
        "src/main.py",
        "scripts/deploy.sh",
        ".git/hooks/pre-commit",
        ".git/hooks-mine",
        ".env",
        "deep/down/.env.local",
        "secrets/a/b",
        "keys/b1.pem",
        "keys/z1.pem",
        "Coopfile",
        "~/.gitconfig",
        "~/.config/app/x",
        "~/.config/app/fixed/x",
        "~/.config/git/ignore",
        "~/.cache/go-build/x",
        "~/.cache/golang/x",
        "~/.ssh/id_rsa",
        "~/.bashrc",
        "/Users/bob/.ssh/id_rsa",
        "/opt/data/x",
        "/srv/out/x",
        "/srv/x",
        "/usr/bin/python3",
        "/bin/sh",
        "/library/x",
        "/var/lib/x",
        "/boot/x",
    )),
    ("read", "/dev/null"),
    ("write", "/dev/null"),
    ("read", "/dev/urandom"),
    ("read", "/dev/sda"),
    ("write", "/etc/ssl/cert.pem"),
    ("connect", "93.184.216.34:443"),
    ("connect", "192.168.1.1:22"),
    ("connect", "[2606:2800:220:1::1]:443"),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["none", "host"])
@pytest.mark.parametrize(("verb", "target"), ACTIONS)
def test_same_answers(mode: str, verb: str, target: str) -> None:
    """What the plan says of an action is what the profile does."""
    found = sample(with_network(mode))
    assert answer(found, verb, target) is why(found.plan, verb, target)


DIFFERENCES = [
    # what the plan says and the profile cannot keep, and the weakening that says so
    ("none", "connect", "127.0.0.1:8080", "network.mode"),
    ("none", "read", "/private/tmp/x", "limits.tmp"),
    ("none", "write", "/private/tmp/x", "limits.tmp"),
]


@pytest.mark.parametrize(("mode", "verb", "target", "key"), DIFFERENCES)
def test_differences_are_listed(mode: str, verb: str, target: str, key: str) -> None:
    """Where the answers differ, a weakening of that setting says why."""
    found = sample(with_network(mode))
    assert answer(found, verb, target) is not why(found.plan, verb, target)
    assert key in {weakening.key for weakening in weakenings(found.plan, found.launch, found.facts)}


# A small tree, so that paths fall into one another often.
_name = st.sampled_from(["a", "b", ".config", "git", ".ssh"])
_below = st.lists(_name, min_size=1, max_size=4).map("/".join)
_home = _below.map("~/{}".format)
_workspace = _below.map(f"{WORKSPACE}/{{}}".format)
_outside = _below.map("/srv/{}".format)
_host = st.one_of(_home, _home.map(lambda path: HOME + path[1:]), _workspace, _outside)
_hosts = st.lists(_host, max_size=4)
_hide = st.lists(
    st.lists(st.sampled_from(["a", "b*", "?", "**", "[ab]", ".[!a]*"]), min_size=1, max_size=3).map("/".join),
    max_size=2,
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw a plan about files of the small tree."""
    protect = draw(st.lists(_below, max_size=2))
    text = (
        f"workspace.protect = {protect}\n"
        f"[files]\nread = {draw(_hosts)}\nwrite = {draw(_hosts)}\nhide = {draw(_hide)}\n"
    )
    try:
        return compiled(text)
    except CoopError:
        assume(False)
        raise


@settings(max_examples=50, deadline=None)
@given(plan=plans(), targets=st.lists(_host, min_size=1, max_size=8))
def test_same_answers_for_any_files(plan: Plan, targets: list[str]) -> None:
    """For any lists of files the profile does what the plan says, under every reading."""
    paths = [path.replace("~", HOME, 1) for path in (*plan.files.read, *plan.files.write)]
    facts = Facts(HOST, "darwin", kinds=dict.fromkeys(paths, "directory"))
    try:
        found = rendered(plan, facts)
    except CoopError:
        assume(False)
        raise
    for target in targets:
        for verb in ("read", "write"):
            assert answer(found, verb, target) is why(plan, verb, target), (verb, target)


def test_the_representative_plan_is_compiled() -> None:
    """The plan of these tests has something in every list of files."""
    files = compiled(REPRESENTATIVE).files
    assert files.read and files.write and files.hide
