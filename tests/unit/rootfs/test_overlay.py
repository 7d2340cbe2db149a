"""What upper layers change, from directories that look as overlayfs leaves them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from coopfile.native import upper
from coopfile.native.upper import Stamp
from coopfile.rootfs.overlay import Change, Item, compare


class Layers:
    """Some layers of a test's own, by name."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._open: list[int] = []

    def write(self, path: str, content: bytes = b"", mode: int = 0o644) -> Path:
        """Write a file, and the directories above it; the first name is the layer's."""
        found = self.place / path
        found.parent.mkdir(parents=True, exist_ok=True)
        found.write_bytes(content)
        found.chmod(mode)
        os.utime(found, (1, 1))
        return found

    def mkdir(self, path: str, *, opaque: bool = False) -> Path:
        """Make a directory, which may be opaque."""
        found = self.place / path
        found.mkdir(parents=True, exist_ok=True)
        if opaque:
            os.setxattr(found, "user.overlay.opaque", b"y")
        return found

    def delete(self, path: str) -> None:
        """Make a whiteout."""
        (self.place / path).parent.mkdir(parents=True, exist_ok=True)
        os.mknod(self.place / path, stat.S_IFCHR, 0)

    def open(self, name: str) -> int:
        """Open a layer; closed with the test."""
        self._open.append(os.open(self.mkdir(name), os.O_RDONLY))
        return self._open[-1]

    def items(self, above: str, below: str, made: Mapping[str, Stamp] | None = None) -> Iterator[Item]:
        """Compare layers, each a letter, the highest first."""
        yield from compare([self.open(name) for name in above], [self.open(name) for name in below], made)

    def changes(self, above: str, below: str, made: Mapping[str, Stamp] | None = None) -> list[Change]:
        """Return what differs."""
        return [item.change for item in self.items(above, below, made) if item.change is not None]

    def close(self) -> None:
        """Close all."""
        for descriptor in self._open:
            os.close(descriptor)


@pytest.fixture
def layers(tmp_path: Path) -> Iterator[Layers]:
    """Yield an empty place for layers; skips the test where overlayfs could not have made them."""
    try:
        os.mknod(tmp_path / "x", stat.S_IFCHR, 0)
        os.setxattr(tmp_path, "user.overlay.x", b"")
    except OSError as error:
        pytest.skip(f"no whiteouts or attributes here: {error}")
    found = Layers(tmp_path / "layers")
    yield found
    found.close()


def test_kinds(layers: Layers) -> None:
    """Files are added, changed and deleted, with their sizes; a directory that is gone has a sum."""
    layers.write("l/etc/old", b"123")
    layers.write("l/etc/gone", b"1234")
    layers.write("l/doc/a", b"12345")
    layers.write("l/doc/b/c", b"1")
    layers.write("u/etc/new", b"1", 0o600)
    layers.write("u/etc/old", b"12")
    layers.delete("u/etc/gone")
    layers.delete("u/doc")
    assert layers.changes("u", "l") == [
        Change("deleted", "/doc", "directory", before=6, mode_before=0o755),
        Change("deleted", "/etc/gone", "file", before=4, mode_before=0o644),
        Change("added", "/etc/new", "file", 1, mode=0o600),
        Change("changed", "/etc/old", "file", 2, 3, mode=0o644, mode_before=0o644),
    ]


def test_equal_is_no_change(layers: Layers) -> None:
    """What was only copied up, touched or written anew as it was is no change, nor a whiteout of nothing."""
    for layer in "lu":
        layers.write(f"{layer}/a", b"x" * 100_000)
        layers.mkdir(f"{layer}/d")
        os.symlink("x", layers.place / layer / "s")
        os.mkfifo(layers.place / layer / "p")
    os.utime(layers.place / "u/a", (5, 5))
    os.setxattr(layers.place / "u/a", "user.overlay.origin", b"x")
    layers.delete("u/nothing")
    assert layers.changes("u", "l") == []
    touched = [item.path for item in layers.items("u", "l") if not item.enters]
    assert touched[:1] == ["/a"]


@pytest.mark.parametrize("where", [0, 70_000, 149_999])
def test_content_decides(layers: Layers, where: int) -> None:
    """One byte of a large file is enough, wherever it is."""
    content = bytearray(150_000)
    layers.write("l/a", bytes(content))
    content[where] = 1
    layers.write("u/a", bytes(content))
    assert [change.path for change in layers.changes("u", "l")] == ["/a"]


def test_holes_are_not_read(layers: Layers) -> None:
    """Files that are larger than any disk are compared by what is in them."""
    for layer, text in (("l", b"x"), ("u", b"x"), ("v", b"y")):
        with layers.write(f"{layer}/huge").open("r+b") as file:
            file.seek(1 << 40)
            file.write(text)
    assert layers.changes("u", "l") == []
    assert [(change.size, change.kind) for change in layers.changes("v", "l")] == [((1 << 40) + 1, "changed")]


def test_metadata(layers: Layers) -> None:
    """A mode, or an attribute of a user's, is a change by itself, of directories too."""
    for name in ("a", "b", "c"):
        layers.write(f"l/{name}")
        layers.write(f"u/{name}")
    layers.mkdir("l/d")
    layers.mkdir("u/d").chmod(0o700)
    (layers.place / "u/a").chmod(0o755)
    os.setxattr(layers.place / "u/b", "user.x", b"1")
    found = layers.changes("u", "l")
    assert [(change.path, change.mode_before, change.mode) for change in found] == [
        ("/a", 0o644, 0o755),
        ("/b", 0o644, 0o644),
        ("/d", 0o755, 0o700),
    ]


def test_types(layers: Layers) -> None:
    """What was replaced by something of another type is one change, and what was in it goes with it."""
    layers.write("l/a")
    layers.write("l/d/x", b"12")
    layers.write("l/s")
    layers.write("u/a/b")
    layers.write("u/d", b"1")
    os.symlink("x", layers.place / "u/s")
    found = [(change.path, change.was, change.type, change.kind) for change in layers.changes("u", "l")]
    assert found == [
        ("/d", "directory", "file", "changed"),
        ("/s", "file", "link", "changed"),
        ("/a", "file", "directory", "changed"),
        ("/a/b", None, "file", "added"),
    ]


def test_opaque(layers: Layers) -> None:
    """Of a directory that was made anew, what is missing is deleted and what is the same has not changed."""
    for name in ("same", "other", "gone", "sub/in"):
        layers.write(f"l/d/{name}", name.encode())
    layers.mkdir("u/d", opaque=True)
    layers.write("u/d/same", b"same")
    layers.write("u/d/other", b"x")
    layers.mkdir("u/d/sub")  # what is in an opaque directory need not be opaque itself
    found = {change.path: change.kind for change in layers.changes("u", "l")}
    assert found == {"/d/other": "changed", "/d/gone": "deleted", "/d/sub/in": "deleted"}


def test_more_layers(layers: Layers) -> None:
    """Of several layers on either side the highest counts, and what covers the others does."""
    layers.write("c/a", b"old")
    layers.write("b/a", b"new")
    layers.write("c/d/hidden")
    layers.mkdir("b/d", opaque=True)
    layers.delete("b/gone")
    layers.write("c/gone")
    layers.write("u/a", b"new")
    layers.write("u/gone")
    layers.delete("u/d")
    assert [(change.path, change.kind, change.before) for change in layers.changes("u", "bc")] == [
        ("/d", "deleted", 0),
        ("/gone", "added", None),
    ]
    found = {change.path: change.kind for change in layers.changes("ub", "c")}
    assert found == {"/a": "changed", "/d": "deleted"}


def test_what_coop_made(layers: Layers) -> None:
    """What was there before the first command is no change as long as it is as it was."""
    layers.write("u/etc/hosts", b"localhost")
    layers.write("u/etc/passwd", b"root")
    layers.mkdir("u/workspace")
    layers.mkdir("u/root/.claude").chmod(0o700)
    descriptor = layers.open("u")
    made = upper.look(descriptor)
    assert set(made) == {
        *("/etc", "/etc/hosts", "/etc/passwd", "/root", "/root/.claude", "/workspace"),
    }
    assert layers.changes("u", "l", made) == []
    layers.write("u/etc/passwd", b"toor")
    (layers.place / "u/root/.claude").chmod(0o755)
    layers.write("u/root/x")
    assert [change.path for change in layers.changes("u", "l", made)] == [
        "/etc/passwd",
        "/root/x",
        "/root/.claude",
    ]


@pytest.mark.parametrize("replace", [os.mkfifo, lambda path: os.symlink("/etc", path), None])
def test_replaced_meanwhile(layers: Layers, replace: Callable[[Path], None] | None) -> None:
    """What becomes something else while it is looked at leads nowhere, and stops nothing."""
    for name in ("a/x", "b/x", "c"):
        layers.write(f"l/{name}", b"1")
        layers.write(f"u/{name}", b"2")
    found = []
    for item in layers.items("u", "l"):
        found.append(item.path)
        for name in ("b/x", "b", "c"):
            path = layers.place / "u" / name
            if len(found) == 1 and path.is_dir():
                path.rmdir()
            elif len(found) == 1:
                path.unlink()
            if len(found) == 1 and replace is not None and name != "b/x":
                replace(path)
    assert found[0] == "/" and "/a/x" in found
    assert not [path for path in found if path.startswith("/b/")]


def test_too_deep(layers: Layers) -> None:
    """Directories that are too deep are told, not entered."""
    path = layers.mkdir("u")
    for _ in range(300):
        path = path / "d"
        path.mkdir()
    found = list(layers.items("u", "l"))
    assert [item.deep for item in found].count(True) == 1 and found[-1].deep
    assert found[-1].path.count("/") == 257


def test_names_of_any_bytes(layers: Layers) -> None:
    """Names may hold newlines, escapes and what is no UTF-8."""
    names = [b"a\nb", b"\x1b[2J", b"\xff", b"-rf", "ü".encode()]
    for name in names:
        layers.write(f"u/{os.fsdecode(name)}")
    assert {os.fsencode(change.path) for change in layers.changes("u", "l")} == {
        b"/" + name for name in names
    }
