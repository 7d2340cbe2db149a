"""Binding a plan to a machine: ids, paths, variables."""

from __future__ import annotations

import os

import pytest

from coopfile.errors import CoopError
from coopfile.language.items import Variable
from coopfile.plan.bind import bind
from coopfile.plan.hosttools import PASSED
from coopfile.plan.launch import PATH, Host, Launch, Mount
from coopfile.plan.model import Plan, with_leaf
from coopfile.plan.sessions import session_id
from tests.unit.plan.samples import PLAN

HOST = Host(
    uid=1000,
    gid=1001,
    user="dev",
    home="/home/dev",
    workspace="/home/dev/src/app",
    directory="/home/dev/src/app/lib",
    environment={"TERM": "xterm", "API_TOKEN": "s3cret", "SECRET": "x", "PATH": "/opt/bin", "LC_ALL": "C"},
    shell="/bin/bash",
    started=1700000000,
)


TOOLS = with_leaf(PLAN, "base.image", None)


def launch(plan: Plan = TOOLS, host: Host = HOST, *argv: str) -> Launch:
    """Bind a plan."""
    return bind(plan, host, argv)


def test_root_inside() -> None:
    """session.user = "root": ids 0 inside, whoever is outside."""
    bound = launch()
    assert (bound.uid, bound.gid, bound.user, bound.home) == (0, 0, "root", "/root")


def test_me_inside() -> None:
    """session.user = "me": the caller's ids and name."""
    bound = launch(with_leaf(PLAN, "session.user", "me"))
    assert (bound.uid, bound.gid, bound.user, bound.home) == (1000, 1001, "dev", "/home/dev")


@pytest.mark.parametrize("name", ["", "..", ".x", "-x", "a/b", "a:b", "a b", "a\nb", "é", "a\0b"])
def test_odd_names(name: str) -> None:
    """What is no account name is not used as one."""
    bound = launch(with_leaf(PLAN, "session.user", "me"), HOST.replace(user=name))
    assert (bound.user, bound.home) == ("user", "/home/user")


@pytest.mark.parametrize("name", ["dev", "a.b", "a-b_c", "X9"])
def test_plain_names(name: str) -> None:
    """Names that accounts have are used."""
    assert launch(with_leaf(PLAN, "session.user", "me"), HOST.replace(user=name)).user == name


def test_environment() -> None:
    """The environment is the documented list and [env]."""
    assert launch().environment == {
        "COOP_CREATED": "1700000000",
        "COOP_SESSION": session_id(HOST.workspace, None),
        "COOP_WORKSPACE": "/workspace",
        "EDITOR": "vi",
        "HOME": "/root",
        "LC_ALL": "C",
        "LOGNAME": "root",
        "PATH": PATH,
        "PWD": "/workspace/lib",
        "SHELL": "/bin/bash",
        "TAR_OPTIONS": "--no-same-owner",
        "TERM": "xterm",
        "TOKEN": "s3cret",
        "USER": "root",
    }


def test_environment_of_an_image() -> None:
    """An image has a PATH of its own and perhaps no bash: neither is taken from the host."""
    environment = launch(PLAN).environment
    assert "PATH" not in environment
    assert environment["SHELL"] == "/bin/sh"


def test_inherited() -> None:
    """Variables whose values come from the host are named, so that nothing writes them down."""
    assert launch().inherited == (("TOKEN", "API_TOKEN"),)


def test_missing_variable() -> None:
    """A variable that the host lacks is left out and named; an empty one is there."""
    bound = launch(PLAN, HOST.replace(environment={}))
    assert "TOKEN" not in bound.environment
    assert bound.skipped == ("env.TOKEN: the host has no variable API_TOKEN",)
    assert launch(PLAN, HOST.replace(environment={"API_TOKEN": ""})).environment["TOKEN"] == ""


def test_env_wins() -> None:
    """[env] decides over what passes and what coop sets."""
    plan = PLAN.replace(env=(Variable("PATH", "/x", None), Variable("TERM", "dumb", None)))
    assert {"PATH": "/x", "TERM": "dumb"}.items() <= launch(plan).environment.items()


def test_passed_list() -> None:
    """No variable that passes unnamed can change which code runs, or carries a secret."""
    for name in PASSED:
        assert not any(
            word in name for word in ("PATH", "LD_", "PRELOAD", "KEY", "TOKEN", "SECRET", "PROXY", "AUTH")
        )


def test_mounts() -> None:
    """The workspace comes first; ``~/`` is one home outside and the other inside."""
    assert launch().mounts == (
        Mount("/home/dev/src/app", "/workspace", True),
        Mount("/home/dev/.gitconfig", "/root/.gitconfig", False),
        Mount("/home/dev/.cache/go", "/root/.cache/go", True),
    )


def test_host_path() -> None:
    """workspace.path = "host" keeps every path."""
    bound = launch(with_leaf(PLAN, "workspace.path", "host"))
    assert bound.mounts[0] == Mount("/home/dev/src/app", "/home/dev/src/app", True)
    assert bound.directory == bound.environment["PWD"] == "/home/dev/src/app/lib"


@pytest.mark.parametrize(
    ("directory", "inside"),
    [
        ("/home/dev/src/app", "/workspace"),
        ("/home/dev/src/app/a/b", "/workspace/a/b"),
        ("/home/dev/src/app2", "/workspace"),
        ("/", "/workspace"),
    ],
)
def test_directory(directory: str, inside: str) -> None:
    """The command stands where the caller stands, if that is in the workspace."""
    assert launch(PLAN, HOST.replace(directory=directory)).directory == inside


def test_command() -> None:
    """What runs is the command given, else the agent's, else a shell."""
    assert launch(PLAN, HOST, "make", "test").argv == ("make", "test")
    assert launch().argv == ("claude", "-p")
    assert launch(with_leaf(TOOLS, "agent.command", ())).argv == ("/bin/bash",)


@pytest.mark.parametrize("workspace", ["/home/dev", "/home", "/"])
def test_home_in_the_workspace(workspace: str) -> None:
    """A workspace that would hold the whole home is refused."""
    with pytest.raises(CoopError, match="home directory"):
        launch(PLAN, HOST.replace(workspace=workspace, directory=workspace))


def test_workspace_in_home_like_name() -> None:
    """A workspace whose name only begins like the home's is fine."""
    assert launch(PLAN, HOST.replace(home="/home/dev/src/app2")).directory == "/workspace/lib"


def test_pure() -> None:
    """Binding looks at what it is given and at nothing of this machine."""
    before = dict(os.environ)
    assert launch() == launch()
    assert dict(os.environ) == before
