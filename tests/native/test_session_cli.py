"""Sessions from the command line: `coop run --session`, `shell`, `exec`, `ls`, `stop`, `rm` and `clean`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coopfile.plan.sessions import session_id
from coopfile.session import store
from tests.native.test_start import SLOW, bare, imported
from tests.sandboxes import (
    DEADLINE,
    Actor,
    Project,
    Result,
    alive,
    descendants,
    kill,
    wait_gone,
    wait_until,
)
from tests.sessionlab import Sessions
from tests.terminals import Terminal

pytestmark = pytest.mark.native


IUTF8 = 0o40000  # Python's termios has no such name before 3.13; asm-generic/termbits.h


@pytest.fixture
def project(sessions: Sessions) -> Iterator[Project]:
    """Yield a project whose sessions, and what makes them, end with the test."""
    yield sessions.project
    for known in store.known(str(sessions.data)):
        sessions.note(known.id, known.directory)


@pytest.fixture
def terminal(actor: Actor) -> Iterator[Terminal]:
    """Yield a terminal of the actor's."""
    made = Terminal(actor)
    yield made
    made.close()


def started(sessions: Sessions, name: str = "work", *options: str) -> None:
    """Start a session."""
    result = sessions.project.run("true", options=["-q", "--session", name, *options])
    assert result.status == 0 and result.err == "", result
    for known in store.known(str(sessions.data)):
        if known.state is not None and known.state.name == name:
            sessions.note(name, known.directory)


def execute(project: Project, *argv: str, stdin: bytes = b"") -> Result:
    """Run ``coop exec work …`` in the project."""
    return project.coop("exec", "work", *argv, stdin=stdin)


def begin(project: Project, *argv: str, **streams: Any) -> subprocess.Popen[bytes]:
    """Start ``coop …`` in the project; it is ended with the test."""
    command = [*project.actor.prefix, *project.actor.coop, *argv]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    process = subprocess.Popen(
        command, cwd=project.directory, env=project.environment, start_new_session=True, **streams
    )
    project._running.append(process)
    return process


def listed(project: Project, *options: str) -> dict[str, dict[str, Any]]:
    """Return what ``coop ls --json`` tells, by name or id."""
    result = project.coop("ls", "--json", *options)
    assert result.status == 0 and result.err == "", result
    return {item["name"] or item["id"]: item for item in json.loads(result.out)["sessions"]}


def place(project: Project, name: str = "work") -> Path:
    """Return the directory of a session."""
    return project.home / ".local/share/coop/sessions" / session_id(str(project.directory), None, name)


# Running in one


def test_run_starts_it_once(project: Project) -> None:
    """The first command starts the session and says so; the next ones find what it has left."""
    first = project.shell("echo a > /tmp/a", options=["--session", "work"])
    assert first.status == 0 and "native (namespaces), session work" in first.err
    for _ in range(2):  # the second time what was found out is remembered
        assert project.shell("cat /tmp/a", options=["--session", "work"]).out == "a\n"
    assert execute(project, "--", "cat", "/tmp/a").out == "a\n"
    assert project.run("ls", "/tmp/a").status != 0, "a run without --session is apart"


def test_exit_statuses(project: Project, sessions: Sessions) -> None:
    """They are a shell's, as those of a run, on both ways into a session."""
    started(sessions)
    for script, status in (("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)):
        assert execute(project, "--", "sh", "-c", script).status == status
        assert project.shell(script, options=["--session", "work"]).status == status
    assert execute(project, "--", "no-such-program").status == 127
    project.write("plain")
    denied = execute(project, "--", "./plain")
    assert denied.status == 126 and "plain" in denied.err


def test_timeout(project: Project, sessions: Sessions) -> None:
    """At the end of its time a command is ended with all that it started; the session goes on."""
    started(sessions)
    script = "trap '' TERM; setsid sleep 100 & sleep 100"
    result = execute(project, "--timeout", "300ms", "--", "sh", "-c", script)
    assert (result.status, result.err) == (124, "coop: the command was ended after 0.3 s\n")
    assert sessions.commands("work") == []
    assert project.run("sleep", "100", options=["--session", "work", "--timeout", "300ms"]).status == 124
    assert execute(project, "true").status == 0


def test_streams(project: Project, sessions: Sessions) -> None:
    """Input, output and errors are the caller's own descriptors, not copies of what goes through."""
    started(sessions)
    data = bytes(range(256)) * 1000
    result = execute(project, "--", "sh", "-c", "cat; echo no >&2", stdin=data)
    assert (result.stdout, result.err) == (data, "no\n")
    project.write("out")
    with (project.directory / "out").open("r+b") as file:
        begin(project, "exec", "work", "stat", "-L", "-c", "%i", "/dev/stdout", stdout=file).wait(DEADLINE)
    assert (project.directory / "out").read_text() == f"{(project.directory / 'out').stat().st_ino}\n"


def test_closed_streams(project: Project, sessions: Sessions) -> None:
    """A caller without streams has its command run with /dev/null in their place."""
    started(sessions)
    coop = [*project.actor.coop, "exec", "work", "--", "sh", "-c", "echo seen > made"]
    script = 'exec "$@" <&- >&- 2>&-'
    result = project.actor.run(
        "sh", "-c", script, "sh", *coop, cwd=project.directory, environment=project.environment
    )
    assert result.status == 0
    assert (project.directory / "made").read_text() == "seen\n"


def test_where_it_starts(project: Project, sessions: Sessions) -> None:
    """A command starts where the caller stands, or as --dir says: from there, or a path of the sandbox."""
    project.mkdir("a/b")
    started(sessions)
    assert execute(project, "pwd").out == "/workspace\n"
    from_below = ["-C", str(project.directory / "a")]
    assert project.coop("exec", *from_below, "work", "sh", "-c", "pwd; echo $PWD").out == 2 * "/workspace/a\n"
    assert project.coop("exec", *from_below, "work", "-w", "b", "pwd").out == "/workspace/a/b\n"
    assert execute(project, "--dir", "/tmp", "--", "pwd").out == "/tmp\n"
    missing = execute(project, "--dir", "none", "--", "pwd")
    assert missing.status == 125 and "/workspace/none cannot be entered" in missing.err
    assert project.run("pwd", options=["--session", "work", *from_below]).out == "/workspace/a\n"


def test_started_from_below(project: Project) -> None:
    """A session is the whole project's, wherever the caller stands who starts it."""
    project.mkdir("a")
    options = ["--session", "work", "-C", str(project.directory / "a")]
    assert project.run("pwd", options=options).out == "/workspace/a\n"
    shutil.rmtree(project.directory / "a")
    assert execute(project, "pwd").out == "/workspace\n"


def test_variables(project: Project, sessions: Sessions) -> None:
    """A command has the session's variables, whoever calls, and --env over those of the plan."""
    project.coopfile('[env]\nONE = "1"\nTWO = "2"\n')
    started(sessions)
    project.environment["NO_COLOR"] = "1"
    script = 'echo "$ONE $TWO $THREE $NO_COLOR"; [ "$COOP_SESSION" = ' + place(project).name + " ]"
    result = execute(project, "--env", "TWO=a b", "--env", "THREE=c=d", "--", "sh", "-c", script)
    assert (result.out, result.status) == ("1 a b c=d \n", 0)


def test_short_way(project: Project, sessions: Sessions) -> None:
    """`coop exec` in a session that runs imports next to nothing."""
    started(sessions)
    imported(project, "exec", "work", "--", "true")  # which may write a bundle at its end
    found, without = imported(project, "exec", "work", "--", "true"), bare(project)
    assert {name for name in found if name.startswith("coopfile")} == {
        "coopfile",
        "coopfile.startup",
        "coopfile.audit",  # while the command runs
        *(f"coopfile.{name}" for name in ("cli", "errors", "find", "native", "plan", "record", "session")),
        *(f"coopfile.cli.{name}" for name in ("attached", "exec", "main", "options")),
        *(f"coopfile.native.{name}" for name in ("marks", "signals", "wire")),
        "coopfile.plan.sessions",
        *(f"coopfile.session.{name}" for name in ("client", "installs", "model")),
    }
    assert not (found - without) & SLOW, sorted((found - without) & SLOW)
    assert {name for name in found - without if not name.startswith("coopfile")} <= {
        *("__future__", "_blake2", "_signal", "_socket", "errno", "fcntl", "gc", "marshal", "select"),
    }


def test_short_way_of_run(project: Project, sessions: Sessions) -> None:
    """`coop run --session` in a session that runs under the plan imports nothing that is slow."""
    for _ in range(2):
        started(sessions)
    found = imported(project, "run", "--session", "work", "--", "true")
    assert not (found - bare(project)) & SLOW
    assert not {name for name in found if name.startswith(("coopfile.language.v", "coopfile.session.store"))}


# Finding it


def test_unknown(project: Project, sessions: Sessions) -> None:
    """A session that was never made is not made by `coop exec`, which says how and what there is."""
    started(sessions)
    result = project.coop("exec", "other", "--", "touch", "ran")
    assert result.status == 125 and "has no session other" in result.err
    assert "coop run --session other" in result.err and "there are: work" in result.err
    assert not (project.directory / "ran").exists() and not place(project, "other").exists()
    for verb in ("stop", "rm"):
        result = project.coop(verb, "other")
        assert result.status == 125 and "has no session other" in result.err


@pytest.mark.parametrize("name", ["../x", ".x", "a/b", "x" * 65])
def test_bad_names(project: Project, name: str) -> None:
    """What cannot be a name is wrong usage for every verb, and nothing is made."""
    lines = (("run", "--session", name, "true"), ("exec", name, "true"), ("shell", name), ("stop", name))
    for line in (*lines, ("rm", name)):
        result = project.coop(*line)
        assert result.status == 2 and "is not the name of a session" in result.err, (line, result)
    assert not (project.home / ".local/share/coop/sessions").exists()


def test_usage(project: Project) -> None:
    """Options that go with no session, and values that are none, are wrong usage."""
    for line in (
        ("run", "--ttl", "1m", "true"),
        ("run", "--session", "work", "--ttl", "soon", "true"),
        ("exec", "work"),
        ("exec", "work", "--env", "A", "true"),
        ("exec", "work", "--timeout", "soon", "true"),
        ("exec",),
        ("stop", "--all", "work"),
    ):
        assert project.coop(*line).status == 2, line


def test_starts_again(project: Project, sessions: Sessions) -> None:
    """A session that was stopped is started again by any verb; what it persists is still there."""
    started(sessions)
    assert execute(project, "--", "sh", "-c", "echo kept > ~/.claude/a; echo gone > /tmp/a").status == 0
    assert project.coop("stop", "work").out == "stopped work\n"
    assert project.coop("stop", "work").out == "work does not run\n"
    result = execute(project, "--", "sh", "-c", "cat ~/.claude/a; ls /tmp/a")
    assert result.out == "kept\n" and "session work" in result.err
    assert listed(project)["work"]["created"] <= listed(project)["work"]["started"]


def test_sessions_persist_apart(project: Project, sessions: Sessions) -> None:
    """What one session persists is not another's, nor a plain run's, but the default session's is that."""
    started(sessions)
    assert execute(project, "--", "touch", "/root/.claude/mine").status == 0
    assert project.output("ls ~/.claude") == ""
    assert project.shell("touch ~/.claude/ours").status == 0
    assert project.output("ls ~/.claude", options=["-q", "--session", "default"]) == "ours"


def test_a_plan_that_changed(project: Project, sessions: Sessions) -> None:
    """A session keeps its plan: `run` refuses until it is stopped, `exec` goes on, `ls` tells."""
    started(sessions)
    assert listed(project)["work"]["plan_changed"] is False
    project.coopfile('[env]\nNEW = "1"\n')
    result = project.run("true", options=["--session", "work"])
    assert result.status == 125 and "another plan" in result.err and "coop stop work" in result.err
    assert execute(project, "--", "sh", "-c", "echo $NEW").out == "\n"
    assert listed(project)["work"]["plan_changed"] is True
    assert "plan: changed" in project.coop("ls").out
    refused = execute(project, "--set", "limits.pids=100", "--", "true")
    assert refused.status == 125 and "another plan" in refused.err
    project.coop("stop", "work")
    assert project.shell("echo $NEW", options=["--session", "work"]).out == "1\n"


def test_approval(project: Project) -> None:
    """What the Coopfile widens needs approval before a session is started, as before a run."""
    project.coopfile('network.mode = "host"\n', allow=False)
    for argv in (["run", "--session", "work", "true"], ["shell", "work"]):
        result = project.coop(*argv)
        assert result.status == 125 and "coop allow" in result.err
    assert listed(project) == {}


def test_users(project: Project, sessions: Sessions) -> None:
    """Users have sessions of their own, and who may not run commands has none."""
    project.write(
        str(project.home / ".config/coop/Coopfile"),
        '[[users]]\nname = "a"\ntrust = "full"\nmatch = ["x:a"]\n'
        '[[users]]\nname = "b"\ntrust = "familiar"\nmatch = ["x:b"]\n',
    )
    started(sessions, "work", "--as", "x:a")
    assert execute(project, "true").status == 125, "the caller has no session of this name"
    assert project.coop("exec", "--as", "x:a", "work", "true").status == 0
    refused = project.coop("exec", "--as", "x:b", "work", "true")
    assert refused.status == 125 and "may not run commands" in refused.err
    assert listed(project)["work"]["user"] == "a"
    assert project.coop("stop", "--as", "x:a", "work").out == "stopped work\n"


def test_ttl(project: Project, sessions: Sessions) -> None:
    """A session with --ttl ends when nobody has used it for so long; one that runs keeps its own."""
    hold = ("--", "sh", "-c", "echo ready; read line")
    process = begin(project, "run", "-q", "--session", "work", "--ttl", "1s", *hold, stdin=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    told = project.run("true", options=["--session", "work", "--ttl", "5m"])
    process.communicate(timeout=DEADLINE)
    assert told.status == 0 and "--ttl does not count" in told.err
    assert listed(project)["work"]["ttl"] == 1.0
    assert wait_until(lambda: not store.is_alive(str(place(project))))
    assert listed(project)["work"]["state"] == "stopped"
    assert execute(project, "true").status == 0
    assert listed(project)["work"]["ttl"] == 1.0, "it is started again as it was"


def test_nobody_can_be_told(project: Project, sessions: Sessions) -> None:
    """A status is the command's also where coop's own words cannot be written, as to a full disk."""
    started(sessions)
    with open("/dev/full", "wb") as full:
        for verb in (["exec"], ["run", "--session"]):
            for command, status in ((["no-such-program"], 127), (["sh", "-c", "exit 3"], 3), (["true"], 0)):
                process = begin(project, *verb, "work", "--", *command, stderr=full)
                assert process.wait(DEADLINE) == status
        process = begin(project, "exec", "work", "--timeout", "50ms", "--", "sleep", "60", stderr=full)
        assert process.wait(DEADLINE) == 124


# Signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_passed_on(project: Project, sessions: Sessions, number: int) -> None:
    """What coop is told, the command is told, and its status is the command's own."""
    started(sessions)
    names = {signal.SIGTERM: "TERM", signal.SIGINT: "INT", signal.SIGHUP: "HUP", signal.SIGUSR1: "USR1"}
    script = (
        f"trap 'echo got; exit 5' {names[signal.Signals(number)]}; echo ready; while :; do sleep 0.1; done"
    )
    process = begin(project, "exec", "work", "--", "sh", "-c", script)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    assert process.stdout.read() == b"got\n"
    assert process.wait(DEADLINE) == 5


def test_ignored_signals(project: Project, sessions: Sessions) -> None:
    """What the caller has coop ignore, as nohup does, does not reach the command."""
    started(sessions)
    script = "trap 'echo got; exit 5' HUP; echo ready; read line; echo $line"
    process = begin(
        project,
        *("exec", "work", "--", "sh", "-c", script),
        stdin=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGHUP)
    process.stdin.write(b"well\n")
    process.stdin.close()
    assert process.stdout.read() == b"well\n" and process.wait(DEADLINE) == 0


def test_stopped_as_a_job(project: Project, sessions: Sessions) -> None:
    """Ctrl-Z stops the command with coop where its streams are the caller's own, and it goes on with that."""
    started(sessions)
    ticks = project.write("ticks")
    script = "while :; do echo >> ticks; sleep 0.02; done"
    process = subprocess.Popen(
        [*project.actor.prefix, *project.actor.coop, "exec", "work", "--", "sh", "-c", script],
        stdin=subprocess.DEVNULL,
        cwd=project.directory,
        env=project.environment,
        preexec_fn=os.setpgrp,  # a job that somebody could continue: else the kernel drops the signal
    )
    project._running.append(process)
    assert wait_until(lambda: ticks.stat().st_size > 3)
    process.send_signal(signal.SIGTSTP)
    assert wait_until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0] == "T")
    time.sleep(0.2)
    size = ticks.stat().st_size
    time.sleep(0.3)
    assert ticks.stat().st_size == size
    process.send_signal(signal.SIGCONT)
    assert wait_until(lambda: ticks.stat().st_size > size + 3)
    process.terminate()
    assert process.wait(DEADLINE) == 128 + signal.SIGTERM


def test_a_killed_caller(project: Project, sessions: Sessions) -> None:
    """The command of a caller that is killed is killed with all that it started; the session goes on."""
    started(sessions)
    script = "trap '' TERM HUP; setsid sleep 100 >/dev/null 2>&1 & echo ready; sleep 100; sleep 100"
    process = begin(project, "exec", "work", "--", "sh", "-c", script)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    found = sessions.commands("work")
    assert len(found) >= 2
    process.kill()
    assert wait_gone(found)
    assert execute(project, "true").status == 0


def test_a_killed_session(project: Project, sessions: Sessions) -> None:
    """When a session is killed, its commands' callers are told; the next command starts it again."""
    started(sessions)
    process = begin(project, "exec", "work", "--", "sh", "-c", "echo ready; sleep 100")
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == b"ready\n"
    kill(sessions.first("work"))
    assert process.wait(DEADLINE) == 125
    assert b"the session work ended" in process.stderr.read()
    assert wait_until(lambda: listed(project)["work"]["state"] == "stopped")
    result = execute(project, "--", "echo", "well")
    assert (result.status, result.out) == (0, "well\n")


def test_stale_socket(project: Project, sessions: Sessions) -> None:
    """A session all of whose processes were killed leaves a socket; the next command starts it again."""
    started(sessions)
    found = sessions.processes("work")
    kill(sessions.monitor("work"))  # first: it would take the socket away
    kill(*found)
    assert wait_gone(found)
    assert (place(project) / "socket").exists()
    assert listed(project)["work"]["state"] == "stopped"
    assert execute(project, "true").status == 0
    assert not alive(found)


# Listing, ending, removing


def test_ls(project: Project, sessions: Sessions) -> None:
    """It tells of each session whether it runs, and what it uses; with --all of every project."""
    assert project.coop("ls").out == "this project has no sessions\n"
    started(sessions)
    started(sessions, "idle")
    project.coop("stop", "idle")
    process = begin(project, "exec", "work", "--", "sh", "-c", "echo ready; sleep 100; :")
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    assert wait_until(lambda: len(sessions.commands("work")) == 2)
    found = listed(project)
    assert (found["work"]["state"], found["idle"]["state"]) == ("running", "stopped")
    assert found["work"]["processes"] == 2 and found["work"]["memory"] > 0
    assert found["idle"]["processes"] is None
    assert {item["project"] for item in found.values()} == {str(project.directory)}
    assert found["work"]["backend"] == "native" and found["work"]["id"] == place(project).name
    lines = project.coop("ls").out.splitlines()
    assert lines[0].split()[:3] == ["NAME", "STATE", "AGE"]
    assert lines[2].split()[:2] == ["work", "running"]
    elsewhere = project.actor.directory("elsewhere")
    assert project.coop("ls", "-C", str(elsewhere)).out == "this project has no sessions\n"
    assert project.coop("ls", "--all", "-C", str(elsewhere)).out.splitlines()[2].split()[-1] == str(
        project.directory
    )
    assert json.loads(project.coop("status", "--json").out)["sessions"] == [
        {"name": "idle", "running": False},
        {"name": "work", "running": True},
    ]


@pytest.mark.parametrize("content", [b"", b"{}", b"\0" * 100], ids=["empty", "nothing", "zeros"])
def test_damaged(project: Project, sessions: Sessions, content: bytes) -> None:
    """A session whose state was damaged by hand is listed as such, and can be ended and started again."""
    started(sessions)
    found = sessions.processes("work")
    (place(project) / "state").write_bytes(content)
    identifier = place(project).name
    assert listed(project)[identifier]["state"] == "damaged"
    assert "damaged" in project.coop("ls").out
    assert execute(project, "true").status == 0, "nothing of it is needed for that"
    refused = project.coop("exec", "--set", "limits.pids=100", "work", "true")
    assert refused.status == 125 and "coop stop work" in refused.err
    stopped = project.coop("stop", "work")
    assert stopped.status == 0 and "stopped" in stopped.out, stopped
    assert wait_gone(found)
    started(sessions)
    assert listed(project)["work"]["state"] == "running"


def test_stuck(project: Project, sessions: Sessions) -> None:
    """A session that does not answer is listed as such, and ended all the same."""
    started(sessions)
    found = sessions.processes("work")
    (place(project) / "socket").unlink()
    assert listed(project)["work"]["state"] == "unreachable"
    assert "unreachable" in project.coop("ls").out
    for pid in reversed(found):
        kill(pid)
    assert wait_gone(found)
    assert execute(project, "true").status == 0


def test_stop(project: Project, sessions: Sessions) -> None:
    """Several are ended by name, all of the project with --all, by id from anywhere; the rest goes on."""
    for name in ("one", "two", "three", "four"):
        started(sessions, name)
    assert project.coop("stop", "one", "two").out == "stopped one\nstopped two\n"
    elsewhere = str(project.actor.directory("elsewhere"))
    assert project.coop("stop", "--all", "-C", elsewhere).out == ""
    identifier = listed(project)["three"]["id"]
    assert project.coop("stop", "-C", elsewhere, identifier).out == "stopped three\n"
    assert json.loads(project.coop("stop", "--all", "--json").out)["stopped"] == [place(project, "four").name]
    assert {item["state"] for item in listed(project).values()} == {"stopped"}
    assert sessions.left() == []


def test_rm(project: Project, sessions: Sessions) -> None:
    """Removing ends a session and takes away all that it kept; other sessions keep theirs."""
    started(sessions)
    started(sessions, "other")
    for name in ("work", "other"):
        assert project.coop("exec", name, "touch", "/root/.claude/kept").status == 0
    tried = project.coop("rm", "--dry-run", "work")
    assert tried.out == f"would end the session work\nwould remove {place(project)}\n"
    removed = project.coop("rm", "work")
    assert removed.out == f"ended the session work\nremoved {place(project)}\n"
    assert not place(project).exists() and set(listed(project)) == {"other"}
    assert project.coop("exec", "other", "ls", "/root/.claude").out == "kept\n"
    assert execute(project, "true").status == 125
    assert project.coop("rm", "other").status == 0
    assert sessions.left() == []


def test_rm_of_the_default(project: Project, sessions: Sessions) -> None:
    """Without a name it is the default session, whose directories every run has."""
    assert project.shell("touch ~/.claude/kept").status == 0
    started(sessions, "default")
    assert project.coop("exec", "default", "ls", "/root/.claude").out == "kept\n"
    assert project.coop("rm").out == f"ended the session default\nremoved {place(project, 'default')}\n"
    assert project.output("ls ~/.claude") == ""


def test_clean(project: Project, sessions: Sessions) -> None:
    """What sessions have left of which nobody knows any more goes; what runs or can be found stays."""
    started(sessions)
    started(sessions, "idle")
    project.coop("stop", "idle")
    lost = place(project, "lost")
    started(sessions, "lost")
    project.coop("stop", "lost")
    (lost / "state").write_bytes(b"{")
    told = json.loads(project.coop("clean", "--json", "--dry-run").out)
    assert told["sessions"] == [str(lost)] and lost.exists()
    assert json.loads(project.coop("clean", "--json").out)["sessions"] == [str(lost)]
    assert not lost.exists()
    assert execute(project, "true").status == 0
    assert set(listed(project)) == {"idle", "work"}


def test_clean_keeps_what_was_promised(project: Project, sessions: Sessions) -> None:
    """A damaged session's directories of session.persist stay, since they may be found again."""
    started(sessions)
    assert execute(project, "touch", "/root/.claude/kept").status == 0
    project.coop("stop", "work")
    (place(project) / "state").write_bytes(b"{")
    assert json.loads(project.coop("clean", "--json").out)["sessions"] == [str(place(project))]
    assert listed(project) == {}
    assert project.run("ls", "/root/.claude", options=["-q", "--session", "work"]).out == "kept\n"


def test_clean_of_a_project_that_is_gone(project: Project, sessions: Sessions) -> None:
    """A session of a deleted workspace stays as long as it runs, and goes when it does not."""
    elsewhere = project.actor.directory("elsewhere")
    made = project.coop("run", "-q", "-C", str(elsewhere), "--session", "work", "true")
    assert made.status == 0, made
    shutil.rmtree(elsewhere)
    (item,) = listed(project, "--all").values()
    assert item["state"] == "running" and item["project"] == str(elsewhere)
    assert json.loads(project.coop("clean", "--json").out)["kept"] == []
    assert project.coop("stop", item["id"]).out == "stopped work\n"
    path = project.home / ".local/share/coop/sessions" / item["id"]
    assert json.loads(project.coop("clean", "--json").out)["kept"] == [str(path)]
    assert not path.exists()


# Terminals


def on_terminal(terminal: Terminal, project: Project, *argv: str, **streams: Any) -> subprocess.Popen[bytes]:
    """Start ``coop …`` of the project from a terminal."""
    environment = {**project.environment, "TERM": "xterm-256color"}
    return terminal.start(
        [*project.actor.prefix, *project.actor.coop, *argv], environment, project.directory, **streams
    )


def test_shell(project: Project, terminal: Terminal) -> None:
    """`coop shell` is an interactive shell on a terminal of the sandbox's, as large as the caller's."""
    process = on_terminal(terminal, project, "shell", "-q")
    terminal.screen.expect(rb"[#$] $")
    terminal.screen.send(b'echo "<$(stty size) $TERM $(tty) $0>"\n')
    terminal.screen.expect(rb"<(\d.*)>\r\n")
    size, name, device, shell = terminal.screen.match[1].rsplit(b" ", 3)
    assert (size, name) == (b"24 80", b"xterm-256color")
    assert device.startswith(b"/dev/pts/") and b"bash" in shell
    terminal.screen.send(b"touch /tmp/a; exit 3\n")
    assert process.wait(DEADLINE) == 3
    assert not terminal.is_raw()
    assert project.coop("exec", "default", "ls", "/tmp/a").status == 0


def test_shell_without_a_terminal(project: Project) -> None:
    """A script may come from a pipe."""
    result = project.coop("shell", "-q", "work", "--env", "A=b", stdin=b"echo $A; exit 4\n")
    assert (result.out, result.status) == ("b\n", 4)


def test_a_terminal_begins_like_the_callers(project: Project, sessions: Sessions, terminal: Terminal) -> None:
    """Keys, flow control and UTF-8 that the caller has set are those of every command's terminal."""
    attributes = termios.tcgetattr(terminal.device)
    for erase, flow in ((b"\x08", False), (b"\x7f", True)):
        attributes[0] = attributes[0] & ~termios.IXON & ~IUTF8
        attributes[0] |= termios.IXON | IUTF8 if flow else 0
        attributes[6][termios.VERASE] = erase
        termios.tcsetattr(terminal.device, termios.TCSANOW, attributes)
        # The first starts the session, the second joins it, the short way too.
        for verb in (
            ("run", "-q", "--session", "work"),
            ("exec", "work"),
            ("run", "-q", "--session", "work"),
        ):
            process = on_terminal(terminal, project, *verb, "--", "stty", "-a")
            seen = terminal.rest(process)
            assert (b"erase = ^?;" if flow else b"erase = ^H;") in seen, seen
            assert (b"-ixon" in seen, b"-iutf8" in seen) == (not flow, not flow), seen
    process = on_terminal(terminal, project, "shell", "-q", "work")
    terminal.screen.expect(rb"[#$] $")
    terminal.screen.send(b"stty -a | grep -c 'erase = ^?'; exit\r")
    assert b"\r1\r\n" in terminal.rest(process)


@pytest.mark.parametrize("verb", [("shell", "-q", "work"), ("exec", "work", "--", "sh")])
def test_coop_killed(project: Project, sessions: Sessions, terminal: Terminal, verb: tuple[str, ...]) -> None:
    """When coop itself is killed the terminal is given back, and the command ends with it."""
    started(sessions)
    before = terminal.state()
    process = on_terminal(terminal, project, *verb)
    terminal.screen.expect(rb"[#$] $")
    assert terminal.is_raw() and listed(project)["work"]["processes"] > 0
    (watch,) = descendants(process.pid)
    os.killpg(process.pid, signal.SIGKILL)
    assert wait_gone([process.pid, watch]), alive([watch])
    assert terminal.state()[:2] == before[:2]
    assert wait_until(lambda: listed(project)["work"]["processes"] == 0)


def test_what_watches_a_terminal_is_killed(project: Project, sessions: Sessions, terminal: Terminal) -> None:
    """Then coop gives the terminal back itself, as always."""
    started(sessions)
    before = terminal.state()
    process = on_terminal(
        terminal, project, "exec", "work", "--", "sh", "-c", "echo ready; read line; exit 3"
    )
    terminal.screen.expect_exact(b"ready")
    (watch,) = descendants(process.pid)
    kill(watch)
    terminal.screen.send(b"line\r")
    terminal.rest(process)
    assert (process.returncode, terminal.state()) == (3, before)


def test_exec_on_a_terminal(project: Project, sessions: Sessions, terminal: Terminal) -> None:
    """A command has a terminal of its own where the caller has one, and its keys make signals there."""
    project.coopfile('[env]\nTERM = "dumb"\n')
    started(sessions)
    script = "trap 'echo got; exit 5' INT; tty; echo $TERM ready; while :; do sleep 0.1; done"
    process = on_terminal(terminal, project, "exec", "work", "--", "sh", "-c", script)
    terminal.screen.expect_exact(b"dumb ready")
    assert b"/dev/pts/" in terminal.screen.before
    terminal.screen.send(b"\x03")
    terminal.screen.expect_exact(b"got")
    assert process.wait(DEADLINE) == 5
    assert not terminal.is_raw()


def test_a_stream_that_leads_elsewhere(project: Project, sessions: Sessions, terminal: Terminal) -> None:
    """Where one of the streams is no terminal, or with -T, all of them are the caller's own."""
    started(sessions)
    script = "test -t 1; echo $? >&2"
    process = on_terminal(
        terminal, project, "exec", "work", "--", "sh", "-c", script, stdout=subprocess.DEVNULL
    )
    terminal.screen.expect_exact(b"1\r\n")
    assert process.wait(DEADLINE) == 0
    process = on_terminal(terminal, project, "exec", "work", "-T", "--", "sh", "-c", "tty")
    terminal.screen.expect_exact(b"not a tty")
    assert process.wait(DEADLINE) == 1


def test_run_on_a_terminal(project: Project, terminal: Terminal) -> None:
    """`coop run --session` has a terminal too, whether it starts the session or joins it."""
    for _ in range(3):
        process = on_terminal(terminal, project, "run", "-q", "--session", "work", "--", "tty")
        terminal.screen.expect(rb"/dev/pts/\d+\r\n")
        assert process.wait(DEADLINE) == 0


def test_many_at_once(project: Project) -> None:
    """Commands of many callers run in one session side by side, started by whoever comes first."""
    running = [
        begin(project, "run", "-q", "--session", "work", "--", "sh", "-c", f"echo {number}; exit {number}")
        for number in range(8)
    ]
    for number, process in enumerate(running):
        out, err = process.communicate(timeout=DEADLINE)
        assert (out, err, process.returncode) == (f"{number}\n".encode(), b"", number)
    assert set(listed(project)) == {"work"}
    assert os.listdir(place(project).parent) == [place(project).name]
