"""PID 1 of the sandbox: makes it, locks itself in, starts the command, reaps.

Every restriction is in force before the command is forked, so PID 1 has no more
than the command has, and cannot be traced by it.
"""

from __future__ import annotations

import os

from coopfile.errors import CoopError
from coopfile.native import landlock, namespaces, report, seccomp, signals, streams, syscalls, title
from coopfile.native.cgroups import enter, open_own
from coopfile.native.spawn import spawn
from coopfile.native.tree import build
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from coopfile.native.layout import Layout
    from coopfile.native.limits import Enforcement
    from coopfile.native.network import Link
    from coopfile.native.proxied import Gate
    from coopfile.native.pty import Wanted
    from coopfile.native.publishing import Publication
    from coopfile.native.serve import Serving
    from coopfile.plan.bind import Launch

FAILED = 125
# While a root file system is built. CAP_DAC_OVERRIDE: images have directories that nobody may write,
# root's capabilities aside. CAP_SYS_CHROOT: apk runs the scripts of packages in a chroot. Both count in
# the sandbox's user namespace only, for files that are the caller's own, of which it sees its own.
BUILD_CAPABILITIES = 1 << 1 | 1 << 18
_LOST = "{} was replaced on the host meanwhile, and the sandbox could write it from then on: look at it"


class Start(Record):
    """What PID 1 is given; ``monitor`` is the monitor's process number outside.

    ``gate`` is a pipe whose other end only the monitor has: it writes a byte when the
    sandbox is in its control group and the places of the guards are held, and closes
    it by dying. Into ``ended`` PID 1 writes a byte when it is the last process. ``mask`` is the caller's
    signal mask. ``building`` tells that a root file system is built. ``links`` lead to what connects
    the sandbox. ``serving`` is there for a session, which runs no command of its own. ``terminal`` is
    one that the command is to have instead of the caller's.
    """

    launch: Launch
    layout: Layout
    enforcement: Enforcement
    report: int
    gate: int
    ended: int
    monitor: int
    mask: set[int]
    landlock_abi: int
    building: bool
    links: tuple[Link | Gate | Publication, ...]
    serving: Serving | None = None
    terminal: Wanted | None = None


def main(start: Start) -> NoReturn:
    """Be PID 1; never returns."""
    status = FAILED
    try:
        status = _run(start)
    except BaseException as error:  # a traceback must not reach the caller's terminal
        report.send_error(start.report, error)
    finally:
        os._exit(status)


def _run(start: Start) -> int:
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signals.SIGKILL)
    callers_umask = os.umask(0o022)
    launch = start.launch
    own_network = launch.network != "host"
    namespaces.enter_other_namespaces(network=own_network)
    for link in start.links:
        link.announce()
    title.take("coop")  # the command line names paths of the host
    layout = start.layout
    groups = open_own(start.enforcement.hierarchies)
    serving = start.serving
    upper = build(
        layout.root,
        layout.operations,
        layout.guards,
        lambda: _pass_gate(start, groups),
        keeps_upper=serving is not None,
    )
    if start.terminal is not None:
        streams.let_go(start.terminal.streams)
    streams.take_own_devices()
    syscalls.set_hostname("coop")
    if own_network:
        namespaces.raise_loopback()
    for link in start.links:
        link.accept()
    syscalls.new_session_keyring()
    try:
        _enter(launch.directory)
    except OSError:
        raise CoopError(f"{launch.directory} is not visible inside the sandbox") from None
    _lock_in(start)
    session = () if serving is None else serving.descriptors
    session += () if upper is None else (upper.descriptor,)
    channel = () if start.terminal is None else (start.terminal.channel,)
    syscalls.close_but((0, 1, 2, start.report, start.ended, *session, *channel))
    table = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
    mounts = syscalls.read_all(table)
    _limit_resources(start.enforcement.rlimits)
    if not start.building:
        os.umask(callers_umask)
    if serving is None:
        status = _reap(_start(start))
    else:
        from coopfile.native.serve import Server

        status = Server(start, serving, upper).serve()
    _tell_lost(mounts, table, start.report)
    _end_all()
    os.write(start.ended, b"1")
    return status


def _enter(directory: str) -> None:
    """Change to a directory, whoever may have put a link to a descriptor of ours there meanwhile."""
    flags, how = syscalls.O_PATH | os.O_DIRECTORY, syscalls.RESOLVE_NO_MAGICLINKS
    descriptor = syscalls.openat2(syscalls.AT_FDCWD, directory, flags, how)
    os.fchdir(descriptor)
    os.close(descriptor)


def _mounts(text: bytes) -> set[tuple[str, str]]:
    """Return number and place of every mount in a table: proc_pid_mountinfo(5)."""
    fields = [line.split(" ", 5) for line in os.fsdecode(text).splitlines()]
    return {(field[0], field[4]) for field in fields}


def _tell_lost(before: bytes, table: int, report_to: int) -> None:
    """Tell of guards that are gone since the table of mounts was read.

    Nobody inside can change it; a mount is gone when the host replaced what it guarded. The
    command may have taken PID 1's means to look (prlimit).
    """
    try:
        os.lseek(table, 0, os.SEEK_SET)
        after = syscalls.read_all(table)
        if after == before:
            return
        lost = [_LOST.format(path) for _, path in sorted(_mounts(before) - _mounts(after))]
    except (OSError, MemoryError):
        lost = ["coop could not tell whether the host replaced a protected file meanwhile"]
    for text in lost:
        report.send(report_to, report.Message(report.NOTE, text))


def _pass_gate(start: Start, groups: list[int]) -> None:
    """Wait for the monitor; end if it died, perhaps before the parent-death signal was set.

    It may have died after it had opened the gate, so what is read then counts too.
    """
    if os.read(start.gate, 1) == b"":
        os._exit(FAILED)
    os.set_blocking(start.gate, False)
    try:
        os.read(start.gate, 1)
        os._exit(FAILED)
    except BlockingIOError:
        pass
    enter(groups, start.monitor)


def _lock_in(start: Start) -> None:
    fence = None
    if start.landlock_abi:
        fence = landlock.Fence(start.landlock_abi)
        root = os.open("/", syscalls.O_PATH | os.O_CLOEXEC)
        fence.allow(root, landlock.READ_DIR)
        os.close(root)
        for path, write in start.layout.landlock:
            fence.allow_path(path, fence.rights if write else landlock.READ)
        for stream in (0, 1, 2):
            fence.allow_stream(stream)
    _limit_core()
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    syscalls.drop_capabilities(BUILD_CAPABILITIES if start.building else 0)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    if fence is not None:
        fence.enforce()
    syscalls.set_seccomp_filter(seccomp.build(syscalls.MACHINE, building=start.building))


def _limit_core() -> None:
    """Forbid core dumps; 1 also keeps the kernel from feeding the host's dump handler: core(5)."""
    syscalls.limit_resource(syscalls.RLIMIT_CORE, 1)


def _limit_resources(rlimits: tuple[tuple[int, int], ...]) -> None:
    """Set limits that no control group enforces, for this process and its children to come."""
    for resource, value in rlimits:
        syscalls.limit_resource(resource, value)


def _start(start: Start) -> int:
    """Start the command; return its number, or tell why it cannot be and end."""
    actions = () if start.terminal is None else _make_terminal(start.terminal)
    started = spawn(start.launch.argv, start.launch.environment, start.mask, actions)
    if isinstance(started, int):
        return started
    report.send(start.report, report.Message(report.COMMAND, started.text))
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


def _end_all() -> None:
    """End what the command left running, and wait until PID 1 is alone, as the kernel would."""
    try:
        os.kill(-1, signals.SIGKILL)
        while True:
            os.waitpid(-1, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def exit_status(status: int) -> int:
    """Return a wait status as a shell would: 128 and the signal's number for a killed process."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
