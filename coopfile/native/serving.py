"""The proxy's process: locked in, outside the sandbox, until the sandbox is gone.

What it serves is ``coopfile.proxy``'s; here is what it needs of this machine.
"""

from __future__ import annotations

import os
import select
import time
from _socket import CMSG_LEN, socket
from _struct import calcsize, unpack

from coopfile.native import beside
from coopfile.plan.hosttools import TOOLS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.native.proxied import Task
    from coopfile.proxy.local import Range
    from coopfile.proxy.loop import Loop

_TWO = "2i"  # descriptors
# What resolving a name reads: libraries, configuration, and the place where resolv.conf really is.
_READABLE = (*TOOLS, "/etc", "/nix/store")
_RESOLV_CONF = "/etc/resolv.conf"
_CURRENT = 1.0  # seconds that the host's networks count as known


def serve(task: Task) -> None:
    """Be the proxy until the sandbox is gone."""
    if not beside.depend(task.monitor):
        return
    beside.let_go((task.channel, task.notes))
    os.set_blocking(task.notes, False)
    listeners = _receive(task.channel)
    if not listeners:
        return
    select.select([task.channel, *(listener.fileno() for listener in listeners)], [], [], beside.LATER)
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
    most = beside.connections()
    networks = Networks()
    networks.ranges()
    lock_in(task.landlock_abi)
    loop = Loop(
        lambda error: denials.note(f"a connection of the proxy failed: {type(error).__name__}: {error}")
    )
    Server(loop, Policy(task.allow, networks.ranges, task.listed), denials, most).listen(*listeners)
    loop.watch(task.channel)
    loop.start(_end(loop, task.channel))
    loop.run()


def lock_in(landlock_abi: int) -> None:
    """Give up what being a proxy does not take."""
    beside.lock_in(landlock_abi, (*_READABLE, os.path.dirname(os.path.realpath(_RESOLV_CONF))))


def _receive(channel: int) -> list[socket]:
    """Return PID 1's listening sockets; none when it has ended."""
    end = socket(fileno=os.dup(channel))
    data, ancillary, _, _ = end.recvmsg(1, CMSG_LEN(calcsize(_TWO)))
    end.close()
    if not data:
        return []
    return [socket(fileno=descriptor) for descriptor in unpack(_TWO, ancillary[0][2])]


async def _end(loop: Loop, channel: int) -> None:
    await beside.until_closed(loop, channel)
    loop.stop()


class Networks:
    """The ranges that are not the internet, as the host is connected now; any thread may ask."""

    def __init__(self) -> None:
        self._known: tuple[tuple[Range, ...], tuple[Range, ...]] = ((), ())
        self._until = 0.0

    def ranges(self) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
        """Return first and last of each, of IPv4 and of IPv6."""
        if time.monotonic() >= self._until:
            from coopfile.native.netlink import ROUTE, Channel
            from coopfile.native.rtnetlink import networks
            from coopfile.proxy import local

            channel = Channel(ROUTE)
            try:
                self._known = local.ranges(networks(channel))
            finally:
                channel.close()
            self._until = time.monotonic() + _CURRENT
        return self._known
