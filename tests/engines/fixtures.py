"""Fixtures of the tests with container engines; a conftest imports them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.engines.cell import UnusableError
from tests.engines.engine import NAMES, Engine, Engines
from tests.engines.registry import Registry, listening
from tests.sandboxes import Project, Workshop


@pytest.fixture(scope="session")
def engines(workshop: Workshop) -> Iterator[Engines]:
    """Yield the engines of this test run."""
    try:
        made = Engines(workshop)
    except UnusableError as error:
        pytest.skip(str(error))
    yield made
    made.close()


@pytest.fixture(params=NAMES)
def engine(request: pytest.FixtureRequest, engines: Engines) -> Iterator[Engine]:
    """Yield each engine in turn, without containers; ``parametrize(indirect=True)`` names others."""
    try:
        made = engines.get(request.param)
    except UnusableError as error:
        pytest.skip(str(error))
    yield made
    made.clean()


@pytest.fixture
def project(engine: Engine) -> Iterator[Project]:
    """Yield a fresh project whose owner may use the engine."""
    made = Project(engine.actor)
    made.environment.update(engine.environment)
    yield made
    made.close()


@pytest.fixture
def registry(engines: Engines) -> Registry:
    """Return the registry of this test run; it keeps what is pushed until the end of the run."""
    try:
        return engines.registry()
    except UnusableError as error:
        pytest.skip(str(error))


@pytest.fixture
def hanging_daemon(workshop: Workshop, tmp_path: Path) -> Iterator[str]:
    """Yield a DOCKER_HOST that takes connections and never answers."""
    path = workshop.base / f"hanging-{tmp_path.name}.sock"
    with closing(listening(path)):
        yield f"unix://{path}"
    path.unlink()


@pytest.fixture
def dead_daemon(workshop: Workshop, tmp_path: Path) -> Iterator[str]:
    """Yield a DOCKER_HOST whose socket is there, but nobody listens on it any more."""
    path = workshop.base / f"dead-{tmp_path.name}.sock"
    listening(path).close()
    yield f"unix://{path}"
    path.unlink()
