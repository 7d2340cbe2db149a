"""The network of a container that coop serves, from coop's side: made before that one, ended after it."""

from __future__ import annotations

import _socket
import os
import secrets
import signal
import time

from coopfile import launching
from coopfile.engines import attendant
from coopfile.engines.call import EngineError, ask, readable, shown
from coopfile.engines.inspect import state_of
from coopfile.engines.processes import started
from coopfile.engines.timeouts import CREATE, STARTS
from coopfile.errors import CoopError
from coopfile.listed import written
from coopfile.native import publishing, wire
from coopfile.plan.sessions import DEFAULT
from coopfile.record import Record
from coopfile.render import docker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coopfile.find import Project
    from coopfile.language.items import HostPattern, PublishedPort
    from coopfile.plan.model import Plan
    from coopfile.render.networks import Neighbour

_ENDS = 10.0  # seconds that it may take to carry what was sent, and to end
_LOOKS = 0.5  # seconds between two looks whether the neighbour is there yet
_ELSEWHERE = "the engine has to be on this machine, and containers with runc or crun; or the native back end"


class Served(Record):
    """What is to be served in a container's network: as in ``attendant.Task``."""

    allow: tuple[HostPattern, ...] | None
    log: str
    listed: str
    publish: tuple[PublishedPort, ...]


def served(plan: Plan, project: Project, environment: Mapping[str, str], session: str = DEFAULT) -> Served:
    """Return what a plan has served, in a run or in a session of the project's."""
    if plan.network.mode != "proxy":
        return Served(None, "", "", plan.network.publish)
    log = launching.log(plan, project, environment, session)
    return Served(plan.network.allow, log, written(plan, project, environment), plan.network.publish)


def new_socket(state: str, pid: int | None = None) -> str:
    """Return the path of a socket that ``Network`` is to make, below coop's ``state``.

    It is this process's, or that of another one.
    """
    pid = os.getpid() if pid is None else pid
    return f"{os.path.realpath(state)}/networks/{pid}.{started(pid)}.{secrets.token_hex(6)}"


class Network:
    """What serves a container's network, as coop sees it. To be made before there are threads.

    It is ``doubtful`` when the engine was asked for the neighbour and did not answer: it may come later.
    """

    def __init__(self, what: Served, path: str) -> None:
        """Listen on the ports that are published, and start the attendant; ``path`` is the socket's.

        Raises SettingError for a port that is taken, CoopError.
        """
        self.doubtful = False
        self._ended = False
        listeners = publishing.listen(what.publish)
        try:
            self._path = path
            directory, _, name = path.rpartition("/")
            try:
                os.makedirs(directory, mode=0o700, exist_ok=True)
                _sweep(directory)
                listener = wire.listen(directory, name, 1)
            except OSError as error:
                raise CoopError(f"{path} cannot be made: {error.strerror}") from None
            self._control, theirs = _socket.socketpair()
            task = attendant.Task(what.allow, what.log, what.listed, listeners, listener, theirs, os.getpid())
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                self._pid = os.fork()
                if self._pid == 0:
                    attendant.main(task)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            theirs.close()
            listener.close()
        finally:
            for item in listeners:
                item.socket.close()

    def make(self, made: Neighbour, environment: Mapping[str, str], held: Sequence[int] = ()) -> None:
        """Have the engine make the network, and return when it is served; ``held`` is as ``ask`` takes it.

        Raises EngineError, CoopError.
        """
        argv, name = docker.neighbour(made), made.engine.name
        self.doubtful = True
        answer = ask(argv, CREATE, environment, held=held)
        self.doubtful = False
        if answer.status != 0:
            text = f"{name} cannot make the container's network: {shown(answer.said)}"
            raise EngineError(text, _ELSEWHERE, argv, answer.said)
        end = time.monotonic() + STARTS
        while not readable(self._control.fileno(), _LOOKS):
            state = state_of(made.engine, made.name, environment)
            over = not state.get("Running") or time.monotonic() > end
            if over and not readable(self._control.fileno(), _LOOKS):
                text = f"the container that makes the network for {name} does not answer"
                raise EngineError(text, _ELSEWHERE, argv)
        try:
            message, _ = wire.receive(self._control)
        except wire.Broken:
            raise CoopError("the process that serves the container's network has ended") from None
        self._unlink()
        if message[0] != attendant.READY:
            raise CoopError(message[1], message[2])

    def end(self) -> tuple[str, ...]:
        """End what serves the network; return what it has to tell people. Nobody listens any more then."""
        if self._ended:
            return ()
        self._ended = True
        notes: tuple[str, ...] = ()
        try:
            self._control.settimeout(_ENDS)
            self._control.sendall(b"1")
            message, _ = wire.receive(self._control)
            if message[0] == attendant.NOTES:
                notes = message[1]
        except (OSError, wire.Broken):
            pass  # somebody killed it
        self._control.close()
        self._unlink()
        try:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        except OSError:
            pass  # it has been waited for already
        return notes

    def _unlink(self) -> None:
        try:
            os.unlink(self._path)
        except OSError:
            pass


def _sweep(directory: str) -> None:
    """Remove the sockets of processes that were killed."""
    for name in os.listdir(directory):
        pid, _, rest = name.partition(".")
        if not (pid.isdecimal() and started(int(pid)) == rest.partition(".")[0]):
            try:
                os.unlink(f"{directory}/{name}")
            except OSError:
                pass
