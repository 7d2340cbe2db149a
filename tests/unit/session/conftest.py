"""Fixtures of the tests of sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import coopfile
from tests.unit.session.host import HostBackend


@pytest.fixture
def plan(project: Path) -> coopfile.Plan:
    """Return the plan of an empty project, which is the current directory."""
    return coopfile.compile()


@pytest.fixture
def host() -> Iterator[HostBackend]:
    """Yield sessions whose commands are the host's processes, all of which are ended afterwards."""
    made = HostBackend()
    yield made
    made.close()


@pytest.fixture
def fake() -> coopfile.FakeBackend:
    """Return sessions that run nothing."""
    return coopfile.FakeBackend()
