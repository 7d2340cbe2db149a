"""``coopfile.ToolExecutor``: tools for agents that work for several people."""

from __future__ import annotations

import os
import threading

from coopfile.access import approval
from coopfile.api import assigned, located
from coopfile.compiling import Request, compile_project
from coopfile.errors import CoopError
from coopfile.find import approvals
from coopfile.session import forking
from coopfile.session.closing import Closing, each
from coopfile.session.manager import SessionManager
from coopfile.tools.definitions import is_sandboxed, names_for
from coopfile.tools.toolbox import Caller, Toolbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coopfile.plan.model import Plan
    from coopfile.session.backend import Backend
    from coopfile.session.session import Session
    from coopfile.tools.confirm import Confirmation
    from coopfile.tools.definitions import ToolDefinition
    from coopfile.tools.toolbox import Inner, ToolResult


class ToolExecutor(Closing):
    """The tools ``bash``, ``read_file``, ``write_file`` and ``edit_file``, for whoever calls.

    Who calls decides (design section 11): an identity is looked up in ``[[users]]``, its trust, lowered
    in a group, says which tools there are, and whether they run in the sandbox of this caller, place
    and key, under the user's override, or on this machine: for the owner. Safe to use from several threads.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        overrides: Mapping[str, object] | None = None,
        confirm: Callable[[Confirmation], object] | None = None,
        inner: Inner | None = None,
        prefix: str = "tools",
        ttl: float | None = None,
        backend: Backend | None = None,
    ) -> None:
        """Have tools for a project, found as ``compile`` finds it; nothing is started yet.

        ``confirm`` is asked before a command, unless ``tools.confirm`` is "never": it gets a
        ``Confirmation`` and returns "yes", "no" or "always" (in this conversation), in whatever thread.
        Without it the terminal is asked; where there is none, commands are refused. ``inner`` has the
        program's own tools, which owner and full users get beside these. Sessions, whose names begin
        with ``prefix``, end with the program, or after ``ttl`` seconds without a command. ``backend``
        stands in for those of this machine: see ``FakeBackend``.
        """
        self._directory, self._file = located(path)
        self._directory = os.path.abspath(self._directory)
        self._assignments = assigned(overrides)
        self._confirm = confirm
        self._inner = inner
        self._prefix = prefix
        self._ttl = ttl
        self._backend = backend
        self._boxes: dict[Caller, Toolbox] = {}
        self._managers: dict[tuple[str | None, str], SessionManager] = {}
        self._lock = threading.Lock()
        self._closed = False
        forking.track(self)

    def tools(
        self, identity: str | None = None, *, place: str = "direct", key: str = ""
    ) -> tuple[ToolDefinition, ...]:
        """Return what somebody may call. Raises CoopError as ``compile`` does."""
        return self._box(Caller(identity, place, key)).tools()

    def execute(
        self,
        name: str,
        arguments: object,
        identity: str | None = None,
        *,
        place: str = "direct",
        key: str = "",
    ) -> ToolResult:
        """Call a tool for somebody, in a place, "direct" or "group", of the conversation ``key``.

        What is denied, or goes wrong, is told by the result, for the model to read. Without an identity
        it is for whoever runs this: with all tools, in the sandbox. Raises CoopError for mistakes of
        the Coopfile, what needs `coop allow`, a log that cannot be written, and what is no identity.
        """
        return self._box(Caller(identity, place, key)).call(name, arguments)

    async def execute_async(
        self,
        name: str,
        arguments: object,
        identity: str | None = None,
        *,
        place: str = "direct",
        key: str = "",
    ) -> ToolResult:
        """Do what ``execute`` does, on the loop that runs; a task that is cancelled ends its command."""
        import asyncio

        loop = asyncio.get_running_loop()
        box = await loop.run_in_executor(None, self._box, Caller(identity, place, key))
        return await box.call_async(name, arguments)

    def destroy(
        self, identity: str | None = None, *, place: str = "direct", key: str = "", forget: bool = False
    ) -> None:
        """End a conversation: its session, with all that runs in it, and what was always allowed in it.

        The next call begins another one. What ``session.persist`` names is kept unless ``forget``, which
        holds also for what an earlier program has kept. Raises CoopError.
        """
        caller = Caller(identity, place, key)
        with self._lock:
            box = self._boxes.pop(caller, None)
            if (identity, place) not in self._managers:
                self._new(caller)  # an earlier program may have left what is to be forgotten
            manager = self._managers.get((identity, place))
        if box is not None:
            box.close()
        if manager is not None:
            manager.destroy(_key(caller), forget=forget)

    def close(self) -> None:
        """End the sessions. Raises the first CoopError, after the last."""
        with self._lock:
            self._closed = True
            parts: tuple[Closing, ...] = (*self._boxes.values(), *self._managers.values())
            self._boxes.clear()
            self._managers.clear()
        each(parts, lambda part: part.close())

    def forked(self) -> None:
        """Have no lock in common with the process that this one was forked from. Not to be called."""
        self._lock = threading.Lock()

    def _box(self, caller: Caller) -> Toolbox:
        with self._lock:
            if self._closed:
                raise CoopError("the tools are closed", "make another ToolExecutor")
            box = self._boxes.get(caller)
            if box is None:
                box = self._new(caller)
                if box.tools():  # else anybody could fill the memory, under ever new names
                    self._boxes[caller] = box
            return box

    def _new(self, caller: Caller) -> Toolbox:
        request = Request(
            self._directory,
            file=self._file,
            identity=caller.identity,
            place=caller.place,
            assignments=self._assignments,
        )
        compiled = compile_project(request)
        approval.require(compiled, approvals(os.environ))
        plan, project = compiled.plan, compiled.project
        place = project.root if self._file is None else os.path.join(project.root, self._file)
        return Toolbox(
            plan,
            project,
            caller,
            self._sessions(caller, plan, place),
            place=place,
            ask=self._confirm,
            inner=self._inner,
            backend=self._backend,
            ttl=self._ttl,
        )

    def _sessions(self, caller: Caller, plan: Plan, place: str) -> Callable[[], Session] | None:
        """Return what has the caller's session; None for who runs no commands in one."""
        if not is_sandboxed(plan) or "bash" not in names_for(plan):
            return None
        who = (caller.identity, caller.place)
        manager = self._managers.get(who)
        if manager is None:
            manager = self._managers[who] = SessionManager(
                plan, directory=place, prefix=self._prefix, ttl=self._ttl, backend=self._backend, audit=False
            )
        return lambda: manager.get(_key(caller))


def _key(caller: Caller) -> str:
    """Return the key of a caller's session. Two whom no user matches are not each other."""
    return ascii((caller.identity, caller.place, caller.key))
