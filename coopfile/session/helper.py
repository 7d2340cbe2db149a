"""Reaching the helper, which forks sessions, and starting it: ``zygote`` is what it does.

It starts with a user's first session and ends when none has been asked for in a while. Sessions
do not depend on it. Forked from one process they share what none of them changes, and start without
an interpreter.
"""

from __future__ import annotations

import _socket
import fcntl
import os
import signal
import stat
import sys
import time
from contextlib import contextmanager

from coopfile import __version__
from coopfile.errors import CoopError
from coopfile.native import wire
from coopfile.system import is_own

try:
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BACKLOG = 256
_TRIES = 5
_HELD = 20.0  # seconds that another process may take for starting one
_PAUSE = 0.01  # seconds
_CONNECTS = 5.0  # seconds
_LOCK = "starting"
_STATUS = (b"Cap", b"NoNewPrivs", b"Seccomp", b"Cpus_allowed:", b"Mems_allowed:")  # proc_pid_status(5)
_PROGRAM = (
    "import os, sys; os.fork() and os._exit(0); sys.path.append(sys.argv[1]); "
    "from coopfile.session.zygote import main; main(int(sys.argv[2]), *sys.argv[3:])"
)


def ask(state: str, data: bytes, descriptors: Sequence[int]) -> None:
    """Send an order to the helper of this user, started if need be. Raises CoopError, OSError."""
    directory = f"{os.path.realpath(state)}/helper"
    name = _name()
    for _ in range(_TRIES):
        connection = _try(directory, name)
        if connection is not None:
            try:
                wire.send(connection, (data,), descriptors)
                return
            except wire.Crowded as error:
                raise CoopError(error.why, error.remedy) from None
            except wire.Broken:
                continue  # it was killed just now, and has taken nothing
            finally:
                connection.close()
        _make(directory)
        with locked(directory):
            if not _answers(directory, name):
                _start(directory, name)
    raise CoopError("the process that makes sessions does not answer", f"does one hang? {directory}")


def _make(directory: str) -> None:
    """Have a directory of the helpers, this user's alone: what is left in it is removed. Raises CoopError."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    except FileExistsError:
        pass  # it is looked at below
    status = os.lstat(directory)
    if not (stat.S_ISDIR(status.st_mode) and is_own(status)):
        raise CoopError(
            f"{directory} is not a directory of this user's that nobody else can write",
            "remove it: coop makes it again; with sudo, let HOME be root's own",
        )


def _try(directory: str, name: str) -> _socket.socket | None:
    connection = wire.connect(directory, name, _CONNECTS)
    if connection is not None and not wire.is_own(connection):
        connection.close()
        raise CoopError(f"{directory}/{name} belongs to another user", "remove it")
    return connection


def _answers(directory: str, name: str) -> bool:
    connection = wire.connect(directory, name, _CONNECTS)
    if connection is None:
        return False
    connection.close()
    return True


def _name() -> str:
    """Return the name of the helper that may act for this process.

    It does so in its own namespaces, control groups and limits, with its own privileges and version
    of coop: for others there is another helper.
    """
    import resource

    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with open("/proc/self/status", "rb") as file:
        status = [line for line in file.read().splitlines() if line.startswith(_STATUS)]
    own: list[object] = [__version__, sys.executable, package, os.stat(f"{package}/__init__.py").st_mtime_ns]
    own += [status, os.getpriority(os.PRIO_PROCESS, 0)]
    own += [os.readlink(f"/proc/self/ns/{name}") for name in sorted(os.listdir("/proc/self/ns"))]
    with open("/proc/self/cgroup", "rb") as file:
        own.append(file.read())
    limits = (getattr(resource, name) for name in sorted(dir(resource)) if name.startswith("RLIMIT_"))
    own += [resource.getrlimit(limit) for limit in limits]
    own.append((os.getuid(), os.geteuid(), os.getgid(), os.getegid(), sorted(os.getgroups())))
    return blake2b(ascii(own).encode("ascii"), digest_size=8).hexdigest()


@contextmanager
def locked(directory: str) -> Iterator[None]:
    """Let nobody else start a helper, or end as one, meanwhile. Raises CoopError."""
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(f"{directory}/{_LOCK}", flags, 0o600)
    try:
        deadline = time.monotonic() + _HELD
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise CoopError(
                        f"another process holds {directory}/{_LOCK} for {_HELD:g} s", "end it, and try again"
                    ) from None
                time.sleep(_PAUSE)
        yield
    finally:
        os.close(descriptor)


def _start(directory: str, name: str) -> None:
    """Start a helper: its socket is there before it is, so that nobody has to wait."""
    if not sys.executable:
        raise CoopError("the Python interpreter that runs this cannot be found", "use one that has a path")
    for other in os.listdir(directory):
        path = f"{directory}/{other}"
        if other != name and stat.S_ISSOCK(os.lstat(path).st_mode) and not _answers(directory, other):
            os.unlink(path)  # of one that was killed
    listener = wire.listen(directory, name, _BACKLOG)
    os.set_inheritable(listener.fileno(), True)
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    argv = [sys.executable, "-I", "-S", "-c", _PROGRAM, package, str(listener.fileno()), directory, name]
    null = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in (0, 1, 2)]
    started = os.posix_spawn(
        sys.executable,
        argv,
        {"LANG": "C.UTF-8", "PATH": os.environ.get("PATH", "/usr/bin:/bin")},
        file_actions=null,
        setsid=True,
        setsigmask=(),
        setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
    )
    listener.close()
    try:
        os.waitpid(started, 0)  # it has forked: nobody's child has to be waited for later
    except ChildProcessError:
        pass  # a library's user who waits for every child
