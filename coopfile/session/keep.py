"""What the helper forks: a session's monitor, which stays as long as the session does.

There may be hundreds, and each page that one writes is memory of its own. So it does next to nothing
itself: a process that it forks, the *maker*, makes the sandbox, hands it what has to be undone at the
end, and goes.
"""

from __future__ import annotations

import _socket
import marshal
import os
import stat
import sys
from _socket import socketpair
from os import close, dup2, fork, fstat, getpid, kill, lstat, pipe, read, setsid, waitpid, write

from coopfile.native import report, serve, signals, wire
from coopfile.native.namespaces import enter_user_namespace
from coopfile.native.signals import announce, block, wait
from coopfile.native.title import take
from coopfile.native.wire import Broken, receive, send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST = 250  # descriptors of a message: SCM_MAX_FD is 253
_QUICK = 0.5  # seconds that who asks may take when it is refused
_LOOKS = 60.0  # seconds between two looks whether anything leads to a session
_NO_PROCESS = "no process can be started for the session"
_MORE = "end some, or raise the limit: ulimit -u, or pids.max of the control group"


def main(connection: _socket.socket) -> None:
    """Be the monitor of the session that is asked for, until it ends; never returns."""
    status = 1
    try:
        mask = block()
        monitor = getpid()
        own, makers = socketpair()
        inside, outside = socketpair()
        try:
            maker = fork()
        except OSError as error:
            refuse(connection, error)
            return
        if maker == 0:
            from coopfile.session import making  # loaded long ago

            own.close()
            inside.close()
            making.main(connection, makers, outside, monitor)
        connection.close()
        makers.close()
        outside.close()
        status = _keep(own, inside, maker, mask)
    finally:
        os._exit(status)


def refuse(connection: _socket.socket, error: OSError) -> None:
    """Tell who asks that no process could be made for it. In the helper itself, so it is quick."""
    connection.settimeout(_QUICK)
    try:
        _, descriptors = wire.receive(connection, MOST)
    except wire.Broken:
        return
    for number, descriptor in enumerate(descriptors):
        if number == 0:
            text = f"{_NO_PROCESS}: {error.strerror}"
            report.send(descriptor, report.Message(report.FAILURE, text, _MORE))
        os.close(descriptor)


def _keep(maker: _socket.socket, inside: _socket.socket, worker: int, mask: set[int]) -> int:
    """See to a session until its end. What the maker cannot do it tells itself."""
    try:
        (name, uid, gid, own_network), (reported,) = receive(maker, 1)
    except Broken:
        return 1
    pid = 0
    try:
        pid, ended, opener = _start(name, uid, gid, own_network, maker, inside, reported, mask)
        send(maker, (pid,))
        kept = _received(maker)
    except BaseException as error:
        if not isinstance(error, Broken):  # else the other side has told why
            report.send_error(reported, error)
        inside.close()
        _end(pid)
        maker.close()
        waitpid(worker, 0)  # it undoes what it has done
        return 1
    write(opener, b"1")
    directory, told, alive, notes, *descriptors = kept
    dup2(notes, reported, inheritable=False)
    close(notes)
    try:
        return _watch(pid, worker, ended, directory, alive)
    except BaseException as error:
        report.send_error(reported, error)
        _end(pid)
        return 1
    finally:
        _undo(directory, alive, told, descriptors, maker, worker, reported)


def _start(
    name: str,
    uid: int,
    gid: int,
    own_network: bool,
    maker: _socket.socket,
    inside: _socket.socket,
    reported: int,
    mask: set[int],
) -> tuple[int, int, int]:
    """Fork PID 1.

    Returns its number here, the pipe in which it tells that all others are gone, and the one that it
    waits for, which stays open: that is how PID 1 knows that this process lives.
    """
    setsid()  # nobody's terminal counts
    enter_user_namespace(uid, gid)
    gate, opener = pipe()
    ended, end = pipe()
    pid = fork()
    if pid == 0:
        close(opener)
        maker.close()
        serve.main(inside, reported, mask, own_network, gate, end)
    inside.close()
    close(gate)
    close(end)
    announce(ended)
    take(f"coop: session {name}")  # not PID 1: the name names the project
    return pid, ended, opener


def _end(pid: int) -> None:
    if pid:
        kill(pid, signals.SIGKILL)
        waitpid(pid, 0)


def _received(maker: _socket.socket) -> tuple[Any, ...]:
    """Return what the maker hands over: the session's directory, ``making.Kept``, packed, and descriptors.

    The first is of the file in the directory that is locked, the second of the one for what there is to
    tell at the end; ``making.Kept`` counts on the others. They come before the rest, in as many messages
    as it takes.
    """
    descriptors: list[int] = []
    message: tuple[object, ...] = ()
    while not message:
        message, some = receive(maker, MOST)
        descriptors += some
    return (*message, *descriptors)


def is_known(directory: str, alive: int) -> bool:
    """Tell whether what leads to a session is still there, and nobody removed it."""
    try:
        place = lstat(f"{directory}/{wire.SOCKET}")
        lock = lstat(f"{directory}/alive")
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return stat.S_ISSOCK(place.st_mode) and os.path.samestat(lock, fstat(alive))


def _watch(pid: int, worker: int, ended: int, directory: str, alive: int) -> int:
    """Forward signals until PID 1 ends; return its status. End a session that nothing leads to any more.

    A maker that stays has to: what it sees to does not last longer, so the session does not either.
    """
    while True:
        number = wait(_LOOKS)
        if not is_known(directory, alive):
            kill(pid, signals.SIGTERM)
        if number == signals.SIGCHLD:
            gone, status = waitpid(-1, os.WNOHANG)
            while gone and gone != pid:
                if gone == worker and status != 0:
                    kill(pid, signals.SIGKILL)
                gone, status = waitpid(-1, os.WNOHANG)
            if gone:
                return os.waitstatus_to_exitcode(status)
        elif number == signals.SIGIO:
            read(ended, 1)
        elif number == signals.ABANDONED:
            kill(pid, signals.SIGKILL)
        elif number is not None:
            kill(pid, number)


def _undo(
    directory: str,
    alive: int,
    packed: bytes,
    descriptors: list[int],
    maker: _socket.socket,
    worker: int,
    reported: int,
) -> None:
    """Take away all that there was of a session outside of it, when all inside is gone."""
    from coopfile.native import cgroups, limits, placeholders, running  # loaded long ago
    from coopfile.session.making import IMPORTERS, Kept

    sys.meta_path[:] = IMPORTERS
    kept = Kept(*marshal.loads(packed))
    group, held = cgroups.Group(*kept.groups), placeholders.Placeholders()
    held.take_over(kept.placeholders, descriptors[: kept.places])
    for text in limits.reached(group.exceeded(), kept.memory, kept.pids):
        report.send(reported, report.Message(report.NOTE, text))
    maker.close()
    try:
        waitpid(worker, 0)  # it may have had notes of its own
    except ChildProcessError:
        pass  # gone long ago
    group.remove()
    held.release()
    if is_known(directory, alive):  # else it is another session's, whose starter found no trace of this one
        try:
            os.unlink(f"{directory}/{wire.SOCKET}")
        except OSError:
            pass
    if kept.announced:
        running.leave((descriptors[kept.places], kept.announced))
