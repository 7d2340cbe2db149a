"""Talking to a session in namespaces: on the path of ``coop exec``, so it imports next to nothing."""

from __future__ import annotations

import os

from coopfile.native import wire
from coopfile.session.model import Ended, SessionError, SessionGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Sequence
    from typing import Any

    from coopfile.audit import About
    from coopfile.session.model import Command

_LARGEST_NOTES = 65536  # bytes
_ENDS = 5.0  # seconds that a session that is ending may take
_MOST_DESCRIPTORS = 2  # of an answer
_UNREACHABLE = 2.0  # the same when nothing leads to it


class NativeRunning:
    """A command that a supervisor looks after, at the other end of a connection: ``model.Running``."""

    def __init__(
        self, connection: socket, directory: str, session: str, terminal: int | None, ended: Ended | None
    ) -> None:
        self._connection = connection
        self._directory = directory
        self._session = session
        self._ended = ended
        self.terminal = terminal

    def fileno(self) -> int:
        """Return the connection's descriptor: the only thing that comes is how the command ended."""
        return self._connection.fileno()

    def wait(self) -> Ended:
        """Wait for the end. Raises SessionGone."""
        if self._ended is None:
            try:
                message, _ = wire.receive(self._connection)
                self._ended = Ended(*message[1:])
            except (wire.Broken, TypeError):
                raise gone(self._directory, self._session, "before the command's result was known") from None
        self._connection.close()
        return self._ended

    def signal(self, number: int) -> None:
        """Send a signal to the command's process group."""
        try:
            wire.send(self._connection, ("signal", int(number)))
        except wire.Broken:
            pass  # it has ended

    def close(self) -> None:
        """Let go of the command, also if a forked process has the connection too."""
        try:
            self._connection.shutdown(2)  # SHUT_RDWR
        except OSError:
            pass
        self._connection.close()

    def forked(self) -> None:
        """Let go of it in a child that the program has forked: it ends with the program, not with that."""
        from coopfile.session import forking

        forking.let_go((self._connection.fileno(),))


def begin(
    directory: str,
    session: str,
    command: Command,
    streams: Sequence[int],
    connection: socket | None = None,
    plan: str | None = None,
) -> NativeRunning:
    """Start a command in a session that runs; over a ``connection`` it has been asked for that already.

    ``plan`` is the digest of what it is to run under, None for whatever that is. Raises SessionGone,
    SessionError.
    """
    if connection is None:
        asked = wire.command(
            command.argv, command.environment, command.directory, command.timeout, command.terminal, plan
        )
        connection = _asked(directory, session, asked, streams)
    connection, message, descriptors = _answer(directory, session, connection)
    if message[0] == wire.ELSEWHERE:
        connection.close()
        raise _absent(session)
    connection.settimeout(None)
    ended = Ended(*message[1:]) if message[0] == "ended" else None
    return NativeRunning(connection, directory, session, descriptors[0] if descriptors else None, ended)


def request(
    directory: str, session: str, asked: tuple[Any, ...], streams: Sequence[int] = ()
) -> tuple[socket, tuple[Any, ...], list[int]]:
    """Ask a session for something; return the connection, the answer and its descriptors.

    Raises SessionGone when the session is not there, SessionError when it refuses.
    """
    return _answer(directory, session, _asked(directory, session, asked, streams))


def _asked(directory: str, session: str, asked: tuple[Any, ...], streams: Sequence[int]) -> socket:
    try:
        connection = wire.session(directory)
    except OSError as error:
        text = f"the session {session} cannot be asked: {error.strerror}"
        raise SessionError(text, "close files, or raise the limit: ulimit -n", session=session) from None
    if connection is None:
        raise _unreachable(directory, session)
    try:
        if not wire.ask(connection, asked, streams):
            raise SessionError(f"the session {session} belongs to another user", session=session)
    except BaseException as error:
        connection.close()
        if isinstance(error, wire.TooLong):
            raise SessionError(f"no command may be as long: {error}", session=session) from None
        if isinstance(error, wire.Crowded):
            raise SessionError(error.why, error.remedy, session=session) from None
        raise
    return connection


def _answer(directory: str, session: str, connection: socket) -> tuple[socket, tuple[Any, ...], list[int]]:
    try:
        message, descriptors = wire.receive(connection, _MOST_DESCRIPTORS)
    except BaseException as error:
        connection.close()
        if isinstance(error, wire.Broken):
            raise gone(directory, session, "before it answered") from None
        raise
    if message[0] == "refused":
        connection.close()
        raise SessionError(message[1], message[2] or None, session=session)
    if message[0] == "gone":
        connection.close()
        raise gone(directory, session, "before it was asked", begun=False)
    if message[0] == "replaced":
        connection.close()
        text = f"the session {session} has ended, and was started again under another plan"
        raise SessionGone(text, f"coop stop {session} ends that one", session=session)
    return connection, message, descriptors


def secrets(directory: str, session: str, about: About) -> dict[str, str] | None:
    """Return what a session that runs has of its starter's variables, by name; None if nobody tells.

    That is what the audit log must not have.
    """
    if not about.variables:
        return {}
    asked = ("variables", None, tuple(name for name, _ in about.variables))
    try:
        connection, message, _ = request(directory, session, asked)
    except SessionError:
        return None
    connection.close()
    return {name: value for name, value in message[1] if value}


def gone(directory: str, session: str, when: str, *, begun: bool = True) -> SessionGone:
    """Return the error that says that a session has ended, and what it had to tell."""
    ended = _wait_end(directory, _ENDS)  # the last notes come at the very end
    what = f"the session {session} ended" if ended else f"the connection to the session {session} broke off"
    text = "; ".join((f"{what} {when}", *(notes(directory) if ended else ())))
    error = SessionGone(text, "the next command starts it again", session=session)
    error.begun = begun
    return error


def _absent(session: str) -> SessionGone:
    text = f"the session {session} does not run"
    return SessionGone(text, "the next command starts it again", session=session)


def _unreachable(directory: str, session: str) -> SessionError:
    """Return the error of a session that nothing leads to."""
    from coopfile.session import store

    if _wait_end(directory, _UNREACHABLE) or store.is_starting(directory):
        return _absent(session)
    return SessionError(
        f"the session {session} runs, but cannot be reached: something is wrong in {directory}",
        f"coop stop {session} ends it",
        session=session,
    )


def _wait_end(directory: str, seconds: float) -> bool:
    from coopfile.session import store

    return store.wait_end(directory, seconds)


def notes(directory: str) -> tuple[str, ...]:
    """Return what a session that has ended had to tell."""
    from coopfile.native import report

    try:
        descriptor = os.open(f"{directory}/notes", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ()
    try:
        return tuple(message.text for message in report.receive(descriptor, _LARGEST_NOTES))
    except (OSError, ValueError):
        return ()  # it is no file, or of somebody else's making
    finally:
        os.close(descriptor)
