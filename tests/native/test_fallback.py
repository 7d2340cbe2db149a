"""``sandbox.fallback = "host"``: the bare command, said so every time, with a shell's exit statuses."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes import DEADLINE, Project, Result, alive, wait_gone, wait_until

OPTIONS = ("--set", 'sandbox.backend=["docker"]', "--set", "sandbox.fallback=host")
SAID = "coop: NOT SANDBOXED: no back end can enforce the plan, and sandbox.fallback is host\n"


@pytest.fixture
def bare(project: Project) -> Project:
    """Return the project of somebody who has no engine."""
    programs = project.actor.directory("programs")
    for name in ("sh", "sleep", "cat", "env", "setsid", "touch", "stty"):
        path = next(Path(d, name) for d in ("/usr/bin", "/bin") if Path(d, name).exists())
        (programs / name).symlink_to(path)
    project.wrap = ("/usr/bin/env", f"PATH={programs}")
    return project


def on_host(project: Project, *argv: str, options: tuple[str, ...] = (), **how: Any) -> Result:
    """Run a command that nothing can sandbox."""
    return project.run(*argv, options=[*OPTIONS, *options], **how)


@pytest.mark.parametrize("options", [(), ("-q",), ("-q", "-q"), ("-v",)])
def test_it_says_so_every_time(bare: Project, options: tuple[str, ...]) -> None:
    """However quiet coop is told to be; without the setting it refuses."""
    for _ in range(2):
        result = on_host(bare, "sh", "-c", "echo out; echo err >&2", options=options)
        assert (result.status, result.out, result.err) == (0, "out\n", f"{SAID}err\n")
    result = bare.run("true", options=OPTIONS[:2])
    assert result.status == 125
    assert "no back end can enforce this plan here:\n        docker: not installed" in result.err


def test_the_plan_gives_variables_and_the_caller_the_rest(bare: Project) -> None:
    """The directory is the caller's own, and so are streams and environment."""
    settings = (
        "--set",
        "env.GIVEN=plan",
        "--set",
        'env.FROM={ host = "OTHER" }',
        "--set",
        'env.NO={ host = "NO" }',
    )
    script = 'echo "$GIVEN,$FROM,${NO-unset},$OTHER,$PWD"; cat'
    given = {"OTHER": "host"}
    result = on_host(bare, "sh", "-c", script, options=settings, environment=given, stdin=b"in")
    assert result.out == f"plan,host,unset,host,{bare.directory}\nin"


def test_exit_statuses_are_a_shells(bare: Project) -> None:
    """The command's own, 128 and the signal, 127 for what is not there, 126 for what cannot be executed."""
    bare.write("text", "no program", 0o644)
    bare.write("broken", b"\x7fELF", 0o755)
    for argv, status in (
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -TERM $$"), 143),
        (("sh", "-c", "kill -KILL $$"), 137),
        (("no-such-program",), 127),
        (("./no-such-program",), 127),
        (("",), 127),
        (("./text",), 126),
        (("./broken",), 126),
        (("/",), 126),
    ):
        result = on_host(bare, *argv, cwd=bare.directory)
        assert result.status == status, (argv, result)
        assert "Traceback" not in result.err
        assert (status in (126, 127)) == (result.err != SAID), (argv, result)


def test_a_bare_run_starts_the_agent_or_a_shell(bare: Project) -> None:
    """As in a sandbox."""
    result = on_host(bare, options=("--set", 'agent.command=["sh", "-c", "echo agent"]'))
    assert result.out == "agent\n"
    result = on_host(bare, environment={"SHELL": "/bin/sh"}, stdin=b"echo shell\n")
    assert result.out == "shell\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGQUIT"])
def test_signals_reach_the_command(bare: Project, name: str) -> None:
    """And its answer counts."""
    script = f"trap 'exit 9' {name[3:]}; echo up; while :; do sleep 0.05; done"
    started = bare.popen("sh", "-c", script, options=OPTIONS)
    assert started.stdout is not None and started.stdout.readline() == b"up\n"
    started.send_signal(signal.Signals[name])
    assert started.wait(DEADLINE) == 9


def test_a_timeout_asks_first(bare: Project) -> None:
    """A command that ends when asked ends in its own way; the status tells of the time."""
    result = on_host(
        bare,
        "sh",
        "-c",
        "trap 'echo asked; exit 0' TERM; while :; do sleep 0.05; done",
        options=("--timeout", "1s"),
    )
    assert (result.status, result.out) == (124, "asked\n")
    assert "coop: the command was ended after 1 s\n" in result.err


def test_a_timeout_ends_everything(bare: Project) -> None:
    """What ignores the question is killed after the grace period, with all that it started and put aside."""
    script = (
        "trap '' TERM; (setsid sleep 1007 & echo $!); sh -c 'sleep 1007 & echo $!; wait' & "
        "echo $$; while :; do sleep 0.05; done"
    )
    begin = time.monotonic()
    started = bare.popen("sh", "-c", script, options=(*OPTIONS, "--timeout", "1s"))
    assert started.stdout is not None
    pids = [int(started.stdout.readline()) for _ in range(3)]
    assert started.wait(DEADLINE) == 124
    assert time.monotonic() - begin > 5, "it was not asked first"
    assert wait_gone(pids), alive(pids)


def test_what_was_put_aside_outlives_a_command_that_ends(bare: Project) -> None:
    """As it would without coop."""
    result = on_host(bare, "sh", "-c", "sleep 1008 >/dev/null 2>&1 & echo $!")
    pid = int(result.out)
    assert alive([pid]) == [pid]
    os.kill(pid, signal.SIGKILL)


def test_a_terminal_is_the_commands(bare: Project) -> None:
    """^C reaches it once; afterwards the terminal is as it was."""
    script = "trap 'echo interrupted' INT; stty -echo; echo up; sleep 1; sleep 1; echo end"
    terminal = bare.terminal("sh", "-c", script, options=OPTIONS)
    terminal.expect("up")
    terminal.sendintr()
    terminal.expect("end")
    assert terminal.before is not None
    assert terminal.before.count("interrupted") == 1
    assert wait_until(lambda: not terminal.isalive())
    assert terminal.exitstatus == 0


def test_closed_streams_and_ignored_signals_do_no_harm(bare: Project) -> None:
    """A caller may have closed what it does not need, or ignore hangups."""
    argv = bare.argv(["sh", "-c", "exit 3"], OPTIONS)
    shell = 'trap "" HUP; exec "$@" <&- >&- 2>&-'
    done = subprocess.run(
        ["sh", "-c", shell, "sh", *argv], env=bare.environment, cwd=bare.actor.base, timeout=60, check=False
    )
    assert done.returncode == 3
