"""Running one command in a container, with the caller's streams, and leaving nothing behind."""

from __future__ import annotations

import json
import os
import resource
import secrets
import select
import signal
import threading
import time

from coopfile.engines import accounts, collect, guard, images
from coopfile.engines.attend import attend
from coopfile.engines.call import EngineError, ask, must, shown
from coopfile.engines.timeouts import CREATE, HOLDS_STARTS, SETTLES, STARTS
from coopfile.errors import CoopError
from coopfile.native import kept, running
from coopfile.native.placeholders import Placeholders
from coopfile.native.runner import TIMED_OUT, Outcome, ensure_streams, refuse_directories
from coopfile.plan.bind import guarded
from coopfile.record import Record
from coopfile.render import docker
from coopfile.render.container import Request, container

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from coopfile.engines.attend import Ended
    from coopfile.engines.collect import Seen
    from coopfile.plan.bind import Fence, Host, Weakening
    from coopfile.plan.model import Plan
    from coopfile.render.container import Container
    from coopfile.render.facts import Engine

_NAMES_TRIED = 3
_NEVER_STARTED = ("created", "configured", "initialized")
_WELL = "is it well? try: %s info"


class Place(Record):
    """Where a plan is run: this machine, what guards need to know, and coop's own state.

    ``environment`` is that of the engine's own processes (``call.own_environment``).
    """

    host: Host
    environment: Mapping[str, str]
    inputs: tuple[str, ...]
    private: tuple[str, ...]
    state: str


def prepare(plan: Plan, engine: Engine, place: Place, argv: tuple[str, ...]) -> Container:
    """Return the container of a plan on this machine; nothing but the masks is made."""
    masks = collect.make_masks(place.state)
    facts = collect.facts(plan, place.host, engine, inputs=place.inputs, private=place.private, masks=masks)
    return container(plan, facts, _request(argv))


def _request(argv: tuple[str, ...], token: str = "run", owner: str | None = None) -> Request:
    terminal = os.isatty(0) and os.isatty(1)
    return Request(argv, token=token, owner=owner, terminal=terminal, held=True)


def _accounts(plan: Plan, engine: Engine, place: Place, image: str, owner: str) -> str:
    """Return a directory of account files, where the image cannot know the user; Podman adds them itself."""
    launch = collect.launched(plan, place.host, engine)
    if plan.base.image is None or launch.uid == 0 or engine.name == "podman":
        return ""
    return accounts.ensure(engine, image, launch, place.environment, owner, place.state)


def run(
    plan: Plan,
    engine: Engine,
    place: Place,
    argv: tuple[str, ...],
    *,
    timeout: float | None = None,
    tell: Callable[[str], None],
    show: Callable[[str], None] | None = None,
    check: Callable[[Container], None],
) -> Outcome:
    """Run a command under a plan on an engine and return when its container is gone.

    ``tell`` hears of what takes long, and ``show`` each line of what the engine says
    meanwhile; ``check`` sees the container before it is made and may raise. ``timeout``
    is in seconds, for the command alone.
    """
    ensure_streams()
    refuse_directories()
    environment = place.environment
    token = secrets.token_hex(6)
    owner = guard.owner_label(token)
    tools = collect.tools(plan, place.host, engine)
    image = images.ensure(plan, engine, tools, place.host.workspace, environment, tell, show)
    known = _accounts(plan, engine, place, image, owner)
    masks = collect.make_masks(place.state)
    starting = _Starting(engine, place.state)
    placeholders = Placeholders()
    try:
        host, lost = _keep(plan, engine, place.host)
        seen = collect.look(plan, host, engine, place.inputs, place.private)
        _hold(placeholders, seen.fences)
        starting.announce(seen.fences, *_places(seen))
        facts = collect.facts_of(seen, tools, masks, held=True).replace(accounts=known)
        made = container(plan, facts, _request(argv, token, owner))
        made = made.replace(weakenings=(*made.weakenings, *lost))
        for hole in made.holes:
            raise CoopError(f"{hole.key}: {hole.text}", hole.remedy)
        starting.check(made)
        passed = {**environment, **dict(docker.variables(made, place.host.environment, environment))}
        _check_text(made, passed)
        check(made)
        guarding = guard.Guard(engine, owner, environment, placeholders.release)
    except BaseException:
        placeholders.release()
        starting.leave()
        raise
    _limit_core()
    placeholders.forget()  # the guard has them, and outlives this process
    try:
        identifier = _create(made, passed, guarding)
        starting.watch(identifier, environment)
        outcome = _start(made, identifier, environment, timeout)
    except CoopError as error:
        left = guarding.done()
        raise CoopError(f"{error.message}\n{left}" if left else error.message, error.remedy) from None
    except BaseException:
        guarding.done()
        raise
    finally:
        starting.leave()
    left = guarding.done()
    return outcome.replace(notes=(*outcome.notes, left)) if left else outcome


def _limit_core() -> None:
    """Have containers dump no core, where an engine hands on the limits of its command line.

    1, not 0: a pipe in the host's core_pattern would be started with 0 too, core(5).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    most = 1 if hard == resource.RLIM_INFINITY else min(hard, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))


def _check_text(made: Container, environment: Mapping[str, str]) -> None:
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
        if not _is_text(text):
            raise CoopError(
                f"{what} is not UTF-8, which {made.engine.name} cannot pass on as it is",
                "use the native back end, or other names and values",
            )


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Starting:
    """This run among the others of the same user while its mounts are made: see ``native.running``."""

    def __init__(self, engine: Engine, state: str) -> None:
        """Keep the others from starting, and note which run."""
        self._engine, self._state = engine, state
        self._places: Sequence[str] = ()
        self._own: tuple[int, str] | None = None
        try:
            self._lock = running.hold_starts(state)
            self._others = running.others(state)
        except OSError as error:
            raise CoopError(f"{state} cannot be written: {error.strerror}", None) from None

    def announce(self, fenced: Sequence[Fence], own: Sequence[str], places: Sequence[str]) -> None:
        """Say what this run can write and has pinned.

        ``own`` outlives the run, and ``places`` are those in it where something is mounted.
        """
        self._places = places
        roots = [*(fence.mount.source for fence in fenced if fence.mount.write), *own]
        self._own = running.announce(self._state, roots, (*guarded(fenced), *places), starts_held=True)

    def check(self, made: Container) -> None:
        """Refuse to mount by name what another sandbox could have replaced since the mounts were chosen."""
        named = [*(mount.source for mount in made.mounts), *self._places]
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
                    if _state(self._engine, identifier, environment).get("Status") not in _NEVER_STARTED:
                        break
                    time.sleep(0.05)
            except EngineError:
                pass  # the run itself tells
            running.let_start(self._lock)

        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        threading.Thread(target=watch, daemon=True).start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def leave(self) -> None:
        """Let others start, and say that this one is gone."""
        running.let_start(self._lock)
        running.leave(self._own)


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


def _hold(placeholders: Placeholders, fenced: Sequence[Fence]) -> None:
    """Hold the places of protected paths that do not exist, on the host."""
    for fence in fenced:
        if not fence.hold:
            continue
        root = os.open(fence.mount.source, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            placeholders.reserve(root, fence.hold)
        finally:
            os.close(root)


def _create(made: Container, environment: Mapping[str, str], guarding: guard.Guard) -> str:
    """Make the container and return its id; another name is taken where somebody else has this one."""
    name = made.name
    for _ in range(_NAMES_TRIED):
        argv = docker.create(made)
        try:
            answer = ask(argv, CREATE, environment, held=(guarding.lifeline,))
        except EngineError:
            guarding.doubt()
            raise
        if answer.status == 0 and answer.out.strip():
            return answer.out.strip().splitlines()[-1]
        if "already in use" not in answer.said or made.name not in answer.said:
            break
        made = made.replace(name=f"{name}-{secrets.token_hex(3)}")
    raise EngineError(
        f"{made.engine.name} cannot make the container: {shown(answer.said)}", None, argv, answer.said
    )


def _start(
    made: Container, identifier: str, environment: Mapping[str, str], timeout: float | None
) -> Outcome:
    """Start the container with the caller's streams, forward signals, and say how it ended."""
    engine = made.engine

    def stop(_: int, number: signal.Signals) -> bool:
        argv = (engine.program, "kill", "--signal", number.name[3:], identifier)
        return ask(argv, environment=environment).status == 0

    def forward(pid: int, number: signal.Signals) -> None:
        # Docker's command line lets go of the command at some signals, rootless Podman's keeps them.
        if number == signal.SIGWINCH or not stop(pid, number):
            os.kill(pid, number)

    def look() -> None:
        if _state(engine, identifier, environment).get("Status") in _NEVER_STARTED:
            raise EngineError(f"{engine.name} did not start the command in time", _WELL % engine.name, argv)

    argv = docker.start(made, identifier)
    try:
        ended = attend(
            argv, environment, timeout=timeout, stop=stop, forward=forward, look=look, look_after=STARTS
        )
    except OSError as error:
        raise EngineError(f"{argv[0]} cannot be started: {error.strerror}", None, argv) from None
    return _outcome(made, identifier, environment, ended, timeout)


def _outcome(
    made: Container, identifier: str, environment: Mapping[str, str], ended: Ended, timeout: float | None
) -> Outcome:
    """Ask the engine how the container ended: its command line mixes its own failures with the command's."""
    end = time.monotonic() + SETTLES
    while (state := _state(made.engine, identifier, environment)).get("Running"):
        if _unread():
            return Outcome(128 + signal.SIGPIPE)  # as the command itself would have ended in a pipe
        if time.monotonic() > end:
            raise EngineError(
                f"the command was still running when {made.engine.name}'s command line ended "
                f"({_how(ended.status)}), and was ended too",
                "its output would have been lost",
                (made.engine.program, "start"),
            )
        time.sleep(0.05)
    code = int(state["ExitCode"])
    if state.get("Status") in _NEVER_STARTED:
        # Docker keeps 126 and 127, as in a shell, in the state; Podman's command line ends with them.
        for known in (code, ended.status):
            if known in (126, 127):
                return Outcome(known)
        why = shown(str(state.get("Error") or "see above"))
        raise EngineError(
            f"{made.engine.name} could not start the command: {why}", None, (made.engine.program, "start")
        )
    notes = []
    if state.get("OOMKilled"):
        notes.append(f"the command ran out of memory: limits.memory is {made.memory} bytes")
    if ended.timed_out:
        notes.append(f"the command was ended after {timeout:g} s")
        return Outcome(TIMED_OUT, tuple(notes))
    return Outcome(code, tuple(notes))


def _unread() -> bool:
    """Tell whether nobody reads standard output or standard error any more: poll(2), POLLERR."""
    poll = select.poll()
    for stream in (1, 2):
        poll.register(stream, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _state(engine: Engine, identifier: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return an engine's State of a container: docker-inspect(1); podman-inspect(1) has the same."""
    argv = (engine.program, "container", "inspect", "--format", "{{json .State}}", identifier)
    what = "how the command fares is not known"
    try:
        state = json.loads(must(what, argv, environment=environment))
    except ValueError:
        raise EngineError(f"{what}: {engine.name} gave no JSON", None, argv) from None
    except EngineError as error:
        if "o such container" in error.said:
            raise EngineError(
                "somebody removed the container while the command ran in it, which ended the command",
                None,
                argv,
                error.said,
            ) from None
        raise
    return dict(state)


def _how(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
