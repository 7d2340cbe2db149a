"""A command of a session with the caller's streams, or on the caller's terminal.

On the path of ``coop exec``, which is to cost little more than an interpreter.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found, unused-ignore]
import os
import select
import time

from coopfile import startup
from coopfile.find import directories
from coopfile.native.signals import FORWARDED, block, restore
from coopfile.plan.sessions import log_path
from coopfile.session.model import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from coopfile.native.terminal import Saved
    from coopfile.session.model import Ended, Running

    Begin = Callable[[Command, Sequence[int]], Running]

_STREAMS = (0, 1, 2)


def run(begin: Begin, command: Command, directory: str, began: float | None = None) -> int:
    """Run a command, on the caller's terminal if it is to have one; return the exit status.

    ``begin`` is ``Live.begin``, and ``directory`` the session's. Signals to this process are passed on.
    What was blocked meanwhile is told at the end: since ``began``, for what has been begun already. Raises
    SessionError.
    """
    began = time.time() if began is None else began
    ended = _with_streams(begin, command) if command.terminal is None else _on_terminal(begin, command)
    if ended.timed_out and command.timeout is not None:
        _say(f"the command was ended after {command.timeout:g} s")
    for note in (*ended.notes, *_blocked(directory, began)):
        _say(note)
    return ended.status


def _blocked(directory: str, began: float) -> tuple[str, ...]:
    """Return what the session's proxy has blocked since then, if it has one."""
    log = log_path(directories(os.environ).state, os.path.basename(directory))
    if not os.path.exists(log):
        return ()
    from coopfile.proxy import denials

    return denials.told(denials.since(log, began))


def has_terminal(streams: Sequence[int] = _STREAMS) -> bool:
    """Tell whether streams of the caller are terminals.

    One that leads elsewhere is the command's as it is: a terminal inside would take its place.
    """
    return all(os.isatty(stream) for stream in streams)


def terminal() -> tuple[int, int, bytes]:
    """Return what a command's terminal is to be like, the caller's: ``Command.terminal``."""
    from coopfile.native import relay

    return (*relay.size(), relay.settings())


def dressed(asked: Command, named: Collection[str]) -> Command:
    """Tell a command about the caller's terminal, but for variables that the plan has ``named``.

    What has none gets the session's own variables: the same ones, whoever calls.
    """
    if asked.terminal is None:
        return asked
    from coopfile.plan.hosttools import passed

    own = tuple(item for item in passed(os.environ).items() if item[0] not in named)
    return asked.replace(environment=(*own, *asked.environment))


def _on_terminal(begin: Begin, command: Command) -> Ended:
    from coopfile.native import relay

    mask = block()  # what comes before the relay does waits for it
    try:
        running = begin(command, ())
        try:
            if running.terminal is not None:  # None: it could not be started
                try:
                    relay.attend(running.terminal, running.fileno(), running.signal)
                finally:
                    os.close(running.terminal)
            return running.wait()
        finally:
            running.close()
    finally:
        restore(mask)


def _with_streams(begin: Begin, command: Command) -> Ended:
    terminals = _saved_terminals()
    signals = _Signals()
    try:
        running = begin(command, _STREAMS)
        try:
            signals.forward(running)
            return running.wait()
        finally:
            running.close()
    finally:
        signals.close()
        if terminals is not None:
            terminals.restore()


def _saved_terminals() -> Saved | None:
    if not any(os.isatty(stream) for stream in _STREAMS):
        return None
    from coopfile.native.terminal import Saved

    return Saved()


class _Signals:
    """Takes the signals that are passed on, from now on: they become bytes in a pipe.

    So none is lost between a look and a wait, whatever the session's descriptor is.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._before = _signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        # What the caller has us ignore, as nohup(1) does, is not for the command either.
        taken = FORWARDED | {_signal.SIGTSTP}
        numbers = [number for number in taken if _signal.getsignal(number) != _signal.SIG_IGN]
        self._handlers = [(number, _signal.signal(number, _ignore)) for number in numbers]

    def forward(self, running: Running) -> None:
        """Pass signals on until the command has ended."""
        ended = running.fileno()
        waiting = select.poll()
        waiting.register(ended, select.POLLIN)
        waiting.register(self._reading, select.POLLIN)
        while ended not in (ready := dict(waiting.poll())):
            if self._reading in ready:
                for number in os.read(self._reading, 64):
                    if number == _signal.SIGTSTP:
                        self._stop(running)
                    else:
                        running.signal(number)

    def _stop(self, running: Running) -> None:
        """Be stopped as a job is, and with it the command, which may have the terminal as its input.

        That is nobody's job on a terminal, so for it the kernel would drop what Ctrl-Z sends.
        """
        running.signal(_signal.SIGSTOP)
        handler = _signal.signal(_signal.SIGTSTP, _signal.SIG_DFL)
        os.kill(os.getpid(), _signal.SIGTSTP)
        # Here it is stopped, unless nobody could continue it: then the kernel drops the signal.
        _signal.signal(_signal.SIGTSTP, handler)
        running.signal(_signal.SIGCONT)

    def close(self) -> None:
        """Leave signals to whom they were left before."""
        for number, handler in self._handlers:
            _signal.signal(number, handler)
        _signal.set_wakeup_fd(self._before)
        os.close(self._reading)
        os.close(self._writing)


def _ignore(number: int, frame: object) -> None:
    """Do nothing: what counts is the byte that the interpreter writes."""


def _say(text: str) -> None:
    from coopfile.cli.output import safe

    startup.tell(f"coop: {safe(text)}\n")
