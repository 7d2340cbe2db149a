"""Running one command in a sandbox, from the caller's side."""

from __future__ import annotations

import os
import stat
import time

from coopfile.errors import CoopError
from coopfile.native import init, landlock, monitor, report, signals, syscalls
from coopfile.native.layout import layout
from coopfile.native.limits import Enforcement, enforcement
from coopfile.plan.bind import Weakening
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.native.layout import Layout
    from coopfile.native.terminal import Saved
    from coopfile.plan.bind import Launch

TIMED_OUT = 124
_GRACE = 5.0  # seconds between asking to end and ending


class Prepared(Record):
    """A launch, laid out for this machine, and what of its plan is weaker here."""

    launch: Launch
    layout: Layout
    enforcement: Enforcement
    landlock_abi: int
    weakenings: tuple[Weakening, ...]


class Outcome(Record):
    """How a command ended: its status as a shell would give it, and notes for people."""

    status: int
    notes: tuple[str, ...] = ()


def prepare(
    launch: Launch,
    inputs: tuple[str, ...] = (),
    private: tuple[str, ...] = (),
    layers: tuple[str, ...] = (),
) -> Prepared:
    """Look at the host and refuse what it cannot do; nothing is changed.

    ``inputs``, ``private`` and ``layers`` are as ``layout`` takes them.
    """
    if not syscalls.supported_machine():
        raise CoopError(f"the native back end does not know this processor ({syscalls.MACHINE})")
    if launch.network not in ("none", "host"):
        raise CoopError(
            f'network.mode = "{launch.network}" is not available on the native back end yet',
            'use "none" or "host"',
        )
    enforced = enforcement(launch.limits)
    abi = landlock.abi()
    weakenings = [*enforced.weakenings]
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
    return Prepared(launch, layout(launch, inputs, private, layers), enforced, abi, tuple(weakenings))


def run(prepared: Prepared, *, timeout: float | None = None) -> Outcome:
    """Run the command with the caller's streams and return when all of it is gone.

    Signals that the caller gets are forwarded. ``timeout`` is in seconds; at its end
    the command is asked to end, and after a grace period made to.
    """
    ensure_streams()
    refuse_directories()
    terminals = _save_terminals()
    receive, send = os.pipe()
    mask = signals.block()
    caller = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(receive)
        monitor.main(
            monitor.Order(
                prepared.launch, prepared.layout, prepared.enforcement, prepared.landlock_abi, send, mask
            ),
            caller,
        )
    os.close(send)
    try:
        status, timed_out = _wait(pid, timeout)
        messages = list(report.receive(receive))
    finally:
        os.close(receive)
        if terminals is not None:
            terminals.restore()
        signals.restore(mask)
    for message in messages:
        if message.kind == report.FAILURE:
            raise CoopError(message.text, message.remedy)
    notes = [message.text for message in messages]
    if timed_out:
        notes.append(f"the command was ended after {timeout:g} s")
    return Outcome(TIMED_OUT if timed_out else status, tuple(notes))


def ensure_streams() -> None:
    """Open what the caller closed of the three streams, so that no pipe of ours takes its number."""
    try:
        while (descriptor := os.open("/dev/null", os.O_RDWR)) <= 2:
            os.set_inheritable(descriptor, True)
    except OSError as error:
        raise CoopError(f"cannot open /dev/null: {error.strerror}") from None
    os.close(descriptor)


def refuse_directories() -> None:
    """Refuse a directory as a stream: through it the command would have the host's tree, past every mount."""
    for descriptor in (0, 1, 2):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise CoopError(
                f"descriptor {descriptor} is open on a directory, which would lead out of the sandbox",
                "give the command a file, a pipe or a terminal",
            )


def _save_terminals() -> Saved | None:
    if not any(os.isatty(stream) for stream in (0, 1, 2)):
        return None
    from coopfile.native.terminal import Saved

    return Saved()


def _wait(pid: int, timeout: float | None) -> tuple[int, bool]:
    """Wait for the monitor; return its status and whether the time ran out."""
    deadline = None if timeout is None else time.monotonic() + timeout
    timed_out = False
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        number = signals.wait(left)
        if number == signals.SIGCHLD:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                if os.WIFSIGNALED(status):
                    raise CoopError(f"the sandbox's monitor was killed by signal {os.WTERMSIG(status)}")
                return init.exit_status(status), timed_out
        elif number is None and not timed_out:
            timed_out, deadline = True, time.monotonic() + _GRACE
            os.kill(pid, signals.SIGTERM)
        elif number is None:
            deadline = None
            os.kill(pid, signals.ABANDONED)
        elif number in signals.FORWARDED:
            os.kill(pid, number)
