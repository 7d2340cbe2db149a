"""Making the process that becomes PID 1 of a session's sandbox, in user and PID namespaces of its own.

Its pages are those of the monitor, which forks it: the maker has written to many by the time that it knows
what is asked for. So ids are mapped, and all else is made, from outside.
"""

from __future__ import annotations

import _socket
import errno
import os
import resource

from coopfile.native import namespaces, report, serve, syscalls, title, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_NAME = "coop"  # no more than that: it is seen inside


class Founded:
    """PID 1, which waits: its number, a descriptor of it, and a socket that leads there.

    ``gate`` is a pipe to read from, of which PID 1 has a copy.
    """

    __slots__ = ("gate", "inside", "pid", "process")

    def __init__(self, pid: int, process: int, inside: _socket.socket, gate: int) -> None:
        self.pid = pid
        self.process = process
        self.inside = inside
        self.gate = gate

    def descriptors(self) -> tuple[int, int, int]:
        """Return all that it has."""
        return self.gate, self.process, self.inside.fileno()

    def close(self) -> None:
        """Let go of it. It ends unless a forked process has it, too."""
        os.close(self.process)
        os.close(self.gate)
        self.inside.close()

    def begin(self, uid: int, gid: int, own_network: bool, reported: int) -> None:
        """Have it make its other namespaces, with ids as ``enter_user_namespace`` takes them.

        ``reported`` is a descriptor to report to. Raises NamespaceError, Broken.
        """
        namespaces.map_ids(self.pid, uid, gid)
        wire.send(self.inside, (own_network,), (reported,))

    def wait(self) -> int:
        """Wait until it has them; return a descriptor of a mount of its processes. Raises Broken."""
        (), (proc,) = wire.receive(self.inside, 1)
        return proc


def found(gate: int, mask: set[int], files: tuple[int, int]) -> Founded:
    """Fork PID 1 from this process. Raises OSError; CoopError for what forbids namespaces here.

    ``gate`` and ``mask`` are ``serve.main``'s. ``files`` is the limit of open files that it is to have.
    """
    namespaces.check_machine()
    if os.geteuid() == 0:
        namespaces.leave_groups()
    inside, maker = _socket.socketpair()
    try:
        pid = _forked()
        if pid == 0:
            _be_first(maker, gate, mask, files)
        return Founded(pid, os.pidfd_open(pid), inside, gate)
    except BaseException:
        inside.close()
        raise
    finally:
        maker.close()


def leave_others(kept: tuple[int, ...], files: tuple[int, int]) -> None:
    """Let a process that the monitor has forked have these descriptors only, and its limit again."""
    syscalls.close_but((0, 1, 2, *kept))
    if files[0] != files[1]:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)


def _forked() -> int:
    try:
        return syscalls.fork_into(namespaces.FIRST)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.ENOMEM):
            raise  # of processes there are too many
        raise namespaces.explain(error) from None


def _be_first(maker: _socket.socket, gate: int, mask: set[int], files: tuple[int, int]) -> NoReturn:
    """Be PID 1, with nothing of the other sessions'; never returns."""
    reported = -1
    try:
        leave_others((maker.fileno(), gate), files)
        title.take(_NAME)
        # Signals to a group reach no other session. Those that would stop it count for nothing: an orphan's.
        os.setsid()
        (own_network,), (reported,) = wire.receive(maker, 1)
        serve.main(maker, reported, mask, own_network, gate)
    except wire.Broken:
        pass  # the maker has told why
    except BaseException as error:
        report.send_error(reported, error)
    finally:
        os._exit(1)
