"""The audit log of commands: what `coop run`, `coop exec`, `coop shell` and the Python API write down."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pexpect
import pytest

from tests.sandboxes import DEADLINE, Project, Workshop
from tests.toollab import log

pytestmark = pytest.mark.native

SECRET = "s3cr3t it's"
WITH_SECRET = 'env.TOKEN = { host = "TOKEN" }\n'


def lines(project: Project) -> list[dict[str, Any]]:
    """Return the log, in which every line is whole."""
    return [json.loads(line) for line in log(project)]


def test_run(project: Project) -> None:
    """A line says what was run under which plan and how it ended, also when the plan comes from the cache."""
    for number in (3, 0, 0):
        assert project.run("sh", "-c", f"exit {number}").status == number
    first, *more = lines(project)
    digest = project.coop("plan", "--digest").out.strip()
    assert first == {
        **dict.fromkeys(("identity", "user", "trust")),
        "time": first["time"],
        "kind": "command",
        "place": "direct",
        "tool": "run",
        "command": "sh -c 'exit 3'",
        "plan": digest,
        "backend": "native",
        "decision": "allowed",
        "result": "status 3",
        "duration": first["duration"],
    }
    assert [(entry["result"], entry["plan"]) for entry in more] == [("status 0", digest)] * 2
    assert project.coop("log", "--tool", "run", "--last", "1").out.endswith(
        f": caller: run sh -c 'exit 0': status 0, {more[-1]['duration']} s\n".removeprefix(": ")
    )


def test_awkward_commands(project: Project) -> None:
    """Whatever a command is made of, it is one line, which says what it was."""
    awkward = 'a\n{"time": 1}\r\x1b[2J\u2028\U0001f600"\\'
    assert project.run("echo", awkward, "x" * 100_000).status == 0
    (entry,) = lines(project)
    assert entry["command"].startswith(f"echo '{awkward}' xxx") and len(entry["command"]) < 5000
    shown = project.coop("log").out
    assert shown.count("\n") == 1 and "\x1b" not in shown and r"\x1b[2J" in shown


def test_no_secrets(project: Project) -> None:
    """Values that the plan takes from the host are not there, in whatever argument they stand."""
    project.coopfile(WITH_SECRET)
    project.environment["TOKEN"] = SECRET
    for _ in range(2):
        assert project.run("true", f"Authorization: {SECRET}", f"-p{SECRET}").status == 0
    assert [entry["command"] for entry in lines(project)] == ["true 'Authorization: <TOKEN>' '-p<TOKEN>'"] * 2
    assert "s3cr3t" not in "".join(log(project))


def test_refusals(project: Project) -> None:
    """What coop decides against is written down: approval, ceiling, trust, no back end."""
    project.write(
        str(project.home / ".config/coop/Coopfile"),
        '[[users]]\nname = "eve"\ntrust = "public"\nmatch = ["x:eve"]\n[ceiling]\nlimits.memory = "3g"\n',
    )
    project.coopfile('network.mode = "host"\n', allow=False)
    assert project.run("touch", "ran").status == 125
    terminal = project.terminal("touch", "ran")
    terminal.expect_exact("[y/N]")
    terminal.sendline("n")
    terminal.expect(pexpect.EOF)
    assert terminal.wait() == 125
    project.coopfile("")
    assert project.run("touch", "ran", options=["--set", "limits.memory=4g"]).status == 125
    assert project.run("touch", "ran", options=["--as", "x:eve"]).status == 125
    assert project.run("touch", "ran", options=["--set", "sandbox.min_isolation=vm"]).status == 125
    found = lines(project)
    assert [(entry["decision"], entry["result"], entry["user"]) for entry in found] == [
        ("refused", "error", None),
        ("declined", "error", None),
        ("denied", "error", None),
        ("denied", "error", "eve"),
        ("denied", "error", None),
    ]
    assert all(entry["plan"].startswith("sha256:") and entry["command"] == "touch ran" for entry in found)
    assert len({entry["plan"] for entry in found}) == 4
    assert project.coop("log", "--denied").out.count("touch ran: de") == 4
    assert not (project.directory / "ran").exists()


def test_mistakes_are_no_decisions(project: Project) -> None:
    """A Coopfile with mistakes, and wrong usage, leave no line."""
    assert project.run("true", options=["--ttl", "1m"]).status == 2
    project.coopfile("[limit]\n")
    assert project.run("true").status == 125
    assert lines(project) == []


def test_a_log_that_cannot_be_written(project: Project) -> None:
    """Whoever asked for a command by name gets it, and is told; a program gets it only if it is written."""
    project.mkdir(project.home / ".local/state/coop")
    project.write(str(project.home / ".local/state/coop/audit"), "in the way")
    result = project.run("sh", "-c", "exit 3")
    assert (result.status, "the audit log cannot be written" in result.err) == (3, True), result


def test_sessions(project: Project) -> None:
    """Commands in sessions are written down, by whichever way they get there; secrets are the starter's."""
    project.coopfile(WITH_SECRET)
    started = project.run("true", options=["--session", "work"], environment={"TOKEN": SECRET})
    assert started.status == 0
    # Who calls now does not have it: the session does.
    for argv in (
        ["exec", "work", "--", "echo", SECRET],
        ["exec", "work", "--timeout", "1s", "--", "sleep", "60"],
    ):
        project.coop(*argv)
    assert project.run("echo", SECRET, options=["--session", "work"]).status == 0
    assert project.coop("shell", "work", stdin=b"exit 7\n").status == 7
    found = [(entry["tool"], entry["command"], entry["result"]) for entry in lines(project)]
    assert found == [
        ("run", "true", "status 0"),
        ("exec", "echo '<TOKEN>'", "status 0"),
        ("exec", "sleep 60", "status 124"),
        ("run", "echo '<TOKEN>'", "status 0"),
        ("shell", None, "status 7"),
    ]
    digest = project.coop("plan", "--digest").out.strip()
    assert {(entry["plan"], entry["backend"]) for entry in lines(project)} == {(digest, "native")}
    # What the session refuses, for it runs under another plan, is told of without them, too.
    other = ["--session", "work", "--set", "limits.pids=99"]
    assert project.run("echo", SECRET, options=other).status == 125
    refused = lines(project)[-1]
    assert (refused["command"], refused["result"]) == ("echo '<TOKEN>'", "error")
    # One that ends its own session leaves nobody who knows what is secret.
    project.coop("exec", "work", "--", "sh", "-c", "kill -9 $PPID; kill -9 -1", SECRET)
    assert "s3cr3t" not in "".join(log(project))
    assert [lines(project)[-1][name] for name in ("tool", "command")] == [
        "exec",
        "sh (its arguments may hold secrets)",
    ]
    project.coop("rm", "work")


PROGRAM = """
import os, sys; sys.path.insert(0, sys.argv.pop(1))
import asyncio, coopfile
plan = coopfile.compile(".")
with coopfile.Session(plan) as session:
    session.exec(["echo", os.environ["TOKEN"]])
    session.shell("exit 3")
    session.shell("sleep 60", timeout=0.1)
    asyncio.run(session.shell_async("exit 4"))
with coopfile.Session(plan, audit=False) as session:
    session.exec(["echo", "unseen"])
with coopfile.Session(plan, backend=coopfile.FakeBackend(lambda call: coopfile.Answer())) as session:
    session.exec(["echo", "unseen"])
with coopfile.Session(plan, name="work") as session:
    session.exec(["echo", os.environ["TOKEN"]])
with coopfile.Session(plan) as session:
    session.exec(["true"])
    del os.environ["TOKEN"]
    session.exec(["echo", sys.argv[1]])
with coopfile.Session(plan, name="work") as session:
    session.exec(["echo", sys.argv[1]])
    session.destroy()
with coopfile.ToolExecutor(overrides={"tools.confirm": "never"}) as executor:
    executor.execute("bash", {"command": "echo once"})
os.environ["XDG_STATE_HOME"] = "/dev/null"
with coopfile.Session(plan) as session:
    try:
        session.exec(["touch", "ran"])
    except coopfile.CoopError as error:
        print(error)
"""


def test_python(project: Project, workshop: Workshop) -> None:
    """Commands of programs are written down, or not run; what stands in for this machine writes nothing."""
    project.coopfile(WITH_SECRET)
    command = [project.actor.coop[0], "-I", "-c", PROGRAM, str(workshop.library), SECRET]
    done = subprocess.run(
        [*project.actor.prefix, *command],
        capture_output=True,
        cwd=project.directory,
        env={**project.environment, "TOKEN": SECRET},
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stdout.split(b":")[0]) == (0, b"the audit log cannot be written"), done
    found = [(entry["tool"], entry["command"], entry["result"]) for entry in lines(project)]
    assert found == [
        ("Session", "echo '<TOKEN>'", "status 0"),
        ("Session", "/bin/sh -c 'exit 3'", "status 3"),
        ("Session", "/bin/sh -c 'sleep 60'", "timed out"),
        ("Session", "/bin/sh -c 'exit 4'", "status 4"),
        ("Session", "echo '<TOKEN>'", "status 0"),
        ("Session", "true", "status 0"),
        ("Session", "echo '<TOKEN>'", "status 0"),
        ("Session", "echo '<TOKEN>'", "status 0"),
        ("bash", "echo once", "status 0"),
    ]
    assert not (project.directory / "ran").exists()


def test_out_of_reach(project: Project) -> None:
    """A sandbox that has been given what is around the log neither sees nor changes it."""
    project.coopfile('files.write = ["~/.local"]\n')
    assert project.run("true").status == 0
    place = project.home / ".local/state/coop/audit"
    before = "".join(log(project))
    tries = (
        "cd ~/.local/state/coop; ls -A audit; truncate -s 0 audit/*; cd /; rm -rf ~/.local/state/coop; "
        "mv ~/.local/state/coop ~/.local/state/x; mv ~/.local/state ~/.local/x; true"
    )
    result = project.shell(tries)
    assert result.status == 0 and ".jsonl" not in result.out, result
    assert place.is_dir() and "".join(log(project)).startswith(before)
    assert len(log(project)) == 2
