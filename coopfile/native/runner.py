"""Running one command in a sandbox, from the caller's side."""

from __future__ import annotations

import os
import time

from coopfile.errors import CoopError
from coopfile.native import init, landlock, monitor, report, seccomp, signals, streams, syscalls, title
from coopfile.native.confine import Lock
from coopfile.native.layout import layout
from coopfile.native.limits import Enforcement, enforcement
from coopfile.plan.bind import Weakening
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.native.layout import Layout
    from coopfile.native.network import Means
    from coopfile.native.publishing import Listener
    from coopfile.native.relay import Relay
    from coopfile.native.terminal import Saved
    from coopfile.plan.bind import Launch

TIMED_OUT = 124
_TIME = 0  # no signal has this number
_GRACE = 5.0  # seconds between asking to end and ending


class Prepared(Record):
    """A launch, laid out for this machine, and what of its plan is weaker here.

    ``means`` are what may connect it to the internet, in order; ``log`` is the file for what its
    proxy blocks, empty for none.
    """

    launch: Launch
    layout: Layout
    enforcement: Enforcement
    landlock_abi: int
    weakenings: tuple[Weakening, ...]
    building: bool = False
    means: tuple[Means, ...] = ()
    log: str = ""


class Outcome(Record):
    """How a command ended: its status as a shell would give it, and notes for people.

    ``interrupted`` is the signal to the caller that ended it, where such signals end it.
    """

    status: int
    notes: tuple[str, ...] = ()
    interrupted: int | None = None


def prepare(
    launch: Launch,
    inputs: tuple[str, ...] = (),
    private: tuple[str, ...] = (),
    layers: tuple[str, ...] = (),
) -> Prepared:
    """Look at the host and refuse what it cannot do; nothing is changed.

    ``inputs``, ``private`` and ``layers`` are as ``layout`` takes them.
    """
    return prepare_layout(launch, layout(launch, inputs, private, layers))


def prepare_layout(launch: Launch, laid_out: Layout, *, building: bool = False) -> Prepared:
    """Look at the host like ``prepare``, for what is laid out already."""
    if not syscalls.supported_machine():
        raise CoopError(f"the native back end does not know this processor ({syscalls.MACHINE})")
    means: tuple[Means, ...] = ()
    if launch.network == "veth":
        means = internet("setup.network" if building else "network.mode", laid_out.writable)
    elif launch.network == "proxy":
        from coopfile.plan.reach import VARIABLES

        launch = launch.replace(environment={**VARIABLES, **launch.environment})
    enforced = enforcement(launch.limits)
    abi = landlock.abi()
    weakenings = [*enforced.weakenings]
    if laid_out.root.needs_disk():
        text = "not held for the root file system: what is written there is on disk until the end"
        weakenings.append(Weakening("limits.tmp", text, "Linux 6.6 or newer"))
    if not abi:
        weakenings.append(
            Weakening(
                "landlock",
                "this kernel has no Landlock: files are fenced by mounts alone",
                "boot with landlock in lsm= (Linux 5.13 and newer)",
            )
        )
    elif abi < 6 and launch.network == "host":
        text = "abstract sockets of the host are within reach: Landlock fences them from ABI 6 (Linux 6.12)"
        weakenings.append(Weakening("network.mode", text, 'network.mode = "none" cuts them off'))
    return Prepared(launch, laid_out, enforced, abi, tuple(weakenings), building, means)


def internet(key: str, writable: tuple[str, ...] = ()) -> tuple[Means, ...]:
    """Return what may connect a sandbox whose plan says ``veth`` at ``key``; ``writable``: ``network.find``.

    Raises CoopError when there is nothing.
    """
    from coopfile.native import network

    try:
        return network.find(writable)
    except CoopError as error:
        instead = f'{key} = "host", which reaches all that this machine does'
        remedy = f"{error.remedy}; or {instead}" if error.remedy else instead
        raise CoopError(f'{key} = "veth": {error.message}', remedy) from None


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
        prepared.means,
        prepared.log,
        listeners,
        wanted,
    )
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
