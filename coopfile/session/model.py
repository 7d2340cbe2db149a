"""What sessions are made of: a command, how it ended, and what each back end gives."""

from __future__ import annotations

from coopfile.errors import CoopError
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol

    from coopfile.engines.choose import Choice
    from coopfile.find import Project
    from coopfile.plan.launch import Weakening
    from coopfile.plan.model import Plan
else:
    Protocol = object

LONGEST_WAIT = 86400.0  # seconds that are waited at once: poll(2) takes no more than 24 days
TIMED_OUT = 124  # the status of a command that was ended for its time: timeout(1)


class SessionError(CoopError):
    """A session cannot do what it was asked. ``session`` is its name."""

    def __init__(self, message: str, remedy: str | None = None, *, session: str = "") -> None:
        super().__init__(message, remedy)
        self.session = session


class SessionGone(SessionError):
    """The session ended, or what supervised the command did, before the command's result was known.

    ``begun`` tells whether the command may have been started: if not, it is safe to ask again.
    """

    begun = False


class PlanDiffers(SessionError):
    """The session runs under another plan than the one that is asked for. Both are digests."""

    def __init__(self, message: str, remedy: str | None, *, session: str, running: str, asked: str) -> None:
        super().__init__(message, remedy, session=session)
        self.running = running
        self.asked = asked


class Command(Record):
    """One command for a session.

    ``environment`` is added to the session's own. ``directory`` is a path inside, from the workspace
    on if it is not absolute; None stands for the workspace. ``timeout`` is in seconds. ``terminal``
    is (rows, columns, settings) of a terminal that it is to have, settings as ``native.pty.open_pair``
    takes them; without, its streams are the caller's descriptors.
    """

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    directory: str | None = None
    timeout: float | None = None
    terminal: tuple[int, int, bytes] | None = None


class Ended(Record):
    """How a command ended.

    ``status`` is as a shell gives it: 128 and the number for a signal, 124 when its time was over,
    126 and 127 when it could not be started (``notes`` says why). ``duration`` is in seconds;
    ``peak_memory``, in bytes, is the most that one of its processes had; None where that is not known:
    natively when it is less than what coop itself has there, about 12 MB.
    """

    status: int
    signal: int | None = None
    timed_out: bool = False
    duration: float = 0.0
    peak_memory: int | None = None
    notes: tuple[str, ...] = ()


class Usage(Record):
    """What a session uses now: processes but coop's own, their memory in bytes (None: not known)."""

    processes: int
    memory: int | None


class Running(Protocol):
    """A command that was started.

    ``terminal`` is the caller's end of its terminal, which the caller closes, None without one.
    """

    terminal: int | None

    def fileno(self) -> int:
        """Return a descriptor that can be read when the command has ended, or its session has."""

    def wait(self) -> Ended:
        """Wait for the end. Raises SessionGone. To be called once."""

    def signal(self, number: int) -> None:
        """Send a signal to the command's process group; one that has ended does not matter."""

    def close(self) -> None:
        """Let go: a command that has not ended is killed with all that it started. May be called twice."""

    def forked(self) -> None:
        """Let go in a child that the program has forked: the command is the parent's, and goes on."""


class Live(Protocol):
    """A session that runs, on one back end. Safe to use from several threads."""

    backend: str

    def begin(self, command: Command, streams: Sequence[int] = ()) -> Running:
        """Start a command.

        ``streams`` are three descriptors, which stay the caller's, or none for a terminal. Raises
        SessionGone when the session is not there any more, and SessionError.
        """

    def workspace(self) -> tuple[int, ...]:
        """Return descriptors of the workspace as it is inside, and of what has to stay open with it.

        The caller closes all of them. Raises SessionGone, and SessionError where a back end gives none.
        """

    def usage(self) -> Usage:
        """Return what it uses. Raises SessionGone."""

    def stop(self) -> None:
        """End all in it, and wait until that is done. A session that has ended is no error."""

    def release(self) -> None:
        """Let go of it: a lease that this object holds is over. A forked child closes its copy so.

        May be called twice; nothing waits.
        """


class Spec(Record):
    """What a session is to be.

    ``environment`` is the caller's. ``ttl``, in seconds, is how long it is kept without a command.
    A ``leased`` one ends with the process that started it.
    """

    name: str
    plan: Plan
    project: Project
    environment: Mapping[str, str]
    ttl: float | None = None
    leased: bool = False


class Started(Record):
    """A session that has just been started: by what to reach it, and what is weaker than its plan.

    ``container`` is empty and ``choice`` None for a session in namespaces.
    """

    live: Live
    container: str = ""
    weakenings: tuple[Weakening, ...] = ()
    choice: Choice | None = None
