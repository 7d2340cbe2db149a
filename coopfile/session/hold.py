"""What one process has of a session: the connection to it, and whether it is this process that ends it."""

from __future__ import annotations

import os
import threading

from coopfile.audit import about, secrets_of
from coopfile.errors import CoopError
from coopfile.session import forking
from coopfile.session.model import SessionError, SessionGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopfile.plan.launch import Weakening
    from coopfile.proxy.denials import Denial
    from coopfile.session.backend import Backend
    from coopfile.session.capture import Streams
    from coopfile.session.model import Command, Live, Running, Spec


class Hold:
    """A session as this process sees it: live, or not started or joined yet. Safe from several threads.

    ``anonymous`` says that nobody else can find it, so that nothing of it is to be left. ``inherited``
    says that it was made in the process that this one was forked from.
    """

    def __init__(self, spec: Spec, backend: Backend, anonymous: bool, inherited: bool = False) -> None:
        self._spec = spec
        self._backend = backend
        self._anonymous = anonymous
        self._inherited = inherited
        self._process = os.getpid()
        # A signal's handler may end the session while this very thread starts it.
        self._lock = threading.RLock()
        self._fresh = False  # it was started here
        self._used = False  # there may be something to remove
        self._closed = False
        self._secrets: Mapping[str, str] | None = {}
        self.live: Live | None = None
        self.weakenings: tuple[Weakening, ...] = ()

    def heir(self) -> Hold:
        """Return what a forked child has instead, and close the child's copies of what this one has."""
        live, self.live = self.live, None
        if live is not None:
            live.release()
        heir = Hold(self._spec, self._backend, self._anonymous, inherited=True)
        heir._closed = self._closed
        return heir

    def get(self) -> Live:
        """Return the session, joined or started if need be. Raises CoopError."""
        live = self.live
        if live is not None:
            return live
        with self._lock:
            if self.live is None:
                if self._closed:
                    text = f"the session {self._spec.name} is closed"
                    raise SessionError(text, "make another Session", session=self._spec.name)
                self._spec = self._spec.replace(environment=dict(os.environ))
                used, self._used = self._used, True  # also if this is interrupted
                try:
                    opened = self._backend.open(self._spec)
                except CoopError:  # it may run, under another plan
                    self._used = used
                    self._secrets = self._of_its_starter()
                    if self._anonymous and not used:
                        self._forget_quietly()
                    raise
                self._fresh, self._used = opened.fresh, used or opened.fresh
                # Asked now: a command may end the session.
                if opened.fresh:
                    self._secrets = secrets_of(about(self._spec.plan, None), self._spec.environment)
                else:
                    self._secrets = self._of_its_starter()
                self.live, self.weakenings = opened.live, opened.weakenings
            return self.live

    def begin(self, live: Live, command: Command, streams: Streams) -> Running | None:
        """Start a command; None if the session has ended before, and ``get`` may have another.

        Raises SessionGone if the command may have been started, so that it is not started twice, and
        SessionError.
        """
        try:
            running = live.begin(command, streams.given)
        except SessionGone as error:
            self.drop(live)
            if error.begun:
                raise
            return None
        forking.track(running)
        streams.begun()
        if self._spec.plan.session.commit == "auto":
            self._backend.note(self._spec, command.argv)
        return running

    def denials(self, began: float) -> tuple[Denial, ...]:
        """Return what the session's proxy has blocked since a time, in seconds since the epoch."""
        return self._backend.denials(self._spec, began)

    def secrets(self) -> Mapping[str, str] | None:
        """Return what the session has of its starter's variables, by name; None if that is not known.

        Of one that was started here that is what they were then: the program may have changed them. One that
        was not started yet will have this process's.
        """
        return self._secrets

    def _forget_quietly(self) -> None:
        """Remove what is left of a start that failed: nobody will look for it under its name."""
        try:
            self._backend.remove(self._spec)
        except (CoopError, OSError):
            pass  # why it could not be started counts

    def _of_its_starter(self) -> Mapping[str, str] | None:
        shared = about(self._spec.plan, None)
        if not shared.variables:
            return {}
        from coopfile.session import client, lifecycle

        return client.secrets(lifecycle.place(self._spec), self._spec.name, shared)

    def drop(self, live: Live | None) -> None:
        """Forget a session that has ended: the next command starts it again."""
        with self._lock:
            if live is not None and self.live is live:
                self.live = None
                live.release()

    def end(self, *, forget: bool) -> tuple[str, ...]:
        """End the session, whoever started it; ``forget`` removes what it kept.

        Returns what there is to tell. Raises CoopError; the session may run on then.
        """
        with self._lock:
            if self._inherited and self._spec.leased and not self._fresh:
                raise SessionError(
                    f"the session {self._spec.name} is of the process that this one was forked from",
                    "end it there",
                    session=self._spec.name,
                )
            if not self._used and self.live is None:
                self._spec = self._spec.replace(environment=dict(os.environ))
            told = () if forget else self._backend.stop(self._spec)
            if forget:
                self._backend.remove(self._spec)
            self._fresh = False
            self._used = self._used and not forget
            self.drop(self.live)
            return told

    def close(self) -> None:
        """Let go; end the session if it was started here and is not to outlive this. Raises CoopError."""
        with self._lock:
            self._closed = True
            ours = self._spec.leased and self._used and (self._fresh or self._anonymous)
            try:
                if ours:
                    self._backend.stop(self._spec)
                    if self._anonymous:
                        self._backend.remove(self._spec)
            except CoopError:
                self._used = False
                raise
            finally:
                self.drop(self.live)
            self._used = False  # not when it is interrupted: then there is still something to remove

    def end_quietly(self) -> None:
        """Close when nobody is there to be told; what is leased ends all the same when the process does."""
        if os.getpid() != self._process:
            return
        try:
            self.close()
        except (CoopError, OSError):
            pass
