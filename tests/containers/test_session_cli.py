"""The command line of sessions on a container engine: the same words as for one in namespaces."""

from __future__ import annotations

import json

from tests.containers.asked import EACH_KIND
from tests.containers.enginelab import EngineSessions


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
