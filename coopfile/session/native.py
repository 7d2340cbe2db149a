"""Sessions in namespaces of this machine: starting them, and reaching those that run."""

from __future__ import annotations

import os
import select
import time

from coopfile import launching
from coopfile.errors import CoopError
from coopfile.find import directories
from coopfile.listed import written
from coopfile.native import report, syscalls
from coopfile.native.upper import Upper
from coopfile.plan import canonical
from coopfile.plan.launch import Weakening
from coopfile.session import client, helper, store
from coopfile.session.model import SessionError, SessionGone, Started, Usage
from coopfile.session.order import Order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from coopfile.session.model import Command, Running, Spec
    from coopfile.session.store import State

_START = 90.0  # seconds: another helper of the network may have to start and to fail first
_ENDS = 8.0  # seconds that a session may take to end when asked, and again when told
_PIDFD_SEND_SIGNAL = 424


class NativeLive:
    """A session in namespaces: ``model.Live``."""

    backend = "native"

    def __init__(self, directory: str, name: str, plan: str | None) -> None:
        """``plan`` is the digest of what it is known to run under."""
        self._directory = directory
        self._name = name
        self._plan = plan
        self._lease: int | None = None

    def lend(self) -> int:
        """Have the session leased to this object; return what it gets of that, which the caller closes."""
        from coopfile.session import forking

        theirs, self._lease = os.pipe()
        forking.track(self)  # now: a child that is forked while it starts is not to keep it
        return theirs

    def forked(self) -> None:
        """Let a child that the program has forked not keep the session from ending with the program."""
        self.release()

    def begin(self, command: Command, streams: Sequence[int] = ()) -> Running:
        """Start a command. Raises SessionGone, SessionError."""
        return client.begin(self._directory, self._name, command, streams, plan=self._plan)

    def usage(self) -> Usage:
        """Return what it uses. Raises SessionGone."""
        connection, message, _ = client.request(self._directory, self._name, ("usage", self._plan))
        connection.close()
        return Usage(*message[1:])

    def upper(self) -> Upper:
        """Return what takes the root's changes; the caller closes its descriptor.

        Raises SessionError where the root is the host's own tools.
        """
        connection, message, descriptors = client.request(self._directory, self._name, ("upper", self._plan))
        connection.close()
        _, layers, made = message
        return Upper(descriptors[0], layers, made)

    def workspace(self) -> tuple[int, int]:
        """Return descriptors of the workspace, and of the mount namespace that keeps what guards it.

        The caller closes both. Raises SessionGone, SessionError.
        """
        asked = ("workspace", self._plan)
        connection, _, descriptors = client.request(self._directory, self._name, asked)
        connection.close()
        if len(descriptors) != 2:
            for descriptor in descriptors:
                os.close(descriptor)
            raise SessionError(f"the session {self._name} has not given its workspace", session=self._name)
        return descriptors[0], descriptors[1]

    def paused(self) -> AbstractContextManager[None]:
        """Return a context in which its processes are stopped; they go on also if this one is killed."""
        from contextlib import contextmanager

        @contextmanager
        def pause() -> Iterator[None]:
            connection, _, _ = client.request(self._directory, self._name, ("pause", self._plan))
            try:
                yield
            finally:
                connection.close()

        return pause()

    def stop(self) -> None:
        """End all in it and wait until that is done. Raises SessionError."""
        self.release()
        try:
            client.request(self._directory, self._name, ("stop",))[0].close()
        except SessionError as error:
            if not (isinstance(error, SessionGone) and error.begun):  # else it has heard
                self._signal(15)  # it has no room for another process, or nothing leads to it
        for number in (15, 9):
            if store.wait_end(self._directory, _ENDS):
                return
            self._signal(number)
        if not store.wait_end(self._directory, _ENDS):
            raise SessionError(
                f"the session {self._name} does not end", "the kernel holds one of its processes"
            )

    def release(self) -> None:
        """Give up the lease: a session that was leased ends."""
        lease, self._lease = self._lease, None
        if lease is not None:
            os.close(lease)

    def _signal(self, number: int) -> None:
        """Send PID 1 a signal: from outside it counts."""
        pid = store.keeper(self._directory)
        if pid is None:
            return
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return
        # The number is taken back before it is free for another process.
        if store.keeper(self._directory) == pid:
            try:
                syscalls.call("pidfd_send_signal", _PIDFD_SEND_SIGNAL, descriptor, number, None, 0)
            except OSError:
                pass
        os.close(descriptor)


def join(directory: str, state: State) -> NativeLive | None:
    """Return a session that runs; None if it does not."""
    return NativeLive(directory, state.name, state.digest or None) if store.is_alive(directory) else None


def start(spec: Spec, directory: str) -> Started:
    """Start a session. Raises CoopError, OSError."""
    from coopfile.native import preparing  # what joins a session has no use for it

    own = directories(spec.environment)
    bound = launching.bound(spec.plan, spec.project, spec.environment, (), spec.name)
    mask = os.umask(0o077)
    os.umask(mask)
    launch, workspace = bound.launch, bound.launch.mounts[0].target
    log = ""
    if spec.plan.network.mode == "proxy":
        log = launching.log(spec.plan, spec.project, spec.environment, spec.name)
        launch = launch.replace(listed=written(spec.plan, spec.project, spec.environment))
    # Where the caller stands is a command's matter; a session is in the workspace.
    launch = launch.replace(
        directory=workspace,
        environment={**launch.environment, "PWD": workspace},
        host=launch.host.replace(environment={}),  # its values that count are in the launch's own
    )
    try:
        prepared = preparing.prepare(launch, bound.inputs, bound.private, bound.layers).replace(log=log)
        order = Order(
            directory=directory,
            plan=canonical.digest(spec.plan),
            prepared=prepared,
            environment=dict(spec.environment),
            umask=mask,
            state=own.state,
            rootfs=own.rootfs,
            ttl=spec.ttl,
            leased=spec.leased,
        )
        started = _start(order, spec.name, own.state, bound.held)
        return started.replace(weakenings=(*bound.weakenings, *prepared.weakenings, *started.weakenings))
    finally:
        for descriptor in bound.held:
            os.close(descriptor)


def _start(order: Order, name: str, state: str, held: Sequence[int]) -> Started:
    import pickle
    from contextlib import ExitStack

    data = pickle.dumps(order)
    live = NativeLive(order.directory, name, order.plan)
    try:
        with ExitStack() as ours:
            receiving, reported = os.pipe()
            ours.callback(os.close, receiving)
            with ExitStack() as theirs:
                theirs.callback(os.close, reported)
                given = [reported]
                if order.leased:
                    given.append(live.lend())
                    theirs.callback(os.close, given[-1])
                helper.ask(state, data, (*given, *held))
            return Started(live, weakenings=tuple(_ready(receiving)))
    except BaseException:
        live.release()
        raise


def _ready(receiving: int) -> Iterator[Weakening]:
    """Wait until the session takes requests; yield what is weaker. Raises CoopError if it does not start."""
    deadline = time.monotonic() + _START
    waiting = select.poll()
    waiting.register(receiving, select.POLLIN)
    data = b""
    while True:
        while report.END in data:
            record, _, data = data.partition(report.END)
            message = report.parse(record)
            if message.kind == report.READY:
                return
            if message.kind == report.WEAKENING:
                key, _, text = message.text.partition(": ")
                yield Weakening(key, text, message.remedy)
            if message.kind == report.FAILURE:
                raise CoopError(message.text, message.remedy)
        left = deadline - time.monotonic()
        if left <= 0 or not waiting.poll(left * 1000):
            raise CoopError(f"the session did not start within {_START:g} s")
        chunk = os.read(receiving, 65536)
        if not chunk:
            raise SessionGone("the session ended while it was being started", "try again")
        data += chunk
