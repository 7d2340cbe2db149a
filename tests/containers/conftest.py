"""Fixtures of the tests with real container engines."""

from tests.containers.enginelab import sessions
from tests.containers.servedlab import on_host, used
from tests.engines.fixtures import dead_daemon, engine, engines, hanging_daemon, project, registry
from tests.netlab import lab
from tests.sandboxes import workshop

__all__ = [
    "dead_daemon",
    "engine",
    "engines",
    "hanging_daemon",
    "lab",
    "on_host",
    "project",
    "registry",
    "sessions",
    "used",
    "workshop",
]
