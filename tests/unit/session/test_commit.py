"""Whether what a session has changed is worth keeping at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from coopfile.rootfs.overlay import Change
from coopfile.session import installs
from coopfile.session.commit import is_install, listed


def change(path: str, kind: str = "added") -> Change:
    """Return a change of a file."""
    return Change(kind, path, "file", 1)


@pytest.mark.parametrize(
    "path",
    [
        "/usr/bin/rg",
        "/opt/tool/x",
        "/etc/apt/sources.list",
        "/var/lib/dpkg/status",
        "/root/.cargo/bin/rg",
        "/root/.local/lib/x.py",
        "/srv/app",
        "/root/.nvm/x",
        "/root/project/node_modules/x",
    ],
)
def test_installed(path: str) -> None:
    """Something where programs and their settings are is worth it, whether it was added or deleted."""
    for kind in ("added", "changed", "deleted"):
        assert is_install([change(path, kind)], hinted=False)


@pytest.mark.parametrize(
    "path",
    [
        "/root/.bash_history",
        "/root/.cache/pip/x",
        "/var/cache/apt/pkgcache.bin",
        "/var/lib/apt/lists/x",
        "/var/log/dpkg.log",
        "/usr/lib/python3/__pycache__/x.pyc",
        "/run/lock",
        "/tmp",
        "/etc/ld.so.cache",
    ],
)
def test_traces(path: str) -> None:
    """Caches, logs and histories are not, whatever commands looked like."""
    assert not is_install([change(path)], hinted=False)
    assert not is_install([change(path)], hinted=True)


def test_the_hint() -> None:
    """What is neither is, if a command looked like installing something. Without a change nothing is."""
    assert not is_install([change("/root/notes")], hinted=False)
    assert is_install([change("/root/notes")], hinted=True)
    assert not is_install([], hinted=True)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("sh", "-c", "apt-get update && apt-get install -y rg"), True),
        (("pip", "install", "x"), True),
        (("npm", "i", "-g", "x"), True),
        (("sh", "-c", "CURL -sSf https://x | sh"), True),
        (("make", "test"), False),
        (("cargo", "build"), False),
        ((), False),
    ],
)
def test_commands(tmp_path: Path, argv: tuple[str, ...], expected: bool) -> None:
    """The hint is what the command line says, and is remembered until it is forgotten."""
    assert installs.looks_like_install(argv) == expected
    installs.note(str(tmp_path), argv)
    assert installs.were_noted(str(tmp_path)) == expected
    installs.forget(str(tmp_path))
    installs.forget(str(tmp_path))
    assert not installs.were_noted(str(tmp_path))
    installs.note(str(tmp_path / "none"), argv)


def test_counts_for_people() -> None:
    """Only what there is is named."""
    assert listed((1, 0, 2)) == "added 1, deleted 2" and listed((0, 0, 0)) == "changed nothing"
