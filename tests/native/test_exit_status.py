"""What ``coop run`` exits with."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.sandboxes import DEADLINE, Project, alive, descendants, wait_until
from tests.terminals import name_of

pytestmark = pytest.mark.native

STUBBORN = """
trap '' TERM INT HUP
sh -c 'trap "" TERM; sleep 1001' &
setsid sh -c 'trap "" TERM; sleep 1002' &
(sleep 1003 &)
while :; do sleep 1; done
"""


@pytest.mark.parametrize("status", [0, 1, 7, 124, 125, 255])
def test_own_status(project: Project, status: int) -> None:
    """The status is the command's own, whatever it is."""
    assert project.shell(f"exit {status}").status == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE])
def test_killed_by_a_signal(project: Project, number: int) -> None:
    """A command that a signal ends counts as 128 and the signal's number."""
    assert project.shell(f"kill -{int(number)} $$").status == 128 + number


def test_not_found(project: Project) -> None:
    """A command that does not exist is 127, and said to be missing inside the sandbox."""
    result = project.run("no-such-command")
    assert result.status == 127
    assert result.err.splitlines()[-1] == "coop: no-such-command: not found inside the sandbox"


def test_path_not_found(project: Project) -> None:
    """A path that does not exist inside is 127 too, though the host has it."""
    outside = project.home / "tool"
    outside.write_text("#!/bin/sh\n")
    outside.chmod(0o755)
    assert project.run(str(outside)).status == 127


def test_not_executable(project: Project) -> None:
    """A file without execute permission, and a directory, are 126."""
    project.write("script", "#!/bin/sh\n", 0o644)
    project.mkdir("directory")
    result = project.run("./script")
    assert (result.status, result.err.splitlines()[-1]) == (126, "coop: ./script: Permission denied")
    assert project.run("./directory").status == 126


def test_missing_interpreter(project: Project) -> None:
    """A script whose interpreter does not exist is 127, as in a shell."""
    project.write("script", "#!/no/such/interpreter\n", 0o755)
    assert project.run("./script").status == 127


def test_coop_failure(project: Project) -> None:
    """A plan that cannot be enforced here is 125, with a remedy, and the command does not start."""
    project.coopfile('sandbox.min_isolation = "vm"\n')
    result = project.shell("touch started")
    assert result.status == 125
    assert "min_isolation" in result.err and "help:" in result.err
    assert not (project.directory / "started").exists()


def test_bad_coopfile(project: Project) -> None:
    """A Coopfile with a mistake is coop's failure, told with its position and no traceback."""
    project.coopfile('network.mode = "nope"\n')
    result = project.shell("touch started")
    assert result.status == 125
    assert "Coopfile:1:" in result.err and "Traceback" not in result.err
    assert not (project.directory / "started").exists()


def test_no_command_is_the_agent(project: Project) -> None:
    """Without a command the Coopfile's agent starts."""
    project.coopfile('agent.command = ["sh", "-c", "exit 9"]\n')
    assert project.run().status == 9


def test_no_command_is_a_shell(project: Project) -> None:
    """Without a command and an agent a shell reads the caller's input."""
    result = project.run(stdin=b"echo hello; exit 4\n")
    assert (result.status, result.out) == (4, "hello\n")


def test_timeout(project: Project) -> None:
    """At the end of its time a command is asked to end, and the status is 124 whatever it says."""
    result = project.shell("trap 'echo asked; exit 0' TERM; sleep 1000 & wait", options=["--timeout", "1s"])
    assert (result.status, result.out) == (124, "asked\n")
    assert "ended after 1 s" in result.err


def test_stubborn_timeout(project: Project) -> None:
    """A command that ignores being asked, and has spread, is gone altogether some seconds later."""
    process = project.popen("sh", "-c", STUBBORN, options=["--timeout", "2s"])
    assert wait_until(lambda: [name_of(pid) for pid in descendants(process.pid)].count("sleep") == 4)
    family = descendants(process.pid)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 124
    assert not alive(family)


def test_in_time(project: Project) -> None:
    """A command that ends before its time keeps its status."""
    assert project.shell("exit 5", options=["--timeout", "1m"]).status == 5


def test_descendants_end_with_the_command(project: Project) -> None:
    """Processes that the command leaves behind end with it."""
    marker = project.directory / "late"
    assert project.shell("(sleep 0.3; echo x > late) & setsid sleep 1000 & exit 0").status == 0
    time.sleep(0.8)
    assert not marker.exists()


def test_orphans_are_reaped(project: Project) -> None:
    """Orphans that end while the command runs do not stay as zombies."""
    script = """
for i in 1 2 3; do (true & ); done; sleep 0.3
for i in $(seq 100); do
    states=$(grep -h ^State /proc/[0-9]*/status)
    case $states in *Z*) sleep 0.1 ;; *) break ;; esac
done
echo "$states"
"""
    assert "Z" not in project.output(script)


@pytest.mark.skipif(os.geteuid() != 0, reason="taking /proc away needs root")
def test_without_proc(project: Project) -> None:
    """On a host that has no /proc a run is refused in words."""
    project.write("Coopfile", 'coop = 1\n[sandbox]\nbackend = "native"\n')
    uid, gid = project.actor.uid, project.actor.gid
    become = f"setpriv --reuid={uid} --regid={gid} --clear-groups" if uid else ""
    script = f'umount -l /proc && exec {become} "$@"'
    project.unshared = ("unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh")
    result = project.run("true")
    assert result.status == 125 and "/proc" in result.err and "this is a bug" not in result.err, result
