"""PID 1 of the sandbox: makes it, locks itself in, starts the command, reaps.

Every restriction is in force before the command is forked, so PID 1 has no more
than the command has, and cannot be traced by it.
"""

from __future__ import annotations

import os

from coopfile.errors import CoopError
from coopfile.native import landlock, namespaces, report, signals, streams, syscalls, title
from coopfile.native.cgroups import enter, open_own
from coopfile.native.confine import FAILED, Table, end_all, limit_resources, pass_gate
from coopfile.native.spawn import spawn
from coopfile.native.tree import build
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from coopfile.native.monitor import Order
    from coopfile.native.network import Link
    from coopfile.native.proxied import Gate
    from coopfile.native.pty import Wanted
    from coopfile.native.publishing import Publication


class Start(Record):
    """What PID 1 is given besides the caller's order; ``monitor`` is the monitor's process number outside.

    ``gate`` is a pipe whose other end only the monitor has: it writes a byte when the
    sandbox is in its control group and the places of the guards are held, and closes
    it by dying. Into ``ended`` PID 1 writes a byte when it is the last process. ``links`` lead to what
    connects the sandbox. ``network`` is a descriptor of the monitor where that makes the network
    namespace, and is in it when the gate opens.
    """

    order: Order
    gate: int
    ended: int
    monitor: int
    links: tuple[Link | Gate | Publication, ...]
    network: int | None


def main(start: Start) -> NoReturn:
    """Be PID 1; never returns."""
    status = FAILED
    try:
        status = _run(start)
    except BaseException as error:  # a traceback must not reach the caller's terminal
        report.send_error(start.order.report, error)
    finally:
        os._exit(status)


def _run(start: Start) -> int:
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signals.SIGKILL)
    callers_umask = os.umask(0o022)
    order = start.order
    launch = order.launch
    makes_network = launch.network != "host" and start.network is None
    namespaces.enter_other_namespaces(network=makes_network)
    for link in start.links:
        link.announce()
    title.take("coop")  # the command line names paths of the host
    layout = order.layout
    groups = open_own(order.enforcement.hierarchies)
    build(layout.root, layout.operations, layout.guards, lambda: _pass_gate(start, groups))
    if order.terminal is not None:
        streams.let_go(order.terminal.streams)
    streams.take_own_devices()
    syscalls.set_hostname("coop")
    if makes_network:
        namespaces.raise_loopback()
    for link in start.links:
        link.accept()
    syscalls.new_session_keyring()
    place = open_workspace(launch.directory)
    os.fchdir(place)
    os.close(place)
    rules = None if not order.landlock_abi else fence(layout.landlock, order.landlock_abi).descriptor
    order.lock.close(rules)
    channel = () if order.terminal is None else (order.terminal.channel,)
    syscalls.close_but((0, 1, 2, order.report, start.ended, *channel))
    table = Table.taken("/proc/self/mountinfo")
    limit_resources(order.enforcement.rlimits)
    if not order.building:
        os.umask(callers_umask)
    status = _reap(_start(order))
    table.tell_lost(order.report)
    end_all()
    os.write(start.ended, b"1")
    if order.enforcement.scoped:  # a group that goes with this process: the monitor looks at it before
        while signals.wait() != signals.SIGIO:
            pass
    return status


def open_workspace(path: str) -> int:
    """Open a directory to change to, whoever may have put a link to a descriptor of ours there meanwhile."""
    flags, how = syscalls.O_PATH | os.O_DIRECTORY, syscalls.RESOLVE_NO_MAGICLINKS
    try:
        return syscalls.openat2(syscalls.AT_FDCWD, path, flags, how)
    except OSError:
        raise CoopError(f"{path} is not visible inside the sandbox") from None


def _pass_gate(start: Start, groups: list[int]) -> None:
    pass_gate(start.gate)
    if start.network is not None:
        syscalls.setns(start.network, syscalls.CLONE_NEWNET)
        os.close(start.network)
    enter(groups, str(start.monitor))


def fence(allowed: Sequence[tuple[str, bool]], abi: int) -> landlock.Fence:
    """Return the rules for paths of the new tree, with whether each may be written, and for the streams."""
    made = landlock.Fence(abi)
    root = os.open("/", syscalls.O_PATH | os.O_CLOEXEC)
    made.allow(root, landlock.READ_DIR)
    os.close(root)
    for path, write in allowed:
        made.allow_path(path, made.rights if write else landlock.READ)
    for stream in (0, 1, 2):
        made.allow_stream(stream)
    return made


def _start(order: Order) -> int:
    """Start the command; return its number, or tell why it cannot be and end."""
    actions = () if order.terminal is None else _make_terminal(order.terminal)
    started = spawn(order.launch.argv, order.launch.environment, order.mask, actions)
    if isinstance(started, int):
        return started
    report.send(order.report, report.Message(report.COMMAND, started.text))
    os._exit(started.status)


def _make_terminal(wanted: Wanted) -> Sequence[Any]:
    """Make the command's terminal and hand the caller its end; return what posix_spawn has to do."""
    from coopfile.native import pty, wire

    try:
        master, slave = pty.open_pair(wanted.rows, wanted.columns, wanted.settings)
    except OSError as error:
        raise CoopError(f"the sandbox cannot make a terminal: {error.strerror}") from None
    wire.hand_over(wanted.channel, master)
    return pty.actions(slave, wanted.streams)


def _reap(command: int) -> int:
    """Reap every child and forward signals until the command ends; return its status."""
    while True:
        number = signals.wait()
        if number == signals.SIGCHLD:
            while True:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    break
                if pid == 0:
                    break
                if pid == command:
                    return exit_status(status)
        elif number in signals.FORWARDED and number is not None:
            try:
                # The command leads a session, and so a group, which what it waits for is in too.
                os.kill(-command if number in signals.OF_A_TERMINAL else command, number)
            except OSError:
                pass  # it has just ended; its status is on the way


def exit_status(status: int) -> int:
    """Return a wait status as a shell would: 128 and the signal's number for a killed process."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
