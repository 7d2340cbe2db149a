"""The internet for a sandbox: by which means, and the process beside it that sees to that.

The *link* is forked by the monitor before it gives up the host's namespaces, and works
while PID 1 builds the tree. PID 1 tells its number once it has a network namespace, and
starts nothing before the link has said what it must not reach. The link outlives PID 1
for a moment; nobody waits for it, since what it undoes takes the kernel a while.
"""

from __future__ import annotations

import os
import select

from coopfile.errors import CoopError
from coopfile.native import fence, report, syscalls
from coopfile.native.netlink import NETFILTER, ROUTE, Channel
from coopfile.native.roaming import Roaming
from coopfile.native.rtnetlink import networks
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn, Protocol

    from coopfile.native.veth import Pair

    class Connection(Protocol):
        """What connects a sandbox; ``tcp_dns`` as in ``fence.Fence``."""

        tcp_dns: bool

        def close(self) -> None:
            """End it; the sandbox is gone."""


_NO_FENCE = "the kernel takes no packet filter for the sandbox's own network"
_NO_FENCE_REMEDY = (
    "it needs nf_tables (CONFIG_NF_TABLES); as root: modprobe -a nf_tables nft_ct nft_reject_inet"
)


class Means(Record):
    """One way to connect a sandbox: its name, and the real path of the program that does it, if any."""

    name: str
    program: str = ""

    @property
    def title(self) -> str:
        """The means for people."""
        return f"{self.name} ({self.program})" if self.program else f"{self.name} and nf_tables"


_VETH = Means("veth")


class UnusableError(CoopError):
    """These means cannot connect a sandbox here; others may."""


class Link(Record):
    """The other ends of the link's pipes: PID 1 writes its number, and reads its limits.

    The monitor keeps ``number`` open, which tells the link of its end, and ``rules``: were the link
    killed, the host's rules would last as long as the monitor.
    """

    number: int
    limits: int
    rules: Channel | None

    def leave(self) -> None:
        """Leave the rest to PID 1, as the monitor."""
        os.close(self.limits)

    def close(self) -> None:
        """Leave the link to itself, as the monitor: it sees the end of PID 1."""

    def notes(self) -> tuple[str, ...]:
        """Return what there is to tell after the command's end: nothing."""
        return ()

    def announce(self, pid: int | None = None) -> None:
        """Tell that PID 1 has its namespaces: by its number outside; without ``pid`` it is this process."""
        os.write(self.number, (os.readlink("/proc/self") if pid is None else str(pid)).encode())
        os.close(self.number)

    def accept(self) -> str:
        """Wait until the sandbox is connected, and fence it; return by what it is, for people."""
        title, _, data = syscalls.read_all(self.limits).partition(b"\0")
        os.close(self.limits)
        try:
            limits = fence.decode(data)
        except ValueError:
            # The link has said why, unless it was killed.
            raise CoopError("the process that connects the sandbox has ended") from None
        try:
            fence.install(limits)
        except OSError as error:
            raise CoopError(f"{_NO_FENCE}: {error.strerror}", _NO_FENCE_REMEDY) from None
        return title.decode("utf-8", "surrogateescape")


def find(writable: Sequence[str]) -> tuple[Means, ...]:
    """Return the means to try, in order; nothing is changed. ``writable`` is as in ``pasta.find``.

    Raises CoopError when there are none.
    """
    if os.geteuid() != 0:
        return _others(writable)
    from coopfile.native import veth

    try:
        veth.look()
    except UnusableError as error:
        return _others(writable, error)
    return (_VETH,)


def _others(writable: Sequence[str], tried: UnusableError | None = None) -> tuple[Means, ...]:
    """Return the means that need no privileges; ``tried`` is why root's own will not do."""
    from coopfile.native import pasta

    try:
        return pasta.find(environment=os.environ, writable=writable)
    except UnusableError as error:
        raise error if tried is None else _both(tried, error) from None


def _both(first: UnusableError, second: UnusableError) -> UnusableError:
    remedies = [error.remedy for error in (first, second) if error.remedy]
    return UnusableError(f"{first.message}; {second.message}", "; or ".join(remedies) or None)


def start(means: tuple[Means, ...], writable: Sequence[str], report_to: int) -> Link:
    """Fork the link, from a process that is in the host's namespaces yet."""
    # An ending process closes its descriptors in order: the monitor lets the rules go before the link
    # knows of its end, which so is the one who waits while the kernel removes them.
    rules = Channel(NETFILTER) if means[0] == _VETH else None
    number, number_end = os.pipe()
    limits, limits_end = os.pipe()
    if os.fork() == 0:
        os.close(number_end)
        os.close(limits)
        _main(_Task(means, tuple(writable), rules, number, limits_end, report_to))
    os.close(number)
    os.close(limits_end)
    return Link(number_end, limits, rules)


class _Task(Record):
    """What the link is given: its ends of the pipes, and the rest as in ``start``."""

    means: tuple[Means, ...]
    writable: tuple[str, ...]
    rules: Channel | None
    number: int
    limits: int
    report: int


def _main(task: _Task) -> NoReturn:
    """Be the link; never returns."""
    try:
        _let_go(task)
        _serve(task)
    except BaseException as error:  # a traceback must not reach the caller's terminal
        report.send_error(task.report, error)
    finally:
        os._exit(0)


def _let_go(task: _Task) -> None:
    """Keep nothing of the caller's open, for others to wait for or for a program to find."""
    rules = () if task.rules is None else (task.rules.fileno(),)
    syscalls.close_but((task.number, task.limits, task.report, *rules))
    empty = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for stream in (1, 2):
        os.dup2(empty, stream)
    os.chdir("/")


def _serve(task: _Task) -> None:
    roaming = Roaming()
    channel = Channel(ROUTE)
    limits = fence.fence(networks(channel))
    channel.close()
    attempt = _Attempt(task, limits)
    number = os.read(task.number, 32)
    if not number:
        return
    pid = int(number)
    sandbox = os.pidfd_open(pid)
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if not _is_read(task.limits):
        return  # PID 1 is gone, and its number may be another's
    means, connection = attempt.connect(pid, namespace)
    os.close(namespace)
    if not _is_read(task.limits):
        # What was connected by PID 1's number is nobody's then, or another's who has this number by now.
        connection.close()
        return
    data = os.fsencode(means.title) + b"\0" + limits.replace(tcp_dns=connection.tcp_dns).encode()
    while data:
        data = data[os.write(task.limits, data) :]
    os.close(task.limits)
    os.close(task.report)
    try:
        while sandbox not in select.select([sandbox, roaming.fileno()], [], [])[0]:
            if roaming.outside(limits):
                break
    finally:
        connection.close()
    os.read(task.number, 1)


def _is_read(pipe: int) -> bool:
    """Tell whether somebody has the other end of a pipe open."""
    poll = select.poll()
    poll.register(pipe, 0)
    return not poll.poll(0)


class _Attempt:
    """The means in the order in which they are tried; what can be is done before there is a sandbox."""

    def __init__(self, task: _Task, limits: fence.Fence) -> None:
        self._task = task
        self._pair: Pair | None = None
        self._failed: UnusableError | None = None
        if task.rules is not None:
            from coopfile.native.veth import Pair

            try:
                self._pair = Pair(task.rules, limits)
            except UnusableError as error:
                self._failed = error

    def connect(self, pid: int, namespace: int) -> tuple[Means, Connection]:
        """Connect the namespaces of PID 1; return by what. Raises CoopError when no means do."""
        if self._pair is not None:
            try:
                self._pair.connect(namespace)
                return _VETH, self._pair
            except UnusableError as error:
                self._failed = error
        from coopfile.native import pasta

        failed = self._failed
        means = self._task.means if self._failed is None else _others(self._task.writable, self._failed)
        for item in means:
            try:
                return item, pasta.connect(item, pid)
            except UnusableError as error:
                failed = error if failed is None else _both(failed, error)
        assert failed is not None
        raise failed
