"""What the helper forks: it makes a session's sandbox and stays as its monitor."""

from __future__ import annotations

import _socket
import os
from contextlib import ExitStack, contextmanager

from coopfile.errors import CoopError
from coopfile.native import (  # noqa: F401 - all that a session needs, once, before the fork
    init,
    kept,
    layered,
    monitor,
    report,
    runner,
    running,
    serve,
    signals,
    supervise,
    syscalls,
    title,
    wire,
)
from coopfile.native.serve import Serving
from coopfile.record import Record
from coopfile.session import store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

    from coopfile.native.layout import Layout
    from coopfile.plan.bind import Launch

_PROMPT = 10.0  # seconds that who asks may take
_QUICK = 0.5  # seconds that it may take when it is refused
_BACKLOG = 128
_MOST = 250  # descriptors: two, and one for each layer


class Order(Record):
    """What is asked for: a session in ``directory``. ``plan`` is the digest of what it runs under.

    ``environment`` and ``umask`` are the caller's. ``state`` and ``rootfs`` are directories of
    coop's; ``log`` is the file for what a proxy blocks.
    """

    directory: str
    plan: str
    launch: Launch
    inputs: tuple[str, ...]
    private: tuple[str, ...]
    layers: tuple[str, ...]
    environment: dict[str, str]
    umask: int
    state: str
    rootfs: str
    log: str
    ttl: float | None
    leased: bool


def main(connection: _socket.socket) -> NoReturn:
    """Read an order and be the session's monitor until it ends; never returns."""
    import _pickle

    connection.settimeout(_PROMPT)
    try:
        if not wire.is_own(connection) or not _is_outside(connection):
            os._exit(1)
        (data,), descriptors = wire.receive(connection, _MOST)
    except (wire.Broken, ValueError):
        os._exit(1)
    reported = descriptors.pop(0)
    connection.close()
    status = 1
    try:
        order = _pickle.loads(data)
        status = _keep(order, reported, descriptors.pop(0) if order.leased else None)
    except BaseException as error:  # nobody else could tell
        report.send_error(reported, error)
    finally:
        os._exit(status)


def refuse(connection: _socket.socket, error: OSError) -> None:
    """Tell who asks that no process could be made for it. In the helper itself, so it is quick."""
    connection.settimeout(_QUICK)
    try:
        _, descriptors = wire.receive(connection, _MOST)
    except wire.Broken:
        return
    text = f"no process can be started for the session: {error.strerror}"
    remedy = "end some, or raise the limit: ulimit -u, or pids.max of the control group"
    for number, descriptor in enumerate(descriptors):
        if number == 0:
            report.send(descriptor, report.Message(report.FAILURE, text, remedy))
        os.close(descriptor)


def _is_outside(connection: _socket.socket) -> bool:
    """Tell whether who asks is in no sandbox: one might have been given the directory of the socket."""
    pid, _ = wire.peer(connection)
    try:
        return all(
            os.readlink(f"/proc/{pid}/ns/{name}") == os.readlink(f"/proc/self/ns/{name}")
            for name in ("user", "pid")
        )
    except PermissionError:
        return True  # it guards itself; those in sandboxes of this user cannot do that against us
    except OSError:
        return False


def _keep(order: Order, reported: int, lease: int | None) -> int:
    """Make the session and see to it until its end. Locks on layers are held by open descriptors."""
    title.take(f"coop: session {os.path.basename(order.directory)}")
    os.environ.clear()
    os.environ.update(order.environment)
    os.umask(order.umask)
    with _usable(order.directory):
        alive = store.keep_alive(order.directory)
    if alive is None:
        raise CoopError("the session runs already, but does not answer", "coop stop ends it")
    prepared = runner.prepare(order.launch, order.inputs, order.private, order.layers)
    listeners = runner.listen(prepared.launch)
    with ExitStack() as stack:
        layout = _on_disk(prepared.layout, order.rootfs, stack)
        announced = running.announce(order.state, layout.writable, layout.guarded)
        stack.callback(running.leave, announced)
        for weakening in (*prepared.weakenings, *kept.make(prepared.launch)):
            text = f"{weakening.key}: {weakening.text}"
            report.send(reported, report.Message(report.WEAKENING, text, weakening.remedy))
        with _usable(order.directory):
            notes = store.new_notes(order.directory)
            listener = wire.listen(order.directory, wire.SOCKET, _BACKLOG).detach()
        serving = Serving(listener, notes, order.plan, order.directory, alive, lease, order.ttl)
        stack.callback(_leave, serving)
        return monitor.watch(
            monitor.Order(
                prepared.launch,
                layout,
                prepared.enforcement,
                prepared.landlock_abi,
                reported,
                signals.block(),
                False,
                prepared.means,
                order.log,
                listeners=listeners,
                serving=serving,
            ),
            0,
        )


def _on_disk(layout: Layout, rootfs: str, stack: ExitStack) -> Layout:
    """Give a root file system a directory for what is written, where this kernel needs one."""
    if not layout.root.needs_disk():
        return layout
    from coopfile.rootfs.store import Store

    place = os.path.realpath(stack.enter_context(Store(rootfs).scratch()))
    upper, work = f"{place}/upper", f"{place}/work"
    for path in (upper, work):
        os.mkdir(path, 0o755)
    root: Any = layout.root
    return layout.replace(root=root.replace(upper=upper, work=work))


@contextmanager
def _usable(directory: str) -> Iterator[None]:
    """Say what is wrong with the session's directory where that fails."""
    try:
        yield
    except OSError as error:
        raise store.unusable(directory, error) from None


def _leave(serving: Serving) -> None:
    """Remove the socket, unless it is another session's, whose starter found no trace of this one."""
    if serving.is_known():
        try:
            os.unlink(f"{serving.directory}/{wire.SOCKET}")
        except OSError:
            pass
