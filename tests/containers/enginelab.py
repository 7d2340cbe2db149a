"""Sessions on a container engine, driven from outside: the programs are those of ``tests.sessionlab``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.engine import Engine
from tests.sandboxes import Project, Workshop, descendants, wait_until
from tests.sessionlab import Sessions


class EngineSessions(Sessions):
    """The sessions of one project on an engine; every program that is started takes that and its image."""

    def __init__(self, project: Project, library: Path, engine: Engine) -> None:
        self.engine = engine
        project.environment["COOP_SANDBOX_BACKEND"] = engine.program
        project.environment["COOP_BASE_IMAGE"] = engine.image("busybox")
        if engine.runtime:
            project.environment["COOP_SANDBOX_RUNTIME"] = engine.runtime
        super().__init__(project, library)
        self.watch_workspace()

    def keeper(self, name: str = "default") -> int:
        """Return the number of the process that keeps a session."""
        return self.first(name)

    def clients(self, name: str = "default") -> list[int]:
        """Return the engine's own processes that the keeper has started."""
        return descendants(self.keeper(name))

    def container(self) -> str:
        """Return the id of the only container of coop's."""
        (found,) = self.containers()
        return found

    def containers(self) -> list[str]:
        """Return the ids of coop's containers, whatever state they are in."""
        listed = ("ps", "--all", "--quiet", "--no-trunc", "--filter", "label=coop.managed=true")
        return self.engine.output(*listed).split()

    def ends(self, name: str = "default") -> bool:
        """Wait until nothing keeps a session; tell whether that came about."""
        from coopfile.session import store

        return bool(wait_until(lambda: not store.is_alive(str(self.directory(name)))))

    def _left(self) -> list[object]:
        return [*super()._left(), *(("container", item) for item in self.containers())]


@pytest.fixture
def sessions(project: Project, workshop: Workshop, engine: Engine) -> Iterator[EngineSessions]:
    """Yield what drives the project's sessions on the engine; they end with the test."""
    made = EngineSessions(project, workshop.library, engine)
    yield made
    with contextlib.suppress(OSError):
        made.close()
