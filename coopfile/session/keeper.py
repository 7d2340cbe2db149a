"""The process that keeps a session on a container engine, as long as the container lives.

It makes the container and starts it, and is what that one's first process reads from: when this
process is killed, that input ends, and with it the container. It holds the host's side of the guards,
ends commands whose time is over or whose caller is gone, and removes what is left in the end.

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

from coopfile.engines import guard, inside
from coopfile.engines.call import EngineError, readable
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
_GRACE = 2.0  # seconds between asking to end and ending, when a command's time is over
_LET_GO = 1.0  # the same when its caller is gone
_APPEARS = 5.0  # seconds from asking an engine for a command to seeing it
_CLOSES = 3.0  # seconds from the end of a command to that of the engine's own process
_KNOWN = 5.0  # seconds from its start to the session being known: else who started it was killed
_LOOKS = 60.0  # seconds between two looks whether it can still be found
_KILLS = (0.0, 0.3, 1.0, 3.0)  # seconds before each try to kill a command
_SETTLES = 0.5  # seconds from the end of a command that was killed to that of its container
_ROOM = 0.05  # seconds between two tries to take a connection when there is no room for it
_SUSPICIOUS = (inside.OTHER, 128 + signal.SIGKILL, 255)  # what commands end with when all does
_LAST = 2.0  # seconds that the last answers may take
_UNENDING = "a command could not be ended, and so the whole session was"


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


class _Command:
    """A command under way. ``alone`` says that no other ran meanwhile; ``client`` is the engine's process."""

    def __init__(self, token: str, alone: bool) -> None:
        self.token = token
        self.alone = alone
        self.client: int | None = None

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the engine's process; tell whether it has ended."""
        if self.client is None:
            time.sleep(seconds)
            return False
        return readable(self.client, seconds)

    def release(self, seconds: float) -> None:
        """End the engine's process if it has not ended by itself soon."""
        if self.client is not None and not self.wait(seconds):
            try:
                signal.pidfd_send_signal(self.client, signal.SIGKILL)
            except ProcessLookupError:
                pass


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
        self._commands: dict[str, _Command] = {}
        self._open = 0
        self._used = time.monotonic()
        self._ending = False
        self._gone = threading.Event()
        self._left = ""
        self._marked = False
        self._ended: int | None = None
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        """Start the session, serve until its end, and remove what is left of it."""
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self.end())
        try:
            self._ended = self._start()
            self._tell(STARTED, self._container.identifier)
        except (CoopError, OSError) as error:
            self._finish()
            text, remedy = f"the session cannot be kept: {error}", None
            if isinstance(error, CoopError):
                text, remedy = error.message, error.remedy
            self._tell(FAILED, f"{text}\n{self._left}" if self._left else text, remedy)
        else:
            self._serve(self._ended)
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
                self._run(connection, *request[2:])
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

    def _run(self, connection: _socket.socket, token: str, timeout: float | None, has_terminal: bool) -> None:
        """See to a command that the caller has the engine start, until it has ended or is to end."""
        began = time.monotonic()
        with self._guard:
            command = _Command(token, not self._commands)
            for other in self._commands.values():
                other.alone = False
            self._commands[token] = command
        try:
            wire.send(connection, ("session", self._facts()))
            self._follow(connection, command, None if timeout is None else began + timeout)
        except wire.Broken:
            self._end_command(command, signal.SIGHUP if has_terminal else signal.SIGTERM, _LET_GO)
        finally:
            with self._guard:
                del self._commands[token]
                if command.client is not None:
                    os.close(command.client)
            self._used = time.monotonic()

    def _follow(self, connection: _socket.socket, command: _Command, deadline: float | None) -> None:
        """Do what the caller asks until the command has ended. Raises Broken when the caller is gone."""
        timed_out, note = False, ""
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not readable(connection.fileno(), left):
                deadline = None
                if not command.wait(0.0):
                    timed_out = True
                    note = "" if self._end_command(command, signal.SIGTERM, _GRACE) else _UNENDING
                continue
            message, descriptors = wire.receive(connection, 1)
            if message[0] == "client":
                command.client = descriptors[0]
            elif message[0] == "signal":
                self._signal(command, int(message[1]))
            elif message[0] == "ended":
                status = int(message[1])
                wire.send(connection, ("result", timed_out, not self._ends(status), note))
                if status < 0 and not timed_out:  # somebody killed the engine's process, not the command
                    self._end_command(command, signal.SIGTERM, _LET_GO)
                return

    def _ends(self, status: int) -> bool:
        """Tell whether the session is ending, or its container: that ends the engine's processes alike.

        They end one after the other, and not with a status that says so.
        """
        if status and not self._ending and self._ended is not None:
            if readable(self._ended, _SETTLES / 20):
                return True
            if status in _SUSPICIOUS:
                same = self._container.is_same()
                if same is None and not readable(self._ended, _SETTLES):
                    # An engine's own process may end much later: podman's by up to 20 s.
                    same = self._container.runs()
                if same is False:
                    self.end(f"the session ended: {self._container.why()}")
                else:
                    # Engines learn of an end a moment later, the slower the machine the later.
                    return readable(self._ended, _SETTLES)
        return self._ending

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

    def _signal(self, command: _Command, number: int) -> None:
        end = time.monotonic() + _APPEARS
        while time.monotonic() < end:
            found = self._container.within(inside.signalling(command.token, number))
            if found is None or found.strip() != "0" or command.wait(0.1):
                return

    def _end_command(self, command: _Command, number: int, grace: float) -> bool:
        """End all that a command started, after having asked; where that fails, the session: tell which."""
        ended = True
        if not self._ask_to_end(command, number, grace):
            for pause in _KILLS:
                time.sleep(pause)
                argv = inside.killing(command.token, strays=command.alone)
                if self._ending or self._container.within(argv) is not None:
                    break
            else:
                ended = False
                self.end(_UNENDING)
                self._gone.wait()
        command.release(_CLOSES)
        return ended

    def _ask_to_end(self, command: _Command, number: int, grace: float) -> bool:
        """Ask all of a command to end; tell whether it has, for sure, within some seconds."""
        appears = time.monotonic() + _APPEARS
        while True:
            found = self._container.within(inside.asking(command.token, number, strays=command.alone))
            if found is None or self._ending:
                return False
            if found.strip() != "0":
                break
            if command.wait(0.1) or time.monotonic() > appears:
                return False  # there is one more look when it is killed
        end = time.monotonic() + grace
        command.wait(grace)
        while (left := end - time.monotonic()) > 0:
            found = self._container.within(inside.asking(command.token, 0, strays=command.alone))
            if found is None or found.strip() == "0":
                return found is not None
            time.sleep(min(left, 0.2))
        return False

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
        if self._commands:
            time.sleep(_SETTLES)
        with self._guard:
            for command in self._commands.values():
                command.release(0.0)  # not every engine ends its own process when its container is gone

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
