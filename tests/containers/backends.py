"""The back ends that behaviour is compared on, and who uses each."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator

from tests.engines.cell import UnusableError
from tests.engines.engine import MORE_NAMES, NAMES, Engine, Engines
from tests.sandboxes import Actor, Project

NATIVE, NATIVE_ROOT, DOCKER_ROOT = "native", "native by root", "docker by root"
BACKENDS = (NATIVE, NATIVE_ROOT, NAMES[0], DOCKER_ROOT, *NAMES[1:], *MORE_NAMES)


class Backend:
    """A back end and who uses it."""

    def __init__(self, name: str, actor: Actor, engine: Engine | None) -> None:
        self.name = name
        self.actor = actor
        self.engine = engine

    @property
    def options(self) -> list[str]:
        """What makes ``coop run`` take this back end."""
        assignments = [f"sandbox.backend={self.engine.program if self.engine else 'native'}"]
        if self.engine and self.engine.runtime:
            assignments.append(f"sandbox.runtime={self.engine.runtime}")
        return [word for assignment in assignments for word in ("--set", assignment)]

    @contextlib.contextmanager
    def project(self, coopfile: str = "") -> Iterator[Project]:
        """Yield a project of the actor's with a Coopfile; it is ended and removed afterwards."""
        project = Project(self.actor)
        if self.engine:
            project.environment.update(self.engine.environment)
        project.coopfile(coopfile)
        try:
            yield project
        finally:
            project.close()
            for directory in (project.directory, project.home):
                shutil.rmtree(directory, ignore_errors=True)

    def containers(self) -> list[str]:
        """Return what the engine has of containers."""
        return self.engine.containers() if self.engine else []


def backend(engines: Engines, name: str) -> Backend:
    """Return a back end by name; raises UnusableError when this machine can't have it."""
    if name in (NATIVE, NATIVE_ROOT):
        actor = engines.user if name == NATIVE else engines.root
        if actor is None:
            raise UnusableError(f"{name}: it needs root")
        return Backend(name, actor, None)
    if name == DOCKER_ROOT:
        if engines.root is None:
            raise UnusableError(f"{name}: it needs root")
        engine = engines.get("docker").by(engines.root)
    else:
        engine = engines.get(name)
    return Backend(name, engine.actor, engine)


def weakenings(where: Backend, coopfile: str) -> set[str]:
    """Return the keys that ``coop status`` lists as weaker than a plan on this back end."""
    with where.project(coopfile) as project:
        status = project.coop("status", "--json", *where.options)
        found = json.loads(status.stdout)
        chosen = next(item for item in found["backends"] if item["taken"])
        assert chosen["usable"], status
        return {item["key"] for item in chosen["weakenings"]}
