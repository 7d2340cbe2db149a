"""From a plan to a container that may be made: its image is there, and the host's paths are held."""

from __future__ import annotations

import os
import signal
import threading
import time

from coopfile.engines import accounts, apple, collect, committed, images
from coopfile.engines.call import EngineError, is_text
from coopfile.engines.holding import hold
from coopfile.engines.inspect import NEVER_STARTED, state_of
from coopfile.engines.timeouts import HOLDS_STARTS
from coopfile.errors import CoopError
from coopfile.native import kept, running
from coopfile.native.placeholders import Placeholders
from coopfile.plan.bind import guarded
from coopfile.record import Record
from coopfile.render import docker
from coopfile.render.container import Request, container

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from coopfile.engines.collect import Seen
    from coopfile.plan.launch import Host, Weakening
    from coopfile.plan.model import Plan
    from coopfile.render.container import Container
    from coopfile.render.facts import Engine, Entry, Facts


# Weaker in every container, or in every one of an engine's; `coop status` tells.
_ALWAYS = ("limits.tmp", "proc", "sandbox.backend", "seccomp")


class Place(Record):
    """Where a plan is run: this machine, what guards need to know, and coop's own state.

    ``environment`` is that of the engine's own processes (``call.own_environment``).
    """

    host: Host
    environment: Mapping[str, str]
    inputs: tuple[str, ...]
    private: tuple[str, ...]
    state: str


class Base(Record):
    """What containers of a plan start from: an image, the host's tools, account files, and masks."""

    image: str
    tools: tuple[Entry, ...]
    accounts: str
    masks: str


def is_usual(weakening: Weakening, engine: Engine) -> bool:
    """Tell whether something is weaker in every container of an engine's, on whatever machine."""
    # An engine that filters no system calls at all is no usual one.
    return weakening.key in _ALWAYS and (weakening.key != "seccomp" or engine.seccomp)


def preview(plan: Plan, engine: Engine, place: Place, argv: tuple[str, ...]) -> Container:
    """Return the container of a plan on this machine; nothing but the masks is made."""
    masks = collect.make_masks(place.state)
    facts = collect.facts(plan, place.host, engine, inputs=place.inputs, private=place.private, masks=masks)
    return container(plan, facts, Request(argv, terminal=on_terminal(), held=True))


def on_terminal() -> bool:
    """Tell whether a command with this process's streams would have a terminal."""
    return os.isatty(0) and os.isatty(1)


def base(
    plan: Plan,
    engine: Engine,
    place: Place,
    owner: str,
    tell: Callable[[str], None],
    show: Callable[[str], None] | None,
) -> Base:
    """Have the image of a plan there, and what goes with it; the rest is as in ``images.ensure``.

    ``owner`` labels a container that may be needed for a moment.
    """
    tools = collect.tools(plan, place.host, engine)
    if engine.name == "apple":
        image = apple.ensure(plan, engine, place.environment, tell, show)
    else:
        image = images.ensure(plan, engine, tools, place.host.workspace, place.environment, tell, show)
    image = committed.find(plan, place.host.workspace, engine, place.environment) or image
    known = _accounts(plan, engine, place, image, owner)
    return Base(image, tools, known, collect.make_masks(place.state))


def _accounts(plan: Plan, engine: Engine, place: Place, image: str, owner: str) -> str:
    """Return a directory of account files, where the image cannot know the user; Podman adds them itself."""
    launch = collect.launched(plan, place.host, engine)
    if plan.base.image is None or launch.uid == 0 or engine.name != "docker":
        return ""
    return accounts.ensure(engine, image, launch, place.environment, owner, place.state)


class Making:
    """A container in the making.

    From the first look at the host's files until ``starts`` says otherwise no other sandbox of the
    same user starts: see ``native.running``. ``made`` is the container, ``passed`` the environment
    of the call that makes it, and ``facts`` what it was made of. ``holds`` are the places of
    protected paths that have to be held on the host while it lives, relative to mounts; ``roots``
    and ``pinned`` are what ``running.announce`` has to be told of it.
    """

    def __init__(self, plan: Plan, engine: Engine, place: Place, found: Base, request: Request) -> None:
        """Make nothing but what outlives the container, and placeholders. Raises CoopError."""
        self.placeholders = Placeholders()
        self.starts = Starts(engine, place.state)
        try:
            host, lost = _keep(plan, engine, place.host)
            seen = collect.look(plan, host, engine, place.inputs, place.private)
            self.holds = tuple((fence.mount.source, fence.hold) for fence in seen.fences if fence.hold)
            hold(self.placeholders, self.holds)
            own, below = _places(seen)
            writable = [fence.mount.source for fence in seen.fences if fence.mount.write]
            self.roots = (*writable, *own)
            self.pinned = (*guarded(seen.fences), *below)
            self.starts.announce(self.roots, self.pinned)
            facts = collect.facts_of(seen, found.tools, found.masks, held=True)
            self.facts: Facts = facts.replace(accounts=found.accounts)
            made = container(plan, self.facts, request)
            self.made = made.replace(image=found.image, weakenings=(*made.weakenings, *lost))
            refuse(self.made.holes)
            self.starts.check([*(mount.source for mount in made.mounts), *below])
            values = place.host.environment
            self.passed = {**place.environment, **dict(docker.variables(made, values, place.environment))}
            check_text(made, self.passed)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let go of everything: there is no container, or something else holds it all."""
        self.placeholders.release()
        self.starts.close()


class Starts:
    """This sandbox among the others of the same user while its mounts are made: see ``native.running``."""

    def __init__(self, engine: Engine, state: str) -> None:
        """Keep the others from starting, and note which run."""
        self._engine, self._state = engine, state
        self._own: tuple[int, str] | None = None
        try:
            self._lock = running.hold_starts(state)
            self._others = running.others(state)
        except OSError as error:
            raise CoopError(f"{state} cannot be written: {error.strerror}", None) from None

    @property
    def descriptor(self) -> int:
        """What holds the others, in every process that has it open, until one of them calls ``allow``."""
        return self._lock

    def announce(self, roots: Sequence[str], pinned: Sequence[str]) -> None:
        """Say what this one can write and has pinned, as ``running.announce`` takes it."""
        self._own = running.announce(self._state, roots, pinned, starts_held=True)

    def check(self, named: Sequence[str]) -> None:
        """Refuse to mount by name what another sandbox could have replaced since the mounts were chosen."""
        found = running.exposed(self._others, named)
        if found is not None:
            raise CoopError(
                f"another sandbox is running that could replace {found} while {self._engine.name} mounts it",
                "wait until it ends, or use the native back end, which does not mount by name",
            )

    def watch(self, identifier: str, environment: Mapping[str, str]) -> None:
        """Let others start when the container has started, in a thread that gets no signals."""

        def watch() -> None:
            end = time.monotonic() + HOLDS_STARTS
            try:
                while time.monotonic() < end:
                    if state_of(self._engine, identifier, environment).get("Status") not in NEVER_STARTED:
                        break
                    time.sleep(0.05)
            except EngineError:
                pass  # the run itself tells
            self.allow()

        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        threading.Thread(target=watch, daemon=True).start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def allow(self) -> None:
        """Let others start."""
        running.let_start(self._lock)

    def leave(self) -> None:
        """Let others start, and say that this one is gone, or that another process is announced for it."""
        self.allow()
        running.leave(self._own)
        self._own = None

    def close(self) -> None:
        """Leave, where nothing is ``watch``ed, and keep no descriptor."""
        self.leave()
        os.close(self._lock)


def refuse(holes: Iterable[Weakening]) -> None:
    """Refuse a container that gives more than the plan."""
    for hole in holes:
        raise CoopError(f"{hole.key}: {hole.text}", hole.remedy)


def check_text(made: Container, environment: Mapping[str, str]) -> None:
    """Refuse bytes that are no text: engines hand everything on as JSON, and would put other bytes there."""
    inherited = ((f"the value of {host}", environment[name]) for name, host in made.inherited)
    fields = (
        *((f"the argument {word!r}", word) for word in made.argv),
        *((f"the value of env.{name}", value) for name, value in made.environment),
        *((f"the path {path!r}", path) for mount in made.mounts for path in (mount.source, mount.target)),
        ("the directory", made.directory),
        *inherited,
    )
    for what, text in fields:
        if not is_text(text):
            raise CoopError(
                f"{what} is not UTF-8, which {made.engine.name} cannot pass on as it is",
                "use the native back end, or other names and values",
            )


def _keep(plan: Plan, engine: Engine, host: Host) -> tuple[Host, tuple[Weakening, ...]]:
    """Make what outlives the run; where it cannot be made, the run goes without, which is a weakening."""
    launch = collect.launched(plan, host, engine)
    lost = kept.make(launch)
    for mount in launch.kept if not lost else ():
        os.close(kept.opened(mount.source))  # engines mount by name, and would follow a link
    return (host.replace(data="") if lost else host), lost


def _places(seen: Seen) -> tuple[list[str], list[str]]:
    """Return what outlives the run, and places in it where something is mounted.

    They are made here: an engine would follow the links that an earlier run left.
    """
    found = kept.places(seen.launch.kept, seen.mounts)
    for item in found:
        root = os.open(item.source, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.close(kept.open_place(root, item.path, directory=os.path.isdir(item.mount.source)))
        finally:
            os.close(root)
    return [mount.source for mount in seen.launch.kept], [item.real for item in found]
