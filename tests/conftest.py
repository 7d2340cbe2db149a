"""What every test stands on: no settings of the person who runs the tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Have a job in the background, or under nohup, start what minds the signals of a terminal."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _no_personal_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the developer's own Coopfile, caches and COOP_* variables out of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("COOP_"):
                patch.delenv(name)
        empty = tmp_path_factory.mktemp("settings")
        patch.setenv("XDG_CONFIG_HOME", str(empty / "config"))
        patch.setenv("XDG_CACHE_HOME", str(empty / "cache"))
        patch.setenv("XDG_STATE_HOME", str(empty / "state"))
        patch.setenv("XDG_DATA_HOME", str(empty / "data"))
        yield


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty project directory, which is the current directory too."""
    directory = tmp_path / "project"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def give_away() -> Callable[[Path], None]:
    """Return what gives a file to user 12345; a test that takes it needs a root who can do that."""

    def chown(path: Path) -> None:
        try:
            os.chown(path, 12345, 12345)
        except OSError:
            pytest.skip("giving a file away needs root, and more than one user in its namespace")

    return chown
