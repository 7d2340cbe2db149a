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
from coopfile.native import running
from coopfile.native.placeholders import Placeholders
from coopfile.native.runner import TIMED_OUT, Outcome, ensure_streams, refuse_directories
from coopfile.plan.bind import bind, fences, guarded
from coopfile.record import Record
from coopfile.render import docker
from coopfile.render.container import Request, container, identify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from coopfile.engines.attend import Ended
    from coopfile.plan.bind import Fence, Host
    from coopfile.plan.model import Plan
    from coopfile.render.container import Container
    from coopfile.render.facts import Engine, Facts

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


def prepare(
    plan: Plan,
    engine: Engine,
    place: Place,
    argv: tuple[str, ...],
    *,
    owner: str | None = None,
    token: str = "run",
    known: str = "",
    held: bool = False,
) -> Container:
    """Return the container of a plan on this machine; nothing but the masks is made.

    ``known`` is ``Facts.accounts`` and ``held`` as ``collect.facts`` takes it.
    """
    terminal = os.isatty(0) and os.isatty(1)
    request = Request(argv, token=token, owner=owner, terminal=terminal, held=True)
    return container(plan, _facts(plan, engine, place, held=held).replace(accounts=known), request)


def _accounts(plan: Plan, engine: Engine, place: Place, image: str, owner: str) -> str:
    """Return a directory of account files, where the image cannot know the user; Podman adds them itself."""
    launch, _, _ = identify(plan, place.host, engine, system=collect.system())
    if plan.base.image is None or launch.uid == 0 or engine.name == "podman":
        return ""
    return accounts.ensure(engine, image, launch, place.environment, owner, place.state)


def _facts(plan: Plan, engine: Engine, place: Place, *, held: bool = False) -> Facts:
    masks = collect.make_masks(place.state)
    return collect.facts(
        plan, place.host, engine, inputs=place.inputs, private=place.private, masks=masks, held=held
    )


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
    image = images.ensure(plan, _facts(plan, engine, place), environment, tell, show)
    known = _accounts(plan, engine, place, image, owner)
    placeholders, fenced = _hold(plan, place)
    try:
        starting = _Starting(engine, place.state, fenced)
    except BaseException:
        placeholders.release()
        raise
    try:
        made = prepare(plan, engine, place, argv, owner=owner, token=token, known=known, held=True)
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

    def __init__(self, engine: Engine, state: str, fenced: Sequence[Fence]) -> None:
        """Keep the others from starting, and say what this one can write and has pinned."""
        self._engine, self._state = engine, state
        roots = [fence.mount.source for fence in fenced if fence.mount.write]
        try:
            self._lock = running.hold_starts(state)
        except OSError as error:
            raise CoopError(f"{state} cannot be written: {error.strerror}", None) from None
        self._own = running.announce(state, roots, guarded(fenced), starts_held=True)

    def check(self, made: Container) -> None:
        """Refuse to mount by name what another sandbox could replace meanwhile."""
        found = running.exposed(self._state, [mount.source for mount in made.mounts], self._own)
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


def _hold(plan: Plan, place: Place) -> tuple[Placeholders, tuple[Fence, ...]]:
    """Hold the places of protected paths that do not exist, on the host; return them with all fences."""
    from coopfile.native.layout import hidden, present

    launch = bind(plan, place.host, ("true",))
    mounts, _ = present(launch)
    placeholders = Placeholders()
    try:
        fenced = fences(launch, mounts, hidden(launch), place.inputs, place.private)
        for fence in fenced:
            if not fence.hold:
                continue
            root = os.open(fence.mount.source, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                placeholders.reserve(root, fence.hold)
            finally:
                os.close(root)
    except BaseException:
        placeholders.release()
        raise
    return placeholders, fenced


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
