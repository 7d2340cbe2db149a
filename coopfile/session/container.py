"""Sessions on container engines of this machine: starting them, and reaching those that run."""

from __future__ import annotations

import _socket
import os
import secrets
import select
import signal
import sys

from coopfile import launching
from coopfile.engines import guard, inside, neighbour
from coopfile.engines.apple import holes
from coopfile.engines.call import EngineError
from coopfile.engines.choose import HOST, NATIVE, NoBackendError, choose
from coopfile.engines.making import Making, base, refuse
from coopfile.engines.network import new_socket, served
from coopfile.engines.timeouts import CREATE, HOLDS_STARTS, REMOVAL, STARTS
from coopfile.errors import CoopError
from coopfile.native import wire
from coopfile.record import Record
from coopfile.render import apple, docker
from coopfile.render.container import Request
from coopfile.render.facts import Engine
from coopfile.session import client, executing, keeper, mark, store
from coopfile.session.model import SessionError, Started, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from coopfile.engines.choose import Choice
    from coopfile.engines.making import Place
    from coopfile.render.container import Container
    from coopfile.render.docker import Argv
    from coopfile.render.facts import Facts
    from coopfile.session.model import Command, Running, Spec
    from coopfile.session.store import State

_NAMES = 3  # that are tried
_PROMPT = 10.0  # seconds that the keeper may take to answer
_ENDS = 5.0  # seconds that one may take to end which has no socket any more
_PROGRAM = (
    "import os, sys; os.fork() and os._exit(0); sys.path.append(sys.argv[1]); "
    "from coopfile.session.keeper import main; main(int(sys.argv[2])); os._exit(0)"
)


class ContainerLive:
    """A session on an engine: ``model.Live``. ``backend`` is the engine's name."""

    def __init__(self, backend: str, directory: str, name: str, lease: _socket.socket | None = None) -> None:
        self.backend = backend
        self._directory = directory
        self._name = name
        self._lease = lease

    def begin(self, command: Command, streams: Sequence[int] = ()) -> Running:
        """Start a command. Raises SessionGone, SessionError."""
        return executing.begin(self._directory, self._name, command, streams)

    def workspace(self) -> tuple[int, ...]:
        """Refuse: it is mounted by the engine, in namespaces of the engine's."""
        raise SessionError(f"a session on {self.backend} does not give its workspace", session=self._name)

    def usage(self) -> Usage:
        """Return what it uses. Raises SessionGone."""
        connection, message, _ = client.request(self._directory, self._name, ("usage",))
        connection.close()
        return Usage(*message[1:])

    def stop(self) -> None:
        """End all in it, remove its container, and wait until that is done. Raises SessionError."""
        self.release()
        left = _stop(self._directory)
        if left:
            raise SessionError(left, session=self._name)

    def release(self) -> None:
        """Give up the lease: a session that was leased ends."""
        if self._lease is not None:
            self._lease.close()
            self._lease = None


def start(
    spec: Spec,
    directory: str,
    without: Mapping[str, CoopError] | None = None,
    *,
    choice: Choice | None = None,
    tell: Callable[[str], None] = lambda _: None,
    show: Callable[[str], None] | None = None,
) -> Started:
    """Start a session on the first back end that the plan takes, but those ``without``.

    For who holds ``store.starting``. ``tell`` and ``show`` are as ``engines.run.run`` takes them;
    ``choice`` says which back end it is to be. Raises CoopError, OSError.
    """
    where = launching.place(spec.plan, spec.project, spec.environment, spec.name)
    if choice is None:
        choice = _chosen(spec, where.environment, without)
    if choice.name == NATIVE:
        from coopfile.session import native

        return native.start(spec, directory)
    assert choice.engine is not None
    _end_unknown(directory, spec.name)
    return _start(spec, directory, choice.engine, where, tell, show).replace(choice=choice)


def join(directory: str, state: State) -> ContainerLive | None:
    """Return a session that runs; None if it does not, and then nothing of it is left."""
    connection = wire.connect(directory, wire.SOCKET, _PROMPT)
    if connection is None:
        if not store.is_alive(directory):
            _remove_left(directory)
        return None
    try:
        if not wire.is_own(connection):
            raise SessionError(f"the session {state.name} belongs to another user", session=state.name)
        wire.send(connection, (wire.PROTOCOL, "look"))
        message, _ = wire.receive(connection)
    except wire.Broken as broken:
        if "timed out" in str(broken):
            pid, _ = wire.peer(connection)
            raise _silent(state.name, pid) from None
        return None  # it is just ending
    finally:
        connection.close()
    if message[0] == "refused":
        raise SessionError(message[1], message[2] or None, session=state.name)
    # The keeper's word counts: it is connected to that very container as long as it runs.
    return ContainerLive(state.backend, directory, state.name) if message[1] == state.container else None


def _chosen(spec: Spec, environment: Mapping[str, str], without: Mapping[str, CoopError] | None) -> Choice:
    """Choose a back end as a run does, except that nothing falls back to the host."""
    plan = spec.plan
    strict = plan.replace(sandbox=plan.sandbox.replace(fallback="refuse"))
    try:
        return choose(strict, environment, without=without)
    except NoBackendError as error:
        if plan.sandbox.fallback != HOST:
            raise
        text = f"{error.message}\nand sandbox.fallback = host is for single commands, not for sessions"
        raise SessionError(text, error.remedy or "coop run", session=spec.name) from None


def _end_unknown(directory: str, name: str) -> None:
    """End what still keeps the session, though nobody knows of it: it was being started, or is ending."""
    if not store.is_alive(directory):
        _remove_left(directory)
        return
    left = _stop(directory)
    if left or store.is_alive(directory):
        text = left or f"the process that kept the session {name} before does not end"
        raise SessionError(text, "try again", session=name)


def _stop(directory: str) -> str:
    """End a session if it runs, and wait for that; return what people have to know of what is left."""
    connection = wire.connect(directory, wire.SOCKET, 4 * REMOVAL)
    if connection is not None:
        try:
            wire.send(connection, (wire.PROTOCOL, "stop"))
            message, _ = wire.receive(connection)
            if message[0] == "stopped" and message[1]:
                return str(message[1])
        except wire.Broken:
            pass
        finally:
            connection.close()
    store.wait_end(directory, _ENDS)
    return ""


def _silent(name: str, pid: int) -> SessionError:
    return SessionError(
        f"the process {pid}, which keeps the session {name}, does not answer",
        f"kill -9 {pid} ends it and its container; the next command starts the session again",
        session=name,
    )


def _start(
    spec: Spec,
    directory: str,
    engine: Engine,
    where: Place,
    tell: Callable[[str], None],
    show: Callable[[str], None] | None,
) -> Started:
    token = secrets.token_hex(6)
    found = base(spec.plan, engine, where, guard.owner_label(token), tell, show)
    # Where the caller stands is a command's matter; a session is in the workspace.
    where = where.replace(host=where.host.replace(directory=where.host.workspace))
    control, pid = _keeper()
    try:
        owner = guard.owner_label(token, pid)
        ready = f"ready-{secrets.token_hex(8)}"
        request = Request(inside.waiting(ready), owner=owner, held=True, session=os.path.basename(directory))
        making = Making(spec.plan, engine, where, found, request)
        try:
            if engine.name == "apple":
                refuse(holes(making.made, making.facts, where.host.workspace))
            made, beside, socket = making.made, None, ""
            if made.served:
                # The keeper's, who is to have it.
                socket = new_socket(where.state, pid)
                beside = neighbour.prepare(spec.plan, engine, where, made, owner, token, socket)
                made = made.replace(joined=beside.name)
            order = keeper.Order(
                directory=directory,
                engine=engine,
                runtime=made.runtime,
                creates=tuple(_creates(made, making.facts)),
                owner=owner,
                environment=dict(where.environment),
                inherited=_given(made, where.host.environment),
                workspace=made.directory,
                ready=ready,
                holds=making.holds,
                roots=making.roots,
                pinned=making.pinned,
                state=where.state,
                ttl=spec.ttl,
                leased=spec.leased,
                served=served(spec.plan, spec.project, spec.environment, spec.name) if made.served else None,
                neighbour=beside,
                socket=socket,
            )
            container = _told(control, order, making)
        finally:
            making.release()  # the keeper holds it all
    except BaseException:
        control.close()
        raise
    if not spec.leased:
        control.close()
    live = ContainerLive(engine.name, directory, spec.name, control if spec.leased else None)
    more = apple.weakenings(making.made, making.facts) if engine.name == "apple" else ()
    return Started(live, container, (*making.made.weakenings, *more))


def _keeper() -> tuple[_socket.socket, int]:
    """Start a process that will keep a session; return the connection to it, and its pid."""
    if not sys.executable:
        raise CoopError("the Python interpreter that runs this cannot be found", "use one that has a path")
    ours, theirs = _socket.socketpair()
    try:
        given = max(theirs.fileno(), 3)
        actions: list[Any] = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), given)]  # in place, too, for it is kept
        actions += [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        argv = [sys.executable, "-I", "-S", "-c", _PROGRAM, package, str(given)]
        started = os.posix_spawn(
            sys.executable,
            argv,
            {"LANG": "C.UTF-8", "PATH": os.environ.get("PATH", os.defpath)},
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGHUP, signal.SIGTERM),
        )
        theirs.close()
        try:
            os.waitpid(started, 0)  # it has forked: nobody's child has to be waited for later
        except ChildProcessError:
            pass  # a library's user who waits for every child
        ours.settimeout(_PROMPT)
        (_, pid), _ = wire.receive(ours)
    except BaseException as error:
        ours.close()
        theirs.close()
        if isinstance(error, wire.Broken):
            raise CoopError("the process that is to keep the session does not start") from None
        raise
    return ours, int(pid)


def _told(control: _socket.socket, order: keeper.Order, making: Making) -> str:
    """Have the keeper start the session; return the container's id. Raises CoopError."""
    import pickle

    waiting = select.poll()
    waiting.register(control.fileno(), select.POLLIN)
    try:
        control.settimeout(_PROMPT)
        wire.send(control, (pickle.dumps(order),), (making.starts.descriptor,))
        if not waiting.poll(HOLDS_STARTS * 1000):
            making.starts.allow()
            waiting.poll(((_NAMES + 1) * CREATE + 2 * STARTS + 4 * REMOVAL) * 1000)
        message, _ = wire.receive(control)
    except wire.Broken:
        try:
            guard.remove_all(order.engine, order.environment, order.owner)
        except EngineError:
            pass  # the next session, or run, does
        raise CoopError("the process that was to keep the session has ended", "try again") from None
    if message[0] != keeper.STARTED:
        raise EngineError(message[1], message[2], ())
    return str(message[1])


def _creates(found: Container, facts: Facts) -> Iterator[tuple[str, Argv]]:
    """Yield names and argv for the container; what is secret is not in it, for each command is given that."""
    made = found.replace(inherited=())
    if made.writable:
        made = made.replace(environment=())  # else it would be in the image that a commit makes
    for number in range(_NAMES):
        # Somebody else may have a container of that name: another user of the engine, say.
        name = f"{made.name}-{secrets.token_hex(2)}" if number else made.name
        named = made.replace(name=name)
        yield name, apple.create(named, facts) if _is_apple(made) else docker.create(named)


def _given(made: Container, values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that every command is given, for the container does not have them."""
    literals = dict(made.environment) if made.writable else {}
    return {**literals, **{name: values[of] for name, of in made.inherited}}


def _is_apple(made: Container) -> bool:
    return made.engine.name == "apple"


# What others left


class Orphan(Record):
    """A container of coop's whose keeper, or run, is dead. ``session`` is an id, "" for that of a run."""

    engine: str
    id: str
    session: str


def sweep(data: str, environment: Mapping[str, str], *, dry_run: bool = False) -> tuple[Orphan, ...]:
    """Remove the containers of sessions and runs that nothing looks after any more; return them.

    ``data`` is coop's, and ``environment`` that of the engines' own processes. An engine that does not
    answer is left out.
    """
    from coopfile.engines.detect import NAMES, detect

    found: dict[str, Orphan] = {}
    # One after the other: each gets more time so.
    asked = [item.engine for name in NAMES for item in detect(environment, [name])]
    engines = [(engine, environment) for engine in asked if engine is not None]
    # Sessions may be on engines that are not the usual ones of here.
    for known in store.known(data):
        left = None if store.is_alive(known.directory) else mark.read(known.directory)
        if left is not None:
            engines.append((left.engine, left.environment))
    for engine, given in engines:
        try:
            for item in guard.sweep(engine, given, dry_run=dry_run):
                found[item.id] = Orphan(engine.name, item.id, item.session)
        except EngineError:
            continue
    return tuple(found.values())


def _remove_left(directory: str) -> None:
    """Remove the container of a session whose keeper was killed."""
    left = mark.read(directory)
    if left is None or not guard.abandoned(left.owner, running=True):
        return  # a new one is just starting; or this is no place to tell
    try:
        guard.remove_all(left.engine, left.environment, left.owner)
    except EngineError:
        return  # the next start does, on the same engine
    mark.remove(directory)
