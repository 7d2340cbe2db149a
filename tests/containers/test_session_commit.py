"""Keeping what a session on a container engine has changed of its root file system."""

from __future__ import annotations

import json

import pytest

from tests.containers.asked import DOCKER
from tests.containers.enginelab import EngineSessions
from tests.engines.engine import Engine
from tests.sandboxes import Result
from tests.sessionlab import Refused

# Where root inside is somebody who may change the image's files.
WRITABLE = pytest.mark.parametrize("engine", ["podman", "podman-rootless"], indirect=True)
CHANGES = (
    "mkdir /bin/new; echo hallo > /bin/new/file; rm /bin/vi; ln -s x '/bin/a b'; echo more >> /etc/group"
)


@pytest.fixture
def committing(sessions: EngineSessions) -> EngineSessions:
    """Return sessions whose root file systems are to be committed if somebody says so."""
    sessions.project.environment["COOP_SESSION_COMMIT"] = "ask"
    return sessions


def run(sessions: EngineSessions, script: str, *options: str) -> Result:
    """Run a script in a single sandbox, or in the session ``work``."""
    return sessions.project.run("sh", "-c", script, options=["-q", *options])


@WRITABLE
def test_what_is_committed(committing: EngineSessions, engine: Engine) -> None:
    """It is seen, kept for all that comes after, and dropped again; what is mounted is no part of it."""
    project = committing.project
    assert run(committing, f"{CHANGES}; touch ~/home /tmp/x", "--session", "work").status == 0
    shown = project.coop("diff", "work", "--json")
    found = {(item["kind"], item["path"], item["type"]) for item in json.loads(shown.out)["changes"]}
    assert found == {
        ("added", "/bin/new", "directory"),
        ("added", "/bin/new/file", "file"),
        ("deleted", "/bin/vi", "file"),
        ("added", "/bin/a b", "link"),
        ("changed", "/etc/group", "file"),
    }, shown
    committed = project.coop("commit", "work")
    assert committed.status == 0 and "added 3, changed 1, deleted 1" in committed.out, committed
    assert project.coop("stop", "work").status == 0
    again = "cat /bin/new/file; ls /bin/vi; echo $COOP_SESSION"
    single = run(committing, again)
    assert single.out.startswith("hallo\n") and "No such file" in single.err, single
    joined = run(committing, again, "--session", "other")
    assert joined.out.startswith("hallo\n") and "work" not in joined.out, joined
    assert "changed nothing" in project.coop("diff", "other").err
    # Another base has nothing of it; and the image has none of coop's own.
    elsewhere = [f"--set=base.image={engine.image('env')}"]
    assert run(committing, "ls /bin/new", *elsewhere).status != 0
    images = engine.output("images", "--format", "{{.Repository}}:{{.Tag}}").split()
    (image,) = [name for name in images if "coop-committed" in name]
    config = json.loads(engine.output("image", "inspect", image))[0]["Config"]
    assert not [
        value for name, value in (config["Labels"] or {}).items() if name.startswith("coop.") and value
    ]
    assert not [variable for variable in config.get("Env") or () if "COOP" in variable]
    dropped = project.coop("reset")
    assert "dropped what was committed on podman" in dropped.out, dropped
    assert run(committing, "ls /bin/new").status != 0
    project.coop("stop", "--all")
    engine.call("rmi", "--force", image)


@WRITABLE
@pytest.mark.parametrize("mode", ["ask", "auto"])
def test_committed_before_the_end(sessions: EngineSessions, engine: Engine, mode: str) -> None:
    """What is committed already is not said to be gone; what was changed since then is, and nothing else."""
    project = sessions.project
    project.environment["COOP_SESSION_COMMIT"] = mode
    assert (
        run(sessions, "mkdir /bin/new; echo one > /bin/new/one; rm /bin/vi", "--session", "work").status == 0
    )
    assert project.coop("commit", "work").status == 0
    stopped = project.coop("stop", "work")
    assert (stopped.out, stopped.err) == (
        "stopped work\n",
        "coop: session work: what was committed is kept\n",
    )
    assert (
        run(sessions, "echo two > /bin/new/two; echo three > /bin/new/three", "--session", "work").status == 0
    )
    assert project.coop("commit", "work").status == 0
    script = "echo 222 > /bin/new/two; echo owt > /bin/new/two; rm /bin/new/three; echo > /bin/four"
    assert run(sessions, script, "--session", "work").status == 0
    stopped = project.coop("stop", "work")
    if mode == "auto":  # which takes what is there for installed
        assert "work: committed: " in stopped.err and "gone" not in stopped.err, stopped
        return
    assert "what was committed is kept" in stopped.err, stopped
    assert "added 1, changed 1, deleted 1 beside the workspace since it was committed" in stopped.err, stopped
    assert "it is gone, and coop commit work would have kept it" in stopped.err, stopped
    again = run(sessions, "cat /bin/new/one /bin/new/two /bin/new/three")
    assert again.out == "one\ntwo\nthree\n", again
    assert run(sessions, "echo > /bin/five", "--session", "work").status == 0
    assert project.coop("commit", "work").status == 0 and project.coop("reset").status == 0
    stopped = project.coop("stop", "work")
    assert "added 1 beside the workspace" in stopped.err and "is kept" not in stopped.err, stopped


@DOCKER
def test_nothing_to_commit(sessions: EngineSessions) -> None:
    """A root that cannot be written is said to be that; one in which nothing was written is fine."""
    project = sessions.project
    assert run(sessions, "true", "--session", "work").status == 0
    for verb in ("diff", "commit"):
        refused = project.coop(verb, "work")
        assert refused.status == 125 and "cannot be written on docker" in refused.err, refused
        assert 'session.commit = "ask"' in refused.err
    assert project.coop("stop", "work").status == 0
    project.environment["COOP_SESSION_COMMIT"] = "ask"
    assert run(sessions, "true", "--session", "work").status == 0
    assert "nothing to commit" in project.coop("commit", "work").out
    assert project.coop("stop", "work").status == 0


@pytest.mark.parametrize("engine", ["docker+runsc"], indirect=True)
def test_gvisor_is_refused(committing: EngineSessions) -> None:
    """It does not let the engine see what is written: a commit would say that it saved it, and not do so."""
    with pytest.raises(Refused, match="gVisor keeps what is written to itself"):
        committing.caller().open()
    assert committing.left() == []


# The shell of the image, but where coop asks what there is: then it draws, and counts far.
LYING = r"""#!/bin/busybox.real sh
case $2 in *'for path do'*)
  digits=1; while [ ${#digits} -lt 8192 ]; do digits=$digits$digits; done
  printf '\033]0;taken\007 %s 644\n' "$digits"; exit;;
esac
exec -a sh /bin/busybox.real sh "$@"
"""


@WRITABLE
def test_what_lies_about_itself(committing: EngineSessions) -> None:
    """A program of the image that a command has replaced says what it likes: none of it is shown."""
    project = committing.project
    script = 'cp /bin/busybox /bin/busybox.real; rm /bin/sh; printf %s "$LYING" >/bin/sh; chmod 755 /bin/sh'
    made = run(committing, script, "--session", "work", f"--set=env.LYING={LYING}")
    assert made.status == 0, made
    shown = project.coop("diff", "work")
    assert shown.status == 0 and "/bin/busybox.real" in shown.out, shown
    assert "taken" not in shown.out + shown.err, shown
