"""The command line of sessions on a container engine: the same words as for one in namespaces."""

from __future__ import annotations

import json

import pytest

from tests.containers.asked import EACH_KIND
from tests.containers.enginelab import EngineSessions
from tests.engines.engine import Engine


@EACH_KIND
def test_life(sessions: EngineSessions) -> None:
    """It is started, used, listed, stopped, started again by its use, and removed."""
    project = sessions.project
    project.mkdir("a")
    for _ in range(2):
        result = project.shell("echo one >> /tmp/a; exit 3", options=["-q", "--session", "work"])
        assert (result.status, result.err) == (3, ""), result
    result = project.coop(
        "exec", "-C", str(project.directory / "a"), "work", "--", "sh", "-c", "pwd; cat /tmp/a"
    )
    assert result.out == "/workspace/a\none\none\n", result
    assert project.coop("exec", "work", "--timeout", "500ms", "sleep", "100").status == 124
    assert project.coop("exec", "work", "cat", stdin=b"two").out == "two"
    (item,) = json.loads(project.coop("ls", "--json").out)["sessions"]
    assert (item["name"], item["state"], item["problem"]) == ("work", "running", None)
    assert item["backend"] in ("docker", "podman") and item["processes"] == 0
    assert project.coop("stop", "work").out == "stopped work\n"
    assert "stopped" in project.coop("ls").out and sessions.containers() == []
    result = project.coop("exec", "-q", "work", "ls", "/tmp")
    assert (result.status, result.out) == (0, ""), result
    removed = project.coop("rm", "work")
    assert "ended the session work" in removed.out, removed
    assert sessions.containers() == [] and json.loads(project.coop("ls", "--json").out)["sessions"] == []
    (project.directory / "a").rmdir()
    assert sessions.left() == []


@EACH_KIND
def test_what_starting_it_shows(sessions: EngineSessions, engine: Engine) -> None:
    """An image that is made for it is told of as by a run, and each time only what is unusual here."""
    project = sessions.project
    project.coopfile("[setup]\nrun = ['echo built > /built']\n")
    project.environment["COOP_SETUP_NETWORK"] = "none"
    single = project.run("cat", "/built")
    assert (single.status, single.out) == (0, "built\n"), single
    project.coopfile("[setup]\nrun = ['echo again > /built']\n")
    first = project.shell("cat /built", options=["--session", "work"])
    assert (first.status, first.out) == (0, "again\n"), first
    said = first.err.splitlines()
    # The same lines, but for the image's key, and the session's name behind the back end's.
    assert [line.split()[:2] for line in said] == [line.split()[:2] for line in single.err.splitlines()]
    assert said[0].startswith("coop: building ") and "plan: limits.tmp" not in first.err, first
    (name,) = (line for line in said if line.endswith(", session work"))
    assert name.removesuffix(", session work") in single.err.splitlines(), (said, single)
    assert project.coop("stop", "work").status == 0
    second = project.coop("shell", "work", stdin=b"cat /built")
    assert (second.out, second.err.splitlines()) == ("again\n", said[said.index(name) :]), second
    assert "weaker than the plan: limits.tmp" in project.shell("true", options=["-v"]).err


@EACH_KIND
def test_run_joins(sessions: EngineSessions) -> None:
    """`coop run --session` joins what runs under its plan, refuses another, and starts what was stopped."""
    project = sessions.project
    for number in range(1, 4):
        result = project.shell("echo >> /tmp/a; wc -l < /tmp/a", options=["--session", "work"])
        assert (result.status, result.out) == (0, f"{number}\n"), result
        assert (result.err == "") == (number > 1), result
    (container,) = sessions.containers()
    other = project.shell("cat /tmp/a", options=["--session", "work", "--set", "limits.pids=99"])
    assert other.status == 125 and "runs under another plan" in other.err and other.out == "", other
    assert project.coop("stop", "work").status == 0
    result = project.shell("ls /tmp", options=["-q", "--session", "work"])
    assert (result.out, result.err) == ("", ""), result
    assert sessions.containers() != [container]


@EACH_KIND
@pytest.mark.parametrize(
    ("directory", "place", "why"),
    [
        ("nowhere", "/workspace/nowhere", "No such file or directory"),
        ("Coopfile", "/workspace/Coopfile", "Not a directory"),
        ("/etc/passwd", "/etc/passwd", "Not a directory"),
    ],
)
def test_a_directory_that_is_none(sessions: EngineSessions, directory: str, place: str, why: str) -> None:
    """Where a command cannot start it is coop's error, which names the place; its own statuses stay."""
    project = sessions.project
    project.coopfile("# nothing\n")
    assert project.shell("mkdir -p /tmp/a", options=["-q", "--session", "work"]).status == 0
    result = project.coop("exec", "work", "--dir", directory, "--", "touch", "/tmp/started")
    assert result.status == 125 and f"{place} cannot be entered inside the sandbox: {why}" in result.err
    for inside in ("/tmp/a", "."):
        result = project.coop("exec", "work", "--dir", inside, "--", "sh", "-c", "echo own >&2; exit 126")
        assert (result.status, result.err) == (126, "own\n")
    assert project.coop("exec", "work", "ls", "/tmp").out == "a\n"
