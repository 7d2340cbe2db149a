"""Attacks on a session from inside it, and on what makes and keeps sessions from beside it."""

# ruff: noqa: E501  (attack programs, and tables of what they try)
from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import stat
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes import DEADLINE, NAMES, wait_gone, wait_until
from tests.sessionlab import Caller, Refused, Sessions, short_path

pytestmark = pytest.mark.native

# What every attack program begins with: the numbers of coop's own processes, as they can be found inside.
BEGIN = """
import ctypes, os, resource, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
x86 = os.uname().machine == "x86_64"

def processes():
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(name)] = (int(fields[1]), int(fields[3]))
    return found

def own():
    "PID 1 and the supervisors."
    return sorted(pid for pid, (parent, session) in processes().items() if session == 1)

def mine():
    "The supervisor of this command."
    pid, found = os.getpid(), processes()
    while found[pid][1] != 1:
        pid = found[pid][0]
    return pid

"""


def attack(caller: Caller, script: str, *arguments: str, **how: Any) -> str:
    """Run an attack program that has to come to its end; return what it has printed."""
    result = caller.python(BEGIN + script, *arguments, **how)
    assert result.status == 0, result
    return result.out


def serves(caller: Caller) -> None:
    """See that the session still runs commands and tells the truth about them."""
    assert caller.shell("echo fine; exit 7").status == 7


# Reaching the control channel

REACH = """
directory, found = sys.argv[1], []
names = [f"{directory}/socket", f"{directory}/../socket", "/socket", "/run/socket", "/workspace/socket"]
names += [f"/proc/{pid}/root{directory}/socket" for pid in own()]
names += [f"/proc/{pid}/fd/{number}" for pid in own() for number in range(40)]
names += [f"/proc/{pid}/cwd/socket" for pid in own()]
names += [line.split()[-1] for line in open("/proc/net/unix").read().splitlines()[1:] if len(line.split()) > 7]
names += ["\\0" + name for name in ("coop", "socket", os.path.basename(directory))]
for name in names:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        try:
            with socket.socket(socket.AF_UNIX, kind) as connection:
                connection.connect(name if name[:1] != "@" else "\\0" + name[1:])
                found.append(name)
        except OSError:
            pass
print(found, sorted(os.listdir("/proc/self/fd")))
"""


@pytest.mark.parametrize("network", ["none", "host"])
def test_reaching_the_socket(sessions: Sessions, network: str) -> None:
    """No name, no link and no descriptor leads from inside to the socket by which commands are asked for."""
    caller = sessions.caller()
    caller.open(overrides={"network.mode": network})
    other = caller.begin("sleep", "100")
    out = attack(caller, REACH, str(sessions.directory()))
    found = out.rpartition("[")[0]
    # In the host's network there may be sockets of other people's, with names of their own.
    assert "coop" not in found and "socket" not in found.replace("/tmp/", ""), out
    if network == "none":
        assert found == "[] ", out
    assert out.endswith("['0', '1', '2', '3']\n"), out
    caller.do("close", number=other)
    serves(caller)


def test_directories_of_coop_are_hidden(sessions: Sessions) -> None:
    """A plan that gives a directory of the home does not give what coop keeps there: no socket of session or helper."""
    project = sessions.project
    caller = sessions.caller()
    caller.open("before")
    project.coopfile('[files]\nread = ["~/.local"]\n')
    caller.open()
    script = """
given = os.path.expanduser("~/.local")
for directory, names, files in os.walk(given):
    for name in files:
        path = f"{directory}/{name}"
        try:
            kind = os.lstat(path).st_mode
            if name in ("socket", "state", "alive", "notes", "starting") or (kind & 0o170000) == 0o140000:
                print(path)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path)
                print("connected", path)
        except OSError:
            pass
print(os.path.isdir(given))
"""
    assert attack(caller, script) == "True\n"


CONNECT = """
import marshal, pickle
def message(what):
    data = marshal.dumps(what, 2)
    return struct.pack("<I", len(data)) + data
for name in ("session", "helper"):
    for what in ((1, "exec", None, ("touch", "/workspace/forged"), (), None, None, None), (1, "stop"), (1, "usage", None), (b"x",)):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(name)
            reading, writing = os.pipe()
            try:
                socket.send_fds(connection, [message(what)], [0, 1, 2])
                print(name, connection.recv(100))
            except OSError as error:
                print(name, b"")
"""


def test_connecting_from_inside(sessions: Sessions) -> None:
    """Should a sandbox be given the sockets by mistake, neither the session nor the helper answers it."""
    caller = sessions.opened()
    (helper,) = [path for path in (sessions.state / "helper").iterdir() if path.is_socket()]
    try:
        os.link(sessions.directory() / "socket", sessions.project.directory / "session")
        os.link(helper, sessions.project.directory / "helper")
    except OSError as error:
        pytest.skip(f"sockets cannot be linked here: {error}")
    out = attack(caller, CONNECT)
    assert out.splitlines() == ["session b''"] * 4 + ["helper b''"] * 4
    assert not (sessions.project.directory / "forged").exists()
    serves(caller)


FORGED_ORDER = """
import marshal, pickle
class Forged:
    def __reduce__(self):
        return os.mkdir, (sys.argv[1],)
data = marshal.dumps((pickle.dumps(Forged()),), 2)
with socket.socket(socket.AF_UNIX) as connection:
    connection.settimeout(10)
    connection.connect("helper")
    reading, writing = os.pipe()
    try:
        socket.send_fds(connection, [struct.pack("<I", len(data)) + data], [writing])
    except (BrokenPipeError, ConnectionResetError):
        pass  # it has looked who asks, and closed, before
    os.close(writing)
    print(os.read(reading, 1000))
"""


def test_connecting_unseen(sessions: Sessions) -> None:
    """The same for one that the kernel lets nobody look at, since it runs a program that it may not read."""
    if os.geteuid() != 0:
        pytest.skip("a program of another user's takes root")
    caller = sessions.opened()
    project = sessions.project
    (helper,) = [path for path in (sessions.state / "helper").iterdir() if path.is_socket()]
    try:
        os.link(helper, project.directory / "helper")
    except OSError as error:
        pytest.skip(f"sockets cannot be linked here: {error}")
    program = project.directory / "python"
    shutil.copy(os.path.realpath("/usr/bin/python3"), program)
    os.chown(program, other := 0 if project.actor.uid else 60999, other)
    program.chmod(0o711)
    forged = sessions.state / "forged"
    done = caller.run("./python", "-c", BEGIN + FORGED_ORDER, str(forged))
    assert (done.out, done.status) == ("b''\n", 0), done
    assert not forged.exists()
    serves(caller)


FLOOD = """
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
pairs, null = [], os.open("/dev/null", os.O_RDONLY)
for _ in range(16):
    pairs.append(socket.socketpair())
    socket.send_fds(pairs[-1][0], [b"x"], [null] * 250)
open("sent", "w").close()
signal.pause()
"""


def test_descriptors_on_their_way(sessions: Sessions) -> None:
    """A command that sends descriptors that nobody takes can keep its user from sending any; that is told at once."""
    if sessions.project.actor.uid == 0:
        pytest.skip("root may send as many as it likes")
    caller = sessions.caller(wrap=("/bin/sh", "-c", 'ulimit -S -n 1000; exec "$@"', "sh"))
    caller.open("one")
    caller.open("two")
    number = caller.begin("/usr/bin/python3", "-c", BEGIN + FLOOD, name="one")
    assert wait_until((sessions.project.directory / "sent").exists)
    for asking in (lambda: caller.run("true", name="two"), lambda: caller.open("three")):
        with pytest.raises(Refused, match="on their way") as refused:
            asking()
        assert refused.value.remedy
    caller.do("close", number=number)

    def runs() -> bool:
        with contextlib.suppress(Refused):
            return caller.run("true", name="two").status == 0
        return False

    assert wait_until(runs)
    assert caller.open("three")["fresh"] is True


# Tracing, reading, signalling

TRACE = """
numbers = dict(ptrace=(101, 117), readv=(310, 270), writev=(311, 271), pidfd_open=(434, 434), pidfd_getfd=(438, 438),
               kcmp=(312, 272), process_madvise=(440, 440), move_pages=(279, 239))
numbers = {name: pair[0 if x86 else 1] for name, pair in numbers.items()}
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(8)
local = Vector(ctypes.addressof(buffer), 8)
for pid in own():
    remote = Vector(0x400000, 8)
    calls = [("ptrace", (16, pid, 0, 0)), ("ptrace", (0x4206, pid, 0, 0)),
             ("readv", (pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)),
             ("writev", (pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)),
             ("kcmp", (pid, os.getpid(), 0, 0, 0)), ("move_pages", (pid, 0, 0, 0, 0, 0))]
    for name, arguments in calls:
        if libc.syscall(numbers[name], *arguments) != -1:
            print("could", name, pid)
    handle = libc.syscall(numbers["pidfd_open"], pid, 0)
    for number in range(10):
        if handle >= 0 and libc.syscall(numbers["pidfd_getfd"], handle, number, 0) != -1:
            print("could get descriptor", number, "of", pid)
    for name in ("root", "cwd", "exe", "fd", "fdinfo", "fd/0", "mem", "maps", "environ", "ns/mnt", "ns/user", "auxv", "io",
                 "map_files", "pagemap", "stack", "syscall", "task/%d/mem" % pid, "smaps", "clear_refs"):
        path = f"/proc/{pid}/{name}"
        for flags in (os.O_RDONLY, os.O_RDWR):
            try:
                descriptor = os.open(path, flags)
                # Root's sandbox may see which numbers there are, not what they lead to.
                shown = [] if os.path.isdir(path) else os.read(descriptor, 1)
                if shown:
                    print("could open", path, shown)
            except OSError:
                pass
        try:
            print("could read", path, os.readlink(path))
        except OSError:
            pass
print(len(own()) > 1)
"""


def test_tracing(sessions: Sessions) -> None:
    """PID 1 and supervisors, other commands' too, cannot be traced, read or robbed of descriptors."""
    sessions.project.environment["SECRET"] = "value"
    caller = sessions.opened()
    other = caller.begin("sleep", "100")
    assert attack(caller, TRACE) == "True\n"
    caller.do("close", number=other)


SIGNAL = """
class Info(ctypes.Structure):
    _fields_ = [("signo", ctypes.c_int), ("errno", ctypes.c_int), ("code", ctypes.c_int), ("pad", ctypes.c_int),
                ("pid", ctypes.c_int), ("uid", ctypes.c_int), ("value", ctypes.c_char * 104)]
queue, tgqueue, tgkill = (129, 297, 234) if x86 else (138, 240, 131)
for number in range(1, 65):
    try:
        os.kill(1, number)
    except OSError:
        pass
    libc.syscall(tgkill, 1, 1, number)
    for code in (-1, -2, -5, -6, 0, 0x80):
        for pid in (0, 1, os.getpid()):
            info = Info(number, 0, code, 0, pid, 0)
            libc.syscall(queue, 1, number, ctypes.byref(info))
            libc.syscall(tgqueue, 1, 1, number, ctypes.byref(info))
time.sleep(0.2)
print("here")
"""


def test_signals_to_pid_1(sessions: Sessions) -> None:
    """No signal from inside ends or stops PID 1, whoever it says that it is from."""
    caller = sessions.opened()
    processes = sessions.monitor(), sessions.first()
    assert attack(caller, SIGNAL) == "here\n"
    serves(caller)
    assert (sessions.monitor(), sessions.first()) == processes


HARMLESS = """
for pid in own()[1:]:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGIO, signal.SIGUSR1, signal.SIGALRM,
                   signal.SIGWINCH, signal.SIGQUIT, signal.SIGCONT, signal.SIGPIPE, signal.SIGRTMIN + 6,
                   signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
        for _ in range(20):
            os.kill(pid, number)
print("here"); sys.stdout.flush()
os._exit(3)
"""


def test_signals_to_supervisors(sessions: Sessions) -> None:
    """What supervises commands is not misled by signals: neither its own command's result nor another one's."""
    caller = sessions.opened()
    other = caller.begin("sh", "-c", "sleep 0.5; exit 9")
    result = caller.python(BEGIN + HARMLESS)
    assert (result.status, result.signal, result.out) == (3, None, "here\n")
    result = caller.wait(other)
    assert (result.status, result.timed_out) == (9, False)


@pytest.mark.parametrize("number", ["SIGKILL", "SIGSTOP", "SIGSEGV"])
@pytest.mark.parametrize("whose", ["mine", "the other's"])
def test_ending_a_supervisor(sessions: Sessions, number: str, whose: str) -> None:
    """A command that kills or stops a supervisor escapes nothing: the session ends as a whole, and says so."""
    caller = sessions.opened()
    other = caller.begin("sh", "-c", "trap '' TERM; sleep 100", timeout=60)
    processes = sessions.processes()
    which = "mine()" if whose == "mine" else "next(pid for pid in own()[1:] if pid != mine())"
    script = f"""
if os.fork() == 0:
    os.setsid()
    os.kill({which}, signal.{number})
    time.sleep(100)
time.sleep(100)
"""
    began = caller.begin("/usr/bin/python3", "-I", "-c", BEGIN + script, timeout=60)
    assert wait_gone(processes)
    for command in (began, other):
        with pytest.raises(Refused, match="supervised it") as caught:
            caller.wait(command)
        assert caught.value.kind == "SessionGone"
    assert sessions.left() == []


LIMIT = """
victim = mine() if sys.argv[1] == "supervisor" else 1
for kind in sys.argv[2:]:
    resource.prlimit(victim, getattr(resource, "RLIMIT_" + kind), (0, 0))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
time.sleep(100)
"""
LIMITS = ("NOFILE", "AS", "DATA", "NPROC", "FSIZE", "STACK", "SIGPENDING", "CPU")


@pytest.mark.parametrize("victim", ["PID 1", "supervisor"])
def test_limits_of_coop(sessions: Sessions, victim: str) -> None:
    """A command that takes away coop's own means inside does not outlive its time, and hangs nobody."""
    caller = sessions.opened()
    kinds = [(kind,) for kind in LIMITS] if victim == "supervisor" else [LIMITS[:-1]]
    argv = ["/usr/bin/python3", "-I", "-c", BEGIN + LIMIT, victim]
    numbers = []
    with contextlib.suppress(Refused):
        for kind in kinds:
            numbers.append(caller.begin(*argv, *kind, timeout=0.5))
    for number in numbers:
        with contextlib.suppress(Refused):
            assert caller.wait(number).status == 124
    assert wait_until(lambda: alive_commands(sessions) == [])
    with contextlib.suppress(Refused):
        caller.run("true", timeout=5)
    with contextlib.suppress(Refused):
        caller.stop()
    assert sessions.left() == []
    caller.open()
    serves(caller)


def alive_commands(sessions: Sessions) -> list[int]:
    """Return the commands of a session, none when it has ended."""
    try:
        return sessions.commands()
    except (AssertionError, IndexError):
        return []


FORGE = """
import marshal
data = marshal.dumps(("ended", 0, None, False, 0.0, None, ()), 2)
data = struct.pack("<I", len(data)) + data
written = []
for pid in processes():
    for number in range(64):
        for path in (f"/proc/{pid}/fd/{number}", f"/proc/{pid}/task/{pid}/fd/{number}"):
            try:
                if pid != os.getpid() and os.readlink(path).startswith(("socket", "pipe")):
                    written.append(path)
                    os.write(os.open(path, os.O_WRONLY | os.O_NONBLOCK), data)
            except OSError:
                pass
print(written)
"""


def test_forging_a_result(sessions: Sessions) -> None:
    """A command finds no way to write into the connection over which another one's result goes."""
    caller = sessions.opened()
    other = caller.begin("sh", "-c", "exec 1<&- 2<&- 0<&-; sleep 0.6; exit 9")
    assert attack(caller, FORGE) == "[]\n"
    assert caller.wait(other).status == 9


# Where a command starts, and what it is given


def test_directory_through_links(sessions: Sessions) -> None:
    """A directory that the owner names does not lead out, whatever links a command has put there."""
    caller = sessions.opened()
    root = caller.shell("stat -c %d:%i /").out
    script = """
import itertools
targets = [f"/proc/self/fd/{number}" for number in range(40)] + ["/proc/self/cwd", "/proc/self/root", "/proc/1/root", "/proc/1/cwd"]
targets += [f"/proc/thread-self/fd/{number}" for number in range(20)] + ["/../../..", "../../../..", "/proc/self/fd/3/../.."]
targets += [f"/proc/{pid}/root" for pid in own()] + ["/dev/fd/4", "/dev/fd/5"]
for number, target in enumerate(targets):
    os.symlink(target, f"link{number}")
print(len(targets))
"""
    count = int(attack(caller, script))
    look = 'cd -P .; while [ "$(stat -c %d:%i .)" != "$(stat -c %d:%i ..)" ]; do cd ..; done; stat -c %d:%i .'
    entered = 0
    for terminal in (None, (24, 80)):
        for number in range(count):
            try:
                begun = caller.begin(
                    "sh", "-c", f"({look}) > /tmp/root", directory=f"link{number}", terminal=terminal
                )
            except Refused as refused:
                assert "cannot be entered" in refused.message
                continue
            assert caller.wait(begun).status == 0
            assert caller.run("cat", "/tmp/root").out == root, number
            entered += 1
    assert entered, "some of them are harmless"


def test_devices_of_the_host(sessions: Sessions) -> None:
    """A command cannot change the mode or the times of the host's /dev/null, which its streams are open on."""
    caller = sessions.opened()
    before = os.stat("/dev/null")
    script = "import os\nfor n in (0, 1, 2):\n  for f in (lambda: os.fchmod(n, 0o600), lambda: os.utime(n, (1, 1)), lambda: os.fchown(n, 0, 0), lambda: os.chmod(f'/proc/self/fd/{n}', 0o600)):\n    try: f()\n    except OSError: pass"
    caller.python(script, streams=["null"] * 3)
    after = os.stat("/dev/null")
    assert (before.st_mode, before.st_mtime, before.st_uid) == (after.st_mode, after.st_mtime, after.st_uid)


def test_terminal(sessions: Sessions) -> None:
    """With a terminal a command has the end that is made for it, pushes nothing into it, and has no other."""
    caller = sessions.opened()
    script = """
import fcntl, termios
for name in sorted(os.listdir("/proc/self/fd")):
    try:
        print(name, os.readlink(f"/proc/self/fd/{name}"))
    except OSError:
        pass
for request in (termios.TIOCSTI, 0x541C, 0x541D):
    try:
        fcntl.ioctl(0, request, b"x")
        print("could", hex(request))
    except OSError:
        pass
print("done")
"""
    number = caller.begin("/usr/bin/python3", "-I", "-c", BEGIN + script, terminal=(24, 80))
    shown = caller.do("terminal", number=number, feed="", until="done").split()
    assert shown == ["0", "/dev/pts/0", "1", "/dev/pts/0", "2", "/dev/pts/0", "done"]
    assert caller.wait(number).status == 0


def test_secrets(sessions: Sessions) -> None:
    """What the starter has in its environment, and the plan does not give, is nowhere inside."""
    project = sessions.project
    project.environment["GIVEN"] = "a-given-value"
    project.environment["OTHER"] = "a-value-kept-back"
    project.coopfile('[env]\nGIVEN = { host = "GIVEN" }\n')
    caller = sessions.opened()
    script = """
for directory in ("/proc", "/run", "/tmp", "/dev/shm", os.path.expanduser("~")):
    for top, names, files in os.walk(directory):
        for name in files:
            try:
                with open(os.open(f"{top}/{name}", os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                    data = file.read(1 << 20)
            except OSError:
                continue
            if b"kept-" + b"back" in data:
                print("found in", top, name)
print(os.environ["GIVEN"], "OTHER" in os.environ)
"""
    assert attack(caller, script) == "a-given-value False\n"


# From beside


def connected(sessions: Sessions) -> socket.socket:
    """Return a connection to the session, of the tests' own process."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(DEADLINE)
    with short_path(sessions.directory() / "socket") as path:
        connection.connect(path)
    return connection


def own_only(sessions: Sessions) -> None:
    """Skip where the tests' own process is not of the session's user."""
    if sessions.project.actor.uid != os.geteuid():
        pytest.skip("the tests connect themselves, and are another user")


def message(data: bytes) -> bytes:
    """Return bytes with their length before them, as messages are."""
    return struct.pack("<I", len(data)) + data


def garbage() -> Iterator[tuple[bytes, int]]:
    """Yield what is no request, and how many descriptors go with it."""
    import marshal

    chance = random.Random(7)
    for size in (0, 1, 2, 3, 4, 5, 100, 5000):
        yield chance.randbytes(size), 0
    for length in (0, 1, 1 << 20, 1 << 26, (1 << 26) + 1, 1 << 31, (1 << 32) - 1):
        yield struct.pack("<I", length), 0
        yield struct.pack("<I", length) + b"x" * 50, 0
    requests: tuple[Any, ...] = (
        None, 1, "exec", [], (), (1,), (2, "exec"), ("1",), (1, "exec"), (1, "exec", None), (1, "exec", None, ()), (1, None), (1, ()),
        (1, "exec", "0" * 64, ("true",), (), None, None, None), (1, "exec", None, "true", (), None, None, None),
        (1, "exec", None, ("true",), (), None, "soon", None), (1, "exec", None, ("true",), (), None, None, "big"),
        (1, "exec", None, ("true",), (), None, None, ("a", "b")), (1, "exec", None, ("true",), (), None, None, (1 << 40, -1)),
        (1, "exec", None, (1, 2), (), None, None, None), (1, "exec", None, ("true",), 5, None, None, None),
        (1, "exec", None, ("true",), ((1, 2),), None, None, None), (1, "exec", None, ("true",), (), 5, None, None),
        (1, "exec", None, ("true",), (), None, None, None, 1), (1, "exec", None, (), (), None, None, None),
        (1, "exec", None, ("true",), (("A", "b", "c"),), None, None, None), (1, "usage"), (1, "upper", None), (1, "no-such", None),
        (1, "pause"), (1, "signal", 9), (1, b"exec"), (1, "exec", {}, (), (), (), (), ()), ((), ()), (1, "exec", float("nan")),
    )  # fmt: skip
    for wrong in requests:
        for descriptors in (0, 3):
            yield message(marshal.dumps(wrong, 2)), descriptors
    for descriptors in (1, 2, 4, 5, 200):
        yield message(marshal.dumps((1, "exec", None, ("true",), (), None, None, None), 2)), descriptors
    yield message(chance.randbytes(3000)), 3
    yield message(b"(" * 100000), 0
    yield message(b"(\xff\xff\xff\x7f"), 0


def test_garbage(sessions: Sessions) -> None:
    """Whatever is sent to the socket, the session answers with a refusal or not at all, and goes on."""
    own_only(sessions)
    caller = sessions.opened()
    processes = sessions.monitor(), sessions.first()
    null = os.open("/dev/null", os.O_RDWR)
    connections = []
    for data, descriptors in garbage():
        connection = connected(sessions)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(connection, [data], [null] * descriptors) if descriptors else connection.sendall(
                data
            )
        connections.append(connection)
    os.close(null)
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
    for connection in connections:
        with connection, contextlib.suppress(ConnectionResetError):
            assert b"Traceback" not in connection.recv(1 << 16)
    serves(caller)
    assert (sessions.monitor(), sessions.first()) == processes
    assert wait_until(lambda: len(sessions.supervisors()) <= 1)
    assert (sessions.directory() / "notes").read_bytes() == b""


def test_garbage_to_a_running_command(sessions: Sessions) -> None:
    """A caller that sends nonsense while its command runs has gone, as far as the session can tell."""
    import marshal

    own_only(sessions)
    sessions.opened()
    null = os.open("/dev/null", os.O_RDWR)
    for nonsense in (
        b"\xff" * 50,
        message(b"x"),
        *(
            message(marshal.dumps(wrong, 2))
            for wrong in ((), ("signal",), ("signal", "x"), (1, 2), ("signal", 1 << 40))
        ),
    ):
        with connected(sessions) as connection:
            request = (1, "exec", None, ("sleep", "100"), (), None, None, None)
            socket.send_fds(connection, [message(marshal.dumps(request, 2))], [null] * 3)
            assert b"started" in connection.recv(100)
            connection.sendall(nonsense)
            connection.shutdown(socket.SHUT_WR)
            assert wait_until(lambda: not sessions.commands())
    os.close(null)


def test_garbage_to_the_helper(sessions: Sessions) -> None:
    """The helper outlives whatever is sent to it."""
    own_only(sessions)
    caller = sessions.opened("one")
    (helper,) = sessions.helpers()
    (path,) = [path for path in (sessions.state / "helper").iterdir() if path.is_socket()]
    for data, _ in garbage():
        with socket.socket(socket.AF_UNIX) as connection:
            with short_path(path) as short:
                connection.connect(short)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(data)
    assert caller.open("two")["fresh"] is True
    assert sessions.helpers() == [helper]


ASK = """
import marshal, os, socket, struct, sys
data = marshal.dumps((1, "exec", None, ("touch", "/workspace/forged"), (), None, None, None), 2)
for path in sys.argv[1:]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        try:
            directory = os.open(os.path.dirname(path), os.O_PATH)  # the path itself may be too long
            connection.connect(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
            socket.send_fds(connection, [struct.pack("<I", len(data)) + data], [0, 1, 2])
            print(connection.recv(1000))
        except OSError as error:
            print(type(error).__name__)
"""


def test_another_user(sessions: Sessions) -> None:
    """Another user is refused by the socket's mode, and by who asks where that has been opened; root, too."""
    if len(NAMES) < 2:
        pytest.skip("two users are needed")
    caller = sessions.opened()
    project = sessions.project
    directory = sessions.directory()
    (helper,) = [path for path in (sessions.state / "helper").iterdir() if path.is_socket()]
    paths = [str(directory / "socket"), str(helper)]
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in paths] == [0o600] * 2
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    other = 0 if project.actor.uid else 60999
    become = ["setpriv", f"--reuid={other}", f"--regid={other}", "--clear-groups"]

    def ask() -> list[str]:
        argv = [*become, "/usr/bin/python3", "-I", "-c", ASK, *paths]
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=DEADLINE, check=True, stdin=subprocess.DEVNULL
        )
        return done.stdout.split()

    if other:
        assert ask() == ["PermissionError"] * 2
        above = [directory, *directory.parents, helper.parent, *helper.parent.parents]
        for path in above:
            if str(path).startswith(str(project.home)):
                path.chmod(0o755)
        for name in paths:
            os.chmod(name, 0o666)
    assert set(ask()) <= {"b''", "ConnectionResetError", "BrokenPipeError"}
    assert not (project.directory / "forged").exists()
    serves(caller)


def test_a_session_of_another_user(sessions: Sessions) -> None:
    """Who finds another user's socket, or helper, in the place of their own does not talk to it."""
    if os.geteuid() != 0 or sessions.project.actor.uid == 0:
        pytest.skip("root has to play the other user")
    caller = sessions.opened()
    fake = socket.socket(socket.AF_UNIX)
    path = sessions.directory() / "socket"
    path.unlink()
    with short_path(path) as short:
        fake.bind(short)
    fake.listen()
    path.chmod(0o666)
    with pytest.raises(Refused, match="another user"):
        caller.run("true")
    fake.close()
    (helper,) = [item for item in (sessions.state / "helper").iterdir() if item.is_socket()]
    helper.unlink()
    fake = socket.socket(socket.AF_UNIX)
    with short_path(helper) as short:
        fake.bind(short)
    fake.listen()
    helper.chmod(0o666)
    with pytest.raises(Refused, match="another user") as caught:
        caller.open("two")
    assert caught.value.remedy
    fake.close()


@pytest.mark.parametrize("confined", [False, True])
def test_order_from_a_sandbox_of_others(sessions: Sessions, confined: bool) -> None:
    """Who has given up privileges, as every sandbox of Landlock's rules does, has the helper do nothing."""
    sessions.opened()
    project = sessions.project
    (helper,) = [path for path in (sessions.state / "helper").iterdir() if path.is_socket()]
    forged = project.directory / "forged"
    given_up = ["setpriv", "--no-new-privs"] if confined else []
    begin = f"import os, socket, struct, sys; os.chdir({str(helper.parent)!r})\n"
    script = begin + FORGED_ORDER.replace('"helper"', repr(helper.name))
    argv = [*project.actor.prefix, *given_up, "/usr/bin/python3", "-I", "-c", script, str(forged)]
    subprocess.run(argv, timeout=DEADLINE, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    assert forged.exists() is not confined


def test_links_in_coops_data(sessions: Sessions) -> None:
    """A link in the place of one of its files makes coop write nothing elsewhere."""
    caller = sessions.opened()
    caller.stop()
    target = sessions.project.write(f"{sessions.project.home}/precious", "precious")
    for name in ("state", "alive", "notes", "starting", "socket"):
        path = sessions.directory() / name
        path.unlink(missing_ok=True)
        path.symlink_to(target)
        with contextlib.suppress(Refused):
            caller.open()
            caller.run("true")
            caller.stop()
        assert target.read_text() == "precious", name
        assert stat.S_IMODE(target.stat().st_mode) == 0o644
        path.unlink(missing_ok=True)


def test_link_for_the_helpers_directory(sessions: Sessions) -> None:
    """A link in the place of the helper's directory, which it tidies up, has coop remove nothing elsewhere."""
    caller = sessions.caller()
    caller.open("before")
    (helper,) = sessions.helpers()
    os.kill(helper, signal.SIGKILL)
    assert wait_gone([helper])
    precious = sessions.project.write(f"{sessions.project.home}/precious/file", "precious")
    place = sessions.state / "helper"
    shutil.rmtree(place)
    place.symlink_to(precious.parent)
    with pytest.raises(Refused, match="helper") as refused:
        caller.open()
    assert refused.value.remedy
    assert [path.name for path in precious.parent.iterdir()] == ["file"]
    place.unlink()
    caller.open()
    assert (place / "starting").exists()


def test_what_the_helper_did_not_make(sessions: Sessions) -> None:
    """Only sockets that nobody answers at are tidied up in the helper's directory."""
    caller = sessions.opened("one")
    (helper,) = sessions.helpers()
    kept = sessions.project.write(f"{sessions.state}/helper/kept", "kept")
    (old,) = [path for path in kept.parent.iterdir() if path.is_socket()]
    os.kill(helper, signal.SIGKILL)
    assert wait_gone([helper])
    old.rename(kept.parent / "old")
    caller.open("two")
    assert kept.exists()
    assert not (kept.parent / "old").exists()


MODULE = "open({!r}, 'a').write(__file__)\n"


def test_modules_of_a_project(sessions: Sessions) -> None:
    """Nothing of a project, and no variable of Python's, gets into the process that makes sessions."""
    project = sessions.project
    mark = project.home / "imported"
    names = "os sys socket _socket signal coopfile typing pickle re json site encodings sitecustomize"
    names += " usercustomize fcntl gc select contextlib hashlib _blake2 marshal"
    for name in names.split():
        project.write(f"{name}.py", MODULE.format(str(mark)))
        project.write(f"below/{name}/__init__.py", MODULE.format(str(mark)))
    below = str(project.directory / "below")
    project.environment |= {
        "PYTHONPATH": f"{project.directory}:{below}",
        "PYTHONSTARTUP": str(project.directory / "os.py"),
        "PYTHONINSPECT": "1",
        "PYTHONHOME": "",
        "PYTHONBREAKPOINT": "os.system",
        "PYTHONUSERBASE": below,
        "LD_LIBRARY_PATH": below,
    }
    caller = sessions.opened()
    (helper,) = sessions.helpers()
    serves(caller)
    assert not mark.exists()
    if os.geteuid() == 0:
        environment = Path(f"/proc/{helper}/environ").read_bytes()
        assert b"PYTHON" not in environment and b"LD_" not in environment
