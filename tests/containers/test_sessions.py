"""The life of a session on a container engine, and commands in it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.containers.asked import EACH_KIND
from tests.containers.enginelab import EngineSessions
from tests.engines.engine import MORE_NAMES, NAMES, Engine
from tests.sandboxes import descendants, wait_until
from tests.sessionlab import Caller, Refused

EVERY = pytest.mark.parametrize("engine", (*NAMES, *MORE_NAMES), indirect=True)
# What leaves a command: by a session of its own, deaf to TERM, without any variable, without its parent.
AWAY = (
    "trap '' TERM HUP; setsid sleep 1000 & "
    "(env -i setsid sh -c 'trap \"\" TERM; sleep 1000; :' &); echo up > up; sleep 1000"
)


def begin_away(sessions: EngineSessions, caller: Caller, **how: object) -> int:
    """Start a command that leaves much behind; return when that is there."""
    number = caller.begin("sh", "-c", AWAY, **how)  # type: ignore[arg-type]
    assert wait_until((sessions.project.directory / "up").exists)
    return number


# Life


@EVERY
def test_life(sessions: EngineSessions, engine: Engine) -> None:
    """It starts once, other programs join it, commands share it, and stopping it leaves nothing."""
    first = sessions.caller()
    found = first.open()
    assert found["fresh"] is True
    identifier = Path(found["directory"]).name
    done = first.shell("echo one > /tmp/scratch; echo two > kept; echo $COOP_SESSION; pwd")
    assert (done.status, done.out) == (0, f"{identifier}\n/workspace\n"), done
    second = sessions.caller()
    assert second.open()["fresh"] is False
    assert second.shell("cat /tmp/scratch kept").out == "one\ntwo\n"
    assert first.shell("exit 7").status == 7
    assert first.usage()[0] == 0
    first.shell("sleep 1000 >/dev/null 2>&1 &")
    processes, memory = second.usage()
    assert processes == 1 and memory > 0
    known = json.loads(engine.output("container", "inspect", sessions.container()))[0]
    assert known["Name"].lstrip("/") == f"coop-{identifier}"
    assert known["Config"]["Labels"]["coop.session"] == identifier
    second.stop()
    (sessions.project.directory / "kept").unlink()
    assert sessions.left() == []
    with pytest.raises(Refused, match="does not run"):
        first.run("true")
    assert first.open()["fresh"] is True
    assert first.shell("ls /tmp").out == ""


@EACH_KIND
def test_how_commands_end(sessions: EngineSessions) -> None:
    """As a shell tells it; what cannot be started says why."""
    caller = sessions.opened()
    killed = caller.shell("kill -9 $$")
    assert (killed.status, killed.signal, killed.timed_out) == (137, 9, False)
    missing = caller.run("nowhere")
    assert missing.status == 127 and "not found" in missing.err
    assert caller.run("/etc/passwd").status == 126
    assert caller.run("-x").status == 127
    with pytest.raises(Refused, match="/workspace/nowhere cannot be entered inside the sandbox"):
        caller.run("true", directory="nowhere")
    assert caller.shell("pwd; echo $PWD", directory="/tmp").out == "/tmp\n/tmp\n"
    assert caller.run("printf", "%s|", "", "a b", "$HOME", "'\"", "ü\n").out == "|a b|$HOME|'\"|ü\n|"


@EACH_KIND
def test_two_start_it_at_once(sessions: EngineSessions) -> None:
    """One of them starts it, the others join, and there is one container."""
    callers = [sessions.caller() for _ in range(3)]
    for caller in callers:
        caller.ask("open", name="default", overrides=None, ttl=None, leased=False)
    assert sorted(caller.answer()["fresh"] for caller in callers) == [False, False, True]
    assert len(sessions.containers()) == 1


@EACH_KIND
def test_another_plan_is_refused(sessions: EngineSessions) -> None:
    """A session that runs keeps its plan; stopped, it starts under another one."""
    caller = sessions.opened()
    with pytest.raises(Refused, match="runs under another plan") as caught:
        sessions.caller().open(overrides={"limits.memory": "300m"})
    assert caught.value.kind == "PlanDiffers"
    caller.stop()
    assert caller.open(overrides={"limits.memory": "300m"})["fresh"] is True


@EACH_KIND
def test_many_at_once(sessions: EngineSessions) -> None:
    """Each has its own end and its own output, and no descriptor is left of any."""
    caller = sessions.opened()
    caller.shell("true")
    before = caller.do("status", names=["descriptors"])
    numbers = [caller.begin("sh", "-c", f"echo {number}; exit {number}") for number in range(12)]
    done = [caller.wait(number) for number in numbers]
    assert [(item.status, item.out) for item in done] == [(number, f"{number}\n") for number in range(12)]
    assert caller.do("status", names=["descriptors"]) == before
    assert caller.usage()[0] == 0


@EACH_KIND
def test_what_persists(sessions: EngineSessions) -> None:
    """The kept directories of a session outlive it; its scratch space and root do not."""
    caller = sessions.opened("one")
    caller.shell("echo kept > ~/.claude/kept; touch ~/lost /tmp/lost", name="one")
    caller.stop("one")
    caller.open("one")
    assert caller.shell("cat ~/.claude/kept ~/lost /tmp/lost", name="one").out == "kept\n"
    caller.open("two")
    assert caller.shell("ls -A ~/.claude", name="two").out == ""


@EACH_KIND
def test_idle_too_long(sessions: EngineSessions) -> None:
    """It ends when no command has run for its time, and not while one runs."""
    caller = sessions.opened(ttl=4.0)
    assert caller.run("sleep", "5").status == 0
    assert sessions.ends()
    assert sessions.left() == []


@EACH_KIND
def test_leased(sessions: EngineSessions) -> None:
    """It ends with the program that started it, however that ends."""
    caller = sessions.opened(leased=True)
    sessions.opened().shell("true")
    caller.kill()
    assert sessions.ends()
    assert sessions.left() == []


# Commands


@EVERY
def test_all_of_a_command_ends_with_its_time(sessions: EngineSessions) -> None:
    """Also what left it in every way, and nothing else: what an earlier command left stays."""
    caller = sessions.opened()
    caller.shell("sleep 1000 >/dev/null 2>&1 &")
    done = caller.wait(begin_away(sessions, caller, timeout=2.0))
    assert (done.status, done.timed_out) == (124, True), done
    assert caller.usage()[0] == 1
    assert caller.run("true").status == 0


@EACH_KIND
def test_commands_at_once_are_told_apart(sessions: EngineSessions) -> None:
    """What one leaves behind does not end with another's time."""
    caller = sessions.opened()
    other = caller.begin("sh", "-c", "setsid sleep 1000 & sleep 4; echo well")
    assert caller.run("sleep", "1000", timeout=1.0).timed_out
    done = caller.wait(other)
    assert (done.status, done.out) == (0, "well\n")
    assert caller.usage()[0] == 1


@EACH_KIND
@pytest.mark.parametrize("how", ["closed", "killed"])
def test_a_caller_that_goes_away(sessions: EngineSessions, how: str) -> None:
    """Its command is ended with all that it started, and the session goes on."""
    caller, other = sessions.opened(), sessions.opened()
    number = begin_away(sessions, caller)
    assert other.usage()[0] >= 3
    if how == "closed":
        caller.do("close", number=number)
    else:
        caller.kill()
    assert wait_until(lambda: other.usage()[0] == 0)
    assert other.run("true").status == 0


@EACH_KIND
def test_signals(sessions: EngineSessions) -> None:
    """They reach the command's process group, also one that has hardly begun, and no other command."""
    caller = sessions.opened()
    other = caller.begin("sh", "-c", "trap 'echo mine' USR1; touch ready; sleep 1000; echo done")
    assert wait_until((sessions.project.directory / "ready").exists)
    number = caller.begin("sleep", "1000")
    caller.do("signal", number=number, signal=int(signal.SIGTERM))
    done = caller.wait(number)
    assert (done.status, done.signal) == (143, 15)
    caller.do("signal", number=other, signal=int(signal.SIGUSR1))
    done = caller.wait(other)
    assert "mine" in done.out and done.status == 0, done


@EACH_KIND
def test_an_engine_process_that_is_killed(sessions: EngineSessions) -> None:
    """Nobody would get the command's output any more: it is ended, and the caller is told."""
    caller = sessions.opened()
    number = caller.begin("sh", "-c", "touch up; sleep 1000")
    assert wait_until((sessions.project.directory / "up").exists)
    clients = [pid for pid in descendants(caller.pid) if b"exec" in _words(pid)]
    os.kill(clients[0], signal.SIGKILL)
    with pytest.raises(Refused, match="somebody killed the process by which the command ran") as caught:
        caller.wait(number)
    assert caught.value.begun is True
    assert wait_until(lambda: caller.usage()[0] == 0)


@EACH_KIND
def test_variables(sessions: EngineSessions) -> None:
    """Values arrive as they are, also those that the engine itself would act on, and show nowhere."""
    caller = sessions.opened()
    given = {
        "PLAIN": "a b",
        "LINES": "a\nb",
        "PATH": "/bin:/x",
        "HTTP_PROXY": "http://u:s3cret@x",
        "HOME": "/h",
        "_CONTAINERS_USERNS_CONFIGURED": "done",
    }
    done = caller.shell("printf '%s|' " + " ".join(f'"${name}"' for name in given), environment=given)
    assert done.out == "".join(f"{value}|" for value in given.values()), done
    number = caller.begin("sh", "-c", "touch up; sleep 1000", environment=given)
    assert wait_until((sessions.project.directory / "up").exists)
    words = b"".join(word for pid in descendants(caller.pid) for word in _words(pid))
    assert b"exec" in words and b"s3cret" not in words and b"a b" not in words
    caller.do("close", number=number)
    for bad in ({"HTTP_PROXY": "a\nb"}, {"a.b": "x"}, {"X": "\udcff"}):
        with pytest.raises(Refused, match=r"line break|hand on|UTF-8"):
            caller.run("true", environment=bad)


@EACH_KIND
def test_secrets(sessions: EngineSessions, engine: Engine) -> None:
    """A variable of the host's is what it was at the start, for every program, and not in the container."""
    sessions.project.environment["OUTER"] = "s3cret"
    settings = {"env": {"INNER": {"host": "OUTER"}}}
    sessions.opened(overrides=settings)
    del sessions.project.environment["OUTER"]
    later = sessions.caller()
    later.open(overrides=settings)
    assert later.shell("echo $INNER").out == "s3cret\n"
    assert "s3cret" not in engine.output("container", "inspect", sessions.container())
    kept = [path for path in sessions.data.rglob("*") if path.is_file()]
    assert kept and not [path for path in kept if b"s3cret" in path.read_bytes()]


@EVERY
def test_a_terminal(sessions: EngineSessions) -> None:
    """A command has one of its own, of the size that was asked for; keys make signals."""
    caller = sessions.opened()
    script = "trap 'echo interrupted; exit 5' INT; stty size; [ -t 0 ] && echo terminal; sleep 1000 & wait"
    number = caller.begin("sh", "-c", script, terminal=(33, 77), streams=())
    assert "33 77" in (said := caller.do("terminal", number=number, feed="", until="terminal")), said
    said = caller.do("terminal", number=number, feed="\x10\x11\x03", until="interrupted")
    done = caller.wait(number)
    assert done.status == 5, (done, said)


@EACH_KIND
def test_streams(sessions: EngineSessions) -> None:
    """Input that is a file ends, and output in a file is complete; what reads nothing is not held up."""
    project = sessions.project
    project.write("input", b"\xff" * 300_000)
    caller = sessions.opened()
    done = caller.run(
        "cat", streams=(f"file:{project.directory}/input", f"file:{project.directory}/output", "memory")
    )
    assert done.status == 0, done
    assert (project.directory / "output").read_bytes() == b"\xff" * 300_000
    assert caller.run("true", streams=("pipe", "closed", "memory")).status == 0
    assert caller.run("cat").out == ""


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
