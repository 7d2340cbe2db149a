"""The process that makes a session's sandbox, and goes when it is made.

Its parent, the monitor, and PID 1 of the sandbox stay, and are to be small. So this one does the work:
first outside, then as a guest of PID 1's namespaces, all but that of processes.
"""

from __future__ import annotations

import _pickle
import _socket
import os
import select
import sys
from contextlib import ExitStack, contextmanager

import coopfile.native.overlay
import coopfile.native.prepared
import coopfile.native.upper
import coopfile.plan.model  # noqa: F401 - what orders are made of, once, before the fork
from coopfile.errors import CoopError
from coopfile.native import (
    cgroups,
    confine,
    init,
    kept,
    monitor,
    namespaces,
    placeholders,
    report,
    runner,
    running,
    serve,
    signals,
    streams,
    supervise,
    syscalls,
    title,
    tree,
    wire,
)
from coopfile.record import Record
from coopfile.session import founding, keep, store, undoing
from coopfile.session.order import Order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

    from coopfile.native.network import Link
    from coopfile.native.proxied import Gate
    from coopfile.native.publishing import Publication
    from coopfile.native.tree import Layout

    Links = tuple[Link | Gate | Publication, ...]

_PROMPT = 10.0  # seconds that who asks may take
_BACKLOG = 128


class _Making(Record):
    """What the steps have in common. ``listener``, ``notes``, ``alive`` and ``lease`` are descriptors."""

    order: Order
    founded: founding.Founded
    layout: Layout
    reported: int
    lease: int | None
    alive: int
    notes: int
    listener: int


def main(
    connection: _socket.socket,
    channel: _socket.socket,
    founded: founding.Founded,
    monitor: int,
    is_first: bool,
) -> NoReturn:
    """Read an order and make the session; never returns.

    ``channel`` leads to the monitor, whose number is ``monitor``, and of which it may be the first session:
    then it removes what a monitor before it has left.
    """
    reported = -1
    status = 1
    try:
        _depend(monitor)
        sys.meta_path[:] = keep.IMPORTERS
        connection.settimeout(_PROMPT)
        (data,), descriptors = wire.receive_bounded(connection, keep.MOST)
        reported = descriptors.pop(0)
        connection.close()
        order = _pickle.loads(data)
        _make(order, reported, descriptors, channel, founded, monitor, is_first)
        status = 0
    except wire.Broken:
        pass  # who asks is gone; or PID 1, or the monitor, which has told why
    except BaseException as error:  # nobody else could tell
        report.send_error(reported, error)
    finally:
        os._exit(status)


def _depend(monitor: int) -> None:
    """Have the kernel end this process with the monitor. A change of credentials clears that: prctl(2)."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signals.SIGKILL)
    if os.getppid() != monitor:
        os._exit(1)


def _make(
    order: Order,
    reported: int,
    descriptors: list[int],
    channel: _socket.socket,
    founded: founding.Founded,
    monitors: int,
    is_first: bool,
) -> None:
    """Make the session. ``descriptors`` is its lease, if it has one, and what holds its layers."""
    lease = descriptors.pop(0) if order.leased else None
    name = os.path.basename(order.directory)
    # For what this process reads of it: what it starts is given its own.
    os.environ = dict(order.environment)  # type: ignore[assignment]  # noqa: B003
    os.umask(order.umask)
    with _usable(order.directory):
        alive = store.keep_alive(order.directory)
    if alive is None:
        raise CoopError("the session runs already, but does not answer", "coop stop ends it")
    prepared, launch = order.prepared, order.prepared.launch
    founded.begin(launch.uid, launch.gid, launch.network != "host", reported)
    listeners = runner.listen(launch)
    with ExitStack() as stack:
        layout = _on_disk(prepared.layout, order.rootfs, stack)
        announced = running.announce(order.state, layout.writable, layout.guarded)
        undo = stack.enter_context(ExitStack())  # until the monitor sees to it
        undo.callback(running.leave, announced)
        for weakening in kept.make(launch):
            text = f"{weakening.key}: {weakening.text}"
            report.send(reported, report.Message(report.WEAKENING, text, weakening.remedy))
        with _usable(order.directory):
            notes = store.new_notes(order.directory)
            listener = wire.listen(order.directory, wire.SOCKET, _BACKLOG).detach()
        undo.callback(_unlink, f"{order.directory}/{wire.SOCKET}")
        links = monitor.start_links(
            launch, layout, prepared.means, listeners, prepared.log, prepared.landlock_abi, reported
        )
        group, held = cgroups.Group(), placeholders.Placeholders()
        if prepared.enforcement.scoped:
            group.ask_systemd(prepared.enforcement.scoped, launch.limits)
        pid, proc = founded.pid, founded.wait()
        syscalls.setns(founded.process, syscalls.CLONE_NEWUSER)
        _depend(monitors)
        groups = f"{pid}-{monitors}"
        undo.callback(held.release)
        undo.callback(group.remove)
        undo.callback(founded.inside.shutdown, 2)  # before it: PID 1 ends
        monitor.hold(group, held, launch, layout, prepared.enforcement, groups, sweeps=is_first)
        group.admit(pid)
        # Before the monitor knows of PID 1: until then the number is nobody else's, dead or alive.
        confine.limit_resources(prepared.enforcement.rlimits, pid)
        making = _Making(order, founded, layout, reported, lease, alive, notes, listener)
        store.tell_keeper(alive, pid)
        tasks = cgroups.open_tasks(prepared.enforcement.hierarchies, groups)
        undo.pop_all()
        given = _hand_over(making, channel, group, held, announced, descriptors)
        stays = bool(links) or layout is not prepared.layout
        if not stays:
            _build(making, links, tasks, proc)
            return
        maker = os.getpid()
        if (builder := os.fork()) == 0:
            _be_builder(making, links, tasks, proc, maker)
        title.take(f"coop: session {name}")
        os.dup2(notes, reported, inheritable=False)
        own = () if lease is None else (lease,)
        for descriptor in (*given, listener, proc, *tasks, *own):
            os.close(descriptor)
        _, status = os.waitpid(builder, 0)
        if status != 0:
            raise wire.Broken("the builder has told why")
        _stay(links, making)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _hand_over(
    making: _Making,
    channel: _socket.socket,
    group: cgroups.Group,
    held: placeholders.Placeholders,
    announced: tuple[int, str] | None,
    layers: list[int],
) -> list[int]:
    """Leave to the monitor what has to be undone, or undo it. ``layers`` are descriptors that hold some.

    Returns the descriptors that it has been given, which only a process that stays has to close.
    """
    told, places = held.hand_over()
    limits = making.order.prepared.launch.limits
    place, path = ((), "") if announced is None else ((announced[0],), announced[1])
    given = undoing.Kept(group.hand_over(), told, len(places), path, limits.memory, limits.pids)
    kept = [making.alive, making.notes, *places, *place, *layers]
    try:
        descriptors = [making.founded.process, *kept]
        while len(descriptors) > keep.MOST:
            wire.send(channel, (), descriptors[: keep.MOST])
            del descriptors[: keep.MOST]
        wire.send(channel, (making.founded.pid, making.order.directory, given.packed()), descriptors)
        wire.receive(channel)
    except wire.Broken:
        making.founded.inside.shutdown(_socket.SHUT_RDWR)  # PID 1 ends
        undoing.undo(making.order.directory, given, kept, None)
        raise CoopError(
            "the process that keeps sessions may not have as many open files as this one takes",
            "raise the limit: ulimit -n",
        ) from None
    channel.close()
    return kept


def _be_builder(making: _Making, links: Links, tasks: list[int], proc: int, maker: int) -> NoReturn:
    """Build, in a process that leaves what its parent has to undo alone; never returns."""
    status = 1
    try:
        _depend(maker)
        _build(making, links, tasks, proc)
        status = 0
    except wire.Broken:
        pass
    except BaseException as error:
        report.send_error(making.reported, error)
    finally:
        os._exit(status)


def _build(making: _Making, links: Links, tasks: list[int], proc: int) -> None:
    """Make the sandbox in PID 1's namespaces, and send PID 1 what it takes to serve."""
    prepared, layout = making.order.prepared, making.layout
    launch = prepared.launch
    own_network = launch.network != "host"
    os.umask(0o022)
    syscalls.setns(making.founded.process, namespaces.others(network=own_network))
    for link in links:
        link.announce(making.founded.pid)
    changes = tree.build(
        layout.root, layout.operations, layout.guards, lambda: None, keeps_upper=True, proc=proc
    )
    streams.take_own_devices()
    syscalls.set_hostname("coop")
    if own_network:
        namespaces.raise_loopback()
    for link in links:
        link.accept()
    root = os.open("/", syscalls.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    place = init.open_workspace(launch.directory)
    abi = prepared.landlock_abi
    rules = init.fence(layout.landlock, abi).descriptor if abi else None
    inside = supervise.Inside(
        making.order.plan,
        launch.mounts[0].target,
        dict(launch.environment),
        *(((), {}) if changes is None else (changes.layers, changes.made)),
    )
    message, descriptors = serve.told(
        making.order.umask,
        making.order.ttl,
        inside.packed(),
        confine.Table.taken("/proc/1/mountinfo"),
        (root, place, making.listener, making.notes),
        (rules, making.lease, None if changes is None else changes.descriptor),
        tasks,
    )
    wire.send(making.founded.inside, message, descriptors)


def _stay(links: Links, making: _Making) -> None:
    """Keep what connects the sandbox until the monitor says that it is gone: it closes its end."""
    waiting = select.poll()
    waiting.register(making.founded.gate, 0)
    waiting.poll()
    for link in links:
        link.close()
        for text in link.notes():
            report.send(making.reported, report.Message(report.NOTE, text))


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
