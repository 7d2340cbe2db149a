"""Placeholders: made for what is missing, shared, adopted, and removed by the last user."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from coopfile.errors import CoopError
from coopfile.native.marks import MODE, is_placeholder
from coopfile.native.placeholders import Placeholders


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    """Yield a descriptor of an empty directory."""
    descriptor = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def names(path: Path) -> list[str]:
    """Return everything below a directory."""
    return sorted(str(item.relative_to(path)) for item in path.rglob("*"))


def test_only_the_first_missing_part(root: int, tmp_path: Path) -> None:
    """One placeholder holds the place of everything below it."""
    (tmp_path / "there").mkdir()
    held = Placeholders()
    held.reserve(root, ["a/b/c", "a/d", "there/e/f", "g"])
    assert names(tmp_path) == ["a", "g", "there", "there/e"]
    assert is_placeholder(os.stat(tmp_path / "a"))
    held.release()
    assert names(tmp_path) == ["there"]


def test_umask_does_not_matter(root: int, tmp_path: Path) -> None:
    """The mode that marks a placeholder is exact, and the caller's umask is back afterwards."""
    before = os.umask(0o077)
    try:
        held = Placeholders()
        held.reserve(root, ["a"])
        assert stat.S_IMODE(os.stat(tmp_path / "a").st_mode) == MODE
        held.release()
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)


def test_what_exists_is_left_alone(root: int, tmp_path: Path) -> None:
    """Files, directories and their modes stay as they are."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "directory").mkdir(0o700)
    held = Placeholders()
    held.reserve(root, ["file", "directory", "file/below"])
    held.release()
    assert names(tmp_path) == ["directory", "file"]
    assert stat.S_IMODE((tmp_path / "directory").stat().st_mode) == 0o700


def test_shared(root: int, tmp_path: Path) -> None:
    """Two users share one placeholder; the last one out removes it, in whichever order."""
    for first in (0, 1):
        both = [Placeholders(), Placeholders()]
        for held in both:
            held.reserve(root, ["a"])
        both[first].release()
        assert names(tmp_path) == ["a"]
        both[1 - first].release()
        assert names(tmp_path) == []


def test_adopted(root: int, tmp_path: Path) -> None:
    """A placeholder that a killed run left is adopted and removed."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(MODE)
    held = Placeholders()
    held.reserve(root, ["a/b"])
    assert names(tmp_path) == ["a"]
    held.release()
    assert names(tmp_path) == []


def test_not_removed_when_no_longer_ours(root: int, tmp_path: Path) -> None:
    """What took a placeholder's place, or was put into it, is not removed."""
    held = Placeholders()
    held.reserve(root, ["a", "b", "c"])
    (tmp_path / "a").rmdir()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").rmdir()
    (tmp_path / "b").write_text("mine")
    (tmp_path / "c").chmod(0o755)
    (tmp_path / "c/file").write_text("mine")
    held.release()
    assert names(tmp_path) == ["a", "b", "c", "c/file"]


def test_removed_by_hand(root: int, tmp_path: Path) -> None:
    """A placeholder that somebody removed is no error."""
    held = Placeholders()
    held.reserve(root, ["a"])
    (tmp_path / "a").rmdir()
    held.release()
    assert names(tmp_path) == []


def test_waits_for_nobody(root: int, tmp_path: Path) -> None:
    """A placeholder that some other program has locked for good is an error, not a hang."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(MODE)
    descriptor = os.open(tmp_path / "a", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    held = Placeholders()
    with pytest.raises(CoopError, match="locked by another program"):
        held.reserve(root, ["a"])
    held.release()
    os.close(descriptor)


def test_links_are_not_followed(root: int, tmp_path: Path) -> None:
    """Nothing is made behind a link, inside or outside."""
    outside = tmp_path.parent / "outside"
    outside.mkdir()
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "dangling").symlink_to("nowhere")
    held = Placeholders()
    for path in ("link/a", "dangling", "dangling/a"):
        try:
            held.reserve(root, [path])
        except (CoopError, OSError):
            continue
    held.release()
    assert names(outside) == []
    assert names(tmp_path) == ["dangling", "link"]


def test_no_descriptors_are_lost(root: int) -> None:
    """Reserving and releasing leaves no descriptor open."""
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        held = Placeholders()
        held.reserve(root, ["a/b", "c", "c/d"])
        held.release()
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [(0o41555, True), (0o41755, False), (0o40555, False), (0o101555, False), (0o41777, False)],
)
def test_mark(mode: int, expected: bool) -> None:
    """A placeholder is a sticky directory that nobody may write; nothing else is."""
    assert is_placeholder(os.stat_result((mode, *[0] * 9))) is expected
