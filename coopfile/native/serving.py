"""The proxy's process: locked in, outside the sandbox, until the sandbox is gone.

What it serves is ``coopfile.proxy``'s; here is what it needs of this machine.
"""

from __future__ import annotations

import os
import select
import time
from _socket import CMSG_LEN, socket
from _struct import calcsize, unpack
from _thread import stack_size

from coopfile.native import landlock, seccomp, signals, syscalls
from coopfile.plan.hosttools import TOOLS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.native.fence import Range
    from coopfile.native.proxied import Task
    from coopfile.proxy.loop import Loop

_TWO = "2i"  # descriptors
_MOST = 2048  # connections; each takes two descriptors
_DESCRIPTORS = 64  # for all else
_MEMORY = 512 << 20  # bytes: twice what so many connections can have it hold
# What resolving a name reads: libraries, configuration, and the place where resolv.conf really is.
_READABLE = (*TOOLS, "/etc", "/nix/store")
_RESOLV_CONF = "/etc/resolv.conf"
_STACK = 1 << 20  # bytes, of each thread, whatever `ulimit -s` says
_LATER = 0.03  # seconds; the first connection ends it
_CURRENT = 1.0  # seconds that the host's networks count as known


def serve(task: Task) -> None:
    """Be the proxy until the sandbox is gone."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signals.SIGKILL)
    if os.getppid() != task.monitor:
        return
    _let_go(task)
    listeners = _receive(task.channel)
    if not listeners:
        return
    # Nobody needs the proxy yet: it leaves the processors to those that start the command.
    select.select([task.channel, *(listener.fileno() for listener in listeners)], [], [], _LATER)
    from coopfile.proxy.denials import Denials, open_log
    from coopfile.proxy.loop import Loop
    from coopfile.proxy.policy import Policy
    from coopfile.proxy.server import Server

    log, failed = -1, ""
    if task.log:
        try:
            log = open_log(task.log)
        except OSError as error:
            failed = f"what is blocked is not logged: {task.log}: {error.strerror}"
    denials = Denials(task.notes, log)
    if failed:
        denials.note(failed)
    most = _connections()
    networks = _Networks()
    networks.ranges()
    _lock_in(task.landlock_abi)
    loop = Loop(
        lambda error: denials.note(f"a connection of the proxy failed: {type(error).__name__}: {error}")
    )
    Server(loop, Policy(task.allow, networks.ranges), denials, most).listen(*listeners)
    loop.watch(task.channel)
    loop.start(_end(loop, task.channel))
    loop.run()


def _let_go(task: Task) -> None:
    """Hold nothing open of the caller's that others wait to be closed."""
    empty = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for stream in (0, 1, 2):
        os.dup2(empty, stream)
    syscalls.close_but((0, 1, 2, task.channel, task.notes))
    os.set_blocking(task.notes, False)
    os.chdir("/")


def _connections() -> int:
    """Return how many connections there may be, with as many descriptors as this process may have."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * _MOST + _DESCRIPTORS
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return max((most - _DESCRIPTORS) // 2, 1)


def _lock_in(abi: int) -> None:
    """Give up what serving strangers' connections does not take: privileges, and the caller's files."""
    fence = None
    if abi:
        fence = landlock.Fence(abi)
        for path in (*_READABLE, os.path.dirname(os.path.realpath(_RESOLV_CONF))):
            fence.allow_path(path, landlock.READ_FILE | landlock.READ_DIR)
    syscalls.limit_resource(syscalls.RLIMIT_DATA, _MEMORY)
    stack_size(_STACK)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    syscalls.set_capabilities(0)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    if fence is not None:
        fence.enforce()
    syscalls.set_seccomp_filter(seccomp.build(syscalls.MACHINE))


def _receive(channel: int) -> list[socket]:
    """Return PID 1's listening sockets; none when it has ended."""
    end = socket(fileno=os.dup(channel))
    data, ancillary, _, _ = end.recvmsg(1, CMSG_LEN(calcsize(_TWO)))
    end.close()
    if not data:
        return []
    return [socket(fileno=descriptor) for descriptor in unpack(_TWO, ancillary[0][2])]


async def _end(loop: Loop, channel: int) -> None:
    """Stop serving when the sandbox is gone: nobody writes into the channel any more."""
    from coopfile.proxy.loop import NEVER

    os.set_blocking(channel, False)
    while True:
        try:
            if not os.read(channel, 1):
                loop.stop()
                return
        except BlockingIOError:
            await loop.readable(channel, NEVER)


class _Networks:
    """The ranges that are not the internet, as the host is connected now; any thread may ask."""

    def __init__(self) -> None:
        self._known: tuple[tuple[Range, ...], tuple[Range, ...]] = ((), ())
        self._until = 0.0

    def ranges(self) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
        """Return first and last of each, of IPv4 and of IPv6."""
        if time.monotonic() >= self._until:
            from coopfile.native.fence import fence
            from coopfile.native.netlink import ROUTE, Channel
            from coopfile.native.rtnetlink import networks

            channel = Channel(ROUTE)
            try:
                found = fence(networks(channel))
            finally:
                channel.close()
            self._known = found.ipv4, found.ipv6
            self._until = time.monotonic() + _CURRENT
        return self._known
