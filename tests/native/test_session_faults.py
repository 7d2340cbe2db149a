"""Sessions in namespaces when something is killed, damaged, full or short, for real."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disk import Disk
from tests.sandboxes import alive, descendants, kill, processes, wait_gone, wait_until
from tests.sessionlab import Caller, Refused, Sessions
from tests.sessionseen import children, holder, locked

pytestmark = pytest.mark.native

ROUNDS = 12


def again(sessions: Sessions, caller: Caller | None = None, name: str = "default") -> None:
    """See that the session can be used again, that what it keeps was kept, and that it leaves nothing."""
    caller = caller or sessions.caller()
    caller.open(name)
    assert caller.shell("cat ~/.claude/kept", name=name).out == "kept\n"
    caller.stop(name)
    assert sessions.left() == []


def keeping(sessions: Sessions, name: str = "default") -> Caller:
    """Return a program with a session open, which has kept something."""
    caller = sessions.opened(name)
    assert caller.shell("echo kept > ~/.claude/kept", name=name).status == 0
    return caller


# Killed


@pytest.mark.parametrize("which", ["PID 1", "monitor", "supervisor", "all", "all and the helper"])
def test_killed(sessions: Sessions, which: str) -> None:
    """Whatever of it is killed, the session ends as a whole, who waits is told, and it starts again."""
    sessions.project.mkdir(".git")
    sessions.watch_workspace()
    caller = keeping(sessions)
    number = caller.begin("sh", "-c", "setsid sleep 100 & sleep 100")
    assert wait_until(lambda: len(sessions.commands()) >= 2)
    processes = sessions.processes()
    supervisors = sessions.supervisors()
    victims = {
        "PID 1": [sessions.first()],
        "monitor": [sessions.monitor()],
        "supervisor": supervisors,
        "all": processes,
        "all and the helper": [*sessions.helpers(), *processes],
    }[which]
    kill(*victims)
    with pytest.raises(Refused, match="the session default ended before") as caught:
        caller.wait(number)
    assert (caught.value.kind, caught.value.begun) == ("SessionGone", True)
    assert ("supervised" in caught.value.message) == (which == "supervisor")
    assert wait_gone(processes)
    with pytest.raises(Refused, match="does not run") as caught:
        caller.run("true")
    assert (caught.value.kind, caught.value.begun) == ("SessionGone", False)
    again(sessions, caller)


def test_starter_killed(sessions: Sessions) -> None:
    """Whenever the program that starts a session is killed, there is one that works, or none."""
    chance = random.Random(5)
    for number in range(ROUNDS):
        caller = sessions.caller()
        caller.do("status", names=[])
        caller.ask("open", name="default", overrides=None, ttl=None, leased=False)
        time.sleep(0.03 * ((number + chance.random()) / ROUNDS) ** 2)
        caller.kill()
        other = sessions.caller()
        other.open()
        try:
            done = other.run("true")
        except Refused as refused:  # that was the dead one's yet, which ends for want of who asked for it
            assert refused.begun is False
            other.open()
            done = other.run("true")
        assert done.status == 0
        other.stop()
        assert sessions.left() == []


def test_starter_killed_while_it_waits(sessions: Sessions) -> None:
    """When the program is killed while the session is made, nothing is left running that nobody knows of."""
    sessions.opened("other")  # so that there is a helper
    (helper,) = sessions.helpers()
    os.kill(helper, signal.SIGSTOP)
    try:
        caller = sessions.caller()
        directory = Path(caller.do("place", name="default", overrides=None))
        caller.ask("open", name="default", overrides=None, ttl=None, leased=False)
        assert wait_until((directory / "state").exists)
        caller.kill()
    finally:
        os.kill(helper, signal.SIGCONT)
    other = sessions.caller()
    other.open()
    assert other.run("true").status == 0
    monitor = sessions.monitor()
    assert children(helper) == [monitor]
    assert wait_until(lambda: len(children(monitor)) == 2), "this one, and the other"


def test_helper_killed_while_it_is_asked(sessions: Sessions) -> None:
    """When the helper is killed while it is asked, that is an error in words, and the next try works."""
    sessions.opened("other")
    for number in range(3):
        again_helped = sessions.caller()
        again_helped.open(f"before{number}")
        helper = sessions.helpers()[-1]
        os.kill(helper, signal.SIGSTOP)
        caller = sessions.caller()
        caller.do("status", names=[])
        caller.ask("open", name=f"s{number}", overrides=None, ttl=None, leased=False)
        time.sleep(0.05 * number)
        kill(helper)
        with contextlib.suppress(Refused):
            caller.answer()
        caller.open(f"s{number}")
        assert caller.run("true", name=f"s{number}").status == 0


def test_stopped_while_commands_run(sessions: Sessions) -> None:
    """Who waits for a command is told when the session is stopped by another program."""
    caller = keeping(sessions)
    number = caller.begin("sleep", "100")
    other = sessions.caller()
    other.open()
    other.stop()
    with pytest.raises(Refused, match="ended before the command's result was known"):
        caller.wait(number)
    again(sessions, caller)


def test_stopped_while_it_starts(sessions: Sessions) -> None:
    """Who ends a session that is being started waits until it runs; none of both is left."""
    starter, stopper = keeping(sessions), sessions.caller()
    stopper.open()
    starter.stop()
    let_go = locked(sessions.state / "running" / "starting")
    try:
        starter.ask("open", name="default", overrides=None, ttl=None, leased=False)
        assert wait_until(lambda: holder(sessions.directory() / "alive"))
        stopper.ask("end", name="default")
        time.sleep(0.1)
    finally:
        let_go()
    assert starter.answer()["fresh"] is True
    assert stopper.answer() is True
    again(sessions, starter)


def test_caller_killed_at_any_moment(sessions: Sessions) -> None:
    """Whenever the caller of a command is killed, all that the command started ends; the session goes on."""
    keeping(sessions)
    chance = random.Random(6)
    for number in range(ROUNDS):
        caller = sessions.caller()
        caller.open()
        script = "trap '' TERM HUP; (setsid sleep 100 &); sleep 100"
        caller.ask(
            "begin",
            name="default",
            argv=["sh", "-c", script],
            environment={},
            directory=None,
            timeout=None,
            terminal=[24, 80] if number % 2 else None,
            streams=["null"] * 3,
        )
        time.sleep(0.01 * chance.random())
        caller.kill()
    assert wait_until(lambda: not sessions.commands())
    assert wait_until(lambda: len(sessions.supervisors()) <= 1)
    again(sessions)


# Damaged


def become(path: Path, kind: str) -> None:
    """Put something else in the place of what a path leads to."""
    remove(path)
    if kind == "a directory":
        path.mkdir()
    elif kind == "a FIFO":
        os.mkfifo(path, 0o600)
    elif kind == "a link":
        path.symlink_to("/etc/passwd")
    elif kind == "garbage":
        path.write_bytes(bytes(range(256)) * 9)
    elif kind == "nothing in it":
        path.touch()
    if kind != "removed":
        owner = path.parent.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def remove(path: Path) -> None:
    """Remove what there is, if anything is."""
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()


KINDS = ("removed", "a directory", "a FIFO", "a link", "garbage", "nothing in it")
FILES = ("state", "socket", "alive", "starting", "notes", "project")


@pytest.mark.parametrize("name", FILES)
def test_damaged_while_it_runs(sessions: Sessions, name: str) -> None:
    """With a file of its directory damaged a session works, or the error says what helps; nothing is left."""
    for kind in KINDS[:1] if name == "socket" else KINDS:
        session = kind.replace(" ", "-")
        caller = keeping(sessions, session)
        path = sessions.directory(session) / name
        first, monitor = sessions.first(session), sessions.monitor(session)
        become(path, kind)
        errors = []
        for do in ("run", "open", "end"):
            try:
                if do == "run":
                    caller.run("true", name=session)
                elif do == "open":
                    caller.open(session)
                else:
                    caller.do("end", name=session)
            except Refused as refused:
                errors.append(refused)
        assert all(refused.kind == "SessionGone" or refused.remedy for refused in errors), errors
        # Nothing leads to it any more, which it sees when it is woken, or after a minute.
        with contextlib.suppress(ProcessLookupError):
            os.kill(monitor, signal.SIGCONT)
        if name in ("socket", "alive"):
            assert wait_gone([first])
        remove(path)
        again(sessions, caller, session)


@pytest.mark.parametrize("name", FILES)
def test_damaged_while_it_is_stopped(sessions: Sessions, name: str) -> None:
    """With a file of its directory damaged a session starts, or the error names what to remove for that."""
    caller = keeping(sessions)
    caller.stop()
    for kind in KINDS:
        path = sessions.directory() / name
        become(path, kind)
        try:
            caller.open()
        except Refused as refused:
            assert kind in ("a directory", "a link", "a FIFO"), refused
            assert str(path) in refused.message, refused
            remove(path)
        again(sessions, caller)


# Has what makes sessions stay for a while when it has told that it failed.
LINGER = "import time; from coopfile.native import report; told = report.send_error; "
LINGER += "report.send_error = lambda *facts: (told(*facts), time.sleep(0.5))"


def test_opened_when_it_could_not_be_started(sessions: Sessions) -> None:
    """What is left of a session that could not be started is not taken for one that runs."""
    caller = sessions.caller()
    caller.do("brief_helper", seconds=60, patch=LINGER)
    caller.open()
    caller.stop()
    notes = sessions.directory() / "notes"
    become(notes, "a directory")
    with pytest.raises(Refused, match="notes"):
        caller.open()
    remove(notes)
    assert caller.open()["fresh"] is True
    assert caller.run("true").status == 0


def test_directory_removed(sessions: Sessions) -> None:
    """When its directory is removed a session ends by itself, and another one can start there at once."""
    caller = keeping(sessions)
    number = caller.begin("sleep", "100")
    processes = sessions.processes()
    monitor = sessions.monitor()
    shutil.rmtree(sessions.directory())
    other = sessions.caller()
    assert other.open()["fresh"] is True
    assert other.run("true").status == 0
    os.kill(monitor, signal.SIGCONT)  # as after a minute
    assert wait_gone(processes)
    with pytest.raises(Refused, match="broke off before"):
        caller.wait(number)
    assert other.run("true").status == 0, "the other one is not touched"
    other.stop()
    assert sessions.left() == []


def test_workspace_removed(sessions: Sessions) -> None:
    """When the workspace is removed, commands see that; a new session is refused until it is back."""
    project = sessions.project
    caller = keeping(sessions)
    shutil.rmtree(project.directory)
    assert caller.run("ls", "-A").out == ""
    assert caller.shell("echo a > file").status != 0
    processes = sessions.processes()
    other = sessions.caller(cwd=project.home)
    caller.stop()
    assert not alive(processes)
    with pytest.raises(Refused) as caught:
        caller.open()
    assert caught.value.remedy or "no directory" in caught.value.message, caught.value
    other.close()
    project.mkdir(project.directory)
    project.write("Coopfile")
    again(sessions)


# Full


@pytest.fixture
def disk(sessions: Sessions) -> Iterator[Disk]:
    """Yield the small disk that coop's data is on."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system takes root")
    project = sessions.project
    made = Disk(project.actor, project.mkdir(project.home / "data"))
    project.environment["XDG_DATA_HOME"] = str(project.home / "data")
    stand = ("sh", "-c", 'cd "$0" && exec "$@"', str(project.directory))
    project.unshared = (*made.enter, *stand, *project.actor.prefix)
    sessions.data = made.seen / "coop"
    try:
        yield made
    finally:
        sessions.close()
        made.close()


def test_full_disk(sessions: Sessions, disk: Disk) -> None:
    """Wherever the room ends the error says so and nothing runs; what was kept is there afterwards."""
    caller = keeping(sessions)
    caller.stop()
    sizes = [f"{number * 4}k" for number in range(1, 14)]
    opened = 0
    for size in sizes:
        try:
            disk.resize(size)
        except subprocess.CalledProcessError:
            continue  # less than there is on it
        try:
            caller.open()
        except Refused as refused:
            assert "No space left" in refused.message, refused
            assert sessions.left() == []
        else:
            opened += 1
            assert caller.run("true").status == 0
            caller.stop()
    assert opened < len(sizes)
    disk.resize("1m")
    again(sessions, caller)


def test_disk_gets_full(sessions: Sessions, disk: Disk) -> None:
    """A session that runs goes on when the disk of coop's data is full, also with what it is to be told."""
    caller = keeping(sessions)
    with open(disk.seen / "ballast", "wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while ballast.write(bytes(1 << 12)):
            pass
    assert caller.run("echo", "a").out == "a\n"
    assert caller.shell("echo x > ~/.claude/more").status != 0
    other = sessions.caller()
    assert other.open()["fresh"] is False
    caller.stop()
    with pytest.raises(Refused, match="No space left"):
        caller.open("another")
    (disk.seen / "ballast").unlink()
    again(sessions, caller)


# Short of processes and memory


def enforced(sessions: Sessions, caller: Caller, key: str, overrides: dict[str, object]) -> None:
    """Open a session with a limit; skip where this machine cannot hold it, which coop has to say."""
    found = caller.open(overrides=overrides)
    if any(item[0] == key for item in found["weakenings"]):
        pytest.skip(f"{key} is not enforced for the session as a whole here, and coop says so")


FILL = """
import os, time
while True:
    try:
        if os.fork() == 0:
            time.sleep(100)
            os._exit(0)
    except OSError:
        open("out", "w").write("full")
        time.sleep(0.01)  # others may have ended: there is to be no room again
"""


def test_processes_used_up(sessions: Sessions) -> None:
    """When commands use up limits.pids others are refused in words; it can be stopped, and works after."""
    caller = sessions.caller()
    enforced(sessions, caller, "limits.pids", {"limits.pids": 20})
    out = sessions.project.directory / "out"
    number = caller.begin("/usr/bin/python3", "-I", "-c", FILL)
    assert wait_until(lambda: out.exists() and out.read_text())
    for _ in range(5):
        try:
            result = caller.run("true")
            assert result.status in (0, 126), result
        except Refused as refused:
            assert refused.kind == "SessionError"
            assert "processes" in refused.message and refused.remedy, refused
    caller.do("close", number=number)
    assert wait_until(lambda: not sessions.commands())
    # What has ended counts until it is waited for: nobody but a spare is left then.
    assert wait_until(lambda: len(descendants(sessions.first())) <= 1)
    assert caller.run("true").status == 0
    out.unlink()
    caller.begin("/usr/bin/python3", "-I", "-c", FILL)
    assert wait_until(lambda: out.exists() and out.read_text())
    processes = sessions.processes()
    caller.stop()
    assert not alive(processes)
    assert sessions.left() == []


def works(caller: Caller, name: str) -> bool:
    """Tell whether a session has room for a command."""
    try:
        return caller.run("true", name=name).status == 0
    except Refused:
        return False


def test_no_more_processes_for_the_user(sessions: Sessions) -> None:
    """When the user may have no more processes a session is refused in words until there is room."""
    project = sessions.project
    if project.actor.uid == 0:
        pytest.skip("the kernel never holds root to this limit")
    most = 150  # more than other tests have under this number at the same time
    caller = sessions.caller(wrap=("prlimit", f"--nproc={most}"))
    caller.open("one")
    out = project.directory / "out"
    filler = subprocess.Popen(
        [
            *project.actor.prefix,
            *("prlimit", f"--nproc={most}", project.actor.coop[0], "-I", "-c", FILL),
        ],
        cwd=project.directory,
        start_new_session=True,
    )
    try:
        assert wait_until(lambda: out.exists() and out.read_text())
        with pytest.raises(Refused) as caught:
            caller.open("two")
        assert "process" in f"{caught.value.message} {caught.value.remedy}"
        assert caught.value.remedy
        try:
            assert caller.run("true", name="one").status in (0, 126)
        except Refused as refused:
            assert "processes" in refused.message
    finally:
        filled = descendants(filler.pid)
        os.killpg(filler.pid, signal.SIGKILL)
        filler.communicate()
    assert wait_until(lambda: not set(filled) & set(processes())), "they count until they are reaped"
    assert wait_until(lambda: works(caller, "one"))
    assert caller.open("two")["fresh"] is True
    for name in ("one", "two"):
        caller.stop(name)
    assert sessions.left() == []


def test_out_of_memory(sessions: Sessions) -> None:
    """A command that takes more than limits.memory is killed, or told; the session and the others live."""
    caller = sessions.caller()
    enforced(sessions, caller, "limits.memory", {"limits.memory": "64m"})
    assert caller.shell("touch /tmp/kept; sleep 1000 >/dev/null 2>&1 &").status == 0
    for _ in range(3):
        result = caller.python("kept = [bytearray(b'x') * (1 << 20) for _ in range(200)]")
        assert result.status in (137, 1), result
    assert caller.run("ls", "/tmp").out == "kept\n"
    assert caller.shell("pgrep -c sleep || ps ax").out == "1\n"
    caller.stop()
    assert sessions.left() == []


# Streams


def test_streams_that_nobody_reads(sessions: Sessions) -> None:
    """A command that floods a stream that nobody reads waits, as it would anywhere, and ends at its time."""
    caller = sessions.opened()
    result = caller.run("yes", timeout=0.3, streams=["null", "pipe", "null"])
    assert (result.status, result.timed_out) == (124, True)
    result = caller.run("cat", timeout=0.3, streams=["pipe", "memory", "memory"])
    assert (result.status, result.timed_out) == (124, True)


def test_streams_that_are_closed(sessions: Sessions) -> None:
    """A command that writes where nobody reads any more has SIGPIPE; one that closes all goes on."""
    caller = sessions.opened()
    assert caller.run("yes", streams=["null", "closed", "null"]).signal == signal.SIGPIPE
    assert caller.run("cat", streams=["closed", "memory", "null"]).status == 0
    result = caller.shell("exec <&- >&- 2>&-; sleep 0.1; exit 4")
    assert result.status == 4


def test_flood(sessions: Sessions) -> None:
    """Twenty megabytes pass, and the supervisor and PID 1 keep none of them."""
    caller = sessions.opened()
    out = sessions.project.write("file")
    result = caller.shell(
        "head -c 20000000 /dev/zero; head -c 1000000 /dev/zero >&2", streams=["null", f"file:{out}", "null"]
    )
    assert result.status == 0
    assert out.stat().st_size == 20000000


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_PATH])
def test_directory_as_a_stream(sessions: Sessions, flags: int) -> None:
    """A directory as a stream is refused, and the session goes on."""
    caller = sessions.opened()
    for number in range(3):
        streams = ["null"] * 3
        streams[number] = f"directory{'-path' if flags == os.O_PATH else ''}:/"
        with pytest.raises(Refused, match="directory") as caught:
            caller.run("true", streams=streams)
        assert caught.value.remedy
    assert caller.run("true").status == 0


# Clients


def test_idle_connections(sessions: Sessions) -> None:
    """Two hundred connections that ask for nothing do not keep others waiting."""
    caller, idler = sessions.opened(), sessions.caller()
    idler.do("connect", path=str(sessions.directory() / "socket"), times=200)
    assert caller.run("true").status == 0
    idler.kill()
    assert wait_until(lambda: len(sessions.supervisors()) <= 1)


def test_command_and_session_at_once(sessions: Sessions) -> None:
    """Commands that run while the session is stopped end, or the caller is told: none hangs."""
    stopper = sessions.caller()
    callers = [sessions.caller() for _ in range(4)]
    for _ in range(4):
        stopper.open()
        for caller in callers:
            caller.do("open", name="default", overrides=None, ttl=None, leased=False)
            caller.ask("repeat", name="default", argv=["true"], times=40, together=4)
        time.sleep(0.03)
        stopper.stop()
        for caller in callers:
            try:
                assert set(caller.answer()) == {0}
            except Refused as refused:
                assert refused.kind == "SessionGone"
    assert sessions.left() == []


# A maker that takes so many seconds longer.
SLOW = (
    "import time; from coopfile.session import making; build = making._build; "
    "making._build = lambda *given: (time.sleep({}), build(*given))"
)


def test_start_that_was_interrupted(sessions: Sessions) -> None:
    """A session whose start was just interrupted is started when it is asked for again at once."""
    starting, other = sessions.caller(), sessions.caller()
    starting.do("brief_helper", seconds=60, patch=SLOW.format(0.5))
    sessions.note("one", starting.do("place", name="one", overrides=None))
    starting.ask("open", name="one", ttl=None, leased=False, overrides=None)
    assert wait_until(lambda: holder(sessions.directory("one") / "alive") is not None)
    starting.interrupt()
    with pytest.raises(AssertionError, match="KeyboardInterrupt"):
        starting.answer()
    assert other.open("one")["fresh"] is True
    assert other.run("true", name="one").status == 0
    other.stop("one")
    assert sessions.left() == []


def test_asked_for_when_the_starter_is_gone(sessions: Sessions) -> None:
    """Who has asked a session whose starter was killed is told that nothing has begun, and may ask again."""
    starting, other = sessions.caller(), sessions.caller()
    starting.do("brief_helper", seconds=60, patch=SLOW.format(1))
    sessions.note("one", starting.do("place", name="one", overrides=None))
    starting.ask("open", name="one", ttl=None, leased=False, overrides=None)
    assert wait_until(lambda: (sessions.directory("one") / "socket").exists())
    starting.kill()
    assert other.open("one")["fresh"] is False
    with pytest.raises(Refused) as refused:
        other.run("true", name="one")
    assert refused.value.begun is False
    assert other.open("one")["fresh"] is True
    other.stop("one")
    assert sessions.left() == []
