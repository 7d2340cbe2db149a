"""Sessions on container engines when something around them is killed, removed or taken."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from coopfile.session import store
from tests.containers.asked import DOCKER, EACH_KIND
from tests.containers.enginelab import EngineSessions
from tests.engines.engine import Engine
from tests.sandboxes import kill, wait_gone, wait_until
from tests.sessionlab import Caller, Refused

NAMES = ("docker", "docker+runsc", "podman", "podman-rootless")


def again(sessions: EngineSessions, caller: Caller) -> None:
    """See that the session starts anew and works, has what it kept, and leaves nothing in the end."""
    assert caller.open()["fresh"] is True
    assert caller.shell("cat ~/.claude/kept").out == "kept\n"
    assert len(sessions.containers()) == 1
    caller.stop()
    assert sessions.left() == []


def keeping(sessions: EngineSessions) -> Caller:
    """Return a program with a session open, which has kept something."""
    caller = sessions.opened()
    assert caller.shell("echo kept > ~/.claude/kept").status == 0
    return caller


# The container behind coop's back


@pytest.mark.parametrize("engine", NAMES, indirect=True)
@pytest.mark.parametrize("how", ["rm --force", "stop --time 1", "kill", "restart --time 1"])
def test_a_container_that_is_ended(sessions: EngineSessions, engine: Engine, how: str) -> None:
    """It is noticed at once; who waits for a command is told, and the session starts anew."""
    caller = keeping(sessions)
    number = caller.begin("sh", "-c", "touch up; sleep 1000")
    up = sessions.project.directory / "up"
    assert wait_until(up.exists)
    up.unlink()
    engine.call(*how.split(), sessions.container())
    with pytest.raises(Refused, match=r"the session default ended before.*somebody") as caught:
        caller.wait(number)
    assert caught.value.begun is True
    assert sessions.ends()
    assert sessions.left() == []
    with pytest.raises(Refused, match="does not run") as caught:
        caller.run("true")
    assert caught.value.begun is False
    again(sessions, caller)


@EACH_KIND
def test_a_command_that_ends_its_container(sessions: EngineSessions) -> None:
    """Commands have the rights of what keeps the container up; ending that is ending the session."""
    caller = keeping(sessions)
    with pytest.raises(Refused, match="ended before"):
        caller.shell("kill -9 -1; sleep 5")
    assert sessions.ends()
    again(sessions, caller)


@EACH_KIND
def test_a_name_that_is_taken(sessions: EngineSessions, engine: Engine) -> None:
    """A stranger's container of the session's name stays as it is, and the session has another name."""
    caller = sessions.opened()
    name = f"coop-{sessions.directory().name}"
    caller.stop()
    stranger = engine.output("create", "--name", name, engine.image("busybox"), "true")
    assert caller.open()["fresh"] is True
    assert caller.run("true").status == 0
    assert sessions.container() != stranger
    caller.stop()
    assert engine.containers() == [stranger]


@EACH_KIND
def test_a_container_that_a_stranger_replaces(sessions: EngineSessions, engine: Engine) -> None:
    """One by the same name, even with the same label, is not taken for the session."""
    caller = keeping(sessions)
    name = f"coop-{sessions.directory().name}"
    label = f"coop.session={sessions.directory().name}"
    engine.output("rm", "--force", sessions.container())
    engine.output(
        "run", "--detach", "--name", name, "--label", label, engine.image("busybox"), "sleep", "1000"
    )
    assert sessions.ends()
    with pytest.raises(Refused, match="does not run"):
        caller.run("true")
    again(sessions, caller)


# What keeps it


@pytest.mark.parametrize("engine", NAMES, indirect=True)
def test_a_keeper_that_is_killed(sessions: EngineSessions) -> None:
    """The container ends with it, for nothing guards it any more; what it left goes at the next use."""
    caller = keeping(sessions)
    number = caller.begin("sleep", "1000")
    processes = sessions.processes()
    kill(sessions.keeper())
    with pytest.raises(Refused, match="the session default ended before"):
        caller.wait(number)
    assert wait_gone(processes)
    with pytest.raises(Refused, match="does not run"):
        caller.run("true")
    again(sessions, caller)


@DOCKER
def test_a_command_that_holds_the_container_up(sessions: EngineSessions, engine: Engine) -> None:
    """One that keeps its input open has it outlive a keeper that is killed, but not the next use."""
    caller = keeping(sessions)
    caller.shell("exec 8<>/proc/1/fd/0; touch up; sleep 1000 >/dev/null 2>&1 &")
    kill(sessions.keeper())
    earlier = sessions.container()
    assert not store.is_alive(str(sessions.directory()))
    running = ("container", "inspect", "--format", "{{.State.Running}}", earlier)
    assert engine.output(*running) == "true"
    (sessions.project.directory / "up").unlink()
    other = sessions.caller()
    other.open()
    assert sessions.container() != earlier
    other.stop()
    again(sessions, caller)


@DOCKER
def test_what_is_left_on_an_engine_of_another_context(sessions: EngineSessions, engine: Engine) -> None:
    """It is removed there at the next use, from a shell that has another context, or none."""
    environment, home = sessions.project.environment, sessions.project.home
    environment["DOCKER_CONFIG"] = str(home / "docker")
    docker = ("--config", environment["DOCKER_CONFIG"], "context", "create", "there")
    engine.output(*docker, "--docker", f"host={environment.pop('DOCKER_HOST')}")
    environment["DOCKER_CONTEXT"] = "there"
    caller = keeping(sessions)
    caller.shell("exec 8<>/proc/1/fd/0; sleep 1000 >/dev/null 2>&1 &")
    kill(sessions.keeper())
    assert len(sessions.containers()) == 1
    del environment["DOCKER_CONTEXT"]
    sessions.project.coop("exec", "default", "--", "true")
    assert sessions.containers() == []


@EACH_KIND
def test_a_keeper_that_is_asked_to_end(sessions: EngineSessions) -> None:
    """TERM ends the session properly."""
    caller = keeping(sessions)
    os.kill(sessions.keeper(), signal.SIGTERM)
    assert sessions.ends()
    assert sessions.left() == []
    again(sessions, caller)


@EACH_KIND
def test_a_starter_that_is_killed(sessions: EngineSessions) -> None:
    """Whenever that happens there is a session that works, or none: no half of one."""
    for number in range(5):
        caller = sessions.caller()
        caller.do("status", names=[])
        caller.ask("open", name="default", overrides=None, ttl=None, leased=False)
        wait_until(lambda: False, 0.2 * number)
        caller.kill()
    other = sessions.caller()
    other.open()
    assert other.run("true").status == 0
    other.stop()
    assert wait_until(lambda: sessions.left() == [])


@EACH_KIND
def test_what_is_known_is_damaged(sessions: EngineSessions) -> None:
    """Others are told, and how to end it; who has it open goes on."""
    caller = sessions.opened()
    caller.run("sleep", "6")  # until it is sure that it is known
    (sessions.directory() / "state").unlink()
    assert caller.run("true").status == 0
    with pytest.raises(Refused, match="what is known of it is damaged"):
        sessions.caller().open()
    assert caller.run("true").status == 0
    assert sessions.project.coop("stop", "default").status == 0
    assert sessions.left() == []


@DOCKER
def test_nobody_comes_to_know_it(sessions: EngineSessions) -> None:
    """One whose starter was killed at the very moment ends by itself, and the next one waits for that."""
    caller = sessions.opened()
    keeper = sessions.keeper()
    (sessions.directory() / "state").unlink()
    other = sessions.caller()
    assert other.open()["fresh"] is True
    assert wait_gone([keeper])
    assert len(sessions.containers()) == 1
    with pytest.raises(Refused, match=r"does not run|did not answer"):
        caller.do("status", names=[])
        sessions.project.coop("stop", "default")
        caller.run("true")
    assert sessions.left() == []


# What guards it


@EACH_KIND
def test_guards_hold_after_the_starter_has_gone(sessions: EngineSessions) -> None:
    """The places of protected paths are held, and hidden files hidden, until the session ends."""
    project = sessions.project
    project.write(".env", "s3cret")
    project.write("Makefile", "all:\n")
    sessions.watch_workspace()
    settings = {"files.hide": [".env"], "workspace.protect": ["Makefile", "missing/deep"]}
    first = sessions.opened(overrides=settings)
    first.close()
    caller = sessions.caller()
    assert caller.open(overrides=settings)["fresh"] is False
    script = (
        "cat .env; echo x > Makefile; mv Makefile other; mkdir missing; echo x > missing/deep; "
        "rmdir missing; mkdir .git/hooks; mv .git other; rm -rf .git Coopfile.lock; "
        "echo x > Coopfile; ls -A; true"
    )
    done = caller.shell(script)
    assert "s3cret" not in done.out and done.status == 0
    assert (project.directory / "Makefile").read_text() == "all:\n"
    assert (project.directory / ".git").is_dir() and not list((project.directory / ".git").iterdir())
    assert list((sessions.state / "running").iterdir()) != []
    # A run beside it shares the places, and leaves them to the session.
    del project.environment["COOP_BASE_IMAGE"]
    assert project.run("true", options=["--set", "sandbox.backend=native"]).status == 0
    assert (project.directory / ".git").is_dir()
    caller.stop()
    assert sessions.left() == []


@EACH_KIND
def test_limits(sessions: EngineSessions) -> None:
    """A command dumps no core, and has no capability and a root that cannot be written."""
    caller = sessions.opened()
    script = "ulimit -Hc; grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status; touch /x /bin/x"
    done = caller.shell(script)
    words = done.out.split()
    assert words[0] == "0" and {"0000000000000000", "1"} == set(words[2::2]), done
    assert done.err.count("Read-only file system") == 2, done


# Fills the output of what coop itself runs in the container, by /proc, as who has the same id may.
FLOOD = r"""
exec >/dev/null 2>&1
touch up
while :; do
  for place in /proc/[0-9]*; do
    if grep -q 'smaps[_]rollup' "$place/cmdline"; then
      kill -STOP "${place#/proc/}" && cat /dev/zero >"$place/fd/1" && exit
    fi
  done
done
"""


@EACH_KIND
def test_a_flood_from_inside(sessions: EngineSessions) -> None:
    """What a command makes of coop's own looks into the container takes bounded memory outside."""
    caller = sessions.opened()
    caller.begin("sh", "-c", FLOOD)
    assert wait_until((sessions.project.directory / "up").exists)
    most = 0
    for _ in range(3):
        with contextlib.suppress(Refused):
            caller.usage()
        most = max(most, peak(sessions.keeper()))
    assert most < 256 << 10, most
    caller.stop()


def peak(pid: int) -> int:
    """Return the most memory that a process has had, in KiB."""
    (line,) = [text for text in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmHWM" in text]
    return int(line.split()[1])


# What is refused


@EACH_KIND
def test_an_image_without_a_shell(sessions: EngineSessions, engine: Engine) -> None:
    """The reason is told, with what helps, and nothing is left."""
    for image in ("no-shell", "empty"):
        with pytest.raises(Refused, match="could not start the container") as caught:
            sessions.caller().open(overrides={"base.image": engine.image(image)})
        assert caught.value.remedy is not None and "/bin/sh" in caught.value.remedy
        assert sessions.left() == []


@DOCKER
def test_no_session_is_on_the_host(sessions: EngineSessions, dead_daemon: str) -> None:
    """Where no back end works, a run may fall back to the host if it is told to; a session does not."""
    sessions.project.environment["DOCKER_HOST"] = dead_daemon
    with pytest.raises(Refused, match=r"docker: Cannot connect(.|\n)*not for sessions"):
        sessions.caller().open(overrides={"sandbox.fallback": "host"})
    assert sessions.left() == []


# Sweeping up


@EACH_KIND
def test_what_nobody_keeps_is_swept_up(sessions: EngineSessions, engine: Engine) -> None:
    """The containers of killed keepers are removed, on the engine that they are on, and no others."""
    caller = sessions.opened("living")
    living = sessions.container()
    stranger = engine.output("create", "--label", "coop.managed=true", engine.image("busybox"), "true")
    other = sessions.opened("dead")
    other.shell("exec 8<>/proc/1/fd/0; sleep 1000 >/dev/null 2>&1 &", name="dead")
    kill(*sessions.clients("dead"), sessions.keeper("dead"))
    told = json.loads(sessions.project.coop("clean", "--json", "--dry-run").out)
    assert len(sessions.containers()) >= 2
    swept = json.loads(sessions.project.coop("clean", "--json").out)
    assert swept["containers"] == told["containers"]
    assert sorted(sessions.containers()) == sorted([living, stranger])
    assert caller.run("true", name="living").status == 0
