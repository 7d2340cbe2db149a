"""What is known of each session, on disk: ``<data>/sessions/<id>/``.

``state`` is written as a whole or not at all. ``starting`` is locked, flock(2), by who starts or
ends the session; ``alive`` by what keeps it, as long as that lives. ``persist`` is what outlives it
(plan/sessions.py), ``socket`` leads to a session in namespaces, ``notes`` holds what it had to tell
at its end.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import contextmanager

from coopfile.errors import CoopError
from coopfile.native import report, wire
from coopfile.plan.sessions import is_name
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = 1
_LARGEST = 1 << 24  # bytes of a state file: a plan is a few kilobytes
_LONGEST = 4096 + 1  # bytes of a path and a newline: PATH_MAX in linux/limits.h
_PAUSE = 0.02  # seconds between two tries to have a lock
_NEW = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class BusyError(CoopError):
    """Another process is starting, ending or removing the session."""


class State(Record):
    """One session as it was started last.

    ``root`` is the real path of its workspace, ``user`` whose it is (None: the caller's own).
    ``plan`` is its JSON. ``created`` and ``started`` are seconds since the epoch. ``container`` is
    the engine's id for it, empty for one in namespaces. ``ttl_ms`` is ``Spec.ttl`` in milliseconds.
    """

    id: str
    name: str
    root: str
    user: str | None
    backend: str
    digest: str
    plan: str
    created: int
    started: int
    ttl_ms: int | None = None
    leased: bool = False
    container: str = ""
    version: int = VERSION


class Known(Record):
    """A session that there is. ``state`` is None if it is damaged, ``root`` if nobody knows its workspace."""

    directory: str
    state: State | None
    root: str | None

    @property
    def id(self) -> str:
        """Its id, which is the name of its directory."""
        return os.path.basename(self.directory)


def read(directory: str) -> State | None:
    """Return what is known of the session of a directory; None if nothing is, or nothing that makes sense."""
    from coopfile import strictjson

    try:
        descriptor = os.open(f"{directory}/state", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    try:
        with open(descriptor, "rb") as file:
            fields = strictjson.loads(file.read(_LARGEST))
        state = State(**fields) if isinstance(fields, dict) else None
    except (ValueError, TypeError):
        return None
    return state if state is not None and _is_sound(state, directory) else None


def write(directory: str, state: State) -> None:
    """Write down a session. Raises OSError.

    The machine's end is that of all sessions: what is damaged then is of one that does not run.
    """
    import json

    from coopfile import wholefile

    fields = {name: getattr(state, name) for name in state._fields}
    wholefile.write(f"{directory}/state", json.dumps(fields).encode(), 0o600, durable=False)


def unusable(directory: str, error: OSError) -> CoopError:
    """Return the error that says why a session cannot be kept in a directory, and what helps."""
    path = error.filename2 or error.filename or directory
    remedy = None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "free some of its disk: coop clean frees what coop keeps and nobody uses"
    elif error.errno in (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENXIO):
        remedy = f"remove {path}: coop makes it again"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        remedy = "set XDG_DATA_HOME to a directory that you can write"
    elif error.errno == errno.EMFILE:
        remedy = report.FILES
    elif error.errno in (errno.EAGAIN, errno.ENOMEM, errno.ENFILE):
        remedy = "the machine, or this user, has too many processes or open files: end some"
    where = "" if path == directory else f" ({path})"
    return CoopError(f"cannot keep a session in {directory}: {error.strerror}{where}", remedy)


def put_back(directory: str, earlier: State | None) -> None:
    """Write down what was known before a session could not be started, if anything was."""
    try:
        if earlier is None:
            os.unlink(f"{directory}/state")
        else:
            write(directory, earlier)
    except OSError:
        pass  # why it could not be started counts


def known(data: str) -> Iterator[Known]:
    """Yield every session below coop's data, by id. What runs only have kept there is none."""
    try:
        names = sorted(os.listdir(f"{data}/sessions"))
    except OSError:
        return
    for name in names:
        found = look(f"{data}/sessions/{name}")
        if found is not None:
            yield found


def look(directory: str) -> Known | None:
    """Return the session of a directory, damaged or not; None if there is none."""
    state = read(directory)
    if state is None and not (os.path.lexists(f"{directory}/state") or is_alive(directory)):
        return None
    return Known(directory, state, noted_project(directory) if state is None else state.root)


def noted_project(directory: str) -> str | None:
    """Return the project that a directory below coop's data is of, as ``native.kept`` noted it."""
    try:
        with open(f"{directory}/project", "rb") as file:
            return os.fsdecode(file.read(_LONGEST).removesuffix(b"\n")) or None
    except OSError:
        return None


def salvaged(directory: str, name: str) -> State:
    """Return what it takes to end a session that runs, though what is known of it is damaged."""
    return State(os.path.basename(directory), name, "", None, "native", "", "", 0, 0)


def is_alive(directory: str) -> bool:
    """Tell whether something keeps the session: its lock is the kernel's word, whatever the state says."""
    return _is_locked(f"{directory}/alive")


def leads_to(directory: str, descriptor: int) -> bool:
    """Tell whether what leads to a session is there: its socket, and the lock of this descriptor."""
    try:
        place = os.lstat(f"{directory}/{wire.SOCKET}")
        lock = os.lstat(f"{directory}/alive")
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return stat.S_ISSOCK(place.st_mode) and os.path.samestat(lock, os.fstat(descriptor))


def is_starting(directory: str) -> bool:
    """Tell whether somebody starts, ends or removes the session."""
    return _is_locked(f"{directory}/starting")


def keep_alive(directory: str) -> int | None:
    """Take the lock that says that the session lives; None if it does already. Raises OSError."""
    descriptor = os.open(f"{directory}/alive", _NEW, 0o600)
    # Who looks has a shared lock for a moment.
    deadline = time.monotonic() + 1
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                return None
            time.sleep(_PAUSE / 10)
    tell_end(descriptor)
    return descriptor


def tell_keeper(descriptor: int, pid: int) -> None:
    """Write down, where its lock is, the process with whose end the session ends."""
    try:
        os.pwrite(descriptor, f"{pid} {_numbering()}".encode(), 0)
    except OSError:
        pass  # the disk is full: who ends the session can ask its socket as well


def tell_end(descriptor: int) -> None:
    """Write down that there is no such process, before its number is free for another."""
    try:
        os.ftruncate(descriptor, 0)
    except OSError:
        pass


def let_go(descriptor: int) -> None:
    """Give up the lock, also where another process happens to have the descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def keeper(directory: str) -> int | None:
    """Return the number that ``tell_keeper`` wrote; None if the session has ended, or it is none of ours."""
    try:
        with open(f"{directory}/alive", "rb", opener=_open_plain) as file:
            pid, _, numbering = file.read(_LONGEST).decode("ascii", "replace").partition(" ")
    except OSError:
        return None
    return int(pid) if numbering == _numbering() and pid.isdigit() and is_alive(directory) else None


def new_notes(directory: str) -> int:
    """Make the file for what a session has to tell at its end, in place of the last one's. Raises OSError."""
    path = f"{directory}/notes"
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    return os.open(path, _NEW | os.O_EXCL | os.O_APPEND, 0o600)


def wait_end(directory: str, timeout: float) -> bool:
    """Wait until nothing keeps the session; tell whether that was within ``timeout`` seconds."""
    deadline, pause = time.monotonic() + timeout, 0.001
    while is_alive(directory):
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _PAUSE)
    return True


@contextmanager
def starting(directory: str, timeout: float) -> Iterator[None]:
    """Be the only one who starts, ends or removes the session. Raises BusyError, OSError."""
    deadline = time.monotonic() + timeout
    while (descriptor := _locked(directory)) is None:
        if time.monotonic() > deadline:
            raise BusyError(
                f"another process has been starting or ending this session for {timeout:g} s",
                "wait for it, or end it",
            )
        time.sleep(_PAUSE)
    try:
        yield
    finally:
        os.close(descriptor)


def _numbering() -> str:
    """Return in which PID namespace this process's number counts."""
    return os.readlink("/proc/self/ns/pid")


def _open_plain(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _is_locked(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)  # nobody knows: what runs is not to be lost
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _locked(directory: str) -> int | None:
    """Take the lock of who starts or ends the session; None if somebody has it."""
    path = f"{directory}/starting"
    os.makedirs(directory, mode=0o700, exist_ok=True)
    descriptor = os.open(path, _NEW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Who had it may have removed the session, and this file with it.
        if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _is_sound(state: State, directory: str) -> bool:
    texts = (state.id, state.name, state.root, state.backend, state.digest, state.plan, state.container)
    return (
        state.version == VERSION
        and all(isinstance(text, str) for text in texts)
        and os.path.basename(directory) == state.id
        and is_name(state.name)
        and isinstance(state.created, int)
        and isinstance(state.started, int)
        and (state.ttl_ms is None or isinstance(state.ttl_ms, int))
        and isinstance(state.leased, bool)
        and (state.user is None or isinstance(state.user, str))
    )
