"""PID 1 of a session: starts a supervisor for each request, reaps, and ends when it is time to.

It has its sandbox made by another process, which goes, and imports next to nothing: what it writes to is
memory that each session has of its own.

It does no more than that itself, so that no client and no command can keep it from the others.
"""

from __future__ import annotations

import _socket
import os
import select
import time
from os import chroot, close, dup2, fchdir, umask, write

from coopfile.native import namespaces, report, signals, syscalls, wire
from coopfile.native.confine import FAILED, Lock, Table, end_all, pass_gate
from coopfile.native.namespaces import processes
from coopfile.native.syscalls import close_but
from coopfile.native.wire import receive, send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn


_MOST = 64  # descriptors that come from the maker
# What ``prepare`` has made.
_ready: tuple[dict[bool, syscalls.Calls], syscalls.Calls, syscalls.Calls, Lock] | None = None
RAN, END = 76, 77  # exit statuses of supervisors: a command ran; PID 1 is asked to end the session
_LOST = (
    "a command ended or stopped what supervised it, or the kernel did for want of memory: "
    "the session was ended"
)
_SPARED = 5.0  # seconds that a spare is kept after the last request
_LULL = 5  # milliseconds without a request in which a spare begins to practise
_PAUSE = 0.05  # seconds between two tries to take a request when there is no room for its descriptor
_FULL = "the session has as many processes as it may have, or the machine has"
_ROOM = "limits.pids says how many; or end some"


def prepare() -> None:
    """Make ready, before the forks, what every session takes."""
    from coopfile.native import seccomp

    global _ready
    if not syscalls.supported_machine():
        return  # who asks is told before
    begin = {
        own: syscalls.Calls([("unshare", None, (namespaces.others(network=own),))]) for own in (False, True)
    }
    death = syscalls.Calls([("prctl", None, (syscalls.PR_SET_PDEATHSIG, signals.SIGKILL))])
    keyring = syscalls.Calls([syscalls.joining_keyring()])
    _ready = begin, death, keyring, Lock(seccomp.build(syscalls.MACHINE))


def main(maker: _socket.socket, reported: int, mask: set[int], own_network: bool, gate: int) -> NoReturn:
    """Be PID 1; never returns. What ``maker`` leads to makes the sandbox.

    ``mask`` is for its commands. ``gate`` is a pipe whose other end only the monitor, its parent, has: it
    writes a byte when it sees to all that has to be undone, and closes it by dying.
    """
    status = FAILED
    try:
        status = _run(maker, reported, mask, own_network, gate)
    except wire.Broken:
        pass  # the maker has told why it ended
    except BaseException as error:
        report.send_error(reported, error)
    finally:
        os._exit(status)


def told(
    umask: int,
    ttl: float | None,
    inside: bytes,
    table: Table,
    always: tuple[int, int, int, int],
    perhaps: tuple[int | None, ...],
    groups: Sequence[int],
) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Return the message, and its descriptors, that tells PID 1 that its sandbox is made.

    ``umask`` is the caller's; ``ttl`` is how many seconds the session lasts without a request;
    ``inside`` is ``supervise.Inside``, packed. ``table`` is that of PID 1's mounts. ``always`` are the
    root, the workspace's directory, the socket for requests, and the file for what there is to tell at
    the end.
    ``perhaps`` are Landlock's rules; the lease, a pipe to read from: when nobody can write to it any
    more, the session ends; and the directory that takes the root's changes. ``groups`` are files of
    control groups to join.
    """
    before = syscalls.memory_file(table.before)  # nobody needs it before the end
    perhaps = (before, *perhaps)
    there = tuple(item for item in perhaps if item is not None)
    text = table.before if before is None else b""
    message = (umask, ttl, inside, text, *(item is not None for item in perhaps))
    return message, (*always, table.file, *there, *groups)


def _run(maker: _socket.socket, reported: int, mask: set[int], own_network: bool, gate: int) -> int:
    assert _ready is not None
    begin, death, keyring, lock = _ready
    death.make()  # with the monitor's; had that died before, nobody would open the gate
    try:
        begin[own_network].make()
    except OSError as error:
        raise namespaces.explain(error) from None
    proc = processes()
    send(maker, (), (proc,))
    close(proc)
    message, rest = receive(maker, _MOST)
    pass_gate(gate)
    callers_umask, ttl, inside, text, has_before, has_rules, has_lease, has_upper = message
    root, place, listener, notes, mounts = (rest.pop(0) for _ in range(5))
    before = rest.pop(0) if has_before else None
    rules = rest.pop(0) if has_rules else None
    lease = rest.pop(0) if has_lease else None
    upper = rest.pop(0) if has_upper else None
    for tasks in rest:
        write(tasks, b"0")  # the calling thread, the only one: cgroups.join
    # The kernel has moved this process when the maker changed the root, if its root was the maker's.
    fchdir(root)
    chroot(".")
    fchdir(place)
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)  # the host's had the same number, in another mount
    for stream in (0, 1, 2):
        dup2(null, stream)
    keyring.make()
    lock.close(rules)
    kept = [0, 1, 2, reported, listener, notes, mounts]
    if before is not None:
        kept.append(before)
    if lease is not None:
        kept.append(lease)
    if upper is not None:
        kept.append(upper)
    close_but(kept)
    umask(callers_umask)
    status = Server(reported, mask, inside, upper, listener, notes, lease, ttl).serve()
    if before is not None:
        os.lseek(before, 0, os.SEEK_SET)
        text = syscalls.read_all(before)
    Table(mounts, text).tell_lost(reported)
    end_all()
    return status


class Server:
    """The loop of PID 1; what it is given is as in ``told``.

    While a session is in use, a supervisor that has nothing to do yet, the *spare*, waits for the
    next request: that takes the fork, half of the time of a short command, out of the caller's way.
    When none comes for a moment it goes through one without effect, which takes another part out.
    """

    def __init__(
        self,
        reported: int,
        mask: set[int],
        inside: bytes,
        upper: int | None,
        listener: int,
        notes: int,
        lease: int | None,
        ttl: float | None,
    ) -> None:
        self._report = reported
        self._mask = mask
        self._inside = inside
        self._upper = upper
        self._listener = _socket.socket(fileno=listener)
        self._notes = notes
        self._lease = lease
        self._ttl = ttl
        self._crew: set[int] = set()  # the supervisors that have a request
        self._taken, self._take = os.pipe()  # a spare writes to it when it has a request
        self._spare: Spare | None = None
        self._used = 0.0  # when the last command ended
        self._ended = False

    def serve(self) -> int:
        """Serve until the session is to end; return its status."""
        self._listener.setblocking(False)
        lease = () if self._lease is None else (self._lease,)
        for descriptor in (self._listener.fileno(), self._taken, *lease):
            os.set_blocking(descriptor, False)
            signals.announce(descriptor)
        if not report.is_read(self._report):
            self._close()
            return 0  # who wanted it has gone, and who has found it since asks for another
        os.write(self._report, report.NOW_READY)
        os.dup2(self._notes, self._report, inheritable=False)
        wanted = 0.0
        self._used = taken = time.monotonic()
        while not self._ended and not _is_closed(self._lease):
            if self._has_taken() or self._crew:
                wanted = _SPARED
                taken = time.monotonic()
            quiet = time.monotonic() - taken
            asked = self._is_asked()
            over = self._is_over() and not asked
            if over and self._spare is None:
                break
            if self._spare is None and (asked or quiet < wanted):
                self._fork()
            elif self._spare is not None and (over or quiet >= _SPARED):
                self._spare.dismiss()
            self._wait(quiet)
        self._close()
        return 0

    def _close(self) -> None:
        """Take no more requests, and tell those who have connected meanwhile."""
        self._listener.shutdown(_socket.SHUT_RDWR)
        self._turn_away("gone")
        self._listener.close()
        os.close(self._taken)
        os.close(self._take)

    def _is_over(self) -> bool:
        """Tell whether there was no command for as long as the session may be without one."""
        ttl = self._ttl
        return ttl is not None and not self._crew and time.monotonic() - self._used >= ttl

    def _wait(self, quiet: float) -> None:
        """Wait for a signal, or until there is something to do for want of requests."""
        left = None
        if not self._crew and (self._spare is None or not self._spare.dismissed):
            ends = [] if self._spare is None else [_SPARED - quiet]
            if self._ttl is not None:
                ends.append(self._used + self._ttl - time.monotonic())
            left = min(ends, default=None)
        got = signals.wait_sender(left)
        if got is None:
            return
        number, from_outside = got
        if number == signals.SIGCHLD:
            self._reap()
        elif number in signals.ENDING and from_outside:
            self._ended = True  # the monitor's; what comes from inside does not count

    def _is_asked(self) -> bool:
        """Tell whether a request waits."""
        waiting = select.poll()
        waiting.register(self._listener.fileno(), select.POLLIN)
        return bool(waiting.poll(0))

    def _has_taken(self) -> bool:
        """Tell whether the spare has a request since the last time; it is none any more then."""
        try:
            os.read(self._taken, 1)
        except BlockingIOError:
            return False
        if self._spare is not None:
            self._crew.add(self._spare.pid)
            self._forget()
        return True

    def _fork(self) -> None:
        """Make the spare; if there cannot be one, refuse the requests that wait."""
        try:
            leave, dismiss = os.pipe()
        except OSError:
            self._turn_away("refused", _FULL, _ROOM)
            return
        try:
            pid = os.fork()
        except OSError:
            os.close(leave)
            os.close(dismiss)
            self._turn_away("refused", _FULL, _ROOM)
            return
        if pid == 0:
            status = 1
            try:
                os.close(dismiss)
                status = self._stand_by(leave)
            except BaseException as error:  # a traceback would have nowhere to go
                text = f"what supervises commands failed: {type(error).__name__}: {error}"
                report.send(self._report, report.Message(report.NOTE, text))
            finally:
                os._exit(status)
        os.close(leave)
        self._spare = Spare(pid, dismiss)

    def _stand_by(self, leave: int) -> int:
        """Be the spare: take one request, or end when there is none for it."""
        from coopfile.native import supervise  # loaded long ago

        # Now, for then somebody waits.
        served = supervise.Served(self._report, self._mask, supervise.unpacked(self._inside), self._upper)
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        waiting = select.poll()
        waiting.register(self._listener.fileno(), select.POLLIN)
        waiting.register(leave, select.POLLIN)
        if not waiting.poll(_LULL):
            supervise.practise(served)
        while True:
            ready = dict(waiting.poll())
            try:
                connection = wire.accept(self._listener)
            except OSError:
                time.sleep(_PAUSE)
                connection = None
            if connection is not None:
                os.write(self._take, b"1")
                connection.setblocking(True)
                return supervise.main(connection, served)
            if leave in ready:
                return 0

    def _forget(self) -> None:
        if self._spare is not None:
            self._spare.dismiss()
        self._spare = None

    def _turn_away(self, *answer: str) -> None:
        """Answer all who wait, without reading what they ask: that would be waiting for them."""
        try:
            while (connection := wire.accept(self._listener)) is not None:
                connection.setblocking(False)
                try:
                    wire.send(connection, answer)
                except wire.Broken:
                    pass
                connection.close()
        except OSError:
            pass

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._has_taken()  # the spare tells before it ends
            if pid not in self._crew and (self._spare is None or pid != self._spare.pid):
                continue  # what a command has left behind
            if not os.WIFSTOPPED(status):
                self._crew.discard(pid)
                if self._spare is not None and pid == self._spare.pid:
                    self._forget()
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
            if code == RAN:
                self._used = time.monotonic()
            elif code == END:
                self._ended = True
            elif code != 0:
                # What it supervised cannot be told from other processes any more, nor held to its time.
                report.send(self._report, report.Message(report.NOTE, _LOST))
                self._ended = True


class Spare:
    """A supervisor that waits for a request. ``dismiss`` is the end of a pipe that keeps it."""

    def __init__(self, pid: int, dismiss: int) -> None:
        self.pid = pid
        self._dismiss = dismiss
        self.dismissed = False

    def dismiss(self) -> None:
        """Let it end, unless it has a request."""
        if not self.dismissed:
            os.close(self._dismiss)
            self.dismissed = True


def _is_closed(lease: int | None) -> bool:
    """Tell whether nobody can write to a pipe any more."""
    if lease is None:
        return False
    try:
        return os.read(lease, 1) == b""
    except BlockingIOError:
        return False
