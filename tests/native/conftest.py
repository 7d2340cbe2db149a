"""Fixtures of the tests on a real kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builds import build
from tests.engines import images
from tests.engines.cell import UnusableError
from tests.imaged import imaged, registry
from tests.netlab import connected, lab, way
from tests.proxylab import proxied, secure
from tests.sandboxes import Workshop, actor, project, workshop
from tests.sessionlab import sessions

__all__ = [
    "actor",
    "build",
    "connected",
    "debian",
    "imaged",
    "lab",
    "project",
    "proxied",
    "registry",
    "secure",
    "sessions",
    "way",
    "workshop",
]


@pytest.fixture(scope="session")
def debian(workshop: Workshop) -> Path:
    """Return a small Debian as a tar file; skips the test where none can be had."""
    try:
        return images.debian(workshop.shared)
    except UnusableError as error:
        pytest.skip(str(error))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have counted: the property ``told``."""
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for name, value in report.user_properties:
            if name == "told" and report.when == "call":
                terminalreporter.write_line(str(value))
