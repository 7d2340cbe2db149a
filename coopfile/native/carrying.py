"""The publisher's process: in the sandbox's network, locked in, until the sandbox is gone.

What it serves is ``coopfile.proxy``'s; here is what it needs of this machine.
"""

from __future__ import annotations

import errno
import os
import select
from _socket import AF_INET, AF_INET6, CMSG_LEN, MSG_CMSG_CLOEXEC, socket
from _struct import calcsize, unpack

from coopfile.native import beside, syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.native.publishing import Task
    from coopfile.proxy.loop import Loop
    from coopfile.proxy.published import Publisher

_ONE, _TWO = "i", "2i"  # descriptors
_FAMILIES = {AF_INET: b"4", AF_INET6: b"6"}
_PROMPT = 5.0  # seconds that a socket may take to be made


def serve(task: Task) -> None:
    """Be the publisher until the sandbox is gone."""
    if not beside.depend(task.monitor):
        return
    listeners = [socket(fileno=descriptor) for descriptor, _ in task.listeners]
    descriptors = [listener.fileno() for listener in listeners]
    maker = None if task.maker < 0 else Maker(task.maker)
    beside.let_go((task.channel, task.notes, *descriptors, *([] if maker is None else [task.maker])))
    os.set_blocking(task.notes, False)
    if maker is None and not (_enter(task.channel) and beside.depend(task.monitor)):
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
    publisher = Publisher(loop, most, note, socket if maker is None else maker.socket)
    for listener, (_, port) in zip(listeners, task.listeners, strict=True):
        publisher.listen(listener, port)
    loop.watch(task.channel)
    loop.start(_end(loop, publisher, task.channel))
    loop.run()


class Maker:
    """Sockets that somebody else makes, in a network that this process is not in; they stay there.

    Asked with a byte for the family, it answers with a byte and, if it could, with a descriptor.
    """

    def __init__(self, connection: int) -> None:
        self._connection = socket(fileno=connection)
        self._connection.settimeout(_PROMPT)
        self._owed = 0  # answers that are to come, some of them to what was asked too long ago

    def socket(self, family: int) -> socket:
        """Return a new stream socket of a family. Raises OSError."""
        self._connection.sendall(_FAMILIES[family])
        self._owed += 1
        made = None
        while self._owed:
            if made is not None:
                made.close()
            made = _received(self._connection)
            self._owed -= 1
        if made is None:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        return made


def _received(connection: socket) -> socket | None:
    """Return what the next answer brings, if anything. Raises OSError when it does not come in time."""
    _, ancillary, _, _ = connection.recvmsg(1, CMSG_LEN(calcsize(_ONE)), MSG_CMSG_CLOEXEC)
    return socket(fileno=unpack(_ONE, ancillary[0][2])[0]) if ancillary else None


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
