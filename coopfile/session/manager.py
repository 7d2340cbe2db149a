"""``coopfile.SessionManager``: a session for each of whatever a program tells apart."""

from __future__ import annotations

import os
import threading
from hashlib import blake2b

from coopfile.errors import CoopError
from coopfile.plan.sessions import is_name
from coopfile.session import forking
from coopfile.session.closing import Closing, each
from coopfile.session.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Unpack

    from coopfile.plan.model import Plan
    from coopfile.session.backend import Backend
    from coopfile.session.result import Result
    from coopfile.session.session import ExecOptions

_HASH = 10  # bytes of a digest, for equal names of different keys not to be found
_READABLE = 24  # characters of a key that are in its session's name
_PREFIX = 16  # characters


class SessionManager(Closing):
    """One session for each key, such as a conversation or a user, started when it is first used.

    A key is any text; equal keys have the same session, with the same kept directories, in the next
    run of the program, too. Safe to use from several threads.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        directory: str | os.PathLike[str] = ".",
        prefix: str = "key",
        ttl: float | None = None,
        leased: bool = True,
        backend: Backend | None = None,
        audit: bool = True,
    ) -> None:
        """Describe the sessions; what is not said here is as for `Session`.

        Their names, which ``coop ls`` shows, begin with ``prefix``. ``leased`` ones end with this
        program; without that they go on, and are found again.
        """
        if not is_name(prefix) or len(prefix) > _PREFIX:
            raise CoopError(
                f"the prefix {prefix!r:.80} cannot begin the names of sessions",
                f"it has 1 to {_PREFIX} letters, digits, hyphens or underscores, and begins with no -",
            )
        self._plan = plan
        self._directory = os.path.abspath(directory)
        self._prefix = prefix
        self._ttl = ttl
        self._leased = leased
        self._backend = backend
        self._audit = audit
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()
        forking.track(self)
        self._new("")  # what is wrong is said now

    def get(self, key: str) -> Session:
        """Return the session of a key."""
        with self._lock:
            session = self._sessions.get(key)
            if session is None:
                session = self._sessions[key] = self._new(key)
            return session

    def keys(self) -> tuple[str, ...]:
        """Return the keys that have been used here and not destroyed, oldest first."""
        with self._lock:
            return tuple(self._sessions)

    def exec(self, key: str, argv: Sequence[str], **options: Unpack[ExecOptions]) -> Result:
        """Run a command in a key's session: see `Session.exec`."""
        return self.get(key).exec(argv, **options)

    def shell(self, key: str, text: str, **options: Unpack[ExecOptions]) -> Result:
        """Run a text as a shell does in a key's session: see `Session.shell`."""
        return self.get(key).shell(text, **options)

    async def exec_async(self, key: str, argv: Sequence[str], **options: Unpack[ExecOptions]) -> Result:
        """Run a command in a key's session: see `Session.exec_async`."""
        return await self.get(key).exec_async(argv, **options)

    async def shell_async(self, key: str, text: str, **options: Unpack[ExecOptions]) -> Result:
        """Run a text as a shell does in a key's session: see `Session.shell_async`."""
        return await self.get(key).shell_async(text, **options)

    def destroy(self, key: str, *, forget: bool = False) -> tuple[str, ...]:
        """End a key's session, whether it was used here or not: see `Session.destroy`."""
        with self._lock:
            session = self._sessions.pop(key, None)
        return (session or self._new(key)).destroy(forget=forget)

    def destroy_all(self, *, forget: bool = False) -> tuple[str, ...]:
        """End the sessions of all keys that were used here. Raises the first CoopError, after the last."""
        told: list[str] = []
        self._for_all(lambda session: told.extend(session.destroy(forget=forget)))
        return tuple(told)

    def close(self) -> None:
        """Let go of all sessions; those that were leased end. Raises the first CoopError, after the last."""
        self._for_all(Session.close)

    def forked(self) -> None:
        """Have no lock in common with the process that this one was forked from. Not to be called."""
        self._lock = threading.Lock()

    def _new(self, key: str) -> Session:
        return Session(
            self._plan,
            name=name_of(self._prefix, key),
            directory=self._directory,
            ttl=self._ttl,
            leased=self._leased,
            backend=self._backend,
            audit=self._audit,
        )

    def _for_all(self, action: Callable[[Session], None]) -> None:
        with self._lock:
            sessions = list(self._sessions.values())
            self._sessions.clear()
        each(sessions, action)


def name_of(prefix: str, key: str) -> str:
    """Return the name of a key's session: some of the key for people, and a digest of all of it.

    No key can be chosen so that it has another one's name.
    """
    if not isinstance(key, str):
        raise CoopError(f"the key {key!r:.80} is not a text", "str() makes one")
    readable = "".join(character if character.isascii() and character.isalnum() else "-" for character in key)
    parts = (
        prefix,
        readable[:_READABLE].strip("-"),
        blake2b(ascii(key).encode(), digest_size=_HASH).hexdigest(),
    )
    return "-".join(filter(None, parts))
