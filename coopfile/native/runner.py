"""Running one command in a sandbox, from the caller's side."""

from __future__ import annotations

import os
import time

from coopfile import startup
from coopfile.errors import CoopError
from coopfile.native import init, monitor, report, seccomp, signals, streams, syscalls, title
from coopfile.native.cgroups import Group
from coopfile.native.confine import Lock
from coopfile.native.placeholders import Placeholders
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.native.prepared import Prepared
    from coopfile.native.publishing import Listener
    from coopfile.native.relay import Relay
    from coopfile.native.terminal import Saved
    from coopfile.plan.launch import Launch

TIMED_OUT = 124
# What the forked processes call of libc.
_FUNCTIONS = ("mount", "prctl", "prlimit", "sethostname", "setns", "socket", "umount2", "unshare")
_TIME = 0  # no signal has this number
_GRACE = 5.0  # seconds between asking to end and ending


class Outcome(Record):
    """How a command ended: its status as a shell would give it, and notes for people.

    ``interrupted`` is the signal to the caller that ended it, where such signals end it.
    """

    status: int
    notes: tuple[str, ...] = ()
    interrupted: int | None = None


def run(prepared: Prepared, *, timeout: float | None = None, output: int | None = None) -> Outcome:
    """Run the command with the caller's streams and return when all of it is gone.

    Where input and output are a terminal, the command gets one of the sandbox's own instead.
    Signals that the caller gets are forwarded. ``timeout`` is in seconds; at its end
    the command is asked to end, and after a grace period made to. With ``output``, a
    descriptor for both of its output streams, the command has no input, and a signal
    that asks the caller to end ends it at once.
    """
    streams.ensure()
    streams.refuse_directories()
    listeners = listen(prepared.launch)
    terminals = channel = wanted = None
    if output is None and os.isatty(0) and os.isatty(1):
        from coopfile.native import relay

        channel, wanted = relay.offer()
    else:
        terminals = _save_terminals()
    receive, send = os.pipe()
    mask = signals.block()
    caller = os.getpid()
    # What a forked process does for the first time costs it a copy of each page that it writes to.
    syscalls.look_up(_FUNCTIONS)
    try:
        title.look()
    except OSError:
        pass  # without /proc the monitor tells why that cannot be
    order = monitor.Order(
        prepared.launch,
        prepared.layout,
        prepared.enforcement,
        prepared.landlock_abi,
        send,
        mask,
        Lock(seccomp.build(syscalls.MACHINE, building=prepared.building), prepared.building),
        prepared.building,
        Group(),
        Placeholders(),
        prepared.means,
        prepared.log,
        listeners,
        wanted,
    )
    startup.keep(order)
    pid = os.fork()
    if pid == 0:
        os.close(receive)
        if channel is not None:
            channel.close()
        if output is not None:
            _redirect(output)
        monitor.main(order, caller)
    os.close(send)
    for listener in listeners:
        listener.socket.close()
    attending = None
    try:
        if channel is not None and wanted is not None:
            os.close(wanted.channel)
            attending = relay.Relay(channel=channel)
        ending = signals.ending() if output is not None else frozenset()
        try:
            status, reason = _wait(pid, timeout, ending, attending)
        finally:
            if attending is not None:
                attending.finish()
        messages = list(report.receive(receive))
    finally:
        if attending is not None:
            attending.close()
        os.close(receive)
        if terminals is not None:
            terminals.restore()
        signals.restore(mask)
    for message in messages:
        if message.kind == report.FAILURE:
            raise CoopError(message.text, message.remedy)
    notes = [message.text for message in messages]
    if reason == _TIME:
        notes.append(f"the command was ended after {timeout:g} s")
        return Outcome(TIMED_OUT, tuple(notes))
    return Outcome(status, tuple(notes), reason)


def listen(launch: Launch) -> tuple[Listener, ...]:
    """Listen on the host for the sandbox's ports, before anything else. Raises SettingError."""
    if not launch.publish:
        return ()
    from coopfile.native import publishing

    return publishing.listen(launch.publish)


def _save_terminals() -> Saved | None:
    if not any(os.isatty(stream) for stream in (0, 1, 2)):
        return None
    from coopfile.native.terminal import Saved

    return Saved()


def _redirect(output: int) -> None:
    """Replace the three streams of this process: nothing comes in, and all goes out by one descriptor."""
    empty = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    for source, stream in ((output, 1), (output, 2), (empty, 0)):
        os.dup2(source, stream)


def _wait(
    pid: int, timeout: float | None, ending: frozenset[int], attending: Relay | None
) -> tuple[int, int | None]:
    """Wait for the monitor; return its status, and what ended it early: ``_TIME`` or one of ``ending``."""
    wait = signals.wait if attending is None else attending.wait
    deadline = None if timeout is None else time.monotonic() + timeout
    reason = None
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        number = wait(left)
        if number == signals.SIGCHLD:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                if os.WIFSIGNALED(status):
                    raise CoopError(f"the sandbox's monitor was killed by signal {os.WTERMSIG(status)}")
                return init.exit_status(status), reason
        elif number is None and reason is None:
            reason, deadline = _TIME, time.monotonic() + _GRACE
            os.kill(pid, signals.SIGTERM)
        elif number is None:
            deadline = None
            os.kill(pid, signals.ABANDONED)
        elif number in ending:
            reason, deadline = number, None
            os.kill(pid, signals.ABANDONED)
        elif number in signals.FORWARDED:
            os.kill(pid, number)
