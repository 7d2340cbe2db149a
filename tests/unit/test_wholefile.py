"""Files are read and replaced as a whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from coopfile import wholefile


def test_read(tmp_path: Path) -> None:
    """What is there is returned, None for nothing; a pipe is not waited for, nor is too much read."""
    path, pipe = tmp_path / "file", tmp_path / "pipe"
    assert wholefile.read(str(path), 5) is None
    assert wholefile.read(f"{__file__}/below", 5) is None
    path.write_bytes(b"12345")
    assert wholefile.read(str(path), 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        wholefile.read(str(path), 4)
    os.mkfifo(pipe)
    for other in (pipe, tmp_path):
        with pytest.raises(OSError, match="not a file"):
            wholefile.read(str(other), 5)


def test_replaced(tmp_path: Path) -> None:
    """What was there is replaced, and nothing is left beside it; the umask says who may read it."""
    path = tmp_path / "file"
    path.write_text("much longer than what comes")
    before = os.umask(0o027)
    try:
        wholefile.write(str(path), b"new")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"new" and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_modes_are_exact(tmp_path: Path) -> None:
    """A mode that is given holds whatever the umask is."""
    path = tmp_path / "file"
    before = os.umask(0o077)
    try:
        wholefile.write(str(path), b"", 0o644)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_links_are_replaced_themselves(tmp_path: Path) -> None:
    """Nothing is written through a link."""
    outside, path = tmp_path / "outside", tmp_path / "file"
    outside.write_text("old")
    path.symlink_to(outside)
    wholefile.write(str(path), b"new")
    assert outside.read_text() == "old" and not path.is_symlink() and path.read_bytes() == b"new"


def test_a_failure_leaves_all_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that cannot take it, a place that is a directory, and none: no part of the file stays."""
    path = tmp_path / "file"
    path.write_text("old")
    (tmp_path / "directory").mkdir()
    with pytest.raises(IsADirectoryError):
        wholefile.write(str(tmp_path / "directory"), b"new")
    with pytest.raises(FileNotFoundError):
        wholefile.write(str(tmp_path / "missing/file"), b"new")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        wholefile.write(str(path), b"new")
    assert path.read_text() == "old" and sorted(os.listdir(tmp_path)) == ["directory", "file"]


def test_what_killed_writers_left_goes(tmp_path: Path) -> None:
    """Half a file of a process that is gone is removed by the next writer, and nothing else is."""
    gone = ("file.4194305.tmp", f"file.{os.getpid()}.tmp")
    others = (f"file.{os.getppid()}.tmp", "file.x.tmp", "other.4194305.tmp")
    for name in (*gone, *others):
        (tmp_path / name).write_text("half")
    (tmp_path / "file.4194306.tmp").mkdir()
    wholefile.write(str(tmp_path / "file"), b"whole")
    assert set(os.listdir(tmp_path)) == {"file", "file.4194306.tmp", *others}


def test_a_path_without_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is of the current one."""
    monkeypatch.chdir(tmp_path)
    wholefile.write("file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_where_processes_are_not_to_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has no /proc: what may be another writer's stays there."""
    exists = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: not str(path).startswith("/proc") and exists(path))
    (tmp_path / "file.4194305.tmp").write_text("half")
    wholefile.write(str(tmp_path / "file"), b"whole")
    assert set(os.listdir(tmp_path)) == {"file", "file.4194305.tmp"}
