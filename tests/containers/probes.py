"""One table of behaviour: probes that are run on every back end, each with a short verdict.

Most probes are in ``inside``, which ``batch`` runs all in one sandbox; those here look
from the host, or need runs of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pexpect
import pytest

from tests.containers import networks  # noqa: F401 - adds its scenarios
from tests.containers.backends import Backend, backend
from tests.containers.batch import command_lines_with, listener, owner
from tests.containers.scenarios import SCENARIOS, SENTENCES, Verdicts, scenario
from tests.engines.cell import UnusableError
from tests.engines.engine import Engines
from tests.sandboxes import DEADLINE, Project, Result, alive, descendants, wait_until

_SOON = 15.0  # seconds in which everything of a run has to be gone


# --- limits

_LIMITED = 'limits.memory = "256m"\nlimits.pids = 64\nlimits.tmp = "8m"\n'

_MEMORY = """
import os, sys
block = bytearray()
for _ in range(700):
    block += bytes([1]) * (1 << 20)
print(len(block) >> 20)
"""

_PIDS_AND_TMP = """
import errno, json, os, signal
def pids():
    made = []
    try:
        while len(made) < 100:
            pid = os.fork()
            if pid == 0:
                signal.pause()
            made.append(pid)
    except OSError as error:
        return "held" if error.errno == errno.EAGAIN and len(made) <= 64 else str(error)
    finally:
        for pid in made:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    return "not held"
def fill(path):
    total = 0
    with open(path, "wb", buffering=0) as file:
        try:
            while total < 64 << 20:
                total += file.write(bytes(1 << 16))
        except OSError as error:
            return "held" if error.errno == errno.ENOSPC and total <= 8 << 20 else f"{error} {total}"
    return "not held"
places = ["/tmp", "/var/tmp", "/run", "/dev/shm", os.environ["HOME"]]
verdicts = {"limit of scratch space together": "held" if fill("/tmp/x") == "held" else "not held"}
room = [place for place in places[1:] if fill(place + "/y") != "held" or os.path.getsize(place + "/y") > 0]
if room:
    verdicts["limit of scratch space together"] = "each for itself"
os.unlink("/tmp/x")
each = {fill(place + "/y") for place in places}
verdicts["limit of scratch space"] = " ".join(sorted(each))
for place in places:
    os.unlink(place + "/y")
verdicts["limit of processes"] = pids()
print(json.dumps(verdicts))
"""


@scenario(
    limit_of_memory="A command that takes more memory than the limit does not get it.",
    out_of_memory_is_told="coop says so when the command was ended for its memory.",
    limit_of_processes="limits.pids bounds processes and threads.",
    limit_of_scratch_space="limits.tmp bounds each of the temporary places.",
    limit_of_scratch_space_together="limits.tmp bounds them all together.",
)
def limits(where: Backend) -> Verdicts:
    """Go beyond each limit."""
    with where.project(_LIMITED) as project:
        memory = project.python(_MEMORY, options=where.options)
        # gVisor counts what its kernel takes for processes as their memory.
        more = ["--set", "limits.memory=1g"]
        rest = project.python(_PIDS_AND_TMP, options=[*where.options, *more])
        verdicts: Verdicts = {}
        stopped = memory.status == 137 or "MemoryError" in memory.err
        verdicts["limit of memory"] = "held" if stopped else f"not held: {memory.status} {memory.out.strip()}"
        told = "limits.memory" in memory.err and "out of memory" in memory.err
        verdicts["out of memory is told"] = "told" if told or "MemoryError" in memory.err else "not told"
        if rest.status:
            return {**verdicts, "limit of processes": f"{rest.status}: {rest.err}"}
        return {**verdicts, **json.loads(rest.out)}


# --- how it ends

_EXITS: dict[str, tuple[str, ...]] = {
    "status 125 of the command": ("sh", "-c", "exit 125"),
    "ended by TERM": ("sh", "-c", "kill -TERM $$; sleep 5"),
    "missing program": ("no-such-program",),
    "file without the right to execute": ("./plain.txt",),
    "directory as a program": ("/usr",),
}
SENTENCES.update({name: f"The exit status of `{' '.join(argv)}`." for name, argv in _EXITS.items()})


@scenario()
def exits(where: Backend) -> Verdicts:
    """End in every way that a shell tells apart."""
    with where.project() as project, ThreadPoolExecutor(2) as pool:
        project.write("plain.txt", "plain\n")

        def status(argv: tuple[str, ...]) -> str:
            return str(project.run(*argv, options=where.options).status)

        return dict(zip(_EXITS, pool.map(status, _EXITS.values()), strict=True))


_ECHO = """
import os, sys
data = sys.stdin.buffer.read()
sys.stdout.buffer.write(data)
sys.stderr.buffer.write(data[::-1])
"""


@scenario(
    streams="A megabyte of any bytes goes in, to its end, and out, apart from the same on standard error.",
    closed_input="A run whose standard input is closed works.",
    output_that_nobody_reads="A command whose reader has gone ends with SIGPIPE, as in a pipe.",
    diagnostics="With -q coop itself prints nothing.",
)
def streams(where: Backend) -> Verdicts:
    """Pass bytes through, and close streams."""
    data = bytes(range(256)) * 4096
    options = ["-q", *where.options]
    with where.project() as project:
        echoed = project.python(_ECHO, options=options, stdin=data)
        intact = (echoed.status, echoed.stdout, echoed.stderr) == (0, data, data[::-1])
        project.wrap = ("sh", "-c", 'exec "$@" <&-', "sh")
        closed = project.run("cat", options=options)
        project.wrap = ()
        process = project.popen("sh", "-c", "while echo x; do :; done 2>/dev/null", options=options)
        assert process.stdout is not None
        process.stdout.read(1)
        process.stdout.close()
        return {
            "streams": "intact" if intact else f"{echoed.status}: {len(echoed.stdout)}, {len(echoed.stderr)}",
            "closed input": f"{closed.status} {closed.out}".strip(),
            "diagnostics": closed.err or "none",
            "output that nobody reads": str(_ended(process)),
        }


def _ended(process: subprocess.Popen[bytes]) -> int | str:
    try:
        return process.wait(_SOON)
    except subprocess.TimeoutExpired:
        return "goes on"


# --- signals and time

_TRAPS = """
import os, signal, sys, time
def caught(number, frame):
    os.write(1, f"{signal.Signals(number).name}\\n".encode())
    if number == signal.SIGTERM:
        sys.exit(9)
for name in ("HUP", "INT", "USR1", "USR2", "QUIT", "TERM"):
    signal.signal(getattr(signal, f"SIG{name}"), caught)
print("ready", flush=True)
while True:
    time.sleep(1)
"""


@scenario(
    signals="Signals sent to coop arrive at the command, whose handlers run and whose status counts.",
    ending_the_first_process="PID 1 cannot be ended by the command.",
    time_runs_out="--timeout ends the command, and coop, with 124.",
    killed="When coop is killed, its sandbox, processes and placeholders are gone within seconds.",
)
def ends(where: Backend) -> Verdicts:
    """Signal, kill and outlast the command."""
    with where.project('workspace.protect = ["missing/path"]\n') as project:
        process = project.popen("/usr/bin/python3", "-I", "-c", _TRAPS, options=where.options)
        assert process.stdout is not None
        words = [process.stdout.readline().strip().decode()]
        for name in ("HUP", "INT", "USR1", "USR2", "QUIT", "TERM"):
            process.send_signal(getattr(signal, f"SIG{name}"))
            words.append(process.stdout.readline().strip().decode())
        words.append(str(process.wait(DEADLINE)))
        late = project.run("sleep", "50", options=["--timeout", "1s", *where.options])
        ending = project.shell("kill -KILL 1; sleep 0.2; echo goes on", options=where.options)
        return {
            "ending the first process": ending.out.strip() or str(ending.status),
            "signals": " ".join(words).replace("SIG", ""),
            "time runs out": str(late.status),
            "killed": _kill(where, project),
        }


def _kill(where: Backend, project: Project) -> str:
    mark = f"87654.{int(hashlib.sha256(str(project.directory).encode()).hexdigest()[:8], 16)}"
    process = project.popen("sh", "-c", f"echo ready; sleep {mark}", options=where.options)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    below = descendants(process.pid)
    process.kill()
    process.wait()
    what: dict[str, Callable[[], Any]] = {
        "processes": lambda: [*command_lines_with(mark), *alive(below)],
        "containers": where.containers,
        "placeholders": lambda: (project.directory / "missing").exists(),
    }
    left = [name for name, find in what.items() if not _gone(find)]
    return "left: " + " ".join(left) if left else "nothing is left"


def _gone(find: Callable[[], Any]) -> bool:
    return bool(wait_until(lambda: not find(), _SOON))


# --- a terminal

_TERMINAL = """
import os, sys, termios, time, tty
def size(*but):
    # It takes its way through an engine.
    end = time.monotonic() + 5
    while True:
        found = "%dx%d" % os.get_terminal_size()
        if found not in but or time.monotonic() > end:
            return found
        time.sleep(0.01)
first = size("0x0", "80x24")
print("terminals", *[n for n in range(3) if os.isatty(n)], first, flush=True)
sys.stdin.readline()
print("now", size(first), flush=True)
before = termios.tcgetattr(0)
tty.setraw(0)
print("raw", end="\\r\\n", flush=True)
print("got", os.read(0, 1).hex(), end="\\r\\n", flush=True)
termios.tcsetattr(0, termios.TCSANOW, before)
try:
    print("name", os.ttyname(0).rstrip("0123456789"), flush=True)
except OSError:
    print("name none", flush=True)
print("waiting", flush=True)
try:
    sys.stdin.readline()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(5)
"""


@scenario(
    terminal="With a terminal the command has one on all three streams, of the same size.",
    resizing="A new size of the terminal arrives.",
    control_P="^P goes to the command: no engine keeps it to itself.",
    interrupt="^C interrupts the command, whose own status counts.",
    name_of_the_terminal="The terminal has a name in /dev/pts.",
)
def terminal(where: Backend) -> Verdicts:
    """Use coop from a terminal."""
    with where.project() as project:
        spawned = project.terminal("/usr/bin/python3", "-I", "-c", _TERMINAL, options=where.options)
        spawned.setwinsize(31, 97)
        verdicts: Verdicts = {}

        def expect(name: str, pattern: str) -> None:
            try:
                spawned.expect(pattern, timeout=_SOON)
                assert isinstance(spawned.match, re.Match)
                verdicts[name] = spawned.match.group(1)
            except (pexpect.TIMEOUT, pexpect.EOF) as error:
                verdicts[name] = f"{type(error).__name__} {spawned.before!r}"

        expect("terminal", r"terminals ([0-9 x]+)\r")
        spawned.setwinsize(20, 70)
        spawned.sendline("")
        expect("resizing", r"now ([0-9x]+)")
        expect("control P", "(raw)")
        spawned.send("\x10")
        expect("control P", "got ([0-9a-f]+)")
        expect("name of the terminal", r"name (\S+)")
        expect("interrupt", "(waiting)")
        time.sleep(0.2)  # nothing tells when the terminal's settings are there
        spawned.send("\x03")
        expect("interrupt", "(interrupted)")
        with contextlib.suppress(pexpect.TIMEOUT):
            spawned.expect(pexpect.EOF, timeout=_SOON)
        spawned.close()
        verdicts["interrupt"] += f", {spawned.exitstatus}"
        return verdicts


# --- other plans


@scenario(
    workspace_path="workspace.path puts the workspace elsewhere, and the caller's subdirectory below it.",
    workspace_path_host='workspace.path = "host" keeps the host\'s path.',
    user_me='session.user = "me" is the caller, with a home of their own name, and files are theirs.',
    umask="New files have the modes that the caller's umask leaves.",
)
def places(where: Backend) -> Verdicts:
    """Run other plans."""
    with where.project() as project:
        below = project.mkdir("src/deep")

        def output(script: str, *more: str, **how: Any) -> str:
            options = [*where.options, *(word for item in more for word in ("--set", item))]
            result = project.shell(script, options=options, **how)
            return result.out.strip() if result.status == 0 else f"{result.status}: {result.err}"

        elsewhere = output("pwd -P; echo $PWD; echo ../../*", "workspace.path=/srv/project", cwd=below)
        script = "id -u; id -g; echo x > mine; echo $HOME; cd; pwd; touch x; id -un >/dev/null && echo known"
        me = output(script, "session.user=me")
        ids = f"{where.actor.uid}\n{where.actor.gid}"
        mine = project.directory / "mine"
        theirs = mine.exists() and owner(mine) == (where.actor.uid, where.actor.gid)
        project.wrap = ("sh", "-c", 'umask 027; exec "$@"', "sh")
        same, _, masked = output("pwd -P; cat Coopfile; umask", "workspace.path=host").rpartition("\n")
        return {
            "workspace path": " ".join(elsewhere.split()),
            "workspace path host": " ".join(same.replace(str(project.directory), "HOST").split()),
            "user me": " ".join(me.replace(ids, "IDS").split()) + (", theirs" if theirs else ", not theirs"),
            "umask": masked,
        }


_CONNECT = """
import socket, sys
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=2).close()
    print("reached")
except OSError as error:
    print("out of reach")
"""


@scenario(
    value_that_is_not_text="A host variable's value that is not UTF-8 arrives as it is, or is refused.",
    argument_that_is_not_text="So does an argument.",
)
def bytes_(where: Backend) -> Verdicts:
    """Pass bytes that are no text."""
    raw = b"\xff\xfe\x80"
    with where.project('[env]\nBYTES = { host = "HOST_BYTES" }\n') as project:

        def outcome(result: Result) -> str:
            if result.status == 125:
                return "refused"
            return "intact" if result.stdout == raw else f"{result.status}: {result.stdout!r}"

        given = {"HOST_BYTES": os.fsdecode(raw)}
        value = project.shell('printf %s "$BYTES"', options=where.options, environment=given)
        argument = project.run("printf", "%s", os.fsdecode(raw), options=where.options)
        return {
            "value that is not text": outcome(value),
            "argument that is not text": outcome(argument),
        }


@scenario(network_host='network.mode = "host" reaches a server on the host\'s loopback.')
def network(where: Backend) -> Verdicts:
    """Run with the host's network."""
    with listener(where) as listening, where.project('network.mode = "host"\n') as project:
        result = project.python(_CONNECT, str(listening["port"]), options=where.options)
        return {"network host": result.out.strip() or f"{result.status}: {result.err}"}


def verdicts(engines: Engines, name: str, which: str) -> Verdicts:
    """Return what the probes of a scenario came to on a back end; raises UnusableError without it."""
    try:
        where = backend(engines, name)
    except pytest.skip.Exception as error:
        raise UnusableError(str(error)) from None
    try:
        return SCENARIOS[which](where)
    finally:
        if where.engine:
            where.engine.clean()
