"""The publisher's process: in the sandbox's network, locked in, until the sandbox is gone.

What it serves is ``coopfile.proxy``'s; here is what it needs of this machine.
"""

from __future__ import annotations

import os
import select
from _socket import CMSG_LEN, socket
from _struct import calcsize, unpack

from coopfile.native import beside, syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.native.publishing import Task
    from coopfile.proxy.loop import Loop
    from coopfile.proxy.published import Publisher

_TWO = "2i"  # descriptors


def serve(task: Task) -> None:
    """Be the publisher until the sandbox is gone."""
    if not beside.depend(task.monitor):
        return
    listeners = [socket(fileno=descriptor) for descriptor, _ in task.listeners]
    descriptors = [listener.fileno() for listener in listeners]
    beside.let_go((task.channel, task.notes, *descriptors))
    os.set_blocking(task.notes, False)
    if not _enter(task.channel) or not beside.depend(task.monitor):
        return
    beside.give_up_privileges()
    os.write(task.channel, b"1")
    if task.channel in select.select([task.channel, *descriptors], [], [], beside.LATER)[0]:
        return  # PID 1 has nothing more to send: it is gone, and so is all that could have answered
    from coopfile.proxy.loop import Loop
    from coopfile.proxy.published import Publisher

    def note(text: str) -> None:
        try:
            os.write(task.notes, f"{text}\n".encode())
        except OSError:
            pass  # the pipe is full, or nobody reads it any more

    most = beside.connections()
    beside.lock_in(task.landlock_abi)
    loop = Loop(lambda error: note(f"a published connection failed: {type(error).__name__}: {error}"))
    publisher = Publisher(loop, most, note)
    for listener, (_, port) in zip(listeners, task.listeners, strict=True):
        publisher.listen(listener, port)
    loop.watch(task.channel)
    loop.start(_end(loop, publisher, task.channel))
    loop.run()


def _enter(channel: int) -> bool:
    """Enter PID 1's network namespace; tell whether there is one.

    The right to that comes of its user namespace, which this user has made: setns(2).
    """
    end = socket(fileno=os.dup(channel))
    data, ancillary, _, _ = end.recvmsg(1, CMSG_LEN(calcsize(_TWO)))
    end.close()
    if not data:
        return False
    user, network = unpack(_TWO, ancillary[0][2])
    for descriptor, kind in ((user, syscalls.CLONE_NEWUSER), (network, syscalls.CLONE_NEWNET)):
        syscalls.setns(descriptor, kind)
        os.close(descriptor)
    return True


async def _end(loop: Loop, publisher: Publisher, channel: int) -> None:
    await beside.until_closed(loop, channel)
    await publisher.finish()
    loop.stop()
