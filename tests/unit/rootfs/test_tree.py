"""Removing trees whatever is in them, and fingerprints that notice every change."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coopfile.native import syscalls
from coopfile.rootfs.tree import fingerprint, remove_tree
from tests.unit.rootfs.archives import become_nobody, in_child

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="this takes root")


@pytest.fixture
def base() -> Iterator[Path]:
    """Yield a directory that everybody may enter and write to."""
    made = Path(tempfile.mkdtemp(prefix="coop-tree-"))
    made.chmod(0o777)
    yield made
    remove_tree(str(made))
    assert not made.exists()


def test_a_tree_is_removed_whatever_its_modes_say(base: Path) -> None:
    """By somebody who may not even look into it before."""

    def check() -> None:
        become_nobody()
        tree = base / "tree"
        for mode in (0o000, 0o100, 0o200, 0o400, 0o500, 0o300, 0o555):
            (tree / f"d{mode:o}" / "sub" / "empty").mkdir(parents=True)
            (tree / f"d{mode:o}" / "sub" / "file").write_text("x")
            (tree / f"d{mode:o}" / "file").touch(0o000)
            (tree / f"d{mode:o}" / "sub/empty").chmod(mode)
            (tree / f"d{mode:o}" / "sub").chmod(mode)
            (tree / f"d{mode:o}").chmod(mode)
        os.mkfifo(tree / "fifo")
        tree.chmod(0o000)
        remove_tree(str(tree))
        assert os.listdir(base) == []

    in_child(check)


def test_links_are_removed_and_not_followed(base: Path) -> None:
    """Inside of the tree, and as what is to be removed itself."""
    (base / "outside").mkdir(0o500)
    (base / "tree").mkdir()
    for name, target in (
        ("dir", "../outside"),
        ("file", "/etc/passwd"),
        ("gone", "nothing"),
        ("loop", "loop"),
    ):
        (base / "tree" / name).symlink_to(target)
    (base / "link").symlink_to("outside")
    before = fingerprint(str(base / "outside"))
    remove_tree(str(base / "tree"))
    remove_tree(str(base / "link"))
    assert os.listdir(base) == ["outside"]
    assert fingerprint(str(base / "outside")) == before


def test_a_single_file_and_nothing_at_all_are_trees(base: Path) -> None:
    """So that callers need not look first."""
    (base / "file").write_text("x")
    remove_tree(str(base / "file"))
    remove_tree(str(base / "file"))
    remove_tree(str(base / "missing"))
    assert os.listdir(base) == []
    with pytest.raises(ValueError, match="root directory"):
        remove_tree("/")


def test_a_tree_deeper_than_any_path_is_removed(base: Path) -> None:
    """With few descriptors, whatever the depth is."""
    (base / "tree").mkdir()
    descriptor = os.open(base / "tree", os.O_RDONLY)
    for number in range(600):
        os.mkdir("directory", dir_fd=descriptor)
        if number % 50 == 0:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
        below = os.open("directory", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    remove_tree(str(base / "tree"))
    assert os.listdir(base) == []


def test_names_in_no_encoding_are_removed(base: Path) -> None:
    """Bytes that are not Unicode, and those that look like options."""
    tree = os.fsencode(base / "tree")
    os.makedirs(tree + b"/\xff\xfe/-rf")
    Path(os.fsdecode(tree + b"/\xff\xfe/new\nline")).touch()
    remove_tree(str(base / "tree"))
    assert os.listdir(base) == []


def test_a_directory_swapped_for_a_link_meanwhile_is_not_followed(base: Path) -> None:
    """Somebody changes the tree while it is removed; what the link points to stays as it was."""
    outside = base / "outside"
    (outside / "dir").mkdir(parents=True)
    (outside / "dir/file").write_text("canary")
    (outside / "dir").chmod(0o500)
    outside.chmod(0o500)
    before = fingerprint(str(outside))
    stop = threading.Event()

    def swap() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                for name in os.listdir(base / "tree"):
                    (base / "tree" / name).rename(base / "tree" / f"x{number}-{name}")
                    (base / "tree" / name).symlink_to(outside)
            except OSError:
                pass

    for _ in range(3):
        for number in range(50):
            (base / "tree" / f"d{number}" / "dir").mkdir(parents=True)
            (base / "tree" / f"d{number}" / "dir/file").write_text("x")
            (base / "tree" / f"d{number}").chmod(0o500)  # so that it has to be changed
        stop.clear()
        thread = threading.Thread(target=swap)
        thread.start()
        try:
            remove_tree(str(base / "tree"))
        except OSError:
            pass  # whoever changes a tree without end can keep it
        stop.set()
        thread.join()
        remove_tree(str(base / "tree"))
        assert os.listdir(base) == ["outside"]
    assert fingerprint(str(outside)) == before


@as_root
def test_what_is_mounted_inside_is_not_touched(base: Path) -> None:
    """Not even a mount of the same file system; the rest is removed."""

    def check() -> None:
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        (base / "workspace").mkdir()
        (base / "workspace/precious").write_text("x")
        (base / "tree/mnt").mkdir(parents=True)
        (base / "tree/other").mkdir()
        syscalls.mount(str(base / "workspace"), str(base / "tree/mnt"), None, 0x1000)  # MS_BIND
        with pytest.raises(OSError) as caught:
            remove_tree(str(base / "tree"))
        assert caught.value.errno in (errno.EXDEV, errno.EBUSY)
        assert os.listdir(base / "tree") == ["mnt"]
        with pytest.raises(OSError) as caught:
            remove_tree(str(base / "tree/mnt"))
        assert caught.value.errno == errno.EXDEV
        assert (base / "workspace/precious").read_text() == "x"
        syscalls.umount(str(base / "tree/mnt"))

    in_child(check)


@as_root
def test_what_belongs_to_somebody_else_is_an_error(base: Path) -> None:
    """Of the first thing that could not be removed; everything else is gone."""
    (base / "tree/theirs").mkdir(parents=True)
    (base / "tree/theirs/file").write_text("x")
    os.chown(base / "tree", 65534, 65534)
    (base / "tree/theirs").chmod(0o755)
    (base / "tree/mine").mkdir()

    def check() -> None:
        become_nobody()
        with pytest.raises(PermissionError):
            remove_tree(str(base / "tree"))
        assert os.listdir(base / "tree") == ["theirs"]

    in_child(check)


def _new(root: Path, name: str, kind: str) -> Path:
    if kind == "symlink":
        (root / name).symlink_to("elsewhere")
    elif kind == "fifo":
        os.mkfifo(root / name, 0o644)
    else:
        os.link(root / "dir/file", root / name)
    return root / name


CHANGES: dict[str, Callable[[Path], object]] = {
    "a new file": lambda root: (root / "new").touch(),
    "a file gone": lambda root: (root / "dir/file").unlink(),
    "a new name": lambda root: (root / "dir/file").rename(root / "dir/eile"),
    "content": lambda root: (root / "dir/file").write_text("other"),
    "mode": lambda root: (root / "dir/file").chmod(0o600),
    "mode of a directory": lambda root: (root / "dir").chmod(0o700),
    "mode of the root": lambda root: root.chmod(0o700),
    "time": lambda root: os.utime(root / "dir/file", ns=(0, 7)),
    "target": lambda root: os.replace(_new(root, "x", "symlink"), root / "link"),
    "kind": lambda root: os.replace(_new(root, "x", "fifo"), root / "dir/file"),
    "one file instead of two": lambda root: os.replace(_new(root, "x", "hard link"), root / "same"),
    "attribute": lambda root: os.setxattr(root / "dir/file", "user.new", b"x"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_fingerprint_notices_every_change(base: Path, change: str) -> None:
    """Also when everything else, sizes and times included, looks as before."""
    root = base / "tree"
    (root / "dir").mkdir(parents=True)
    (root / "dir/file").write_text("value")
    (root / "same").write_text("value")
    (root / "link").symlink_to("target")
    for path in (*root.rglob("*"), root):
        os.utime(path, ns=(0, 0), follow_symlinks=False)
    before = fingerprint(str(root))
    assert fingerprint(str(root)) == before
    try:
        CHANGES[change](root)
    except OSError as error:
        pytest.skip(f"not on this file system: {error}")
    timeless = fingerprint(str(root), times=False)
    if change != "time":
        for path in (*root.rglob("*"), root):
            os.utime(path, ns=(0, 0), follow_symlinks=False)
        assert fingerprint(str(root), times=False) == timeless
    assert fingerprint(str(root)) != before


def test_a_fingerprint_of_what_cannot_be_read_is_an_error(base: Path) -> None:
    """Rather than one that says nothing."""

    def check() -> None:
        become_nobody()
        (base / "tree/dir").mkdir(parents=True)
        (base / "tree/dir").chmod(0o000)
        with pytest.raises(PermissionError):
            fingerprint(str(base / "tree"))
        remove_tree(str(base / "tree"))

    in_child(check)
