"""The process that keeps a session on a container engine, as long as the container lives.

It makes the container and starts it, and is what that one's first process reads from: when this
process is killed, that input ends, and with it the container. It holds the host's side of the guards,
sees to commands (``following``), and removes what is left in the end.

It is an interpreter of its own, so that it has nothing of the program that starts the session but what
it is told, and nobody's child, so that nobody has to wait for it.
"""

from __future__ import annotations

import _socket
import os
import select
import signal
import threading
import time

from coopfile.engines import guard
from coopfile.engines.call import EngineError
from coopfile.engines.holding import hold, limit_core
from coopfile.engines.network import Network
from coopfile.engines.timeouts import QUICK, REMOVAL_GOES_ON
from coopfile.engines.waiting import Waiting
from coopfile.errors import CoopError
from coopfile.native import report, running, wire
from coopfile.native.placeholders import Placeholders
from coopfile.record import Record
from coopfile.render.container import LABEL_SESSION
from coopfile.session import mark, store
from coopfile.session.following import Commands
from coopfile.session.mark import Mark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from coopfile.engines.holding import Hold
    from coopfile.engines.network import Served
    from coopfile.render.docker import Argv
    from coopfile.render.facts import Engine
    from coopfile.render.networks import Neighbour

STARTED, FAILED = "started", "failed"

_PROMPT = 10.0  # seconds that who asks may take
_BACKLOG = 128
_KNOWN = 5.0  # seconds from its start to the session being known: else who started it was killed
_LOOKS = 60.0  # seconds between two looks whether it can still be found
_ROOM = 0.05  # seconds between two tries to take a connection when there is no room for it
_LAST = 2.0  # seconds that the last answers may take


class Order(Record):
    """What the keeper is told.

    ``creates`` are as ``Waiting.create`` takes them, and ``owner`` is the container's label.
    ``environment`` is that of the engine's own processes. ``inherited`` are variables for every
    command, whose values may be secret. ``workspace`` is a path inside, ``ready`` what the container
    says when it is. ``holds``, ``roots`` and ``pinned`` are those of ``engines.making.Making``;
    ``state`` is coop's directory of that name. ``served`` is what is to be served in the container's
    network, which ``neighbour`` makes; it connects to ``socket``.
    """

    directory: str
    engine: Engine
    runtime: str | None
    creates: tuple[tuple[str, Argv], ...]
    owner: str
    environment: dict[str, str]
    inherited: dict[str, str]
    workspace: str
    ready: str
    holds: tuple[Hold, ...]
    roots: tuple[str, ...]
    pinned: tuple[str, ...]
    state: str
    ttl: float | None
    leased: bool
    served: Served | None = None
    neighbour: Neighbour | None = None
    socket: str = ""


def main(descriptor: int) -> None:
    """Keep a session; ``descriptor`` is a connection to who starts it, and the lease of a leased one."""
    import _pickle

    os.set_inheritable(descriptor, False)
    os.chdir("/")
    os.umask(0o077)
    control = _socket.socket(fileno=descriptor)
    try:
        wire.send(control, ("keeper", os.getpid()))
        (data,), (lock,) = wire.receive(control, 1)
        order = _pickle.loads(data)
    except (wire.Broken, ValueError):
        return  # who started it has changed its mind
    Keeper(order, control, lock).run()


class Keeper:
    """One session. Its threads: this one, and one for each connection."""

    def __init__(self, order: Order, control: _socket.socket, lock: int) -> None:
        """``lock`` keeps other sandboxes from starting while mounts are made."""
        self._order = order
        self._control: _socket.socket | None = control
        self._lock_of_starts = lock
        self._container = Waiting(order.engine, order.runtime, order.environment)
        self._placeholders = Placeholders()
        self._announced: tuple[int, str] | None = None
        self._network: Network | None = None
        self._listener: _socket.socket | None = None
        self._socket = (0, 0)
        self._notes = -1
        self._guard = threading.Lock()
        self._open = 0
        self._used = time.monotonic()
        self._ending = False
        self._gone = threading.Event()
        self._commands = Commands(self._container, lambda: self._ending, self.end, self._gone)
        self._left = ""
        self._marked = False
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        """Start the session, serve until its end, and remove what is left of it."""
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self.end())
        try:
            ended = self._commands.ended = self._start()
            self._tell(STARTED, self._container.identifier)
        except (CoopError, OSError) as error:
            self._finish()
            text, remedy = f"the session cannot be kept: {error}", None
            if isinstance(error, CoopError):
                text, remedy = error.message, error.remedy
            self._tell(FAILED, f"{text}\n{self._left}" if self._left else text, remedy)
        else:
            self._serve(ended)
            self._finish()
        if self._left or self._is_doubtful():
            self._go_on()
        self._answer_last()

    def end(self, note: str = "") -> None:
        """Have the session end."""
        if note and not self._ending and self._notes >= 0:
            report.send(self._notes, report.Message(report.NOTE, note))
        self._ending = True
        try:
            os.write(self._wake, b".")
        except BlockingIOError:
            pass

    def _start(self) -> int:
        order = self._order
        alive = store.keep_alive(order.directory)
        if alive is None:
            raise CoopError("another process keeps this session, but does not answer", "coop stop ends it")
        store.tell_keeper(alive, os.getpid())
        self._notes = store.new_notes(order.directory)
        if order.served is not None:
            self._network = Network(order.served, order.socket)  # a fork, before there are threads
        hold(self._placeholders, order.holds)
        self._announced = running.announce(order.state, order.roots, order.pinned, starts_held=True)
        limit_core()
        self._remove_earlier()
        mark.write(order.directory, Mark(order.engine, order.environment, order.owner))
        self._marked = True
        self._listener = wire.listen(order.directory, wire.SOCKET, _BACKLOG)
        made = os.stat(f"{order.directory}/{wire.SOCKET}")
        self._socket = made.st_dev, made.st_ino
        self._listener.setblocking(False)
        if self._network is not None and order.neighbour is not None:
            self._network.make(order.neighbour, order.environment)
        self._container.create(order.creates)
        ended = self._container.start(order.ready)
        running.let_start(self._lock_of_starts)
        os.close(self._lock_of_starts)
        return ended

    def _remove_earlier(self) -> None:
        """Remove what a keeper of the same session has left that was killed; and later, of all sessions."""
        order = self._order
        session = os.path.basename(order.directory)
        for item in guard.listed(order.engine, order.environment, QUICK, LABEL_SESSION, session):
            if guard.abandoned(item.owner, item.running):
                guard.remove(order.engine, order.environment, item.id)
        threading.Thread(target=self._sweep, daemon=True).start()

    def _sweep(self) -> None:
        try:
            guard.sweep(self._order.engine, self._order.environment)
        except EngineError:
            pass

    def _serve(self, ended: int) -> None:
        """Answer until the session is to end, or its container has ended."""
        order = self._order
        assert self._listener is not None
        listener = self._listener
        poll = select.poll()
        for descriptor in (listener.fileno(), ended, self._woken):
            poll.register(descriptor, select.POLLIN)
        if order.leased and self._control is not None:
            poll.register(self._control.fileno(), select.POLLIN)
        else:
            self._let_go()
        self._used = time.monotonic()
        looks, is_found = time.monotonic() + _KNOWN, self._is_known
        while not self._ending:
            found = {number for number, _ in poll.poll(max(self._next(looks) - time.monotonic(), 0.0) * 1000)}
            if self._woken in found:
                os.read(self._woken, 4096)
            if listener.fileno() in found:
                self._accept(listener)
            if ended in found:
                self.end(f"the session ended: {self._container.why()}")
            elif self._control is not None and self._control.fileno() in found:
                self.end()  # the process that it is leased to is gone, or has let go
            now = time.monotonic()
            if order.ttl is not None and not self._open and now >= self._used + order.ttl:
                self.end()
            if now >= looks:
                if not is_found():
                    self.end("the session ended: nobody can find it")
                looks, is_found = now + _LOOKS, self._is_reachable

    def _next(self, looks: float) -> float:
        order = self._order
        return looks if order.ttl is None or self._open else min(looks, self._used + order.ttl)

    def _is_known(self) -> bool:
        known = store.read(self._order.directory)
        return known is not None and known.container == self._container.identifier

    def _is_reachable(self) -> bool:
        try:
            found = os.stat(f"{self._order.directory}/{wire.SOCKET}")
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._socket

    def _accept(self, listener: _socket.socket) -> None:
        try:
            connection = wire.accept(listener)
        except OSError:  # no room for its descriptor: it is still there at the next look
            time.sleep(_ROOM)
            return
        if connection is None:
            return
        connection.setblocking(True)
        with self._guard:
            self._open += 1
        try:
            threading.Thread(target=self._attend, args=(connection,), daemon=True).start()
        except RuntimeError:  # no more threads: who asked sees that nobody answers
            self._close(connection)

    def _close(self, connection: _socket.socket) -> None:
        connection.close()
        with self._guard:
            self._open -= 1
        try:
            os.write(self._wake, b".")
        except BlockingIOError:
            pass

    def _attend(self, connection: _socket.socket) -> None:
        """Answer one request."""
        try:
            connection.settimeout(_PROMPT)
            if not wire.is_own(connection):
                return
            request, streams = wire.receive(connection, 3)
            for stream in streams:
                os.close(stream)
            if request[0] != wire.PROTOCOL:
                text = "the session was started by another version of coop"
                wire.send(connection, ("refused", text, "end it with coop stop; it starts again when used"))
                return
            kind = request[1]
            if kind == "stop":
                self.end()
                self._gone.wait()
                wire.send(connection, ("stopped", self._left))
            elif self._ending:
                pass  # who asks sees that nobody answers
            elif kind == "look":
                wire.send(connection, ("session", self._container.identifier))
            elif kind == "exec":
                wire.send(connection, (wire.ELSEWHERE,))  # who asks takes it for one in namespaces
            elif kind == "follow":
                try:
                    self._commands.run(connection, self._facts(), *request[2:])
                finally:
                    self._used = time.monotonic()
            elif kind == "facts":
                wire.send(connection, ("facts", self._facts()))
            elif kind == "variables":
                known = self._order.inherited
                wire.send(connection, ("variables", tuple((name, known.get(name)) for name in request[3])))
            elif kind == "usage":
                wire.send(connection, ("usage", *(self._container.usage() or (0, None))))
            else:
                wire.send(connection, ("refused", f"this session has no {kind}", ""))
        except (wire.Broken, TypeError):
            pass  # the caller is gone
        finally:
            self._close(connection)

    def _facts(self) -> dict[str, Any]:
        """Return what it takes to have the engine start a command."""
        order = self._order
        return {
            "container": self._container.identifier,
            "engine": order.engine.name,
            "program": order.engine.program,
            "runtime": order.runtime,
            "environment": order.environment,
            "inherited": order.inherited,
            "workspace": order.workspace,
            "began": self._container.began,
            "hands_on_limits": order.engine.name == "podman" and not order.engine.rootless,
        }

    def _finish(self) -> None:
        """Remove the container, and let go of all that is held for it."""
        self._ending = True
        order = self._order
        if self._listener is not None:
            self._listener.close()
            _unlink(f"{order.directory}/{wire.SOCKET}")
        if self._network is not None:
            for note in self._network.end():
                report.send(self._notes, report.Message(report.NOTE, note))
        if not self._marked or self._is_removed():
            self._release()
        else:
            self._left = (
                f"{order.engine.name} did not remove the container: coop tries again for "
                f"{REMOVAL_GOES_ON / 60:g} minutes, and when the session is used again"
            )
        self._container.close()
        self._gone.set()
        self._commands.release()

    def _is_doubtful(self) -> bool:
        """Tell whether the engine may make a container yet."""
        return self._container.doubtful or (self._network is not None and self._network.doubtful)

    def _is_removed(self) -> bool:
        try:
            guard.remove_all(self._order.engine, self._order.environment, self._order.owner)
        except EngineError:
            return False
        return True

    def _release(self) -> None:
        if self._marked:
            mark.remove(self._order.directory)
        self._placeholders.release()
        running.leave(self._announced)
        self._announced = None

    def _go_on(self) -> None:
        """Try again for a while to remove the container: what guards it is held meanwhile."""
        order = self._order
        guard.go_on(order.engine, order.environment, order.owner, self._release, sure=not self._is_doubtful())
        self._placeholders.release()
        running.leave(self._announced)

    def _tell(self, *message: Any) -> None:
        try:
            if self._control is not None:
                wire.send(self._control, message)
        except wire.Broken:
            self.end()  # nobody is there any more who wanted it

    def _let_go(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None

    def _answer_last(self) -> None:
        end = time.monotonic() + _LAST
        while self._open and time.monotonic() < end:
            time.sleep(0.01)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
