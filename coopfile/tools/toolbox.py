"""The tools of one caller: what may be called, where it runs, and what came of it.

A call is refused by words in its result, never by an exception: a model reads them and goes on.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from coopfile import audit
from coopfile.errors import CoopError
from coopfile.language.diagnostics import visible
from coopfile.launching import prefers_native
from coopfile.plan.canonical import digest
from coopfile.plan.model import Base
from coopfile.record import Record
from coopfile.session import forking
from coopfile.session.backend import Machine, Open
from coopfile.session.closing import Closing
from coopfile.session.session import Session
from coopfile.tools import definitions, files, rules, shell
from coopfile.tools.confined import FileError, Tree, without_capabilities
from coopfile.tools.confirm import Confirmation, Gate, NotConfirmed, permits
from coopfile.tools.host import ThisMachine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from coopfile.find import Project
    from coopfile.plan.model import Plan
    from coopfile.session.backend import Backend
    from coopfile.session.model import Spec
    from coopfile.session.result import Result
    from coopfile.tools.definitions import ToolDefinition

    class Inner(Protocol):
        """Tools of the embedding program, for owner and full users."""

        def tools(self) -> tuple[ToolDefinition, ...]:
            """Return them."""

        def execute(self, name: str, arguments: Mapping[str, Any], caller: Caller) -> ToolResult:
            """Call one."""


class Caller(Record):
    """Who calls: an identity, ``channel:sender``, or None for whoever runs this; place; conversation."""

    identity: str | None = None
    place: str = "direct"
    key: str = ""


class ToolResult(Record):
    """What came of a call. ``text`` is for the model; ``error`` tells that it did not do what it was to do.

    ``denied`` tells that it was not allowed, so nothing was run. ``status`` is the exit status of a
    command, ``duration`` is in seconds.
    """

    text: str
    error: bool = False
    denied: bool = False
    status: int | None = None
    duration: float = 0.0


class Denied(CoopError):
    """The caller may not have this tool."""


class Toolbox(Closing):
    """The tools of one caller under one plan. Safe to use from several threads; to be closed.

    ``session`` has the session that commands run in, None where none may; it is closed by whoever made
    it. ``place`` is the project as ``Session`` takes it: a directory, or a Coopfile. ``ask`` has commands
    confirmed: it gets a ``Confirmation`` and returns yes, no or always; without it the terminal is asked.
    ``ttl`` is how long a session lasts without a call that is started here, for files to be seen through.
    """

    def __init__(
        self,
        plan: Plan,
        project: Project,
        caller: Caller,
        session: Callable[[], Session] | None,
        *,
        place: str,
        ask: Callable[[Confirmation], object] | None = None,
        inner: Inner | None = None,
        backend: Backend | None = None,
        ttl: float | None = None,
    ) -> None:
        self.plan = plan
        self.caller = caller
        self._project = project
        self._inner = inner if definitions.may_use_inner(plan) else None
        self._sandboxed = definitions.is_sandboxed(plan)
        self._gate = Gate(plan, ask)
        self._backend = backend
        self._ttl = ttl
        self._audit = audit.for_project(plan, project.root, os.environ)
        self._workspace = definitions.workspace(plan, project.root)
        self._place = place
        self._make = session
        self._own: Session | None = None  # this machine, or what files are seen through
        self._lock = threading.Lock()
        self._closed = False
        self._digest = digest(plan)
        forking.track(self)

    @property
    def sandboxed(self) -> bool:
        """Whether commands run in a sandbox."""
        return self._sandboxed

    def tools(self) -> tuple[ToolDefinition, ...]:
        """Return what the caller may call, always in the same order."""
        own = definitions.definitions(self.plan, self._project.root)
        names = {definition.name for definition in own} | set(definitions.NAMES)
        inner = () if self._inner is None else self._inner.tools()
        return (*own, *(definition for definition in inner if definition.name not in names))

    def call(self, name: str, arguments: object) -> ToolResult:
        """Call a tool and return what came of it. Raises CoopError only if it cannot be written down."""
        call = _Call(self, name, arguments)
        with call.watched():
            ready = self._prepare(call)
            if ready is not None:
                command, timeout = ready
                call.ran(self._commands().shell(command, timeout=timeout))
        return call.finish()

    def question(self, name: str, arguments: object) -> Confirmation | None:
        """Return what a person is to be asked before a call; None if there is nothing to ask."""
        if name != "bash" or not self._gate.asks or not isinstance(arguments, dict):
            return None
        command = arguments.get("command")
        if not isinstance(command, str) or all(item.name != name for item in self.tools()):
            return None
        return self._confirmation(command)

    async def call_async(
        self, name: str, arguments: object, *, ask: Callable[[Confirmation], object] | None = None
    ) -> ToolResult:
        """Do what ``call`` does, on the loop that runs; a task that is cancelled ends its command.

        ``ask`` stands in, for this call, for what else confirms commands.
        """
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        loop = asyncio.get_running_loop()
        call = _Call(self, name, arguments)
        call.ask = ask
        # A person may take long to answer, and the loop's few threads are for the calls of others, too.
        own = ThreadPoolExecutor(1) if name == "bash" and ask is None and self._gate.asks else None
        with call.watched():
            try:
                ready = await loop.run_in_executor(own, self._prepare, call)
            finally:
                if own is not None:
                    own.shutdown(wait=False)
            if ready is not None:
                command, timeout = ready
                session = await loop.run_in_executor(None, self._commands)
                call.ran(await session.shell_async(command, timeout=timeout))
        return call.finish()

    def close(self) -> None:
        """End what was started here; calls that have not begun by now will not. Raises CoopError."""
        with self._lock:
            self._closed = True
            own, self._own = self._own, None
        if own is not None:
            own.close()

    def forked(self) -> None:
        """Have no lock in common with the process that this one was forked from. Not to be called."""
        self._lock = threading.Lock()

    def _prepare(self, call: _Call) -> tuple[str, float] | None:
        """Do a call but for running a command; return the command and its time if it is one. Raises."""
        definition = next((item for item in self.tools() if item.name == call.name), None)
        if definition is None:
            raise self._not_theirs(call.name)
        if call.name not in definitions.NAMES:
            assert self._inner is not None
            call.done(self._inner.execute(call.name, call.given, self.caller))
            return None
        arguments = definitions.check(definition, call.given)
        if call.name == "bash":
            command = arguments["command"]
            if "\0" in command:
                raise definitions.ArgumentError("bash: command has a NUL character, which no command has")
            timeout = arguments.get("timeout", self.plan.limits.timeout / 1000)
            call.decision = self._gate.check(self._confirmation(command), call.ask)
            return command, float(timeout)
        call.done(ToolResult(self._file(call.name, arguments)))
        return None

    def _confirmation(self, command: str) -> Confirmation:
        may = permits(self.plan, sandboxed=self._sandboxed)
        return Confirmation(command, self._workspace, may, self._who())

    def _not_theirs(self, name: str) -> Denied:
        access = self.plan.access
        allowed = ", ".join(item.name for item in self.tools()) or "no tools"
        if access is None or name in definitions.NAMES:
            trust = "" if access is None else f": {access.trust} trust has {allowed}"
            there = name in definitions.NAMES
            return Denied(
                f"{name} is not for this user{trust}" if there else f"there is no tool {name!r:.100}",
                "do without it, and say what could not be done" if there else f"there are: {allowed}",
            )
        return Denied(f"there is no tool {name!r:.100} for {access.trust} trust", f"it has {allowed}")

    def _who(self) -> str | None:
        access = self.plan.access
        return (access.user if access is not None else None) or self.caller.identity

    def _secrets(self) -> Mapping[str, str] | None:
        """Return what the session has of its starter's variables: ``Session.secrets``."""
        return self._make().secrets() if self._make is not None else {}

    def _commands(self) -> Session:
        """Return the session that commands run in."""
        with self._lock:
            self._check_open()
            if self._sandboxed:
                assert self._make is not None
                return self._make()
            if self._own is None:
                self._own = Session(self.plan, directory=self._place, backend=ThisMachine())
            return self._own

    def _check_open(self) -> None:
        """Refuse what would start a session anew: a person may take long to confirm a command."""
        if self._closed:
            raise CoopError("the tools were closed meanwhile, so nothing was done")

    def _seen(self) -> Session:
        """Return the session through which a sandboxed caller's files are seen.

        It is the one that commands run in, so that both have the same files, where that can be: where
        it runs natively, and where the caller has one. Else it is one that runs nothing, with the
        same workspace under the same rules.
        """
        with self._lock:
            self._check_open()
            if self._make is not None and (self._backend is not None or prefers_native(self.plan)):
                return self._make()
            if self._own is None:
                backend = self._backend or _Viewing()
                seen = viewing(self.plan)
                self._own = Session(seen, directory=self._place, ttl=self._ttl, backend=backend)
            return self._own

    def _file(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a file tool. Raises FileError, with the rule that decides if one does."""
        path = arguments["path"]
        try:
            if not self._sandboxed:
                place = os.open(self._project.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                return self._in_tree(name, arguments, (place,))
            return self._in_tree(name, arguments, self._seen().workspace())
        except FileError as error:
            if error.guarded and self._sandboxed:
                raise self._explained(error, "read" if name == "read_file" else "write", path) from None
            raise

    def _in_tree(self, name: str, arguments: Mapping[str, Any], held: tuple[int, ...]) -> str:
        try:
            root = os.stat(self._project.root)
            if not os.path.samestat(os.fstat(held[0]), root):
                raise FileError("the session has another workspace", "end it: coop stop")
            tree = Tree(held[0], (self._workspace, self._project.root))
            with without_capabilities() if self._sandboxed else contextlib.nullcontext():
                return _run(name, tree, arguments, self.plan.limits.output)
        finally:
            for descriptor in held:
                os.close(descriptor)

    def _explained(self, error: FileError, verb: str, path: str) -> FileError:
        """Return the same error with the rule that decides, if it is one of the plan's."""
        text = rules.refusal(self.plan, verb, path, self._project.root)
        return error if text is None else FileError(text, rules.WHAT_TO_DO, guarded=True)


class _Viewing(Machine):
    """Has sessions in which nothing runs.

    The ceiling, to which the plan was held that they stand for, may want more isolation than they have
    for what does run.
    """

    def open(self, spec: Spec) -> Open:
        from coopfile.session import lifecycle

        opened = lifecycle.open_session(spec)
        return Open(opened.live, opened.fresh, opened.weakenings)


class _Call:
    """One call from its beginning to its line in the log."""

    def __init__(self, toolbox: Toolbox, name: str, arguments: object) -> None:
        self.name = name if isinstance(name, str) else repr(name)[:100]
        self.given: Any = arguments if arguments is not None else {}
        self.decision = "allowed"
        self.ask: Callable[[Confirmation], object] | None = None
        self._toolbox = toolbox
        self._result: ToolResult | None = None
        self._outcome = "ok"
        self._began = time.monotonic()
        self._log = toolbox._audit.open()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Take what goes wrong in it as the call's result."""
        try:
            yield
        except (CoopError, OSError) as error:
            self._fail(error)
        except BaseException:
            self._interrupt()
            raise

    def ran(self, result: Result) -> None:
        """Take what came of a command."""
        toolbox = self._toolbox
        root = toolbox._project.root if toolbox.sandboxed else None
        text = shell.told(result, toolbox.plan, root)
        self._outcome = "timed out" if result.timed_out else f"status {result.status}"
        self.done(ToolResult(text, not result.ok, status=result.status))

    def done(self, result: ToolResult) -> None:
        """Take a result."""
        self._result = result

    def _fail(self, error: CoopError | OSError) -> None:
        if isinstance(error, Denied) or (isinstance(error, FileError) and error.guarded):
            self.decision = "denied"
        elif isinstance(error, NotConfirmed):
            self.decision = "declined" if error.asked else "refused"
        self._outcome = "error"
        text = error.message if isinstance(error, CoopError) else f"{error.strerror}"
        remedy = error.remedy if isinstance(error, CoopError) else None
        told = "\n".join(visible(line) for line in text.split("\n"))
        self._result = ToolResult(
            f"{told}\n({visible(remedy)})" if remedy else told,
            True,
            denied=self.decision in ("denied", "declined", "refused"),
        )

    def _interrupt(self) -> None:
        """Have it written down that nobody waited for the result."""
        self._outcome = "cancelled"
        self._result = ToolResult("", True)
        self.finish()

    def finish(self) -> ToolResult:
        """Write the call down and return what came of it."""
        assert self._result is not None
        duration = time.monotonic() - self._began
        toolbox = self._toolbox
        access = toolbox.plan.access
        log, command = toolbox._audit, self._shown()
        more = toolbox._secrets()
        if more:
            log = audit.for_project(toolbox.plan, toolbox._project.root, os.environ, more)
        elif more is None and self.name == "bash":
            command = "(left out: it may hold secrets)"
        try:
            log.write(
                self._log,
                identity=toolbox.caller.identity,
                user=None if access is None else access.user,
                trust=None if access is None else access.trust,
                place=toolbox.caller.place,
                tool=self.name,
                command=command,
                plan=toolbox._digest,
                backend="sandbox" if toolbox.sandboxed else "host",
                decision=self.decision,
                result=self._outcome,
                duration=round(duration, 3),
            )
        except OSError:
            pass  # the disk is full by now; the call has been made
        finally:
            os.close(self._log)
        return self._result.replace(duration=duration)

    def _shown(self) -> str | None:
        """Return what the call is about: a command or a path, never what is in a file."""
        if not isinstance(self.given, dict):
            return None
        value = self.given.get("command" if self.name == "bash" else "path")
        return value if isinstance(value, str) else None


def viewing(plan: Plan) -> Plan:
    """Return a plan under which nothing is run, with the files of the workspace as another one has them."""
    nothing = dict.fromkeys(plan.packages._fields, ())
    return plan.replace(
        base=Base(None),
        packages=plan.packages.replace(**nothing),
        setup=plan.setup.replace(run=()),
        agent=plan.agent.replace(install=None, command=()),
        network=plan.network.replace(mode="none", allow=(), publish=()),
        session=plan.session.replace(persist=(), caches=(), commit="never"),
        env=(),
        sandbox=plan.sandbox.replace(
            backend=("native",), min_isolation="namespace", fallback="refuse", runtime=None
        ),
        access=None,
    )


def _run(name: str, tree: Tree, arguments: Mapping[str, Any], most: int) -> str:
    if name == "read_file":
        return files.read_file(
            tree, arguments["path"], arguments.get("offset", 1), arguments.get("limit"), most
        )
    if name == "write_file":
        return files.write_file(tree, arguments["path"], arguments["content"])
    return files.edit_file(tree, arguments["path"], arguments["old_text"], arguments["new_text"])
