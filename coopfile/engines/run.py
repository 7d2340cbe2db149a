"""Running one command in a container, with the caller's streams, and leaving nothing behind."""

from __future__ import annotations

import json
import os
import secrets
import signal
import time

from coopfile.engines import accounts, collect, guard, images
from coopfile.engines.call import EngineError, ask, must, shown
from coopfile.errors import CoopError
from coopfile.native.placeholders import Placeholders
from coopfile.native.runner import TIMED_OUT, Outcome, ensure_streams, refuse_directories
from coopfile.native.terminal import Saved
from coopfile.plan.bind import bind, fences
from coopfile.record import Record
from coopfile.render import docker
from coopfile.render.container import STOP_GRACE, Request, container, identify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coopfile.plan.bind import Host
    from coopfile.plan.model import Plan
    from coopfile.render.container import Container
    from coopfile.render.facts import Engine, Facts

_CREATE = 120.0  # seconds; a busy disk
_SETTLES = 5.0  # seconds from the end of the streams to that of the container
_NEVER_STARTED = ("created", "configured", "initialized")
_FOREVER = 3600.0
_SI_KERNEL = 0x80  # si_code of what the kernel sent, such as a terminal's ^C: sigaction(2)
_FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)


class Place(Record):
    """Where a plan is run: this machine, what guards need to know, and coop's own state.

    ``environment`` is that of the engine's own processes (``call.own_environment``).
    """

    host: Host
    environment: Mapping[str, str]
    inputs: tuple[str, ...]
    private: tuple[str, ...]
    state: str
    cache: str


def prepare(
    plan: Plan,
    engine: Engine,
    place: Place,
    argv: tuple[str, ...],
    *,
    owner: str | None = None,
    token: str = "run",
    known: str = "",
) -> Container:
    """Return the container of a plan on this machine; nothing but the masks is made.

    ``known`` is ``Facts.accounts``.
    """
    terminal = os.isatty(0) and os.isatty(1)
    request = Request(argv, token=token, owner=owner, terminal=terminal, held=True)
    return container(plan, _facts(plan, engine, place).replace(accounts=known), request)


def _accounts(plan: Plan, engine: Engine, place: Place, image: str, owner: str) -> str:
    """Return a directory of account files, where the image cannot know the user; Podman adds them itself."""
    launch, _, _ = identify(plan, place.host, engine)
    if plan.base.image is None or launch.uid == 0 or engine.name == "podman":
        return ""
    return accounts.ensure(engine, image, launch, place.environment, owner, place.cache)


def _facts(plan: Plan, engine: Engine, place: Place) -> Facts:
    masks = collect.make_masks(place.state)
    return collect.facts(plan, place.host, engine, inputs=place.inputs, private=place.private, masks=masks)


def run(
    plan: Plan,
    engine: Engine,
    place: Place,
    argv: tuple[str, ...],
    *,
    timeout: float | None = None,
    tell: Callable[[str], None],
    check: Callable[[Container], None],
) -> Outcome:
    """Run a command under a plan on an engine and return when its container is gone.

    ``tell`` hears of what takes long; ``check`` sees the container before it is made and
    may raise. ``timeout`` is in seconds, for the command alone.
    """
    ensure_streams()
    refuse_directories()
    environment = place.environment
    token = secrets.token_hex(6)
    owner = guard.owner_label(token)
    image = images.ensure(plan, _facts(plan, engine, place), environment, tell)
    known = _accounts(plan, engine, place, image, owner)
    placeholders = _hold(plan, place)
    try:
        made = prepare(plan, engine, place, argv, owner=owner, token=token, known=known)
        for hole in made.holes:
            raise CoopError(f"{hole.key}: {hole.text}", hole.remedy)
        check(made)
        passed = {**environment, **dict(docker.variables(made, place.host.environment, environment))}
        guarding = guard.Guard(engine, owner, environment, placeholders.release)
    except BaseException:
        placeholders.release()
        raise
    placeholders.forget()  # the guard has them, and outlives this process
    try:
        identifier = _create(made, passed)
        return _start(made, identifier, environment, timeout)
    finally:
        guarding.done()


def _hold(plan: Plan, place: Place) -> Placeholders:
    """Hold the places of protected paths that do not exist, on the host."""
    from coopfile.native.layout import hidden, present

    launch = bind(plan, place.host, ("true",))
    mounts, _ = present(launch)
    placeholders = Placeholders()
    try:
        for fence in fences(launch, mounts, hidden(launch), place.inputs, place.private):
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
    return placeholders


def _create(made: Container, environment: Mapping[str, str]) -> str:
    argv = docker.create(made)
    answer = ask(argv, _CREATE, environment)
    if answer.status != 0:
        raise EngineError(
            f"{made.engine.name} cannot make the container: {shown(answer.said)}", None, argv, answer.said
        )
    return answer.out.strip().splitlines()[-1]


def _start(
    made: Container, identifier: str, environment: Mapping[str, str], timeout: float | None
) -> Outcome:
    """Start the container with the caller's streams, forward signals, and say how it ended."""
    terminals = Saved()
    handled = {*_FORWARDED, signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    argv = docker.start(made, identifier)
    try:
        pid = os.posix_spawn(
            argv[0],
            argv,
            dict(environment),
            setsigmask=mask,
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
        )
        status, timed_out = _wait(made.engine, identifier, environment, pid, handled, timeout)
    finally:
        terminals.restore()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return _outcome(made, identifier, environment, status, timed_out, timeout)


def _wait(
    engine: Engine,
    identifier: str,
    environment: Mapping[str, str],
    pid: int,
    handled: set[signal.Signals],
    timeout: float | None,
) -> tuple[int, bool]:
    """Wait for the engine's command line; return its status and whether the time ran out."""
    deadline = None if timeout is None else time.monotonic() + timeout
    timed_out = False
    while True:
        left = _FOREVER if deadline is None else max(deadline - time.monotonic(), 0.0)
        info = signal.sigtimedwait(handled, left)
        if info is None:
            if deadline is None:
                continue
            if not timed_out:
                timed_out, deadline = True, time.monotonic() + STOP_GRACE
                _kill(engine, identifier, environment, "TERM")
            else:
                deadline = None
                _kill(engine, identifier, environment, "KILL")
        elif info.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status), timed_out
        elif info.si_code != _SI_KERNEL:
            # What the terminal sent went to the engine's command line too, which passes it on.
            os.kill(pid, info.si_signo)


def _kill(engine: Engine, identifier: str, environment: Mapping[str, str], name: str) -> None:
    ask((engine.program, "kill", "--signal", name, identifier), environment=environment)


def _outcome(
    made: Container,
    identifier: str,
    environment: Mapping[str, str],
    status: int,
    timed_out: bool,
    timeout: float | None,
) -> Outcome:
    """Ask the engine how the container ended: its command line mixes its own failures with the command's."""
    argv = (made.engine.program, "container", "inspect", "--format", "{{json .State}}", identifier)
    end = time.monotonic() + _SETTLES
    while True:
        state = json.loads(must("how the command ended is not known", argv, environment=environment))
        if not state.get("Running"):
            break
        if time.monotonic() > end:
            raise EngineError(
                f"{made.engine.name} let go of the command before its end (status {status})",
                "did somebody end its command line?",
                argv,
            )
        time.sleep(0.05)
    code = int(state["ExitCode"])
    if state.get("Status") in _NEVER_STARTED:
        # Docker keeps 126 and 127, as in a shell, in the state; Podman's command line ends with them.
        for known in (code, status):
            if known in (126, 127):
                return Outcome(known)
        why = shown(str(state.get("Error") or "see above"))
        raise EngineError(f"{made.engine.name} could not start the command: {why}", None, argv)
    notes = []
    if state.get("OOMKilled"):
        notes.append(f"the command ran out of memory: limits.memory is {made.memory} bytes")
    if timed_out:
        notes.append(f"the command was ended after {timeout:g} s")
        return Outcome(TIMED_OUT, tuple(notes))
    return Outcome(code, tuple(notes))
