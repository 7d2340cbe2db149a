"""Fixtures of the tests of root file systems."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coopfile.rootfs.tree import remove_tree
from tests.unit.rootfs.archives import Place
from tests.unit.rootfs.fakeregistry import FakeRegistry


@pytest.fixture
def make_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], FakeRegistry]]:
    """Yield what makes a registry; each is ended with the test."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    made: list[FakeRegistry] = []

    def make() -> FakeRegistry:
        made.append(FakeRegistry())
        return made[-1]

    yield make
    for registry in made:
        registry.close()


@pytest.fixture
def registry(make_registry: Callable[[], FakeRegistry]) -> FakeRegistry:
    """Return an empty registry."""
    return make_registry()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return an empty root with canaries around it."""
    return Place(tmp_path)


@pytest.fixture
def open_base() -> Iterator[Path]:
    """Yield a directory that everybody may enter and write to."""
    base = Path(tempfile.mkdtemp(prefix="coop-unpack-"))
    base.chmod(0o777)
    yield base
    remove_tree(str(base))
