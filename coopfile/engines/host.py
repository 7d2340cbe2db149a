"""Running a command on the host itself, with nothing around it: for ``sandbox.fallback = "host"``."""

from __future__ import annotations

import os
import signal

from coopfile.engines.attend import attend
from coopfile.engines.processes import children
from coopfile.native import streams, syscalls
from coopfile.native.runner import TIMED_OUT, Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


def run(
    argv: Sequence[str], environment: Mapping[str, str], directory: str, *, timeout: float | None = None
) -> Outcome:
    """Run a command in a directory with the caller's streams, and return how it ended, as a shell tells it.

    Signals that the caller gets are passed on. At the end of ``timeout`` seconds the
    command is asked to end; after a grace period it is killed with all that it started.
    """
    streams.ensure()
    os.chdir(directory)
    # What outlives its parent becomes a child of this process, where it can be found.
    syscalls.prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def stop(pid: int, number: signal.Signals) -> None:
        if number == signal.SIGKILL:
            _kill_tree(pid)
        else:
            os.kill(pid, number)

    program = _found(argv[0], environment.get("PATH", os.defpath))
    if program is None:
        return Outcome(127, (f"{argv[0]}: command not found",))
    try:
        ended = attend((program, *argv[1:]), environment, timeout=timeout, stop=stop, name=argv[0])
    except OSError as error:
        return Outcome(
            127 if isinstance(error, FileNotFoundError) else 126, (f"{argv[0]}: {error.strerror}",)
        )
    if ended.timed_out:
        for child in children(os.getpid()):
            _kill_tree(child)
        return Outcome(TIMED_OUT, (f"the command was ended after {timeout:g} s",))
    return Outcome(ended.status if ended.status >= 0 else 128 - ended.status)


def _found(name: str, path: str) -> str | None:
    """Return where a program is, as a shell looks for it: one that may not be executed is the last resort."""
    if "/" in name:
        return name
    files = [f"{directory or '.'}/{name}" for directory in path.split(":")] if name else []
    files = [file for file in files if os.path.isfile(file)]
    return next((file for file in files if os.access(file, os.X_OK)), files[0] if files else None)


def _kill_tree(pid: int) -> None:
    """Kill a process and all below it; each is stopped first, so that it starts no more."""
    known: list[int] = []
    pending = [pid]
    while pending:
        current = pending.pop()
        if _signal(current, signal.SIGSTOP):
            known.append(current)
            pending += children(current)
    for process in known:
        _signal(process, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
