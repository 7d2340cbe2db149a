"""File tools on a directory: what they read, write and refuse."""

from __future__ import annotations

import fcntl
import os
import socket
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from coopfile.native import syscalls
from coopfile.tools import confined, files
from coopfile.tools.confined import FileError, Tree


@pytest.fixture
def tree(project: Path) -> Iterator[Tree]:
    """Yield the project."""
    descriptor = os.open(project, os.O_PATH | os.O_DIRECTORY)
    yield Tree(descriptor, ("/workspace", str(project)))
    os.close(descriptor)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a file beside the project."""
    path = tmp_path / "outside"
    path.write_text("secret")
    return path


LINES = "one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("offset", "limit", "text"),
    [
        (1, None, "one\ntwo\nthree"),
        (2, None, "two\nthree\n[lines 2 to 3 of 3]"),
        (1, 2, "one\ntwo\n[lines 1 to 2 of 3; read on with offset=3]"),
        (3, 100, "three\n[lines 3 to 3 of 3]"),
        (1, 3, "one\ntwo\nthree"),
    ],
)
def test_lines(tree: Tree, project: Path, offset: int, limit: int | None, text: str) -> None:
    """A range of lines says which ones they are, and how to go on."""
    (project / "file").write_text(LINES)
    assert files.read_file(tree, "file", offset, limit) == text


def test_reading_what_is_unusual(tree: Tree, project: Path) -> None:
    """Nothing, too much, no text, other encodings, and lines that do not end."""
    (project / "empty").touch()
    (project / "long").write_text("x" * 500 + "\n" + "y\n" * 500)
    (project / "binary").write_bytes(b"ELF\0\1")
    (project / "latin").write_bytes(b"caf\xe9")
    assert files.read_file(tree, "empty") == "[the file is empty]"
    assert files.read_file(tree, "latin") == "caf\ufffd"
    assert files.read_file(tree, "long", most=100).endswith(
        "[line 1 has 500 bytes, of which the first 100 are shown]\n"
        "[lines 1 to 1 of 501; read on with offset=2]"
    )
    assert files.read_file(tree, "long", 2, most=100).count("y") == 50
    with pytest.raises(FileError, match="not text: 5 bytes"):
        files.read_file(tree, "binary")
    with pytest.raises(FileError, match="has 501 lines"):
        files.read_file(tree, "long", 502)
    with open(project / "huge", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FileError, match="larger than"):
        files.read_file(tree, "huge")


def test_many_short_lines(tree: Tree, project: Path) -> None:
    """Millions of lines take no more memory than their bytes, and little more time than reading them."""
    data = b"ab\n" * 2_000_000 + b"x\n" * 1000
    (project / "file").write_bytes(data)
    tracemalloc.start()
    try:
        text = files.read_file(tree, "file", 1_999_999, 4)
        assert tracemalloc.get_traced_memory()[1] < 5 * len(data)
    finally:
        tracemalloc.stop()
    assert text == "ab\nab\nx\nx\n[lines 1999999 to 2000002 of 2001000; read on with offset=2000003]"
    began = time.thread_time()
    assert data.count(b"\n") == 2_001_000
    once = time.thread_time() - began
    began = time.thread_time()
    with pytest.raises(FileError, match="1000 times in file, at lines 2000001, 2000002"):
        files.edit_file(tree, "file", "x", "y")
    assert time.thread_time() - began < 300 * once


def test_writing_keeps_mode_and_owner(tree: Tree, project: Path) -> None:
    """A new content has the old file's mode, but nothing that is set-id; a new file the umask's."""
    path = project / "script"
    path.write_text("old")
    path.chmod(0o4751)
    inode = path.stat().st_ino
    assert files.write_file(tree, "script", "new") == "replaced script, 3 bytes"
    assert (path.read_text(), oct(path.stat().st_mode & 0o7777)) == ("new", "0o751")
    assert path.stat().st_ino != inode, "it was written over in place"
    mask = os.umask(0o027)
    try:
        assert files.write_file(tree, "a/b/new", "text") == "made a/b/new, 4 bytes"
    finally:
        os.umask(mask)
    assert oct((project / "a/b/new").stat().st_mode & 0o7777) == "0o640"
    assert sorted(os.listdir(project)) == ["a", "script"]


def test_the_owner_is_kept_or_it_is_refused(tree: Tree, project: Path, give_away: object) -> None:
    """A file of somebody else's stays theirs; who may not give it back does not write it."""
    path = project / "file"
    path.write_text("old")
    give_away(path)  # type: ignore[operator]
    files.write_file(tree, "file", "new")
    assert (path.stat().st_uid, path.read_text()) == (12345, "new")
    with confined.without_capabilities(), pytest.raises(FileError, match="belongs to somebody else"):
        files.write_file(tree, "file", "newer")
    assert (path.stat().st_uid, path.read_text(), os.listdir(project)) == (12345, "new", ["file"])


def test_without_capabilities(tree: Tree, project: Path, give_away: object) -> None:
    """Modes count, for this thread and this while."""
    path = project / "file"
    path.write_text("text")
    path.chmod(0o600)
    give_away(path)  # type: ignore[operator]
    before = syscalls.capability_sets()
    with confined.without_capabilities(), pytest.raises(FileError, match="permission denied"):
        files.read_file(tree, "file")
    assert syscalls.capability_sets() == before
    assert files.read_file(tree, "file") == "text"


def test_edits(tree: Tree, project: Path) -> None:
    """They match once, or say why not; bytes around them stay, whatever they are."""
    path = project / "file"
    path.write_bytes(b"caf\xe9\none\ntwo\none\r\n")
    assert files.edit_file(tree, "file", "two\n", "2\n\u00e9") == "edited file at line 3"
    assert path.read_bytes() == b"caf\xe9\none\n2\n\xc3\xa9one\r\n"
    for old, words in (
        ("one", "2 times in file, at lines 2, 4"),
        ("One", "is not in file"),
        ("", "is empty"),
    ):
        with pytest.raises(FileError, match=words):
            files.edit_file(tree, "file", old, "x")
    path.write_text("aaa")
    with pytest.raises(FileError, match="2 times"):
        files.edit_file(tree, "file", "aa", "b")
    with pytest.raises(FileError, match="no such file"):
        files.edit_file(tree, "none", "a", "b")
    with pytest.raises(FileError, match="the same"):
        files.edit_file(tree, "file", "a", "a")
    assert (path.read_text(), os.listdir(project)) == ("aaa", ["file"])


OUT = ["../outside", "a/../../outside", "link", "up", "dir/outside", "chain", "/etc/passwd", "abs/outside"]


@pytest.mark.parametrize("path", OUT)
def test_nothing_leads_out(tree: Tree, project: Path, outside: Path, path: str) -> None:
    """Neither dots nor links, of whatever kind, for whichever tool."""
    (project / "a").mkdir()
    (project / "link").symlink_to(outside)
    (project / "up").symlink_to("../outside")
    (project / "dir").symlink_to("..")
    (project / "abs").symlink_to(outside.parent)
    (project / "chain").symlink_to("up")
    for tool, arguments in (
        (files.read_file, (path,)),
        (files.write_file, (path, "evil")),
        (files.edit_file, (path, "secret", "evil")),
    ):
        with pytest.raises(FileError, match=r"out of|outside of"):
            tool(tree, *arguments)
    assert (outside.read_text(), os.listdir(project / "a")) == ("secret", [])


def test_links_inside(tree: Tree, project: Path) -> None:
    """A link that stays inside is followed, and stays a link; a circle of them is an error."""
    (project / "real").write_text("old")
    (project / "link").symlink_to("real")
    (project / "named").symlink_to("/workspace/real")
    (project / "circle").symlink_to("circle")
    (project / "dangling").symlink_to("new")
    files.write_file(tree, "link", "new")
    assert ((project / "link").is_symlink(), (project / "real").read_text()) == (True, "new")
    assert files.read_file(tree, "named") == "new"
    files.edit_file(tree, "named", "new", "newer")
    assert (project / "real").read_text() == "newer"
    files.write_file(tree, "dangling", "made")
    assert (project / "new").read_text() == "made"
    with pytest.raises(FileError, match="symbolic links"):
        files.write_file(tree, "circle", "")
    with pytest.raises(FileError, match="symbolic links"):
        files.read_file(tree, "circle")


def test_names(tree: Tree, project: Path) -> None:
    """The workspace may be called by its name inside and by that on the host, and by nothing like it."""
    (project / "file").write_text("text")
    for path in ("file", "./file", "/workspace/file", f"{project}/file"):
        assert files.read_file(tree, path) == "text"
    for path in ("/workspace2/file", f"{project}2/file", "/file"):
        with pytest.raises(FileError, match="outside of the workspace"):
            files.read_file(tree, path)
    for path in (".", "/workspace", "/workspace/", "a/.."):
        with pytest.raises(FileError, match=r"directory|no such file"):
            files.write_file(tree, path, "")


def test_what_is_no_file(tree: Tree, project: Path, tmp_path: Path) -> None:
    """FIFOs, sockets and devices are not opened: nobody is waited for, and nothing happens to them."""
    os.mkfifo(project / "fifo")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
        for name, kind in (("fifo", "a FIFO"), ("socket", "a socket"), (".", "a directory")):
            with pytest.raises(FileError, match=kind):
                files.read_file(tree, name)
        for name, kind in (("fifo", "a FIFO"), ("socket", "a socket")):
            with pytest.raises(FileError, match=kind):
                files.write_file(tree, name, "")


def test_a_lease_is_not_waited_for(tree: Tree, project: Path) -> None:
    """A program that has a write lease on a file makes an opener wait for 45 seconds; not this one."""
    (project / "file").write_text("text")
    with open(project / "file", "r+b") as file:
        fcntl.fcntl(file, fcntl.F_SETSIG, 23)  # SIGURG, which is ignored
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        with pytest.raises(FileError, match="lease"):
            files.read_file(tree, "file")
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def test_what_changes_meanwhile_is_not_lost(tree: Tree, project: Path) -> None:
    """Whoever wrote between the look and the write is not written over."""
    path = project / "file"
    path.write_text("old")
    with tree.locate("file") as found:
        path.write_text("somebody else's")
        with pytest.raises(FileError, match="changed by something else"):
            tree.write(found, "file", b"new")
        with pytest.raises(FileError, match="changed by something else"):
            tree.content(found, "file")
    with tree.locate("new") as found:
        (project / "new").write_text("somebody else's")
        with pytest.raises(FileError, match="made by something else"):
            tree.write(found, "new", b"new")
    assert {name: (project / name).read_text() for name in os.listdir(project)} == {
        "file": "somebody else's",
        "new": "somebody else's",
    }


def test_no_unnamed_files(tree: Tree, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file system has no files without names, one with a name is used, and does not stay."""
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)  # open(2) says EISDIR, as old systems do
    files.write_file(tree, "file", "one")
    files.edit_file(tree, "file", "one", "two")
    assert ((project / "file").read_text(), os.listdir(project)) == ("two", ["file"])
