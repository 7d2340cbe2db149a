"""The same tree as others make of the same archive: Python's tarfile, GNU tar, podman."""

from __future__ import annotations

import io
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from coopfile.rootfs.layers import Layer
from coopfile.rootfs.owners import EXACT, SINGLE
from coopfile.rootfs.tree import fingerprint, remove_tree
from coopfile.rootfs.unpack import unpack
from tests.unit.rootfs.archives import digest

gnu_tar = pytest.mark.skipif(shutil.which("tar") is None, reason="GNU tar is needed")

NAME = st.binary(min_size=1, max_size=40).filter(
    lambda name: not (set(name) & set(b"\0/")) and name not in (b".", b"..") and not name.startswith(b".wh.")
)
MODE = st.integers(0, 0o777)
SECONDS = st.integers(0, (1 << 33) - 1)
NODE: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.tuples(st.just("file"), MODE, SECONDS, st.binary(max_size=3000)),
        st.tuples(st.just("link"), st.just(0o777), SECONDS, NAME),
        st.tuples(st.just("fifo"), MODE, SECONDS, st.none()),
    ),
    lambda children: st.tuples(
        st.just("directory"), MODE, SECONDS, st.dictionaries(NAME, children, max_size=4)
    ),
    max_leaves=12,
)
TREE = st.dictionaries(NAME, NODE, max_size=5)
TYPES = {
    "file": tarfile.REGTYPE,
    "link": tarfile.SYMTYPE,
    "fifo": tarfile.FIFOTYPE,
    "directory": tarfile.DIRTYPE,
}


def write(made: tarfile.TarFile, above: bytes, tree: dict[bytes, Any]) -> None:
    """Add a tree to an archive."""
    for name, (kind, mode, mtime, content) in tree.items():
        member = tarfile.TarInfo(os.fsdecode(above + name))
        member.type, member.mode, member.mtime = TYPES[kind], mode, mtime
        if kind == "link":
            member.linkname = os.fsdecode(content)
        if kind == "file":
            member.size = len(content)
        made.addfile(member, io.BytesIO(content) if kind == "file" else None)
        if kind == "directory":
            write(made, above + name + b"/", content)


def read(path: bytes) -> dict[bytes, Any]:
    """Return what is in a directory, in the form of a generated tree."""
    found: dict[bytes, Any] = {}
    for name in os.listdir(path):
        below = os.path.join(path, name)
        status = os.lstat(below)
        mode = stat.S_IMODE(status.st_mode)
        content: Any = None
        kind = "fifo"
        if stat.S_ISDIR(status.st_mode):
            os.chmod(below, 0o700)
            kind, content = "directory", read(below)
        elif stat.S_ISLNK(status.st_mode):
            kind, content = "link", os.readlink(below)
        elif stat.S_ISREG(status.st_mode):
            os.chmod(below, 0o600)
            kind = "file"
            with open(below, "rb") as opened:
                content = opened.read()
        found[name] = (kind, mode, int(status.st_mtime), content)
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(tree=TREE, form=st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT]))
@example(tree={b"\x1f\x8b": ("fifo", 0o644, 0, None)}, form=tarfile.GNU_FORMAT)  # begins as gzip does
def test_any_tree_comes_out_as_it_went_in(tree: dict[bytes, Any], form: int) -> None:
    """Names in bytes, modes that lock out their owner, times, contents and targets, in all three formats."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=form, errors="surrogateescape") as made:
        try:
            write(made, b"", tree)
        except ValueError:
            assume(False)  # the format has no room for a path
    with tempfile.TemporaryDirectory() as base:
        blob = Path(base, "blob")
        blob.write_bytes(output.getvalue())
        root = os.path.join(base, "root")
        unpack([Layer(str(blob), digest(output.getvalue()))], root, SINGLE)
        os.chmod(root, 0o700)
        assert read(os.fsencode(root)) == tree
        remove_tree(root)


def _like_tar(base: Path, content: bytes) -> None:
    """Check that an archive gives the same tree as GNU tar makes of it, but for devices."""
    ours, theirs, blob = base / "ours", base / "theirs", base / "blob"
    blob.write_bytes(content)
    owners = EXACT if os.geteuid() == 0 else SINGLE
    unpack([Layer(str(blob), digest(content))], str(ours), owners)
    theirs.mkdir()
    same = "--same-owner" if os.geteuid() == 0 else "--no-same-owner"
    subprocess.run(
        [
            "tar",
            "-C",
            theirs,
            "-xpf",
            blob,
            same,
            "--xattrs",
            "--xattrs-include=*",
            "--delay-directory-restore",
        ],
        check=True,
        capture_output=True,
    )
    for path in (*ours.rglob("*"), *theirs.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            before = path.parent.stat()
            path.unlink()
            os.utime(path.parent, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert fingerprint(str(ours)) == fingerprint(str(theirs))


@gnu_tar
@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_a_tree_of_real_files_comes_out_as_gnu_tar_has_it(tmp_path: Path, form: str) -> None:
    """Modes, owners, times, hard links, attributes, sparse and odd names, packed by GNU tar too."""
    source = tmp_path / "source"
    (source / "dir" / ("long" * 40) / ("name" * 40)).mkdir(parents=True)
    (source / "dir/locked").mkdir()
    (source / "dir/locked/file").write_bytes(os.urandom(3 << 20))
    os.link(source / "dir/locked/file", source / "dir/hard")
    (source / "dir" / ("long" * 40) / ("name" * 40) / ("file" * 40)).write_text("x")
    (source / "link").symlink_to("dir/" + "target" * 40)
    os.mkfifo(source / "fifo")
    Path(os.fsdecode(os.fsencode(source) + b"/\xff\xfe\n")).write_text("x")
    with open(source / "sparse", "wb") as opened:
        opened.truncate(5 << 20)
        opened.seek(2 << 20)
        opened.write(b"x")
    (source / "odd").touch(0o604)
    os.utime(source / "odd", ns=(1, 1_500_000_000_123_456_789))
    try:
        os.setxattr(source / "odd", "user.kept", b"\0binary=\n")
    except OSError:
        pass
    if os.geteuid() == 0:
        os.chown(source / "odd", 70000, 5)
        (source / "suid").touch()
        os.chown(source / "suid", 1, 2)
        (source / "suid").chmod(0o6755)
    (source / "dir/locked").chmod(0o555)
    packed = subprocess.run(
        ["tar", "-C", source, f"--format={form}", "--xattrs", "--sparse", "-cf", "-", "."],
        check=True,
        capture_output=True,
    ).stdout
    _like_tar(tmp_path, packed)
    for name in ("source", "ours", "theirs"):
        remove_tree(str(tmp_path / name))


@gnu_tar
@pytest.mark.skipif(
    "TEST_DEBIAN_TAR" not in os.environ, reason="TEST_DEBIAN_TAR names no tar file of a system"
)
def test_a_whole_debian_comes_out_as_gnu_tar_has_it(tmp_path: Path) -> None:
    """Such as mmdebstrap makes; save its devices."""
    _like_tar(tmp_path, Path(os.environ["TEST_DEBIAN_TAR"]).read_bytes())
    for name in ("ours", "theirs"):
        remove_tree(str(tmp_path / name))
