"""Commands in a sandbox that is there: a session's beside those of containers, and beside new sandboxes."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence

import coopfile
from bench.measure import Call, RunError, Subject, Timing
from bench.subjects import (
    IMAGE,
    Place,
    UnavailableError,
    call,
    command,
    docker_ready,
    in_bubblewrap,
    podman_ready,
    quietly,
    tool,
    variables,
)
from coopfile.errors import CoopError

_NAME = "bench"
_TIMEOUT = 60.0


def whole(place: Place) -> Subject:
    """Return ``coop exec``, as a whole process."""
    _session(place)
    argv = (command(), "exec", _NAME, "--", "true")
    return Subject("exec", "coop exec … true", argv, place.project, variables(place))


def session(place: Place) -> Call:
    """Return a command in a session, from Python; its output is captured, as for the others."""
    found = _session(place)

    def act() -> None:
        result = found.exec(["true"])
        if result.status != 0:
            raise RunError(f"the session's command ended with status {result.status}")

    return Call("session", "Session.exec(true)", act)


def true(place: Place) -> Call:
    """Return the command without any sandbox."""
    return _started("true", "true, no sandbox", (tool("true"),), variables(place))


def bubblewrap(place: Place) -> Call:
    """Return a new sandbox of bubblewrap's with the same namespaces for each command."""
    return _started("bubblewrap", "bwrap … true", (*in_bubblewrap(place), "true"), variables(place))


def docker(place: Place) -> Call:
    """Return a command in a container of docker's."""
    program, environment = docker_ready(place)
    idle = (program, "run", "--detach", "--network", "none", IMAGE, "/bin/idle")
    container = call(*idle, environment=environment).strip()
    place.cleanup.callback(quietly, program, "rm", "--force", container, environment=environment)
    return _started("docker", "docker exec", (program, "exec", container, "/bin/true"), environment)


def podman(place: Place) -> Call:
    """Return a command in a container of podman's."""
    ready, runtime, limits = podman_ready(place)
    container = call(*ready, "run", "--detach", "--network", "none", *limits, IMAGE, "/bin/idle").strip()
    place.cleanup.callback(quietly, *ready, "rm", "--force", "--time", "0", container)
    argv = (*ready, "exec", container, "/bin/true")
    return _started("podman", f"podman exec ({runtime})", argv, variables(place))


CALLS: tuple[tuple[str, Callable[[Place], Call]], ...] = (
    ("true", true),
    ("session", session),
    ("bubblewrap", bubblewrap),
    ("podman", podman),
    ("docker", docker),
)


@contextlib.contextmanager
def settings(given: Mapping[str, str]) -> Iterator[None]:
    """Have variables in this process meanwhile: coop's own directories are found by them."""
    before = dict(os.environ)
    os.environ.update(given)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@functools.lru_cache(maxsize=1)
def _session(place: Place) -> coopfile.Session:
    """Return a session that runs. It ends with this process, however that ends."""
    try:
        with settings(variables(place)):
            plan = coopfile.compile(place.project)
            found = coopfile.Session(plan, name=_NAME, directory=place.project, leased=True)
            place.cleanup.callback(found.close)
            found.exec(["true"])
    except CoopError as error:
        raise UnavailableError(error.message[:100]) from None
    return found


def _started(name: str, what: str, argv: tuple[str, ...], environment: Mapping[str, str]) -> Call:
    def act() -> None:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            timeout=_TIMEOUT,
            check=False,
        )
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()
            raise RunError(f"{name} ended with status {done.returncode}: {said[-100:]}")

    return Call(name, what, act)


def promises(timings: Sequence[Timing]) -> list[tuple[str, float]]:
    """Return each promise about commands in sessions, and how much of what it allows is used."""
    medians = {timing.subject.name: timing.median for timing in timings}
    found = []
    for bound, name, other, factor in (
        ("coop exec, whole process ≤ 1.3 python", "exec", "python", 1.3),
        ("Session.exec ≤ 0.5 bubblewrap", "session", "bubblewrap", 0.5),
        ("Session.exec ≤ docker exec ÷ 20", "session", "docker", 1 / 20),
    ):
        if {name, other} <= medians.keys():
            found.append((bound, medians[name] / (factor * medians[other])))
    return found
