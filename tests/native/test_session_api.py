"""The Python API on real sandboxes: programs of each actor's that use `coopfile.Session`."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from coopfile.session import store
from tests.sandboxes import CHECKOUT, DEADLINE, Project, Result, Workshop, run, wait_until

Program = Callable[..., Result]

BEGIN = """
import sys; sys.path.insert(0, sys.argv.pop(1))
import asyncio, math, os, signal, subprocess, threading, time
import coopfile
plan = coopfile.compile()

def left(session, name):
    "Return how many processes of a name run in a session."
    script = "cat /proc/[0-9]*/comm 2>/dev/null"
    return session.shell(script).text.split().count(name)

def ends(session, name):
    "Tell whether processes of a name end."
    for _ in range(500):
        if not left(session, name):
            return True
        time.sleep(0.02)
    return False

"""


def argv(project: Project, workshop: Workshop, script: str) -> list[str]:
    """Return the argv of a program of the actor's that has coop's library."""
    python = project.actor.coop[0]
    return [*project.actor.prefix, python, "-I", "-W", "error", "-c", BEGIN + script, str(workshop.library)]


@pytest.fixture
def program(project: Project, workshop: Workshop) -> Program:
    """Return what runs a program in the project; it has to succeed, and its output is what is looked at."""

    def run_program(script: str, **more: str) -> Result:
        environment = {**project.environment, **more}
        result = run(argv(project, workshop, script), b"", project.directory, environment)
        assert result.status == 0, result
        return result

    return run_program


def sessions(project: Project) -> list[str]:
    """Return the directories of the project's sessions."""
    directory = project.home / ".local/share/coop/sessions"
    return sorted(map(str, directory.iterdir())) if directory.is_dir() else []


def test_the_guide(project: Project, workshop: Workshop) -> None:
    """docs/python.md does in sandboxes what it says."""
    files = [
        str(project.write(name, (CHECKOUT / name).read_text()))
        for name in ("tests/guide.py", "docs/python.md")
    ]
    script = f"import runpy; sys.argv = {files!r}; runpy.run_path({files[0]!r}, run_name='__main__')"
    command = argv(project, workshop, script)
    result = run(command, b"", project.directory, project.environment)
    assert result.status == 0, result
    assert not any(map(store.is_alive, sessions(project)))


def test_it_is_a_sandbox(project: Project, program: Program) -> None:
    """The workspace is there, the home, the program's variables and the rest of the host are not."""
    project.write("sub/file")
    project.write("file", "content")
    result = program(
        """
with coopfile.Session(plan) as session:
    print(session.exec(["cat", "file"]).text, session.backend, session.shell("pwd; echo [$SECRET]").text)
    print(session.shell("touch /usr/x 2>&1 || touch made; ls -A ~").text)
    print(session.exec(["pwd"], directory="sub").text, session.exec(["pwd"], directory="/tmp").text)
""",
        SECRET="x",
    )
    assert result.out.split() == [
        *("content", "native", "/workspace", "[]", "touch:", "cannot", "touch", "'/usr/x':", "Read-only"),
        *("file", "system", ".claude", "/workspace/sub", "/tmp"),
    ]
    assert (project.directory / "made").exists()


def test_a_command_that_cannot_be_started(program: Program) -> None:
    """It has a shell's status, and says why; a directory that is not there is refused."""
    result = program("""
with coopfile.Session(plan) as session:
    for argv in (["no-such-program"], ["/etc/passwd"]):
        result = session.exec(argv, stdin=b"x" * 100000)
        print(result.status, bool(result.notes))
    try:
        session.exec(["true"], directory="no/such")
    except coopfile.SessionError as error:
        print(error.session == session.name, error.remedy)
    print(session.exec(["echo", "on"]).text)
""")
    assert result.out.splitlines()[:2] == ["127 True", "126 True"]
    assert result.out.splitlines()[2].startswith("True name")
    assert "on" in result.out


def test_texts_and_numbers_of_other_classes(program: Program) -> None:
    """What is a str or a number is taken for one, as by subprocess: of an enum, or of a library."""
    result = program("""
import decimal, enum

class Text(str): pass
class Tool(str, enum.Enum):
    ECHO = "echo"

with coopfile.Session(plan, name=Text("work"), ttl=decimal.Decimal(60)) as session:
    print(session.exec([Tool.ECHO, Text("said")], timeout=decimal.Decimal(5)).text)
    print(session.shell(Text("echo $A; pwd"), environment={Text("A"): "b"}, directory=Text("/tmp")).text)
    print(session.destroy(forget=True))
""")
    assert result.out.split() == ["said", "b", "/tmp", "()"]


def test_a_timeout_of_centuries(program: Program) -> None:
    """It does not end the session, and so what others run there."""
    result = program("""
with coopfile.Session(plan) as session:
    print(session.exec(["echo", "one"], timeout=1e300).text)
    print(asyncio.run(session.exec_async(["echo", "two"], timeout=1e10)).text)
""")
    assert result.out.split() == ["one", "two"]


def test_a_child_that_leaves_a_command(program: Program) -> None:
    """A child that is forked while a command runs, and leaves the call by its own end, does not end it."""
    result = program("""
def fork(number, frame):
    if os.fork() == 0:
        sys.exit(3)

signal.signal(signal.SIGALRM, fork)
with coopfile.Session(plan) as session:
    session.exec(["true"])
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    print(session.shell("sleep 1; echo done").text)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
""")
    assert result.out.split() == ["done", "3"]


def test_facts_of_a_command(program: Program) -> None:
    """Signal, time and memory are what they were."""
    result = program("""
with coopfile.Session(plan) as session:
    result = session.shell("kill -SEGV $$")
    print(result.status, result.signal)
    result = session.exec(["/usr/bin/python3", "-c", "import time; x = bytearray(60 << 20); time.sleep(0.2)"])
    print(result.duration >= 0.2, 60 << 20 < result.peak_memory < 200 << 20)
""")
    assert result.out == "139 11\nTrue True\n"


def test_a_timeout_ends_the_whole_tree(program: Program) -> None:
    """Also what has left its process group and ignores SIGTERM; the session goes on."""
    result = program("""
with coopfile.Session(plan) as session:
    script = "(setsid sh -c 'trap \\"\\" TERM; sleep 1001; sleep 1002' &) ; yes"
    result = session.shell(script, timeout=1)
    print(result.status, result.timed_out, len(result.stdout) == plan.limits.output)
    print(left(session, "sleep"), left(session, "yes"))
""")
    assert result.out == "124 True True\n0 0\n"


def test_what_is_left_in_the_background(program: Program) -> None:
    """It holds up nothing, and is there for the next command."""
    result = program("""
with coopfile.Session(plan) as session:
    script = "sleep 1001 & until grep -qx sleep /proc/$!/comm; do :; done; echo started"
    print(session.shell(script).text, left(session, "sleep"))
""")
    assert result.out == "started\n 1\n"


def test_a_large_input(program: Program) -> None:
    """It comes back whole; one that nobody reads holds up nothing."""
    result = program("""
data = os.urandom(4 << 20)
with coopfile.Session(plan) as session:
    print(session.exec(["cat"], stdin=data, output=len(data)).stdout == data)
    print(session.exec(["true"], stdin=data).status)
    with open("given", "w+b") as file:
        file.write(b"line"); file.seek(0); sys.stdout.flush()
        session.exec(["rev"], stdin=file, stdout=sys.stdout.fileno())
""")
    assert result.out == "True\n0\nenil"


def test_many_commands_leave_nothing(program: Program) -> None:
    """Neither descriptors in the program nor processes in the session, one after the other or at once."""
    result = program("""
def descriptors():
    return len(os.listdir("/proc/self/fd"))

async def main(session):
    return await asyncio.gather(*(session.shell_async(f"sleep 0.1; echo {n}") for n in range(50)))

with coopfile.Session(plan) as session:
    script = "ls -d /proc/[0-9]* | wc -l"
    before = session.shell(script).text, descriptors()
    for _ in range(100):
        assert session.exec(["true"]).ok
    results = asyncio.run(main(session))
    print([result.text for result in results] == [f"{n}\\n" for n in range(50)])
    threads = [threading.Thread(target=session.exec, args=(["sleep", "0.1"],)) for _ in range(30)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    for _ in range(100):
        after = session.shell(script).text, descriptors()
        if after == before:  # what supervised the last command may not have gone yet
            break
    print(after == before)
""")
    assert result.out == "True\nTrue\n"


def test_a_program_without_descriptors(program: Program) -> None:
    """Wherever they end it is an error in words, and the session goes on with what it has."""
    result = program("""
import resource
with coopfile.Session(plan) as session:
    session.shell("touch /tmp/here")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    refused = 0
    for most in range(3, 20):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        try:
            session.exec(["true"])
        except coopfile.CoopError:
            refused += 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(refused > 4, session.shell("ls /tmp").text)
""")
    assert result.out.split() == ["True", "here"]


def test_a_session_that_cannot_be_started(project: Project, program: Program) -> None:
    """Nothing is left of it, under a name that nobody would ask for again."""
    result = program("""
import socket
with socket.socket() as taken:
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    ports = [f"127.0.0.1:{taken.getsockname()[1]}:80"]
    plan = coopfile.compile(overrides={"network.mode": "none", "network.publish": ports})
    with coopfile.Session(plan) as session:
        try:
            session.exec(["true"])
        except coopfile.CoopError as error:
            print("taken" in error.message)
""")
    assert result.out == "True\n"
    assert sessions(project) == []


def test_many_sessions_leave_nothing(project: Project, program: Program) -> None:
    """A program that uses sessions all day, and wrongly at times, keeps no descriptor of any."""
    result = program("""
def use():
    with coopfile.Session(plan) as session:
        session.exec(["true"])
        try:
            session.exec(["true"], stdin="a text")
        except coopfile.CoopError:
            pass
    named = coopfile.Session(plan, name="dev")
    named.exec(["true"])
    named.destroy(forget=True)
    named.close()

use()
before = os.listdir("/proc/self/fd")
for _ in range(3):
    use()
print(len(os.listdir("/proc/self/fd")) - len(before))
""")
    assert result.out == "0\n"
    assert sessions(project) == []


def test_a_call_that_is_left_kills_its_command(program: Program) -> None:
    """By Ctrl-C, by an exception of a signal's handler, by cancelling a task."""
    result = program("""
async def cancelled(session):
    task = asyncio.create_task(session.shell_async("sleep 1001 & sleep 1002"))
    await asyncio.sleep(0.2)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True

with coopfile.Session(plan) as session:
    session.exec(["true"])
    for number in (signal.SIGINT, signal.SIGALRM):
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        timer = threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, number))
        timer.start()
        try:
            session.shell("sleep 1001 & sleep 1002")
        except KeyboardInterrupt:
            print(ends(session, "sleep"))
    print(asyncio.run(cancelled(session)), ends(session, "sleep"))
""")
    assert result.out == "True\nTrue\nTrue True\n"


@pytest.fixture
def started(project: Project, workshop: Workshop) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Yield what starts a program, which is ended with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def start(script: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            argv(project, workshop, script),
            cwd=project.directory,
            env=project.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate(timeout=DEADLINE)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_program_leaves_no_session(
    project: Project, program: Program, started: Callable[[str], subprocess.Popen[bytes]], number: int
) -> None:
    """What is leased to it ends, although a child that it forked lives on; what has a name goes on."""
    process = started("""
anonymous, named = coopfile.Session(plan), coopfile.Session(plan, name="dev", ttl=60)
manager = coopfile.SessionManager(plan)
for session in (anonymous, named, manager.get("a")):
    session.shell("sleep 1000 & :")
pid = os.fork()
if not pid:
    time.sleep(1000)
print(pid, flush=True)
time.sleep(1000)
""")
    assert process.stdout is not None
    child = int(process.stdout.readline())
    found = store.known(str(project.home / ".local/share/coop"))
    names = {known.directory: known.state.name for known in found if known.state is not None}
    try:
        assert len(names) == 3
        assert all(map(store.is_alive, names))
        process.send_signal(number)
        process.wait(DEADLINE)
        assert wait_until(lambda: sum(map(store.is_alive, names)) == 1)
        assert [name for place, name in names.items() if store.is_alive(place)] == ["dev"]
    finally:
        os.kill(child, signal.SIGKILL)
        program('coopfile.Session(plan, name="dev").destroy(forget=True)')


def test_a_child_from_while_it_started(
    project: Project, started: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    """A child that is forked while a session starts does not keep it when the program is killed."""
    process = started("""
from coopfile.session import helper
ask = helper.ask

def forking(*order):
    global child
    ask(*order)
    child = os.fork()
    if not child:
        time.sleep(1000)

helper.ask = forking
session = coopfile.Session(plan)
session.exec(["true"])
print(child, flush=True)
time.sleep(1000)
""")
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        (place,) = sessions(project)
        assert store.is_alive(place)
        process.kill()
        process.wait(DEADLINE)
        assert wait_until(lambda: not store.is_alive(place))
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("end", ["", "raise SystemExit(0)", "session.close()", "manager.get('a').destroy()"])
def test_an_ended_program_leaves_nothing(project: Project, program: Program, end: str) -> None:
    """Of its anonymous sessions not even a directory; what a key's session keeps is kept."""
    program(f"""
session = coopfile.Session(plan)
session.shell("echo x > ~/.claude/x; sleep 1000 &")
manager = coopfile.SessionManager(plan)
manager.shell("a", "echo kept > ~/.claude/x")
{end}
""")
    (place,) = sessions(project)
    assert not store.is_alive(place)
    result = program("""
with coopfile.SessionManager(plan) as manager:
    print(manager.shell("a", "cat ~/.claude/x").text, manager.shell("b", "ls ~/.claude").text)
    manager.destroy("a", forget=True)
    print(manager.shell("a", "ls ~/.claude").text)
    for key in "ab":
        manager.destroy(key, forget=True)
""")
    assert result.out.split() == ["kept"]
    assert sessions(project) == []


def test_a_session_is_found_again(project: Project, program: Program) -> None:
    """By its name, from another program; under another plan it is refused."""
    first = program("""
with coopfile.Session(plan, name="dev", ttl=60) as session:
    print(session.shell("echo here > /tmp/here; sleep 1000 & echo $!").text)
""")
    second = program("""
with coopfile.Session(plan, name="dev", ttl=60) as session:
    print(session.shell("cat /tmp/here; pgrep -x sleep").text)
try:
    coopfile.Session(coopfile.compile(overrides={"limits.pids": 99}), name="dev").exec(["true"])
except coopfile.PlanDiffers as error:
    print(error.session, error.running != error.asked, "coop stop dev" in error.remedy)
coopfile.Session(plan, name="dev").destroy(forget=True)
""")
    assert second.out.split() == ["here", first.out.strip(), "dev", "True", "True"]
    assert sessions(project) == []


def test_a_session_that_ends_meanwhile(program: Program) -> None:
    """Idle, ended by another, or under a command: the next command starts it again."""
    result = program("""
from coopfile.session import store
place = os.path.expanduser("~/.local/share/coop/sessions")

def destroy():
    while not os.path.exists("begun"):
        time.sleep(0.01)
    coopfile.Session(plan, name="dev").destroy()

with coopfile.Session(plan, name="dev", leased=True, ttl=0.2) as session:
    session.shell("touch /tmp/here")
    while any(store.is_alive(os.path.join(place, name)) for name in os.listdir(place)):
        time.sleep(0.01)
    print(session.shell("ls /tmp").text == "")
    coopfile.Session(plan, name="dev").destroy()
    print(session.exec(["echo", "on"]).text)
    threading.Thread(target=destroy).start()
    try:
        session.shell("echo so far; touch begun; sleep 1000")
    except coopfile.CommandLost as error:
        print(error.session, error.begun, error.stdout)
    print(session.exec(["echo", "on"]).text)
    session.destroy(forget=True)
""")
    assert result.out.split() == ["True", "on", "dev", "True", r"b'so", r"far\n'", "on"]


def test_a_forked_program(project: Project, program: Program) -> None:
    """Children use the parent's session, each by connections of its own, and end nothing."""
    result = program("""
import multiprocessing
session = coopfile.Session(plan)

def work(n):
    return session.exec(["echo", str(n)]).text

if True:
    session.shell("touch /tmp/here")
    with multiprocessing.get_context("fork").Pool(3) as pool:
        print(pool.map(work, range(6)), flush=True)
    pid = os.fork()
    if not pid:
        session.close()
        sys.exit()
    os.waitpid(pid, 0)
    print(session.shell("ls /tmp").text)
""")
    assert result.out == str([f"{n}\n" for n in range(6)]) + "\nhere\n\n"
    assert sessions(project) == []


def test_two_programs_start_it_at_once(
    program: Program, started: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    """One of them does, and all have the same."""
    script = """
session = coopfile.Session(plan, name="dev", ttl=60)
sys.stdin.readline()
print(session.exec(["readlink", "/proc/self/ns/pid"]).text, end="", flush=True)
"""
    processes = [started(script) for _ in range(4)]
    outputs = {process.communicate(b"\n", timeout=DEADLINE)[0] for process in processes}
    program('coopfile.Session(plan, name="dev").destroy(forget=True)')
    assert len(outputs) == 1
    assert outputs.pop().startswith(b"pid:")


def test_installed_tools_are_kept(imaged: Callable[..., Project], program: Program) -> None:
    """With `session.commit = "auto"` the next session has them, whoever ended this one; if wanted."""
    imaged({})
    result = program("""
plan = coopfile.compile(overrides={"session.commit": "auto"})
with coopfile.Session(plan) as session:
    session.shell("mkdir -p /opt/bin; echo first > /opt/bin/tool").check()
named = coopfile.Session(plan, name="dev", leased=True)
print(named.exec(["cat", "/opt/bin/tool"]).text)
named.shell("echo second > /opt/bin/tool").check()
print(*named.destroy())
print(named.exec(["cat", "/opt/bin/tool"]).text)
named.shell("echo third > /opt/bin/tool").check()
print(named.destroy(forget=True))
print(named.exec(["cat", "/opt/bin/tool"]).text)
""")
    assert result.out.split() == [
        *("first", "session", "dev:", "committed:", "changed", "1", "second", "()", "second"),
    ]
