"""A command in a session on a container engine: the engine's own process for it, and what goes with it."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import select
import signal
import stat
import struct
import sys
import tempfile
import termios
import time
import tty
from contextlib import ExitStack
from functools import partial

from coopfile.engines import inside
from coopfile.engines.call import EngineError, ask, is_text
from coopfile.engines.timeouts import QUICK
from coopfile.engines.waiting import within
from coopfile.native import wire
from coopfile.native.spawn import NotStarted, spawn
from coopfile.render.docker import Execution, may_have
from coopfile.render.facts import Engine
from coopfile.session import client, forking
from coopfile.session.model import TIMED_OUT, Ended, SessionError, SessionGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from coopfile.session.model import Command

_OVER = 60.0  # seconds from a command's end to that of all that was to end with it
# Rootful Podman gives a command the limits that its own process has: engines.holding.limit_core.
_LIMITING = (
    "import os, resource, sys; core = resource.RLIMIT_CORE; hard = resource.getrlimit(core)[1]; "
    "most = 0 if hard == 0 else 1; resource.setrlimit(core, (most, most)); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
_FILE = 3  # the descriptor of a file of variables, in the engine's process
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)  # what every shell hands on


class ContainerRunning:
    """A command that an engine runs: ``model.Running``.

    Its status is what the engine's command line ends with, which says no more: one above 128 is told as
    a signal's, though the command may have ended with that number itself.
    """

    def __init__(
        self,
        connection: socket,
        process: int,
        directory: str,
        session: str,
        terminal: int | None,
        barred: Callable[[], str],
    ) -> None:
        """``process`` is the engine's, and ``directory`` the session's.

        ``barred`` returns why the command's own directory cannot be entered, nothing if it can.
        """
        self._connection = connection
        self._process = process
        self._directory = directory
        self._session = session
        self._barred = barred
        self._began = time.monotonic()
        self._ended = os.pidfd_open(process)
        self._reaped = False
        self._events = select.epoll()
        self._events.register(self._ended, select.EPOLLIN)
        self._events.register(connection.fileno(), select.EPOLLIN)
        self.terminal = terminal
        try:
            wire.send(connection, ("client",), (self._ended,))
        except wire.Broken:
            pass  # the session is ending, and with it the command

    def fileno(self) -> int:
        """Return what can be read when the engine's process has ended, or what keeps the session has."""
        return self._events.fileno()

    def wait(self) -> Ended:
        """Wait for the end. Raises SessionGone."""
        while not (found := self._events.poll()):
            continue
        if self._ended not in (descriptor for descriptor, _ in found):
            # Not every engine's process ends with the container.
            self.close()
            raise self._lost()
        try:
            _, status = os.waitpid(self._process, 0)
        except ChildProcessError:
            raise self._lost() from None  # somebody in this program has waited for it
        finally:
            self._reaped = True
            took = time.monotonic() - self._began
        code = os.waitstatus_to_exitcode(status)
        try:
            self._connection.settimeout(_OVER)
            wire.send(self._connection, ("ended", code))
            (_, timed_out, known, note), _ = wire.receive(self._connection)
        except (wire.Broken, ValueError):
            raise self._lost() from None
        finally:
            self.close()
        notes = (note,) if note else ()
        if timed_out:
            return Ended(TIMED_OUT, timed_out=True, duration=took, notes=notes)
        if not known:
            raise self._lost()
        if code < 0:
            text = f"somebody killed the process by which the command ran ({signal.Signals(-code).name})"
            error = SessionGone(text, "the command was ended, too", session=self._session)
            error.begun = True
            raise error
        if code == inside.BARRED and (why := self._barred()):
            raise SessionError(why, "name a directory of the sandbox", session=self._session)
        number = code - 128 if 128 < code < 128 + signal.NSIG else None
        return Ended(code, signal=number, duration=took, notes=notes)

    def signal(self, number: int) -> None:
        """Send a signal to the command's process group."""
        try:
            wire.send(self._connection, ("signal", int(number)))
        except wire.Broken:
            pass  # the session has ended

    def close(self) -> None:
        """Let go of the command: this ends its engine's process, and the session the command."""
        if self._ended < 0:
            return
        try:
            self._connection.shutdown(2)  # SHUT_RDWR: a forked process may have the connection, too
        except OSError:
            pass
        self._connection.close()
        if not self._reaped:
            try:
                signal.pidfd_send_signal(self._ended, signal.SIGKILL)
                os.waitpid(self._process, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
        self._events.close()
        ended, self._ended = self._ended, -1
        os.close(ended)

    def forked(self) -> None:
        """Let go of it in a child that the program has forked: the engine's process is not that one's."""
        self._reaped = True
        if self._ended >= 0:
            forking.let_go((self._connection.fileno(), self._events.fileno(), self._ended))

    def _lost(self) -> SessionGone:
        return client.gone(self._directory, self._session, "before the command's result was known")


def begin(directory: str, session: str, command: Command, streams: Sequence[int]) -> ContainerRunning:
    """Have the engine of a session start a command. Raises SessionGone, SessionError."""
    _check(command, session)
    token = secrets.token_hex(16)
    asked = ("follow", token, command.timeout, command.terminal is not None)
    try:
        connection, message, _ = client.request(directory, session, asked)
    except SessionGone as error:
        error.begun = False  # it is from here that commands are started
        raise
    terminal = None
    try:
        with ExitStack() as stack:
            argv, environment, actions = _called(message[1], command, token, streams, stack)
            if command.terminal is not None:
                terminal, more = _terminal(command.terminal[:2], stack)
                actions = [*more, *actions]
            started = spawn(argv, environment, set(), actions)
        if isinstance(started, NotStarted):
            raise SessionError(f"the command cannot be started: {started.text}", session=session)
        barred = partial(_barred, message[1], command)
        return ContainerRunning(connection, started, directory, session, terminal, barred)
    except BaseException as error:
        connection.close()
        if terminal is not None:
            os.close(terminal)
        if isinstance(error, OSError):
            raise SessionError(f"the command cannot be started: {error.strerror}", session=session) from None
        raise


def _called(
    facts: Mapping[str, Any], command: Command, token: str, streams: Sequence[int], stack: ExitStack
) -> tuple[tuple[str, ...], dict[str, str], list[Any]]:
    """Return argv, environment and descriptors of the engine's process; ``stack`` closes what is open."""
    engine = Engine(facts["engine"], facts["program"])
    environment = dict(facts["environment"])
    given = {**facts["inherited"], **dict(command.environment), inside.TOKEN: token}
    inherited = tuple(name for name, value in given.items() if may_have(name, value, environment))
    # The rest would be the engine's own, too, and it would act on that.
    others = {name: value for name, value in given.items() if name not in inherited}
    for name, value in others.items():
        if "\n" in value or "\r" in value:
            raise SessionError(
                f"{name} has a line break, with which {engine.name} cannot hand it on",
                "give it another name, or use the native back end",
            )
    kept = [_kept(stream, stack) for stream in streams]
    actions: list[Any] = [(os.POSIX_SPAWN_DUP2, stream, number) for number, stream in enumerate(kept)]
    if others:
        text = "".join(f"{name}={value}\n" for name, value in others.items())
        actions += [(os.POSIX_SPAWN_DUP2, _file(text, stack), _FILE)]
    size = None if command.terminal is None else command.terminal[:2]
    execution = Execution(
        inside.entering(facts["began"], _place(facts, command), command.argv, size),
        inherited,
        f"/dev/fd/{_FILE}" if others else "",
        input=command.terminal is not None or not _is_null(streams[0]),
        terminal=command.terminal is not None,
    )
    argv = within(engine, facts["runtime"], facts["container"], execution)
    if facts["hands_on_limits"]:
        argv = (sys.executable, "-I", "-S", "-c", _LIMITING, *argv)
    return argv, {**environment, **{name: given[name] for name in inherited}}, actions


def _place(facts: Mapping[str, Any], command: Command) -> str:
    """Return where a command starts, as a path inside."""
    place: str = command.directory or facts["workspace"]
    return place if place.startswith("/") else f"{facts['workspace']}/{place}"


def _barred(facts: Mapping[str, Any], command: Command) -> str:
    """Return the error of a command that could not start where it was to; nothing if it could."""
    place = _place(facts, command)
    engine = Engine(facts["engine"], facts["program"])
    execution = Execution(inside.entering_fails(place))
    argv = within(engine, facts["runtime"], facts["container"], execution)
    try:
        why = ask(argv, QUICK, facts["environment"]).out.strip()
    except EngineError:
        return ""  # what the command ended with stands
    return f"{place} cannot be entered inside the sandbox: {why}" if why else ""


def _file(text: str, stack: ExitStack) -> int:
    """Return a descriptor of a file without a name that holds a text."""
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        return _kept(file.fileno(), stack)


def _kept(descriptor: int, stack: ExitStack) -> int:
    """Return another descriptor of the same, which is not in the way of those that a process gets."""
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FILE + 1)
    stack.callback(os.close, copy)
    return copy


def _is_null(stream: int) -> bool:
    status = os.fstat(stream)
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == os.stat(os.devnull).st_rdev


def _terminal(size: tuple[int, int], stack: ExitStack) -> tuple[int, list[Any]]:
    """Return our end of a new terminal, and what makes the other end that of the process it is for.

    It is one of the host, which carries bytes between the caller and the engine; the command's own is
    the engine's.
    """
    ours, theirs = os.openpty()
    stack.callback(os.close, theirs)
    try:
        tty.setraw(theirs)  # the engine's process does so later, and until then would echo
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        # Opened by the leader of a session it is that one's terminal: so the size is followed.
        opened = (os.POSIX_SPAWN_OPEN, 0, os.ttyname(theirs), os.O_RDWR, 0)
    except BaseException:
        os.close(ours)
        raise
    return ours, [opened, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]


def _check(command: Command, session: str) -> None:
    """Refuse what no container engine, or no shell, hands on as it is."""
    words = (*command.argv, command.directory or "", *(value for _, value in command.environment))
    for word in words:
        if "\0" in word or not is_text(word):
            text = f"{word!a} is no text in UTF-8, and container engines take nothing else"
            raise SessionError(text, "use the native back end", session=session)
    for name, _ in command.environment:
        if not _NAME.fullmatch(name):
            text = f"{name!a} is no name of a variable that a shell would hand on"
            raise SessionError(text, "letters, digits and _ make one", session=session)
