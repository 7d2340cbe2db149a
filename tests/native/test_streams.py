"""The command's standard streams are the caller's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes import DEADLINE, Actor, Project, Result

pytestmark = pytest.mark.native


def through_shell(project: Project, script: str, *argv: str) -> Result:
    """Run coop from a shell of the actor's, where ``"$@"`` is coop's command line."""
    return project.actor.run("sh", "-c", script, "sh", *project.argv(argv)[len(project.actor.prefix) :])


def new_file(actor: Actor, path: Path) -> int:
    """Make a file of the actor's and return a descriptor to write it by."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    actor.own(path)
    return descriptor


def test_binary_data(project: Project) -> None:
    """A megabyte of arbitrary bytes passes through standard input and output unchanged."""
    data = os.urandom(1 << 20)
    result = project.run("cat", stdin=data)
    assert (result.status, result.stdout, result.stderr) == (0, data, result.stderr)


def test_output_and_errors_apart(project: Project) -> None:
    """What goes to standard error does not come out of standard output."""
    result = project.shell("echo out; echo err >&2", options=["-q"])
    assert (result.stdout, result.stderr) == (b"out\n", b"err\n")


def test_empty_input(project: Project) -> None:
    """A command that reads a caller's empty input sees its end at once."""
    assert project.output("wc -c") == "0"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_reopened_file(project: Project, stream: str) -> None:
    """/dev/stdout and /dev/stderr can be opened again when they are files of the caller's."""
    path = project.home / "log"
    descriptor = new_file(project.actor, path)
    try:
        streams: dict[str, Any] = {stream: descriptor}
        process = project.popen("sh", "-c", f"echo one > /dev/{stream}; echo two >> /dev/{stream}", **streams)
        assert process.wait(DEADLINE) == 0, process.communicate()
    finally:
        os.close(descriptor)
    assert path.read_text() == "one\ntwo\n"


def test_reopened_input(project: Project) -> None:
    """/dev/stdin can be opened again when it is a file, for reading only."""
    path = project.home / "input"
    os.close(new_file(project.actor, path))
    path.write_text("content")
    with path.open("rb") as file:
        script = "cat /dev/stdin; (echo x > /dev/stdin) 2>/dev/null && echo written"
        process = project.popen("sh", "-c", script, stdin=file)
        out, _ = process.communicate(timeout=DEADLINE)
    assert out == b"content"
    assert path.read_text() == "content"


def test_reopened_pipe(project: Project) -> None:
    """/dev/stdout can be opened again when it is a pipe."""
    result = through_shell(project, '"$@" | cat', "sh", "-c", "echo one > /dev/stdout; echo two > /dev/fd/1")
    assert result.out == "one\ntwo\n", result


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(project: Project, closed: str) -> None:
    """With streams closed by the caller the command runs, and no descriptor of ours takes their place."""
    script = "ls -l /proc/self/fd > fds; cat > /dev/null; echo out; echo err >&2; exit 3"
    result = through_shell(project, f'"$@" {closed}', "sh", "-c", script)
    assert result.status == 3, result
    listed = (project.directory / "fds").read_text()
    for number in {"<": "0", ">": "1", "2": "2"}[closed[0]]:
        if number != "1":  # where the listing goes
            assert f" {number} -> /dev/null" in listed, listed


def test_closed_output_of_a_closed_reader(project: Project) -> None:
    """A command whose reader has gone dies of SIGPIPE, as outside."""
    result = through_shell(project, '{ "$@"; echo "$?" >&2; } | true', "sh", "-c", "sleep 0.2; yes")
    assert result.err.splitlines()[-1] == "141", result


def test_no_other_descriptors(project: Project) -> None:
    """Descriptors of the caller's beyond the three streams do not reach the command."""
    secret = project.home / "secret"
    os.close(new_file(project.actor, secret))
    with secret.open("rb") as file:
        os.set_inheritable(file.fileno(), True)
        process = project.popen(
            "/usr/bin/python3", "-I", "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))",
            pass_fds=[file.fileno()],
        )  # fmt: skip
        out, _ = process.communicate(timeout=DEADLINE)
    assert out == b"['0', '1', '2', '3']\n"  # 3: the listing's own


def test_streams_not_held_after_the_end(project: Project) -> None:
    """A background process of the command's does not keep the caller's pipes open: it is gone with it."""
    process = project.popen("sh", "-c", "sleep 1000 & echo done", stdout=subprocess.PIPE)
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, b"done\n")
