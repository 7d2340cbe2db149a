"""Running one command in a container, with the caller's streams, and leaving nothing behind."""

from __future__ import annotations

import os
import secrets
import select
import signal
import time

from coopfile.engines import guard, neighbour
from coopfile.engines.attend import attend
from coopfile.engines.call import EngineError, ask, shown
from coopfile.engines.holding import limit_core
from coopfile.engines.inspect import NEVER_STARTED, state_of, unmade
from coopfile.engines.making import Making, base, on_terminal
from coopfile.engines.network import Network, new_socket
from coopfile.engines.timeouts import CREATE, SETTLES, STARTS
from coopfile.errors import CoopError
from coopfile.native import streams
from coopfile.native.runner import TIMED_OUT, Outcome
from coopfile.render import docker
from coopfile.render.container import Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coopfile.engines.attend import Ended
    from coopfile.engines.making import Place
    from coopfile.engines.network import Served
    from coopfile.plan.model import Plan
    from coopfile.render.container import Container
    from coopfile.render.facts import Engine

_NAMES_TRIED = 3
_WELL = "is it well? try: %s info"


def run(
    plan: Plan,
    engine: Engine,
    place: Place,
    argv: tuple[str, ...],
    *,
    timeout: float | None = None,
    served: Served,
    tell: Callable[[str], None],
    show: Callable[[str], None] | None = None,
    check: Callable[[Container], None],
) -> Outcome:
    """Run a command under a plan on an engine and return when its container is gone.

    ``tell`` hears of what takes long, and ``show`` each line of what the engine says
    meanwhile; ``check`` sees the container before it is made and may raise. ``timeout``
    is in seconds, for the command alone. ``served`` is what the plan has served.
    Raises SettingError for a port that cannot be published, CoopError.
    """
    streams.ensure()
    streams.refuse_directories()
    environment = place.environment
    token = secrets.token_hex(6)
    owner = guard.owner_label(token)
    found = base(plan, engine, place, owner, tell, show)
    request = Request(argv, token=token, owner=owner, terminal=on_terminal(), held=True)
    making = Making(plan, engine, place, found, request)
    made, placeholders, starts = making.made, making.placeholders, making.starts
    try:
        check(made)
        guarding = guard.Guard(engine, owner, environment, placeholders.release)
    except BaseException:
        making.release()
        raise
    limit_core()
    placeholders.forget()  # the guard has them, and outlives this process
    network = None
    try:
        if made.served:
            socket = new_socket(place.state)
            network = Network(served, socket)
            beside = neighbour.prepare(plan, engine, place, made, owner, token, socket)
            network.make(beside, environment, (guarding.lifeline,))
            made = made.replace(joined=beside.name)
        identifier = _create(made, making.passed, guarding)
        starts.watch(identifier, environment)
        outcome = _start(made, identifier, environment, timeout)
    except BaseException as error:
        if network is not None:
            network.end()
            if network.doubtful:
                guarding.doubt()
        left = guarding.done()
        if left and isinstance(error, CoopError):
            raise CoopError(f"{error.message}\n{left}", error.remedy) from None
        raise
    finally:
        starts.leave()
    notes = () if network is None else network.end()
    left = guarding.done()
    return outcome.replace(notes=(*outcome.notes, *notes, *([left] if left else [])))


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
    raise unmade(made.engine, argv, answer.said)


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
        if state_of(engine, identifier, environment).get("Status") in NEVER_STARTED:
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
    while (state := state_of(made.engine, identifier, environment)).get("Running"):
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
    if state.get("Status") in NEVER_STARTED:
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


def _how(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
