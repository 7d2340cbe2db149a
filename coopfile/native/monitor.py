"""The process between the caller and PID 1: sets up outside, cleans up whatever happens.

It is outside the sandbox's PID namespace, where the command cannot see it, and lives
until PID 1 is gone. When the caller is killed the kernel tells it, and it ends the
sandbox and removes what was made on the host: control groups and placeholders.
"""

from __future__ import annotations

import os

from coopfile.native import init, namespaces, report, signals, syscalls
from coopfile.native.cgroups import Group
from coopfile.native.confine import FAILED
from coopfile.native.limits import Enforcement, reached
from coopfile.native.placeholders import Placeholders
from coopfile.native.sources import open_real
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from coopfile.native.confine import Lock
    from coopfile.native.network import Link, Means
    from coopfile.native.proxied import Gate
    from coopfile.native.pty import Wanted
    from coopfile.native.publishing import Listener, Publication
    from coopfile.native.tree import Layout
    from coopfile.plan.launch import Launch


class Order(Record):
    """What the caller asks of the monitor. ``report`` is the pipe's end to write to.

    ``mask`` is the caller's signal mask. ``lock`` is for PID 1; ``building`` tells that a root file system
    is built. ``listeners`` are the ports that are published. ``terminal`` is one that the command is to have
    instead of the caller's. ``group`` and ``placeholders`` have nothing in them yet.
    """

    launch: Launch
    layout: Layout
    enforcement: Enforcement
    landlock_abi: int
    report: int
    mask: set[int]
    lock: Lock
    building: bool
    group: Group
    placeholders: Placeholders
    means: tuple[Means, ...]
    log: str
    listeners: tuple[Listener, ...] = ()
    terminal: Wanted | None = None


def main(order: Order, caller: int) -> NoReturn:
    """Be the monitor, a child of process ``caller``; never returns."""
    status = FAILED
    try:
        status = watch(order, caller)
    except BaseException as error:  # a traceback must not reach the caller's terminal
        report.send_error(order.report, error)
    finally:
        os._exit(status)


def watch(order: Order, caller: int) -> int:
    """Make the sandbox and see to it until it is gone; return PID 1's status."""
    os.setsid()  # signals of the terminal are the caller's to forward
    group, placeholders = order.group, order.placeholders
    try:
        links = start_links(
            order.launch,
            order.layout,
            order.means,
            order.listeners,
            order.log,
            order.landlock_abi,
            order.report,
        )
        if order.enforcement.scoped:
            group.ask_systemd(order.enforcement.scoped, order.launch.limits)
        namespaces.enter_user_namespace(order.launch.uid, order.launch.gid)
        pid, ended = _start(order, caller, links)
        status = _supervise(pid, ended, group)
        for text in reached(group.exceeded(), order.launch.limits.memory, order.launch.limits.pids):
            report.send(order.report, report.Message(report.NOTE, text))
        for link in links:
            link.close()
            for text in link.notes():
                report.send(order.report, report.Message(report.NOTE, text))
        return status
    finally:
        if order.terminal is not None and os.getppid() != caller:
            order.terminal.callers.take_back()
        group.remove()
        placeholders.release()


def _depend(caller: int) -> None:
    """Be told when the caller dies."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signals.ABANDONED)
    if os.getppid() != caller:
        raise SystemExit


def start_links(
    launch: Launch,
    layout: Layout,
    means: tuple[Means, ...],
    listeners: tuple[Listener, ...],
    log: str,
    landlock_abi: int,
    report_to: int,
) -> tuple[Link | Gate | Publication, ...]:
    """Start what connects a sandbox, if anything does, while this process is in the host's namespaces."""
    links: list[Link | Gate | Publication] = []
    if listeners:
        from coopfile.native import publishing

        links.append(publishing.start(listeners, landlock_abi))
    if launch.network == "proxy":
        from coopfile.native import proxied

        links.append(proxied.start(launch.allow, log, landlock_abi, launch.listed))
    elif means:
        from coopfile.native import network

        links.append(network.start(means, layout.writable, report_to))
    return tuple(links)


def _start(order: Order, caller: int, links: tuple[Link | Gate | Publication, ...]) -> tuple[int, int]:
    """Fork PID 1, as early as can be, and do what it needs of the host while it builds the tree.

    So its network namespace is made here, too, unless links wait for it. Returns PID 1's number here,
    and the pipe in which it tells that all others are gone.
    """
    gate, opener = os.pipe()
    ended, end = os.pipe()
    monitor = os.getpid()
    network = os.pidfd_open(monitor) if order.launch.network != "host" and not links else None
    pid = os.fork()
    if pid == 0:
        os.close(opener)
        init.main(init.Start(order, gate, end, monitor, links, network))
    try:
        _depend(caller)  # not before: a change of credentials clears it, prctl(2)
        for link in links:
            link.leave()
        os.close(gate)
        os.close(end)
        signals.announce(ended)
        hold(order.group, order.placeholders, order.launch, order.layout, order.enforcement, str(monitor))
        order.group.admit(pid)
        if network is not None:
            os.close(network)
            namespaces.enter_network_namespace()
        os.write(opener, b"1")
    except BaseException:
        os.kill(pid, signals.SIGKILL)
        os.waitpid(pid, 0)
        raise
    return pid, ended


def hold(
    group: Group,
    placeholders: Placeholders,
    launch: Launch,
    layout: Layout,
    enforcement: Enforcement,
    name: str,
    *,
    sweeps: bool = True,
) -> None:
    """Make the control groups, as ``Group.create`` does, and hold the places of the guards."""
    group.create(enforcement.hierarchies, launch.limits, name, sweeps=sweeps)
    enforcement.check(group.controllers)
    for directory, paths in layout.held:
        root = open_real(directory)
        placeholders.reserve(root, paths)
        os.close(root)


def _supervise(pid: int, ended: int, group: Group) -> int:
    """Forward signals until PID 1 ends; return its status.

    Its mounts have ended with it. Before, the kernel would wait for every processor whenever a place is
    removed that something is mounted on: detach_mounts, synchronize_rcu_expedited.
    """
    while True:
        number = signals.wait()
        if number == signals.SIGIO:
            if os.read(ended, 1):
                group.look()
                os.kill(pid, signals.SIGIO)
        elif number == signals.SIGCHLD:
            gone, status = os.waitpid(pid, os.WNOHANG)
            if gone:
                return init.exit_status(status)
        elif number == signals.ABANDONED:
            os.kill(pid, signals.SIGKILL)
        elif number is not None:
            os.kill(pid, number)
