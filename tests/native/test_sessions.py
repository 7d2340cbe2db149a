"""The life of a session in namespaces, and commands in it: docs of both are in ``session/model.py``."""

from __future__ import annotations

import fnmatch
import os
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes import alive, kill, wait_gone, wait_until
from tests.sessionlab import Caller, Refused, Sessions
from tests.sessionseen import children, descriptors, holder, is_own, memory

pytestmark = pytest.mark.native


def write(sessions: Sessions, caller: Caller, script: str, **how: Any) -> int:
    """Start a shell script and wait until it has written something to the workspace's ``out``."""
    number = caller.begin("sh", "-c", script, **how)
    out = sessions.project.directory / "out"
    assert wait_until(lambda: out.exists() and out.read_text())
    return number


# Life


def test_commands_share_a_sandbox(sessions: Sessions) -> None:
    """What one command leaves in scratch space and in the workspace is there for the next one."""
    caller = sessions.opened()
    assert caller.shell("echo a > /tmp/scratch; echo b > kept").status == 0
    assert caller.shell("cat /tmp/scratch kept").out == "a\nb\n"
    assert (sessions.project.directory / "kept").read_text() == "b\n"


def test_joined_by_others(sessions: Sessions) -> None:
    """Another program finds the session by its name, in the same processes."""
    first = sessions.opened()
    processes = sessions.monitor(), sessions.first()
    second = sessions.caller()
    assert second.open()["fresh"] is False
    first.shell("echo from the first > /tmp/note")
    assert second.shell("cat /tmp/note").out == "from the first\n"
    assert (sessions.monitor(), sessions.first()) == processes


def test_names_are_apart(sessions: Sessions) -> None:
    """Sessions of two names see nothing of each other."""
    caller = sessions.opened("one")
    assert caller.open("two")["fresh"] is True
    caller.shell("touch /tmp/mine; sleep 100 >/dev/null 2>&1 &", name="one")
    result = caller.shell("ls /tmp/mine; cat /proc/[0-9]*/comm", name="two")
    assert "mine" not in result.out
    assert "sleep" not in result.out.split()
    caller.stop("one")
    assert caller.run("true", name="two").status == 0


def test_stop_leaves_nothing(sessions: Sessions) -> None:
    """Stopping ends all processes, those that ignore it too, and removes all that was made on the host."""
    sessions.project.mkdir(".git")
    sessions.watch_workspace()
    before = sessions.project.tree()
    caller = sessions.opened()
    assert sessions.project.tree() != before, "protected paths that are missing have placeholders"
    for script in ("trap '' TERM HUP; sleep 100", "setsid sleep 100 >/dev/null 2>&1 & sleep 100"):
        caller.begin("sh", "-c", script)
    processes = sessions.processes()
    caller.stop()
    assert not alive(processes), "stop waits for the end"
    assert sessions.left() == []


def test_started_again(sessions: Sessions) -> None:
    """A stopped session starts again: what is kept is there, what was in scratch space is not."""
    caller = sessions.opened()
    caller.shell("echo kept > ~/.claude/file; echo lost > /tmp/file; echo lost > ~/file")
    caller.stop()
    assert caller.open()["fresh"] is True
    assert caller.shell("cat ~/.claude/file ~/file /tmp/file").out == "kept\n"


def test_ends_after_its_time(sessions: Sessions) -> None:
    """Without commands a session ends after its ttl; until then every command begins that anew."""
    caller = sessions.opened(ttl=1.0)
    processes = sessions.processes()
    for _ in range(3):
        assert caller.run("sleep", "0.4").status == 0
    assert wait_gone(processes)
    assert sessions.left() == []
    with pytest.raises(Refused, match="does not run"):
        caller.run("true")


def test_a_command_keeps_it(sessions: Sessions) -> None:
    """A session does not end while a command runs, however long, nor with what is left in the background."""
    caller = sessions.opened(ttl=0.7)
    assert caller.run("sleep", "1.2").status == 0
    number = caller.begin("sh", "-c", "sleep 100 >/dev/null 2>&1 & sleep 0.5")
    processes = sessions.processes()
    assert caller.wait(number).status == 0
    assert wait_gone(processes), "what is in the background does not count as use"


def test_looking_is_no_use(sessions: Sessions) -> None:
    """Who asks again and again what a session uses does not keep it alive."""
    caller = sessions.opened(ttl=0.7)
    processes = sessions.processes()
    deadline = time.monotonic() + 20
    with pytest.raises(Refused, match=r"does not run|ended before it was asked"):
        while time.monotonic() < deadline:
            caller.usage()
    assert wait_gone(processes)


def test_expiry_and_beginning(sessions: Sessions) -> None:
    """A command that comes just when the time is over runs, or can safely be tried again."""
    caller = sessions.opened(ttl=0.02)
    ended = 0
    for number in range(40):
        while True:
            try:
                assert caller.shell(f"echo {number} >> log").status == 0
                break
            except Refused as refused:
                assert (refused.kind, refused.begun) == ("SessionGone", False), refused
                ended += 1
                caller.do("open", name="default", overrides=None, ttl=0.02, leased=False)
        time.sleep(0.015 + number % 5 * 0.003)
    assert ended
    log = (sessions.project.directory / "log").read_text()
    assert log == "".join(f"{number}\n" for number in range(40)), "each ran once"


def test_lease(sessions: Sessions) -> None:
    """A leased session ends with the program that started it, killed or not, with what others run in it."""
    starter = sessions.opened(leased=True)
    other = sessions.caller()
    assert other.open()["fresh"] is False
    number = other.begin("sleep", "100")
    processes = sessions.processes()
    starter.kill()
    assert wait_gone(processes)
    with pytest.raises(Refused, match="ended"):
        other.wait(number)
    assert sessions.left() == []


def test_lease_given_up(sessions: Sessions) -> None:
    """Letting go of a lease ends the session, too."""
    caller = sessions.opened(leased=True)
    caller.do("release", name="default")
    assert sessions.left() == []


def test_outlives_its_starter(sessions: Sessions) -> None:
    """A session without a lease goes on when the program that started it is killed."""
    sessions.opened().kill()
    caller = sessions.caller()
    assert caller.open()["fresh"] is False
    assert caller.run("true").status == 0


def test_ten_at_once(sessions: Sessions) -> None:
    """When ten programs want the same session at once there is one, and all have it, time after time."""
    callers = [sessions.caller() for _ in range(10)]
    for caller in callers:
        caller.do("status", names=[])  # it has started
    for _ in range(3):
        for caller in callers:
            caller.ask("open", name="default", overrides=None, ttl=None, leased=False)
        assert sum(caller.answer()["fresh"] for caller in callers) == 1
        for caller in callers:
            caller.ask("repeat", name="default", argv=["true"], times=1, together=1)
        assert [caller.answer() for caller in callers] == [[0]] * 10
        sessions.note("default", callers[0].do("place", name="default", overrides=None))
        made = [pid for helper in sessions.helpers() for pid in children(helper)]
        assert (made, children(made[0])) == ([sessions.monitor()], [sessions.first()])
        callers[0].stop()
        assert sessions.left() == []


def test_stopped_while_others_start_it(sessions: Sessions) -> None:
    """One program stops the session over and over, another uses it: it sees one that works, or none."""
    stopper, user = sessions.caller(), sessions.caller()
    for number in range(15):
        stopper.open()
        stopper.ask("stop", name="default")
        user.open()
        try:
            assert user.run("true").status == 0
        except Refused as refused:
            assert refused.kind == "SessionGone", refused
        stopper.answer()
        assert number < 15
    user.open()
    user.stop()
    assert sessions.left() == []


def test_other_plan(sessions: Sessions) -> None:
    """A session is not joined under another plan than it runs under; stopped, it starts under that."""
    caller, other = sessions.opened(), sessions.caller()
    with pytest.raises(Refused, match="another plan") as caught:
        other.open(overrides={"limits.pids": 100})
    assert caught.value.kind == "PlanDiffers"
    caller.stop()
    assert other.open(overrides={"limits.pids": 100})["fresh"] is True


def test_replaced_under_another_plan(sessions: Sessions) -> None:
    """Who has joined a session never runs a command in the one that took its place, under another plan."""
    caller, other = sessions.opened(), sessions.caller()
    other.open()
    other.stop()
    other.open(overrides={"limits.pids": 100})
    with pytest.raises(Refused, match="another plan") as caught:
        caller.run("touch", "ran")
    assert (caught.value.kind, caught.value.begun) == ("SessionGone", False)
    assert not (sessions.project.directory / "ran").exists()
    with pytest.raises(Refused) as caught:
        caller.open()
    assert caught.value.kind == "PlanDiffers"


# The process that makes sessions


def test_helper_killed(sessions: Sessions) -> None:
    """Sessions go on when the process that made them is killed; the next one has a new one."""
    caller = sessions.opened("one")
    (helper,) = sessions.helpers()
    kill(helper)
    assert wait_gone([helper])
    assert caller.run("true", name="one").status == 0
    assert caller.open("two")["fresh"] is True
    assert caller.run("true", name="two").status == 0
    (new,) = sessions.helpers()
    assert new != helper
    for name in ("one", "two"):
        caller.stop(name)
    assert sessions.left() == []
    assert len(list((sessions.state / "helper").iterdir())) == 2, "its socket, and the lock"


def test_helper_ends_when_idle(sessions: Sessions) -> None:
    """The process that makes sessions ends when none is asked for; they go on, the next one has a new one."""
    caller = sessions.caller()
    caller.do("brief_helper", seconds=1.0)
    caller.open("one")
    (helper,) = sessions.helpers()
    assert wait_gone([helper])
    assert [path.name for path in (sessions.state / "helper").iterdir()] == ["starting"]
    assert caller.run("true", name="one").status == 0
    assert caller.open("two")["fresh"] is True
    assert sessions.helpers() != [helper]


def test_asked_for_while_the_helper_ends(sessions: Sessions) -> None:
    """Who has reached the helper when it was just ending for want of requests gets a session all the same."""
    caller = sessions.caller()
    slowly = "lambda path, **how: (time.sleep(2 * ('/helper/' in path)), gone(path, **how))"
    caller.do("brief_helper", seconds=0.3, patch=f"import os, time; gone = os.unlink; os.unlink = {slowly}")
    caller.open("one")
    (helper,) = sessions.helpers()
    lock = sessions.state / "helper" / "starting"
    assert wait_until(lambda: holder(lock) == helper)
    caller.open("two")
    assert sessions.monitor("two") == sessions.monitor("one"), "it was asked before it had gone"
    for name in ("one", "two"):
        assert caller.run("true", name=name).status == 0
    assert wait_gone([helper])
    caller.open("three")
    for name in ("one", "two", "three"):
        caller.stop(name)
    assert sessions.left() == []


def test_helper_has_nothing_of_its_starter(sessions: Sessions) -> None:
    """Neither it nor what it makes has the starter's directory, descriptors, variables or ignored signals."""
    reading, writing = os.pipe()
    sessions.project.environment["SECRET"] = "value-of-the-starter"
    wrap = ("/bin/sh", "-c", "trap '' USR1 QUIT TSTP INT; exec \"$@\"", "sh")
    caller = sessions.caller(wrap=wrap, pass_fds=[writing])
    caller.open()
    os.close(writing)
    (helper,) = sessions.helpers()
    monitor = sessions.monitor()
    caller.kill()
    os.set_blocking(reading, False)
    assert os.read(reading, 1) == b"", "somebody has the pipe still"
    os.close(reading)
    if os.geteuid() == 0:
        assert os.readlink(f"/proc/{helper}/cwd") == "/"
        assert b"value-of" not in Path(f"/proc/{helper}/environ").read_bytes()
        assert b"value-of" not in Path(f"/proc/{monitor}/environ").read_bytes()
    text = Path(f"/proc/{helper}/status").read_text()
    ignored = int(text.partition("SigIgn:\t")[2].split()[0], 16)
    # Python's own, and the kernel's reaping.
    expected = {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD}
    assert {number for number in range(1, 32) if ignored >> number - 1 & 1} == expected
    again = sessions.caller()
    again.open()
    result = again.shell("grep SigIgn /proc/self/status; echo [$SECRET]").out.split()
    assert int(result[1], 16) & (1 << 31) - 1 == 0
    assert result[2] == "[]"


def test_helper_per_limits(sessions: Sessions) -> None:
    """Programs of other limits, such as of descriptors or processors, have a helper of their own."""
    sessions.opened("one")
    caller = sessions.caller(wrap=("/bin/sh", "-c", 'ulimit -n 128; exec "$@"', "sh"))
    caller.open("two")
    assert len(sessions.helpers()) == 2
    assert caller.shell("ulimit -n", name="two").out == "128\n"
    pinned = sessions.caller(wrap=("taskset", "-c", str(min(os.sched_getaffinity(0)))))
    pinned.open("three")
    assert pinned.run("nproc", name="three").out == "1\n"
    assert caller.run("nproc", name="two").out == f"{len(os.sched_getaffinity(0))}\n"


def test_long_paths(sessions: Sessions) -> None:
    """Directories of coop's may be longer than an address of a socket is, of 108 bytes."""
    project = sessions.project
    long = "/".join(["d" * 60] * 3)
    sessions.data = project.mkdir(project.home / "data" / long) / "coop"
    sessions.state = project.mkdir(project.home / "state" / long) / "coop"
    project.environment["XDG_DATA_HOME"] = str(sessions.data.parent)
    project.environment["XDG_STATE_HOME"] = str(sessions.state.parent)
    caller = sessions.opened()
    assert len(str(sessions.directory() / "socket")) > 250
    assert caller.run("echo", "a").out == "a\n"
    assert sessions.caller().open()["fresh"] is False
    caller.stop()
    assert sessions.left() == []


# Commands


def test_environment(sessions: Sessions) -> None:
    """A command has the plan's variables and its own; the program's are not passed on."""
    sessions.project.environment["SECRET"] = "value"
    sessions.project.coopfile('[env]\nOF_THE_PLAN = "p"\nBOTH = "plan"\n')
    caller = sessions.opened()
    script = "echo $OF_THE_PLAN $BOTH $ONLY [$SECRET] $COOP_SESSION $COOP_WORKSPACE $PWD"
    result = caller.shell(script, environment={"BOTH": "call", "ONLY": "o"})
    identifier = sessions.directory().name
    assert result.out == f"p call o [] {identifier} /workspace /workspace\n"
    assert caller.shell("echo $BOTH [$ONLY]").out == "plan []\n", "one call's are not the next one's"


def test_directory(sessions: Sessions) -> None:
    """A command starts in the workspace, wherever the program stood, or where it is told to."""
    project = sessions.project
    caller = sessions.caller(cwd=project.mkdir("below"))
    caller.open()
    assert caller.run("pwd").out == "/workspace\n"
    assert caller.run("pwd", directory="below").out == "/workspace/below\n"
    result = caller.shell("pwd -P; echo $PWD", directory="/tmp")
    assert result.out == "/tmp\n/tmp\n"
    project.write("file")
    for directory in ("no-such", "file", "/root/../no", "/proc/1/cwd", "/proc/1/root", "a\0b", "x" * 5000):
        with pytest.raises(Refused, match="cannot be entered") as caught:
            caller.run("pwd", directory=directory)
        assert caught.value.remedy
    assert caller.run("pwd").out == "/workspace\n"


def test_umask(sessions: Sessions) -> None:
    """Files of commands have the mode that the starter's umask gives."""
    caller = sessions.caller(wrap=("/bin/sh", "-c", 'umask 027; exec "$@"', "sh"))
    caller.open()
    caller.shell("touch file; mkdir directory")
    made = [sessions.project.directory / name for name in ("file", "directory")]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o640, 0o750]


def test_arguments(sessions: Sessions) -> None:
    """Arguments and variables arrive as they are: empty ones, blanks, newlines, bytes that are no UTF-8."""
    caller = sessions.opened()
    words = ["", " ", "a b", "new\nline", "ü", "\udcff\udcfe", "$HOME", "*", "-n", "\x1e"]
    script = "import sys, os; print(ascii(sys.argv[1:]), ascii(os.environ['ODD']))"
    result = caller.python(script, *words, environment={"ODD": "\udcff x"})
    assert result.out == f"{words!a} {chr(0xDCFF) + ' x'!a}\n", result


def test_output_is_bytes(sessions: Sessions) -> None:
    """Output that is no text comes as it is."""
    result = sessions.opened().shell(r"printf '\377\376\000x'; printf '\200' >&2")
    assert (result.out, result.err) == ("\udcff\udcfe\0x", "\udc80")


def test_status(sessions: Sessions) -> None:
    """A status is as a shell's: the command's own, 128 and the number for a signal, 126 and 127."""
    project = sessions.project
    project.write("no-permission", "#!/bin/sh\n", 0o644)
    project.write("no-interpreter", "#!/no/such\n", 0o755)
    project.write("no-program", "plain text", 0o755)
    caller = sessions.opened()
    assert [caller.shell(f"exit {number}").status for number in (0, 1, 125, 255)] == [0, 1, 125, 255]
    killed = caller.shell("kill -SEGV $$")
    assert (killed.status, killed.signal, killed.timed_out) == (128 + 11, 11, False)
    for argv, status in (
        (("no-such-program",), 127),
        (("./no-such",), 127),
        (("",), 127),
        (("./no-permission",), 126),
        (("/tmp",), 126),
        (("./no-program",), 126),
    ):
        result = caller.run(*argv)
        assert (result.status, len(result.notes)) == (status, 1), result
    assert caller.run("./no-interpreter").status in (126, 127)


def test_arguments_that_are_too_long(sessions: Sessions) -> None:
    """What the kernel takes no arguments of ends with 126 and says so; the session goes on."""
    caller = sessions.opened()
    for words in (["x" * (1 << 18)], ["x" * 1000] * 3000):
        result = caller.run("true", *words)
        assert result.status == 126
        assert "Argument list too long" in result.notes[0]
    assert caller.run("true").status == 0


@pytest.mark.parametrize(
    ("argv", "environment"),
    [
        (["a\0b"], {}),
        (["true", "a\0b"], {}),
        (["true"], {"A": "b\0c"}),
        (["true"], {"A\0B": "c"}),
        (["true"], {"A=B": "c"}),
        (["true"], {"": "c"}),
        (["true", "\ud800"], {}),
        ([], {}),
    ],
)  # fmt: skip
def test_what_cannot_be_started(sessions: Sessions, argv: list[str], environment: dict[str, str]) -> None:
    """What no program can be given is refused in words, and the session goes on."""
    caller = sessions.opened()
    with pytest.raises(Refused) as caught:
        caller.run(*argv, environment=environment)
    assert caught.value.kind == "SessionError"
    assert caller.run("true").status == 0
    assert sessions.directory().joinpath("notes").read_bytes() == b""


def test_signals(sessions: Sessions) -> None:
    """A signal that the caller sends reaches the command's process group."""
    caller = sessions.opened()
    script = """
trap 'echo got; exit 9' USR1
(trap 'echo below > below; exit' USR1; echo a > out; while :; do sleep 0.01; done) &
wait; wait
"""
    number = write(sessions, caller, script)
    caller.do("signal", number=number, signal=int(signal.SIGUSR1))
    done = caller.wait(number)
    assert (done.status, done.out) == (9, "got\n")
    assert wait_until((sessions.project.directory / "below").exists)
    number = caller.begin("sleep", "100")
    caller.do("signal", number=number, signal=int(signal.SIGTERM))
    assert caller.wait(number).signal == signal.SIGTERM


def test_streams_are_let_go(sessions: Sessions) -> None:
    """Nobody of coop's holds a command's streams: who reads sees the end when the command ends."""
    caller = sessions.opened()
    fifo = sessions.project.directory / "fifo"
    os.mkfifo(fifo, 0o666)
    sessions.project.actor.own(fifo)
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    streams = ["null", f"file:{fifo}", "null"]
    number = caller.begin("sh", "-c", "echo a; exec sleep 100 >/dev/null", streams=streams)
    assert caller.do("status", names=["descriptors"])
    os.set_blocking(reading, True)
    assert os.read(reading, 10) == b"a\n"
    # The driver has its own copy, as any caller may, until it waits.
    caller.do("signal", number=number, signal=int(signal.SIGKILL))
    caller.wait(number)
    assert os.read(reading, 10) == b""
    os.close(reading)


def test_descriptors_of_a_command(sessions: Sessions) -> None:
    """A command has its three streams and nothing else, with a terminal and without."""
    caller = sessions.opened()
    script = "import os; print(sorted(os.listdir('/proc/self/fd')))"
    assert caller.python(script).out == "['0', '1', '2', '3']\n", "3 is the directory that is listed"
    number = caller.begin("/usr/bin/python3", "-I", "-c", script, terminal=(24, 80))
    assert "['0', '1', '2', '3']" in caller.do("terminal", number=number, feed="", until="\n")
    assert caller.wait(number).status == 0


def test_background(sessions: Sessions) -> None:
    """What a command leaves in the background goes on, is counted, and ends with the session."""
    caller = sessions.opened()
    assert caller.usage() == (0, 0)
    caller.shell("setsid sleep 100 >/dev/null 2>&1 & sleep 101 >/dev/null 2>&1 &")
    processes, size = caller.usage()
    assert processes == 2
    assert 0 < size < 64 << 20
    left = sessions.commands()
    assert len(left) == 2
    caller.stop()
    assert not alive(left)


# Ends of commands

STUBBORN = {
    "ignores it": "trap '' TERM HUP INT; echo a > out; while :; do sleep 1; done",
    "leaves": "(trap '' TERM; setsid sh -c 'setsid sleep 99 & echo a > out; sleep 99' >&- 2>&- &); sleep 99",
    "is stopped": "sleep 100 & kill -STOP $!; echo a > out; kill -STOP $$",
    "has ended": "setsid sleep 100 > /dev/null 2>&1 & echo a > out; sleep 100",
    "forks": "echo a > out; while :; do (sleep 100 &) ; done",
}
VFORK = """
import ctypes, os
libc = ctypes.CDLL(None)
open("out", "w").write("a")
os.posix_spawn("/bin/sh", ["sh", "-c", "trap '' TERM; sleep 100"], os.environ)
number = {"x86_64": 58}.get(os.uname().machine)
if number and libc.syscall(number) == 0:
    libc.pause()
libc.pause()
"""


@pytest.mark.parametrize("kind", STUBBORN)
def test_timeout_ends_all(sessions: Sessions, kind: str) -> None:
    """When the time is over all that the command started ends, whatever it does against it."""
    caller = sessions.caller()
    caller.open(overrides={"limits.pids": 60})
    before = sessions.processes()
    result = caller.shell(STUBBORN[kind], timeout=1.0)
    assert (result.status, result.timed_out, result.notes) == (124, True, [])
    assert (sessions.project.directory / "out").exists()
    assert sessions.commands() == []
    assert caller.usage()[0] == 0
    assert sessions.first() in before
    assert caller.run("true").status == 0


def test_timeout_of_a_vfork(sessions: Sessions) -> None:
    """A process that waits in vfork is ended, too."""
    caller = sessions.opened()
    assert caller.python(VFORK, timeout=1.0).status == 124
    assert (sessions.project.directory / "out").exists()
    assert sessions.commands() == []


def test_timeout_spares_others(sessions: Sessions) -> None:
    """Only what the command started ends: others at the same time and those of before go on."""
    caller = sessions.opened()
    caller.shell("sleep 1000 >/dev/null 2>&1 &")
    other = caller.begin("sh", "-c", "sleep 1000 & wait")
    assert caller.run("sleep", "1001", timeout=0.2).timed_out
    assert wait_until(lambda: len(sessions.commands()) == 3)
    caller.do("signal", number=other, signal=int(signal.SIGTERM))
    caller.wait(other)


def test_asked_to_end_first(sessions: Sessions) -> None:
    """A command is asked to end and may tidy up, before it is killed."""
    script = "trap 'echo tidied > out; exit 0' TERM; while :; do sleep 0.05; done"
    result = sessions.opened().shell(script, timeout=1.0)
    assert (result.status, result.timed_out) == (124, True)
    assert (sessions.project.directory / "out").read_text() == "tidied\n"


@pytest.mark.parametrize("how", ["close", "kill"])
def test_abandoned(sessions: Sessions, how: str) -> None:
    """A command whose caller lets go of it, or is killed, ends with all that it started."""
    sessions.opened()
    caller = sessions.caller()
    caller.open()
    number = write(sessions, caller, "trap '' TERM; (setsid sleep 100 &); echo a > out; sleep 100; sleep 100")
    commands = wait_until(lambda: len(found := sessions.commands()) >= 3 and found)
    assert commands
    if how == "close":
        caller.do("close", number=number)
    else:
        caller.kill()
    assert wait_gone(commands)
    assert wait_until(lambda: sessions.commands() == [])
    again = sessions.caller()
    assert again.open()["fresh"] is False
    assert again.run("true").status == 0


# Many


def groups_of(monitor: int) -> set[str]:
    """Return the control groups that a monitor sees to; those of other tests come and go meanwhile."""
    found = os.walk("/sys/fs/cgroup")
    return {f"{top}/{name}" for top, names, _ in found for name in fnmatch.filter(names, f"coop-*-{monitor}")}


def test_a_thousand(sessions: Sessions) -> None:
    """A thousand commands in a row, and fifty at once, leave nothing behind in any process."""
    caller = sessions.opened()
    privileged = os.geteuid() == 0
    caller.do("repeat", name="default", argv=["true"], times=100, together=10)
    (helper,) = sessions.helpers()
    watched = [sessions.first(), sessions.monitor(), helper]

    def look() -> tuple[object, ...]:
        assert wait_until(lambda: not sessions.commands() and len(children(sessions.first())) <= 1)
        own = caller.do("status", names=["descriptors"])["descriptors"]
        return own, [descriptors(pid) for pid in watched] if privileged else None

    before, size = look(), [memory(pid) for pid in watched] if privileged else []
    groups = groups_of(sessions.monitor())
    assert set(caller.do("repeat", name="default", argv=["true"], times=1000, together=1)) == {0}
    assert set(caller.do("repeat", name="default", argv=["true"], times=100, together=50)) == {0}
    assert wait_until(lambda: look() == before), (look(), before)
    assert groups_of(sessions.monitor()) == groups
    if privileged:
        grown = [memory(pid) - former for pid, former in zip(watched, size, strict=True)]
        assert max(grown) < 512 << 10, grown
    assert caller.usage()[0] == 0
    assert wait_until(lambda: all(is_own(pid) for pid in children(sessions.first())))
    caller.stop()
    assert sessions.left() == []


def test_many_sessions(sessions: Sessions) -> None:
    """Twenty sessions start and stop, and nothing of them is left."""
    caller = sessions.caller()
    for number in range(20):
        caller.open(f"s{number}")
    for number in range(20):
        assert caller.run("true", name=f"s{number}").status == 0
        caller.stop(f"s{number}")
    assert sessions.left() == []
