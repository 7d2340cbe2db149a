"""Fixtures of the tests with real container engines."""

from tests.containers.enginelab import sessions
from tests.engines.fixtures import dead_daemon, engine, engines, hanging_daemon, project, registry
from tests.sandboxes import workshop

__all__ = [
    "dead_daemon",
    "engine",
    "engines",
    "hanging_daemon",
    "project",
    "registry",
    "sessions",
    "workshop",
]
