"""The process that serves a container's network: it starts the proxy and the publisher, and they end with it.

What they need of the network is made in it by the neighbour (``neighbour``), which connects to this
process. It is coop's child and ends with coop, however that ends.
"""

from __future__ import annotations

import _socket
import os
import select
import signal
from _struct import unpack

from coopfile.errors import CoopError
from coopfile.native import beside, landlock, proxied, publishing, title, wire
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from coopfile.language.items import HostPattern
    from coopfile.native.proxied import Gate
    from coopfile.native.publishing import Listener, Publication

READY, FAILED, NOTES = "ready", "failed", "notes"

_PROMPT = 10.0  # seconds that the neighbour may take to hand its sockets over when it has connected
_MOST = 3  # descriptors: of the socket that tells the network, and of the proxy's two
_COOKIE = 71  # SO_NETNS_COOKIE, Linux 5.14: include/uapi/asm-generic/socket.h


class Task(Record):
    """What is to be served.

    ``allow`` is the proxy's list, None for no proxy, ``log`` its file, and ``listed`` says where the list
    was written. ``listeners`` are the ports that are published. The neighbour connects to ``listener``.
    ``control`` leads to process ``coop``.
    """

    allow: tuple[HostPattern, ...] | None
    log: str
    listed: str
    listeners: tuple[Listener, ...]
    listener: _socket.socket
    control: _socket.socket
    coop: int


def main(task: Task) -> NoReturn:
    """Be the attendant; never returns."""
    try:
        os.setsid()  # signals of the terminal are coop's
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if beside.depend(task.coop):
            _serve(task)
    except CoopError as error:
        _tell(task.control, FAILED, error.message, error.remedy)
    except BaseException as error:  # a traceback must not reach the caller's terminal
        _tell(task.control, FAILED, f"the network cannot be served: {type(error).__name__}: {error}", None)
    finally:
        os._exit(0)


def _serve(task: Task) -> None:
    control = task.control
    ports = [listener.socket.fileno() for listener in task.listeners]
    beside.let_go((control.fileno(), task.listener.fileno(), *ports))
    title.take("coop: network")
    abi = landlock.abi()
    links: list[Gate | Publication] = []
    gate = None
    if task.allow is not None:
        gate = proxied.start(task.allow, task.log, abi, task.listed)
        links.append(gate)
    connection = _connection(task)
    if connection is None:
        return
    sockets = _received(connection, 1 if gate is None else _MOST)
    if gate is not None:
        gate.give(sockets[1:])
    for descriptor in sockets:
        os.close(descriptor)
    if task.listeners:
        publication = publishing.start(task.listeners, abi, connection.fileno())
        links.append(publication)
        publication.accept()
    wire.send(control, (READY,))
    try:
        control.recv(1)  # or nobody is there any more who could ask for the end
    except OSError:
        pass
    for link in links:
        link.close()
    _tell(control, NOTES, tuple(note for link in links for note in link.notes()))


def _connection(task: Task) -> _socket.socket | None:
    """Return the neighbour's connection; None if coop asks for the end before it comes."""
    waiting = select.poll()
    for descriptor in (task.control.fileno(), task.listener.fileno()):
        waiting.register(descriptor, select.POLLIN)
    while True:
        found = {descriptor for descriptor, _ in waiting.poll()}
        if task.control.fileno() in found:
            return None
        connection = wire.accept(task.listener)
        if connection is not None:
            if not wire.is_own(connection):
                raise CoopError("somebody else has connected in the place of the container's network")
            task.listener.close()
            return connection


def _received(connection: _socket.socket, count: int) -> tuple[int, ...]:
    """Return so many sockets of the neighbour's, which are in a network that is not this process's."""
    connection.settimeout(_PROMPT)
    room = _socket.CMSG_LEN(4 * count)
    data, ancillary, _, _ = connection.recvmsg(1, room, _socket.MSG_CMSG_CLOEXEC)
    if not data or not ancillary or len(ancillary[0][2]) != 4 * count:
        raise CoopError("the container that makes the network has ended")
    connection.settimeout(None)
    sockets = unpack(f"{count}i", ancillary[0][2])
    own = _network(_socket.socket(_socket.AF_INET, _socket.SOCK_STREAM))
    for descriptor in sockets:
        if _network(_socket.socket(fileno=os.dup(descriptor))) == own:
            raise CoopError("the engine has given the container this machine's own network")
    return sockets


def _network(of: _socket.socket) -> bytes:
    """Close a socket; return what tells the network that it is in: SO_NETNS_COOKIE."""
    try:
        return of.getsockopt(_socket.SOL_SOCKET, _COOKIE, 8)
    except OSError as error:
        raise CoopError(
            f"this kernel does not tell which network a socket is in: {error.strerror}",
            "Linux 5.14 or newer, or the native back end",
        ) from None
    finally:
        of.close()


def _tell(control: _socket.socket, *message: object) -> None:
    try:
        wire.send(control, message)
    except wire.Broken:
        pass  # coop is gone
