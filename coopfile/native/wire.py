"""Messages between a session and its clients, and between those and the helper: unix(7).

A message is its length, four bytes, the lowest first, and a tuple as ``marshal`` writes it; the
descriptors that go with it are attached to the length. Both ends are coop's own, of one user.
``_socket`` is what ``socket`` is made of: importing that costs 4 ms, of a command's 3.
"""

from __future__ import annotations

import _socket
import errno
import marshal
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

PROTOCOL = 1  # the first item of every request

SOCKET = "socket"  # of a session, in its directory
ELSEWHERE = "elsewhere"  # the answer of a session that does not start commands itself

_PROMPT = 10.0  # seconds that PID 1 may take to answer
_PAUSE = 0.005  # seconds between two tries to connect
_FORMAT = 2  # of marshal: what every Python reads
_MOST = 1 << 26  # bytes of a message: a command's arguments are at most 2 MiB, a plan is a few kilobytes
_ADDRESSES = 1 << 30  # bytes of address space while a message is received of which anything may be made
_MOST_DESCRIPTORS = 250  # the kernel takes 253: SCM_MAX_FD
_ITEM = 4  # bytes of a descriptor in an ancillary message, a C int
_LOOK = _socket.MSG_DONTWAIT | _socket.MSG_PEEK


class Broken(Exception):
    """The peer has gone, or sends what is no message."""


class Crowded(Broken):
    """The kernel sends no descriptors: too many of this user's are on their way already: unix(7).

    Those of commands in sandboxes count, too.
    """

    why = "too many open files of this user's are on their way between processes, and nobody takes them"
    remedy = (
        "end what sends them: perhaps a command in a sandbox; until then a higher limit helps: ulimit -S -n"
    )


class TooLong(Exception):
    """A message has more bytes than any may have."""


def stream() -> _socket.socket:
    """Return a stream socket that no command inherits."""
    return _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)


def connect(directory: str, name: str, timeout: float) -> _socket.socket | None:
    """Connect to a socket in a directory; None if nobody listens."""
    connection = stream()
    connection.settimeout(timeout)
    deadline = time.monotonic() + timeout
    while True:
        try:
            _connect(connection, directory, name)
            return connection
        except BlockingIOError:  # too many wait already
            if time.monotonic() > deadline:
                break
            time.sleep(_PAUSE)
        except OSError:
            break
    connection.close()
    return None


def _connect(connection: _socket.socket, directory: str, name: str) -> None:
    try:
        connection.connect(f"{directory}/{name}")
    except OSError as error:
        if "AF_UNIX path too long" not in str(error):
            raise
        _through_descriptor(connection.connect, directory, name)


def session(directory: str) -> _socket.socket | None:
    """Connect to a session in namespaces; None if it does not run."""
    return connect(directory, SOCKET, _PROMPT)


def listen(directory: str, name: str, backlog: int) -> _socket.socket:
    """Make a socket in a directory, for its owner only, in the place of a stale one. Raises OSError."""
    listener = stream()
    try:
        os.unlink(f"{directory}/{name}")
    except FileNotFoundError:
        pass
    mask = os.umask(0o177)
    try:
        _through_descriptor(listener.bind, directory, name)
    finally:
        os.umask(mask)
    listener.listen(backlog)
    return listener


def accept(listener: _socket.socket) -> _socket.socket | None:
    """Return the next connection of a listener; None if there is none in its time. Raises OSError."""
    try:
        descriptor, _ = listener._accept()  # type: ignore[attr-defined]
    except (BlockingIOError, TimeoutError, InterruptedError, ConnectionAbortedError):
        return None
    return _socket.socket(fileno=descriptor)


def peer(connection: _socket.socket) -> tuple[int, int]:
    """Return process and user of who listens, or connected: SO_PEERCRED, unix(7)."""
    found = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)  # struct ucred
    return int.from_bytes(found[:4], "little"), int.from_bytes(found[4:8], "little")


def is_own(connection: _socket.socket) -> bool:
    """Tell whether the peer runs as the same user, as this user namespace sees it."""
    return peer(connection)[1] == os.geteuid()


def send(connection: _socket.socket, message: tuple[Any, ...], descriptors: Sequence[int] = ()) -> None:
    """Send a message, and descriptors with it. Raises TooLong; Broken, also for a peer that is too slow."""
    data = marshal.dumps(message, _FORMAT)
    if len(data) > _MOST:
        raise TooLong(f"{len(data)} bytes")
    data = len(data).to_bytes(4, "little") + data
    ancillary = []
    if descriptors:
        packed = b"".join(descriptor.to_bytes(_ITEM, "little") for descriptor in descriptors)
        ancillary.append((_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed))
    try:
        sent = connection.sendmsg([data], ancillary, _socket.MSG_NOSIGNAL)
        if sent < len(data):
            connection.sendall(data[sent:], _socket.MSG_NOSIGNAL)
    except OSError as error:
        raise (Crowded if error.errno == errno.ETOOMANYREFS else Broken)(str(error)) from None


def hand_over(channel: int, descriptor: int) -> None:
    """Send a descriptor by a socket, and close both. Raises Broken."""
    connection = _socket.socket(fileno=channel)
    try:
        send(connection, ("descriptor",), (descriptor,))
    finally:
        connection.close()
        os.close(descriptor)


def ask(connection: _socket.socket, asked: tuple[Any, ...], descriptors: Sequence[int] = ()) -> bool:
    """Send a request to a session, if that is this user's; tell whether it is. Raises TooLong, Crowded."""
    if not is_own(connection):
        return False
    try:
        send(connection, (PROTOCOL, *asked), descriptors)
    except Crowded:
        raise
    except Broken:
        pass  # it may have answered before it read
    return True


def command(
    argv: tuple[str, ...],
    environment: tuple[tuple[str, str], ...],
    directory: str | None,
    timeout: float | None,
    terminal: tuple[int, int, bytes] | None = None,
    plan: str | None = None,
) -> tuple[Any, ...]:
    """Return the request for a command, as ``ask`` takes it: ``model.Command``, and a plan's digest."""
    return ("exec", plan, argv, environment, directory, timeout, terminal)


def receive(connection: _socket.socket, most: int = 0) -> tuple[tuple[Any, ...], list[int]]:
    """Return a message, and at most so many descriptors, which the caller closes. Raises Broken."""
    descriptors: list[int] = []
    try:
        header = b""
        while len(header) < 4:
            room = _socket.CMSG_SPACE(_ITEM * min(most, _MOST_DESCRIPTORS)) if most else 0
            chunk, ancillary, flags, _ = connection.recvmsg(4 - len(header), room, _socket.MSG_CMSG_CLOEXEC)
            for level, kind, packed in ancillary:
                if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
                    whole = len(packed) // _ITEM * _ITEM
                    descriptors += [
                        int.from_bytes(packed[at : at + _ITEM], "little") for at in range(0, whole, _ITEM)
                    ]
            if not chunk:
                raise Broken("the other side is gone")
            if flags & _socket.MSG_CTRUNC:
                raise Broken("more descriptors than were asked for, or than this process may have")
            header += chunk
        message = marshal.loads(_exactly(connection, int.from_bytes(header, "little")))
        if not isinstance(message, tuple):
            raise Broken("no message")
        return message, descriptors
    except BaseException as error:
        for descriptor in descriptors:
            os.close(descriptor)
        if isinstance(error, Exception) and not isinstance(error, Broken):
            raise Broken(str(error)) from None  # marshal has many ways to say that something is none of its
        raise


def receive_bounded(connection: _socket.socket, most: int = 0) -> tuple[tuple[Any, ...], list[int]]:
    """Do what ``receive`` does with what anybody may have sent.

    Of nonsense marshal may make something enormous, which must not end a session, or take all memory.
    """
    import resource  # who has a session to serve has imported it

    before = resource.getrlimit(resource.RLIMIT_AS)
    bound = _ADDRESSES if before[0] == resource.RLIM_INFINITY else min(_ADDRESSES, before[0])
    resource.setrlimit(resource.RLIMIT_AS, (bound, before[1]))
    try:
        return receive(connection, most)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def is_waiting(connection: _socket.socket) -> bool | None:
    """Tell whether something has come, without waiting if no timeout is set; None when the peer is gone."""
    try:
        return True if connection.recv(1, _LOOK) else None
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return None


def _exactly(connection: _socket.socket, size: int) -> bytes:
    if size > _MOST:
        raise Broken(f"a message of {size} bytes")
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise Broken("the other side is gone")
        data += chunk
    return data


def _through_descriptor(call: Any, directory: str, name: str) -> None:
    """Bind or connect by way of a descriptor: an address has 108 bytes, a path may have more."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        call(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)
