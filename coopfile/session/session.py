"""``coopfile.Session``: a sandbox that stays alive, from Python."""

from __future__ import annotations

import os
import secrets
import time
import weakref
from collections.abc import Iterable
from itertools import chain

from coopfile import launching
from coopfile.audit import Entry
from coopfile.errors import CoopError
from coopfile.find import find
from coopfile.plan import canonical
from coopfile.plan.sessions import NAME_RULE, is_name, is_own_name, own_name
from coopfile.session import capture, forking
from coopfile.session.backend import Machine
from coopfile.session.closing import Closing
from coopfile.session.hold import Hold
from coopfile.session.model import Command, SessionGone, Spec
from coopfile.session.result import CommandLost, result_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TypedDict

    from typing_extensions import Unpack

    from coopfile.find import Project
    from coopfile.plan.launch import Weakening
    from coopfile.plan.model import Plan
    from coopfile.session.backend import Backend
    from coopfile.session.capture import Input, Streams, Target
    from coopfile.session.model import Ended, Running
    from coopfile.session.result import Result

    class ExecOptions(TypedDict, total=False):
        """What ``Session.exec`` takes besides the command."""

        timeout: float | None
        environment: Mapping[str, str] | None
        directory: str | os.PathLike[str] | None
        stdin: Input
        stdout: Target
        stderr: Target
        output: int | None


_ENDLESS = 1e9  # seconds, 30 years: no longer time is one, and those of the kernel and of Python have an end
SHELL = "/bin/sh"  # what POSIX calls for, and every image with a shell has
# Seconds before each try at a session, which may end just when it is asked for something: what keeps
# it takes a moment longer than what serves it.
_PAUSES = (0.0, 0.0, 0.02, 0.1, 0.5, 2.0, 5.0)


class Session(Closing):
    """A sandbox under a plan, in which any number of commands run, one after the other or at once.

    It starts with the first command, on the first back end that the plan allows; once ended it is
    started again by the next one. Safe to use from several threads. A process that the program
    forks may use it, too, but does not end it.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        name: str | None = None,
        directory: str | os.PathLike[str] = ".",
        ttl: float | None = None,
        leased: bool = False,
        backend: Backend | None = None,
        audit: bool = True,
    ) -> None:
        """Describe a session; nothing is started yet.

        ``name`` makes it one that is found again, by this and other programs and ``coop exec``, and
        that goes on when this program ends. Without, nobody else has it; it ends with the program,
        or before that with ``close`` or the ``with`` statement, and leaves nothing. A ``leased``
        one with a name ends with the program that started it, too, but what it keeps is kept.

        ``directory`` is what ``compile`` was given: a directory that belongs to a project, or a
        Coopfile; the project is the workspace. ``ttl``, in seconds, is how long the session lasts
        without a command. ``backend`` stands in for those of this machine: see ``FakeBackend``.

        Every command is written to the audit log (``coop log``), or it is not run; not where something
        stands in for this machine, nor without ``audit``.

        Raises CoopError for a directory that is none, and for a user who may not run commands.
        """
        launching.check_access(plan)
        if name is not None and not (isinstance(name, str) and is_name(name)):
            raise CoopError(f"a session cannot have the name {name!r:.80}", NAME_RULE)
        if name is not None and is_own_name(name):
            text = f"{name} is such a name as sessions without one get, which are removed whole at their end"
            raise CoopError(text, "give another name, or none")
        if ttl is not None and not 0 < ttl < _ENDLESS:
            raise CoopError(f"ttl is {ttl}", "it is a number of seconds; without it the session is not ended")
        # The project is found now: the current directory may be another one when the session starts.
        self._spec = Spec(
            name=_plain(name) if name else own_name(os.getpid(), secrets.token_hex(4)),
            plan=plan,
            project=_project(directory),
            environment={},
            ttl=None if ttl is None else float(ttl),
            leased=leased or name is None,
        )
        self._audit = audit and backend is None
        self._digest: str | None = None
        self._hold = Hold(self._spec, Machine() if backend is None else backend, name is None)
        self._finalizer = weakref.finalize(self, self._hold.end_quietly)
        forking.track(self)

    @property
    def name(self) -> str:
        """What finds it again."""
        return self._spec.name

    @property
    def plan(self) -> Plan:
        """What it runs under."""
        return self._spec.plan

    @property
    def backend(self) -> str | None:
        """What isolates it, such as ``native`` or ``docker``; None until it is started."""
        live = self._hold.live
        return None if live is None else live.backend

    @property
    def weakenings(self) -> tuple[Weakening, ...]:
        """What the back end does not keep of the plan, as far as this object has started the session."""
        return self._hold.weakenings

    def exec(
        self,
        argv: Sequence[str],
        *,
        timeout: float | None = None,
        environment: Mapping[str, str] | None = None,
        directory: str | os.PathLike[str] | None = None,
        stdin: Input = None,
        stdout: Target = None,
        stderr: Target = None,
        output: int | None = None,
    ) -> Result:
        """Run a command, a list of a program and its arguments, and return how it ended.

        ``timeout`` is in seconds: None stands for the plan's ``limits.timeout``, ``math.inf`` for no
        limit. When it is over, the command is ended with all that it started. ``environment`` is
        added to the session's. ``directory`` is inside the sandbox, seen from the workspace.

        ``stdin`` is bytes, or an open file or descriptor; None is an empty one. ``stdout`` and
        ``stderr`` are captured, or go to an open file or descriptor; ``subprocess.STDOUT`` and
        ``subprocess.DEVNULL`` mean what they do there. ``output`` is how many bytes of both streams
        are kept, the ends of them; None stands for the plan's ``limits.output``.

        It returns when the command has ended, even if something that it left in the background has
        its streams. When it is left by an exception, the command is killed with all that it started.

        Raises CommandLost when the session ends meanwhile, PlanDiffers when it runs under another
        plan, and CoopError for what else goes wrong; a status that is not 0 is no error.
        """
        command = self._command(argv, timeout, environment, directory)
        streams = self._streams(stdin, stdout, stderr, output)
        entry: Entry | None = None
        running: Running | None = None
        began = time.time()
        try:
            entry = self._entry(command)
            running = self._begin(command, streams)
            ended = capture.attend(running, streams, command.timeout)
            self._written(entry, ended)
            return self._result(command, ended, streams, began)
        except SessionGone as error:
            self._failed(entry, error)
            raise self._lost(error, command, streams) from None
        except BaseException as error:
            self._failed(entry, error)
            raise
        finally:
            if running is not None:
                running.close()
            if entry is not None:
                entry.close()
            streams.close()

    def shell(self, text: str, **options: Unpack[ExecOptions]) -> Result:
        """Run a text as ``/bin/sh`` understands it, pipes and all; the options are those of ``exec``."""
        return self.exec(_shell(text), **options)

    async def exec_async(
        self,
        argv: Sequence[str],
        *,
        timeout: float | None = None,
        environment: Mapping[str, str] | None = None,
        directory: str | os.PathLike[str] | None = None,
        stdin: Input = None,
        stdout: Target = None,
        stderr: Target = None,
        output: int | None = None,
    ) -> Result:
        """Do what ``exec`` does, on the loop that runs; only starting the session takes a thread.

        When the task is cancelled, the command is killed with all that it started.
        """
        from coopfile.session import aio

        command = self._command(argv, timeout, environment, directory)
        streams = self._streams(stdin, stdout, stderr, output)
        entry: Entry | None = None
        running: Running | None = None
        began = time.time()
        try:
            entry = self._entry(command)
            running = await self._begin_async(command, streams)
            ended = await aio.attend(running, streams, command.timeout)
            self._written(entry, ended)
            return self._result(command, ended, streams, began)
        except SessionGone as error:
            self._failed(entry, error)
            raise self._lost(error, command, streams) from None
        except BaseException as error:
            self._failed(entry, error)
            raise
        finally:
            if running is not None:
                running.close()
            if entry is not None:
                entry.close()
            streams.close()

    async def shell_async(self, text: str, **options: Unpack[ExecOptions]) -> Result:
        """Do what ``shell`` does, on the loop that runs."""
        return await self.exec_async(_shell(text), **options)

    def workspace(self) -> tuple[int, ...]:
        """Return descriptors of the workspace as it is in the sandbox, and of what has to stay open with it.

        Through the first, an O_PATH one, files are what they are for commands: hidden ones cannot be
        read nor protected ones be written. It is for openat2(2), not for people's programs; the
        caller closes all of them. Raises CoopError, and SessionError where a back end has no such thing.
        """
        hold = self._hold
        for _ in _tries():
            live = hold.get()
            try:
                return live.workspace()
            except SessionGone:
                hold.drop(live)
        raise self._ends_always()

    def secrets(self) -> Mapping[str, str] | None:
        """Return what must be in no log, for a program that writes one of its own (``audit=False``).

        These are the values of host variables (``[env]``), by name, that the session was started with, by
        this process or another; None if they are not known.
        """
        return self._hold.secrets()

    def destroy(self, *, forget: bool = False) -> tuple[str, ...]:
        """End the session, if it runs, with all that runs in it; a later command starts it again.

        Installed tools are kept as ``session.commit`` says, for the project's next sessions, and what
        ``session.persist`` names for this one; ``forget`` keeps nothing. Returns what people should
        know of that, mostly nothing. Raises CoopError; a session whose tools cannot be kept runs on.
        """
        return self._hold.end(forget=forget)

    def close(self) -> None:
        """Let go of the session: it takes no more commands from here. May be called twice.

        One that ends with the program ends now, if it was started here. Raises CoopError.
        """
        try:
            self._hold.close()
        except CoopError:
            self._finalizer.detach()
            raise
        self._finalizer.detach()  # not when it is interrupted: then that is left to it

    def __repr__(self) -> str:
        return f"<Session {self.name} of {self._spec.project.root}>"

    def forked(self) -> None:
        """Have nothing in common with the process that this one was forked from. Not to be called."""
        self._finalizer.detach()
        self._hold = self._hold.heir()
        self._finalizer = weakref.finalize(self, self._hold.end_quietly)

    def _begin(self, command: Command, streams: Streams) -> Running:
        hold = self._hold
        for _ in _tries():
            running = hold.begin(hold.get(), command, streams)
            if running is not None:
                return running
        raise self._ends_always()

    async def _begin_async(self, command: Command, streams: Streams) -> Running:
        import asyncio

        hold, loop = self._hold, asyncio.get_running_loop()
        for pause in _PAUSES:
            await asyncio.sleep(pause)
            live = hold.live
            if live is None:
                live = await loop.run_in_executor(None, hold.get)
            running = hold.begin(live, command, streams)
            if running is not None:
                return running
        raise self._ends_always()

    def _ends_always(self) -> SessionGone:
        text = f"the session {self.name} has ended whenever it was to take a command"
        return SessionGone(text, "coop log and coop status may tell more", session=self.name)

    def _entry(self, command: Command) -> Entry | None:
        """Return what becomes the command's line in the log. Raises CoopError if it cannot be written."""
        if not self._audit:
            return None
        entry = Entry("Session", self._spec.project.root, command.argv)
        if self._digest is None:
            self._digest = canonical.digest(self._spec.plan)
        entry.known(self._spec.plan, self._digest)
        entry.secrets = self._hold.secrets
        entry.open()
        return entry

    def _written(self, entry: Entry | None, ended: Ended) -> None:
        if entry is not None:
            entry.backend = self.backend
            entry.ended(ended.status, timed_out=ended.timed_out)

    def _failed(self, entry: Entry | None, error: BaseException) -> None:
        if entry is not None and not entry.written:
            entry.backend = self.backend
            entry.failed(error)

    def _command(
        self,
        argv: Sequence[str],
        timeout: float | None,
        environment: Mapping[str, str] | None,
        directory: str | os.PathLike[str] | None,
    ) -> Command:
        words = tuple(argv) if isinstance(argv, Iterable) and not isinstance(argv, str | bytes) else ()
        if not words or not all(isinstance(word, str) for word in words):
            raise CoopError(
                "a command is a list of a program and its arguments",
                'such as ["make", "test"]; Session.shell runs a text as a shell does',
            )
        place = None if directory is None else os.fspath(directory)
        variables = tuple((environment or {}).items())
        for text in (*words, *chain.from_iterable(variables), *(() if place is None else (place,))):
            _check_text(text)
        for name, _ in variables:
            if not name or "=" in name:
                raise CoopError(f"{name!r} is no name of a variable", "a name is not empty and has no =")
        if timeout is None:
            seconds: float | None = self._spec.plan.limits.timeout / 1000
        elif timeout > 0:
            seconds = None if timeout >= _ENDLESS else float(timeout)
        else:
            raise CoopError(
                f"timeout is {timeout}", "it is a number of seconds; math.inf stands for no limit"
            )
        return Command(
            tuple(map(_plain, words)),
            tuple((_plain(name), _plain(value)) for name, value in variables),
            None if place is None else _plain(place),
            seconds,
        )

    def _streams(self, stdin: Input, stdout: Target, stderr: Target, output: int | None) -> Streams:
        most = self._spec.plan.limits.output if output is None else output
        if most < 0:
            raise CoopError(f"output is {most}", "it is a number of bytes")
        return capture.Streams(stdin, stdout, stderr, most)

    def _result(self, command: Command, ended: Ended, streams: Streams, began: float) -> Result:
        denials = self._hold.denials(began) if self._spec.plan.network.mode == "proxy" else ()
        return result_of(command, ended, *streams.output.taken(), denials)

    def _lost(self, error: SessionGone, command: Command, streams: Streams) -> CommandLost:
        streams.drain()
        (stdout, stderr), _ = streams.output.taken()
        lost = CommandLost(
            error.message, error.remedy, session=self.name, argv=command.argv, stdout=stdout, stderr=stderr
        )
        lost.begun = error.begun
        return lost


def _shell(text: str) -> tuple[str, ...]:
    if not isinstance(text, str):
        raise CoopError("a shell takes a text", "Session.exec runs a list of a program and its arguments")
    return (SHELL, "-c", text)


def _plain(text: str) -> str:
    """Return a text as a str and nothing more: one of a class of its own, as of an enum, is in no message."""
    return str.__str__(text)


def _check_text(text: object) -> None:
    """Refuse what no program can be given."""
    try:
        if isinstance(text, str) and b"\0" not in os.fsencode(text):
            return
    except UnicodeEncodeError:
        pass
    raise CoopError(
        f"{text!r:.80} cannot be an argument, a variable or a directory",
        "texts without NUL characters can be",
    )


def _project(place: str | os.PathLike[str]) -> Project:
    """Return the project of a directory or of a Coopfile, as ``compile`` takes them."""
    from coopfile.api import located

    directory, file = located(place)
    return find(directory, file, os.environ)


def _tries() -> Iterator[None]:
    """Yield as often as a session that ends is started again, after longer and longer pauses."""
    for pause in _PAUSES:
        if pause:  # to sleep for no time takes a tenth of a millisecond
            time.sleep(pause)
        yield
