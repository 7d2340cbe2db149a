"""Attacks on the host's own programs: on its services, and through what git does there."""

# ruff: noqa: E501  (attack programs, and tables of what they try)
from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.options import give
from tests.sandboxes import DEADLINE, Actor, Project

pytestmark = pytest.mark.native


# --- sockets and pipes of the host --------------------------------------------------------------


@pytest.fixture
def listener(actor: Actor) -> Iterator[Path]:
    """Yield a socket of the host's that anybody may connect to, in a directory of the actor's."""
    directory = actor.directory("service")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(directory / "socket"))
    (directory / "socket").chmod(0o777)
    server.listen()
    yield directory / "socket"
    server.close()


CONNECT = """
import socket, sys
for path in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX).connect(path.replace("@", chr(0)))
        print("connected", path)
    except OSError:
        pass
"""


@pytest.mark.parametrize("network", ["none", "host"])
def test_sockets_of_the_host(project: Project, listener: Path, network: str) -> None:
    """Services of the host cannot be reached: not by path, not by a link, not by an abstract name."""
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0coop-test-{os.getpid()}")
    abstract.listen()
    project.link("link", str(listener))
    names = [
        str(listener),
        "link",
        f"@coop-test-{os.getpid()}",
        "/run/docker.sock",
        "/run/dbus/system_bus_socket",
        "/run/systemd/private",
    ]
    result = project.python(CONNECT, *names, options=["--set", f'network.mode="{network}"'])
    abstract.close()
    assert (result.status, result.out) == (0, ""), result


@pytest.mark.xfail(
    strict=True, reason="a read-only mount of a directory does not stop connect() to a socket in it"
)
def test_socket_in_a_directory_given_to_read(project: Project, listener: Path) -> None:
    """A socket below a directory of files.read cannot be connected to."""
    result = project.python(CONNECT, str(listener), options=give("read", listener.parent))
    assert result.out == ""


# --- what the host does meanwhile ---------------------------------------------------------------


@pytest.mark.xfail(strict=True, reason="the kernel drops a mount from a name that the host replaces")
def test_host_replaces_a_protected_file(project: Project) -> None:
    """A protected file that the host replaces by rename (as ``git config`` does) stays protected."""
    project.write(".git/config", "old\n")
    process = project.popen(
        "sh", "-c", "echo ready; read go; echo evil >> .git/config; read go", stdin=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    new = project.write(".git/config.lock", "new\n")
    os.replace(new, project.directory / ".git/config")
    process.communicate(b"\n\n", timeout=DEADLINE)
    assert (project.directory / ".git/config").read_text() == "new\n"


def commit(project: Project) -> Path:
    """Make a repository with one commit; return a path that an attack through git would create."""
    run = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org")
    for argv in (("git", "init", "-q", "."), (*run, "commit", "-q", "-m", "first", "--allow-empty")):
        done = project.actor.run(*argv, cwd=project.directory)
        assert done.status == 0, done
    return project.directory / "executed-on-the-host"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is needed")
@pytest.mark.parametrize("way", ["config", "worktree config", "hooks", "commondir", "link", "attributes"])
def test_git_on_the_host(project: Project, way: str) -> None:
    """Nothing that the command does to the repository makes ``git status`` on the host run a program."""
    marker = commit(project)
    program = f"core.fsmonitor 'touch {marker}; false'"
    script = {
        "config": f"git config {program}; git config --global {program}",
        "worktree config": f"git config extensions.worktreeConfig true; git config --worktree {program}; "
        f"printf '[core]\\n\\tfsmonitor = touch {marker}\\n' > .git/config.worktree",
        "hooks": f"for h in post-index-change pre-commit post-checkout; do printf '#!/bin/sh\\ntouch {marker}' > .git/hooks/$h; chmod 755 .git/hooks/$h; done",
        "commondir": f"cp -r .git evil; git config -f evil/config {program}; echo ../evil > .git/commondir",
        "link": f"cp -r .git evil; git config -f evil/config {program}; mv .git away; ln -s evil .git",
        "attributes": f"echo '* filter=evil' > .gitattributes; git config filter.evil.clean 'touch {marker}'",
    }[way]
    project.shell(f"({script}) 2>/dev/null")
    for argv in (("git", "status"), ("git", "diff"), ("git", "log"), ("git", "add", "-A")):
        project.actor.run(*argv, cwd=project.directory)
    assert not marker.exists()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is needed")
@pytest.mark.xfail(
    strict=True, reason="git status on the host reads the configuration of a planted submodule"
)
def test_planted_submodule(project: Project) -> None:
    """A repository planted in the workspace and entered into the index runs nothing on the host."""
    marker = commit(project)
    script = f"""
    git init -q sub && cd sub && git -c user.name=x -c user.email=x commit -q -m x --allow-empty
    git config core.fsmonitor 'touch {marker}; false'; hash=$(git rev-parse HEAD); cd ..
    git update-index --add --cacheinfo 160000,$hash,sub"""
    project.output(script)
    project.actor.run("git", "status", cwd=project.directory)
    assert not marker.exists()
