"""What the processes beside a sandbox have in common: they end with the monitor, and may do little.

They are forked by the monitor while it is in the host's namespaces, and get what they need from
PID 1 through a channel.
"""

from __future__ import annotations

import os
from _thread import stack_size

from coopfile.native import landlock, seccomp, signals, syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn

    from coopfile.proxy.loop import Loop

_MOST = 2048  # connections; each takes two descriptors
_DESCRIPTORS = 64  # for all else
_MEMORY = 512 << 20  # bytes: twice what so many connections can have it hold
_STACK = 1 << 20  # bytes, of each thread, whatever `ulimit -s` says
LATER = 0.03  # seconds in which those that start the command have the processors; a connection ends it


def be(serve: Callable[[], None], notes: int, words: str) -> NoReturn:
    """Be such a process; never returns. If ``serve`` fails, ``words`` and why go into the pipe ``notes``."""
    try:
        serve()
    except BaseException as error:  # a traceback must not reach the caller's terminal
        os.write(notes, f"{words}: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(0)


def depend(monitor: int) -> bool:
    """Have the kernel end this process with the monitor; tell whether that lives.

    To be called again after each change of credentials, which clears it: prctl(2).
    """
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signals.SIGKILL)
    return os.getppid() == monitor


def let_go(kept: Iterable[int]) -> None:
    """Hold nothing else open of the caller's that others wait to be closed."""
    empty = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for stream in (0, 1, 2):
        os.dup2(empty, stream)
    syscalls.close_but((0, 1, 2, *kept))
    os.chdir("/")


def connections() -> int:
    """Return how many connections there may be, with as many descriptors as this process may have."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * _MOST + _DESCRIPTORS
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return max((most - _DESCRIPTORS) // 2, 1)


def lock_in(abi: int, readable: Iterable[str] = ()) -> None:
    """Give up what serving strangers' connections does not take: privileges, and the caller's files."""
    fence = None
    if abi:
        fence = landlock.Fence(abi)
        for path in readable:
            fence.allow_path(path, landlock.READ_FILE | landlock.READ_DIR)
    syscalls.limit_resource(syscalls.RLIMIT_DATA, _MEMORY)
    stack_size(_STACK)
    give_up_privileges()
    if fence is not None:
        fence.enforce()
    syscalls.set_seccomp_filter(seccomp.build(syscalls.MACHINE))


def give_up_privileges() -> None:
    """Have no capability, gain none, and let nobody trace this process."""
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    syscalls.set_capabilities(0)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)


async def until_closed(loop: Loop, channel: int) -> None:
    """Wait until the sandbox is gone: nobody writes into the channel any more."""
    from coopfile.proxy.loop import NEVER

    os.set_blocking(channel, False)
    while True:
        try:
            if not os.read(channel, 1):
                return
        except BlockingIOError:
            await loop.readable(channel, NEVER)


def told(pipe: int) -> tuple[str, ...]:
    """Return the lines that such a process has for people so far."""
    os.set_blocking(pipe, False)
    try:
        data = os.read(pipe, 1 << 16)
    except BlockingIOError:
        return ()
    return tuple(data.decode("utf-8", "replace").splitlines())
