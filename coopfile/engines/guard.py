"""A process beside a run that removes what the run left, however the run ends.

It is forked before the container is made and waits until its parent is gone or says
that all is over. What it removes it finds by label, never by name.
"""

from __future__ import annotations

import os
import signal

from coopfile.engines.call import EngineError, ask
from coopfile.errors import CoopError
from coopfile.render import docker
from coopfile.render.container import LABEL_MANAGED, LABEL_OWNER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coopfile.render.facts import Engine

_REMOVAL = 60.0  # seconds; an engine kills, unmounts and deletes


class Guard:
    """The guarding process, as the run sees it: ``done`` has it clean up, and waits for that."""

    def __init__(
        self, engine: Engine, owner: str, environment: Mapping[str, str], release: Callable[[], None]
    ) -> None:
        """Start it; ``release`` is called in it when the container is gone."""
        receive, send = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                os.close(send)
                os.setsid()
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                    signal.signal(number, signal.SIG_IGN)
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                status = _guard(engine, owner, environment, receive, release)
            finally:
                os._exit(status)
        os.close(receive)
        self._send = send

    def done(self) -> None:
        """Have everything removed; raises CoopError if that failed."""
        os.close(self._send)
        _, status = os.waitpid(self._pid, 0)
        if status != 0:
            raise CoopError(
                "what the run left behind could not be removed", "coop tries again at its next run"
            )


def _guard(
    engine: Engine, owner: str, environment: Mapping[str, str], receive: int, release: Callable[[], None]
) -> int:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    try:
        sweep(engine, environment)
    except EngineError:
        pass  # of earlier runs; this one says itself if the engine does not answer
    os.read(receive, 1)
    try:
        remove_all(engine, environment, owner)
    except EngineError:
        return 1
    finally:
        release()
    return 0


def owner_label(token: str) -> str:
    """Return what labels the containers of this process: uid, pid, its start, and a random token."""
    return f"{os.getuid()}.{os.getpid()}.{_started(os.getpid())}.{token}"


def remove_all(engine: Engine, environment: Mapping[str, str], owner: str) -> None:
    """Remove every container that a label says is ours."""
    for identifier in _list(engine, environment, f"label={LABEL_OWNER}={owner}", "{{.ID}}"):
        _remove(engine, environment, identifier)


def sweep(engine: Engine, environment: Mapping[str, str]) -> None:
    """Remove the containers of runs whose process is dead: a machine, or everything, was killed."""
    template = '{{.ID}} {{.Label "%s"}}' if engine.name == "docker" else '{{.ID}} {{index .Labels "%s"}}'
    for line in _list(engine, environment, f"label={LABEL_MANAGED}=true", template % LABEL_OWNER):
        identifier, _, owner = line.partition(" ")
        parts = owner.split(".")
        if len(parts) != 4 or parts[0] != str(os.getuid()):
            continue
        if _started(int(parts[1])) != parts[2]:
            _remove(engine, environment, identifier)


def _list(engine: Engine, environment: Mapping[str, str], condition: str, template: str) -> list[str]:
    argv = (engine.program, "ps", "--all", "--no-trunc", "--filter", condition, "--format", template)
    answer = ask(argv, _REMOVAL, environment)
    if answer.status != 0:
        raise EngineError("containers cannot be listed", None, argv, answer.said)
    return answer.out.split("\n")[:-1]


def _remove(engine: Engine, environment: Mapping[str, str], identifier: str) -> None:
    argv = docker.remove(engine, identifier)
    answer = ask(argv, _REMOVAL, environment)
    if answer.status != 0 and "o such container" not in answer.said:
        raise EngineError("a container cannot be removed", None, argv, answer.said)


def _started(pid: int) -> str:
    """Return when a process started, in ticks since boot: with its pid that is one of a kind. proc(5)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""
