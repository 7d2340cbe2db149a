"""What unpacked layers look like: metadata, kinds of files, several layers and their whiteouts."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from coopfile.errors import CoopError
from coopfile.native import syscalls
from coopfile.rootfs.layers import Layer, Limits
from coopfile.rootfs.owners import SINGLE
from coopfile.rootfs.tree import remove_tree
from coopfile.rootfs.unpack import unpack
from tests.unit.rootfs.archives import (
    BLOCK,
    CHARACTER,
    DIRECTORY,
    FIFO,
    Place,
    archive,
    become_nobody,
    digest,
    directory,
    file,
    gz,
    hard,
    header,
    in_child,
    link,
    long,
    mode_of,
    pax,
)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving files away takes root")


def test_modes_and_times_are_those_of_the_archive_under_any_umask(open_base: Path) -> None:
    """Files and directories, some of which nobody may write to, and times to the nanosecond."""
    in_child(lambda: _check_modes_and_times(open_base))


def _check_modes_and_times(base: Path) -> None:
    become_nobody()
    place = Place(base)
    content = archive(
        directory(b"./", 0o711, mtime=5),
        directory(b"locked/", 0o555, mtime=7),
        directory(b"locked/deeper/", 0o000, mtime=8),
        file(b"locked/deeper/secret", b"x", mode=0o000),
        file(b"locked/all", b"y", mode=0o777),
        directory(b"shut", 0o000, mtime=9),
        directory(b"shut/inner", 0o750, mtime=6),
        directory(b"tmp", 0o1777),
        header(b"pipe", FIFO, mode=0o640),
        pax({b"mtime": b"1234567890.123456789"}) + file(b"precise", mode=0o604),
        pax({b"mtime": b"-1.5"}) + file(b"early"),
        file(b"late", mtime=1 << 32),
    )
    layer = place.layer(content)
    for umask in (0o022, 0o000, 0o077, 0o777):
        root = place.root.parent / f"root{umask:o}"
        before = os.umask(umask)
        try:
            place.unpack(layer, root=root)
        finally:
            os.umask(before)
        assert mode_of(root) == 0o711
        assert mode_of(root / "locked") == 0o555
        assert root.stat().st_mtime_ns == 5 * 10**9
        assert (root / "locked").stat().st_mtime_ns == 7 * 10**9
        assert mode_of(root / "locked/deeper") == 0o000
        assert mode_of(root / "pipe") == 0o640
        assert (mode_of(root / "shut"), (root / "shut").stat().st_mtime) == (0o000, 9)
        (root / "shut").chmod(0o700)
        assert (mode_of(root / "shut/inner"), (root / "shut/inner").stat().st_mtime) == (0o750, 6)
        assert mode_of(root / "locked/all") == 0o777
        assert mode_of(root / "tmp") == 0o1777
        assert mode_of(root / "precise") == 0o604
        assert (root / "precise").stat().st_mtime_ns == 1234567890123456789
        assert (root / "early").stat().st_mtime_ns == -1_500_000_000
        assert (root / "late").stat().st_mtime == 1 << 32
        remove_tree(str(root))


def test_nothing_is_inherited_from_the_directory_around(place: Place) -> None:
    """A default ACL and a set-gid bit of the parent change neither modes nor anything else."""
    os.chmod(place.root.parent, 0o2775)
    acl = bytes.fromhex("0200000001000700ffffffff04000700ffffffff20000700ffffffff")
    try:
        os.setxattr(place.root.parent, "system.posix_acl_default", acl)
    except OSError:
        pytest.skip("this file system has no ACLs")
    place.unpack(archive(directory(b"d", 0o700), file(b"d/f", mode=0o640), file(b"implied/f", mode=0o600)))
    assert mode_of(place / "d") == 0o700
    assert mode_of(place / "d/f") == 0o640
    assert mode_of(place / "implied") == 0o755
    assert mode_of(place / "implied/f") == 0o600
    assert os.listxattr(place / "d") == []


def test_parents_that_no_entry_names_are_made(place: Place) -> None:
    """They are open to everybody and as old as what they were made for; a later entry of theirs counts."""
    place.unpack(archive(file(b"a/b/c", mtime=99), file(b"a/d", mtime=5), directory(b"a/b/", 0o700, mtime=3)))
    assert mode_of(place / "a") == 0o755
    assert (place / "a").stat().st_mtime == 99
    assert mode_of(place / "a/b") == 0o700
    assert (place / "a/b").stat().st_mtime == 3
    assert mode_of(place.root) == 0o755


def test_links_of_both_kinds(place: Place) -> None:
    """Targets of symbolic links are kept byte for byte; hard links are one file, across layers too."""
    place.unpack(
        archive(
            file(b"original", b"content", mtime=4),
            hard(b"second", b"./original"),
            hard(b"dir/third", b"/original"),
            link(b"absolute", b"/etc/passwd", mtime=11),
            link(b"odd", b"../..//x/./y\xff"),
            hard(b"of-link", b"absolute"),
        ),
        archive(hard(b"fourth", b"dir/third")),
    )
    status = (place / "original").stat()
    assert status.st_nlink == 4
    assert {(place / name).stat().st_ino for name in ("second", "dir/third", "fourth")} == {status.st_ino}
    assert os.readlink(place / "absolute") == "/etc/passwd"
    assert (place / "absolute").lstat().st_mtime == 11
    assert os.readlink(os.fsencode(place / "odd")) == b"../..//x/./y\xff"
    assert (place / "of-link").lstat().st_ino == (place / "absolute").lstat().st_ino


def test_a_hard_link_to_itself_or_to_its_other_name_changes_nothing(place: Place) -> None:
    """Some archivers write them."""
    place.unpack(archive(file(b"a", b"x"), hard(b"a", b"a"), hard(b"b", b"a"), hard(b"a", b"b")))
    assert place.names() == {"a": "x", "b": "x"}
    assert (place / "a").stat().st_nlink == 2


def test_fifos_are_made_and_devices_are_not(place: Place) -> None:
    """A device takes away what was at its path, as it would have replaced it, and is counted."""
    done = place.unpack(
        archive(file(b"whiteout", b"lower"), file(b"disk/deep", b"lower")),
        archive(
            header(b"pipe", FIFO, mode=0o622, mtime=9),
            header(b"whiteout", CHARACTER, mode=0o000),
            header(b"null", CHARACTER, mode=0o666),
            header(b"disk", BLOCK, mode=0o666),
        ),
    )
    assert place.names() == {"pipe": "?"}
    assert stat.S_ISFIFO((place / "pipe").lstat().st_mode)
    assert mode_of(place / "pipe") == 0o622
    assert (place / "pipe").lstat().st_mtime == 9
    assert done.devices == 3


def test_names_are_bytes(place: Place) -> None:
    """Not Unicode, long by PAX, GNU and the prefix of ustar, with blanks, newlines and a leading dash."""
    names = [b"\xff\xfe", b"new\nline", b"-rf *", b"\xe4/\xf6", b"caf\xc3\xa9", b"back\\slash", b"..."]
    far = b"/".join([b"n" * 200] * 5)
    place.unpack(
        archive(
            *(file(name, name) for name in names),
            pax({b"path": b"pax/" + far, b"linkpath": b"ignored"}) + file(b"short", b"p"),
            long(b"gnu/" + far) + file(b"short", b"g", magic=b"ustar  \0"),
            pax({b"linkpath": far}) + link(b"pax-link", b"short"),
            long(far, b"K") + link(b"gnu-link", b"short"),
            file(b"y" * 100, b"u", prefix=b"z" * 155),
            file(b"not-prefixed", b"o", prefix=b"atime", magic=b"ustar  \0"),
        )
    )
    root = os.fsencode(place.root)
    for name in names:
        with open(os.path.join(root, name), "rb") as opened:
            assert opened.read() == name
    for name, content in ((b"pax/" + far, b"p"), (b"gnu/" + far, b"g")):
        with open(os.path.join(root, name), "rb") as opened:
            assert opened.read() == content
    assert os.readlink(place / "pax-link").encode() == far
    assert os.readlink(place / "gnu-link").encode() == far
    assert (place / ("z" * 155) / ("y" * 100)).read_text() == "u"
    assert (place / "not-prefixed").read_text() == "o"
    assert not (place / "short").exists()


def test_the_last_of_several_entries_counts(place: Place) -> None:
    """Whatever kinds they are of; a directory stays what it was and keeps what is in it."""
    place.unpack(
        archive(
            file(b"a", b"1"),
            file(b"a", b"22"),
            file(b"b", b"file"),
            directory(b"b"),
            file(b"b/x"),
            file(b"c/deep/er", b"1"),
            file(b"c", b"file"),
            link(b"d", b"a"),
            file(b"d", b"no link"),
            directory(b"e", 0o700),
            file(b"e/kept", b"k"),
            directory(b"e", 0o711),
            file(b"f", b"1"),
            header(b"f", FIFO),
            directory(b"g"),
            link(b"g", b"e"),
            link(b"h", b"e"),
            directory(b"h"),
            file(b"i", b"1"),
            hard(b"i", b"a"),
        )
    )
    assert place.names() == {
        **{"a": "22", "b": "/", "b/x": "", "c": "file", "d": "no link", "e": "/", "e/kept": "k"},
        **{"f": "?", "g": "-> e", "h": "/", "i": "22"},
    }
    assert mode_of(place / "e") == 0o711


def test_later_layers_replace_what_earlier_ones_have(place: Place) -> None:
    """Files by directories and the other way round; other names of a replaced file keep its content."""
    place.unpack(
        archive(
            file(b"a", b"1"), hard(b"same", b"a"), file(b"d/x"), file(b"f"), directory(b"m", 0o700, mtime=3)
        ),
        archive(file(b"a", b"2"), file(b"d", b"file now"), directory(b"f"), file(b"f/y"), file(b"m/new")),
    )
    assert place.names() == {
        **{"a": "2", "same": "1", "d": "file now", "f": "/", "f/y": "", "m": "/", "m/new": ""},
    }
    assert mode_of(place / "m") == 0o700
    assert (place / "m").stat().st_mtime == 3


def test_a_parent_that_is_a_link_is_followed_inside(place: Place) -> None:
    """As /lib is one to /usr/lib: for every kind of entry, in the same layer and later."""
    place.unpack(
        archive(
            directory(b"usr/lib", 0o755),
            link(b"lib", b"usr/lib"),
            link(b"usr/lib64", b"/usr/lib"),
            link(b"usr/lib/up", b"../../../../usr/./lib/../share"),
            file(b"lib/one", b"1"),
            file(b"lib/gone", b"-"),
            file(b"usr/lib/kept", b"k"),
            link(b"dangling", b"not/there/yet"),
            file(b"dangling/f", b"d"),
        ),
        archive(
            file(b"usr/lib64/two", b"2"),
            hard(b"lib/three", b"usr/lib64/two"),
            directory(b"lib/sub", 0o700),
            file(b"lib/.wh.gone"),
            file(b"lib/up/s", b"s"),
        ),
    )
    names = place.names()
    assert names["lib"] == "-> usr/lib"
    assert names["usr/lib64"] == "-> /usr/lib"
    assert {name for name in names if name.startswith("usr/lib/")} == {
        f"usr/lib/{name}" for name in ("one", "two", "three", "sub", "up", "kept")
    }
    assert names["usr/share/s"] == "s"
    assert names["not/there/yet/f"] == "d"
    assert mode_of(place / "usr/lib/sub") == 0o700


def test_layers_are_told_about_and_waited_for(place: Place) -> None:
    """``wait`` may bring the blob; ``progress`` ends at the blob's size."""
    content = archive(file(b"a", os.urandom(3 << 20)))
    layers = [place.layer(content, gz), place.layer(archive(file(b"b")), gz)]
    os.rename(layers[1].path, layers[1].path + ".later")
    told: list[tuple[int, int, int]] = []
    waited: list[Layer] = []

    def wait(layer: Layer) -> None:
        waited.append(layer)
        if layer is layers[1]:
            os.rename(layer.path + ".later", layer.path)

    unpack(layers, str(place.root), SINGLE, None, lambda *what: told.append(what), wait)
    assert set(waited) == set(layers)
    sizes = [os.path.getsize(layer.path) for layer in layers]
    assert [what for what in told if what[0] == 0][-1] == (0, sizes[0], sizes[0])
    assert told[-1] == (1, sizes[1], sizes[1])


def test_a_layer_without_any_entry_is_fine(place: Place) -> None:
    """Docker writes them for steps that change nothing; some are not even an archive's end."""
    place.unpack(archive(), b"", archive(file(b"a")))
    assert place.names() == {"a": ""}
    place.unpack(archive(), root=place.root.parent / "root2")
    assert mode_of(place.root.parent / "root2") == 0o755


def test_the_root_may_be_there_if_it_is_empty_and_a_directory(place: Place) -> None:
    """Anything else is refused before it is touched."""
    place.root.mkdir(0o700)
    place.unpack(archive(file(b"a", b"1")))
    assert "not empty" in place.refuse(archive(file(b"a", b"2")))
    assert place.names() == {"a": "1"}
    os.symlink(place.outside, place.root.parent / "root-link")
    assert "cannot be made" in place.refuse(archive(file(b"a")), root=place.root.parent / "root-link")


@as_root
def test_a_full_disk_is_said_to_be_full(open_base: Path) -> None:
    """With the name of the file that did not fit."""
    with tempfile.TemporaryDirectory() as elsewhere:
        content = archive(file(b"big", bytes(2 << 20)))
        blob = Path(elsewhere, "blob")
        blob.write_bytes(content)

        def check() -> None:
            syscalls.unshare(syscalls.CLONE_NEWNS)
            syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
            syscalls.mount("tmpfs", str(open_base), "tmpfs", 0, "size=1m")
            with pytest.raises(CoopError, match=r"'big': No space left") as caught:
                unpack([Layer(str(blob), digest(content))], str(open_base / "root"), SINGLE)
            assert "coop clean" in str(caught.value.remedy)

        in_child(check)


@pytest.mark.skipif(shutil.which("tar") is None, reason="GNU tar is needed")
@pytest.mark.parametrize("how", ["gnu", "posix 0.0", "posix 0.1", "posix 1.0"])
def test_sparse_files_as_gnu_tar_writes_them(place: Place, how: str) -> None:
    """All four ways; holes stay holes."""
    source = place.base / "source"
    source.mkdir()
    with open(source / "holes", "wb") as opened:
        for number in range(40):  # more than the header and one block after it hold
            opened.seek(number << 20)
            opened.write(b"%d" % number * 1000)
        opened.truncate(64 << 20)
    with open(source / "only-hole", "wb") as opened:
        opened.truncate(1 << 20)
    (source / "plain").write_text("plain")
    name, _, version = how.partition(" ")
    options = [f"--sparse-version={version}"] if version else []
    made = subprocess.run(
        ["tar", "-C", source, f"--format={name}", *options, "-S", "-cf", "-", "."],
        capture_output=True,
        check=True,
    )
    place.unpack(made.stdout)
    for one in ("holes", "only-hole", "plain"):
        assert (place / one).read_bytes() == (source / one).read_bytes()
    assert (place / "holes").stat().st_blocks <= (source / "holes").stat().st_blocks
    assert (place / "only-hole").stat().st_blocks == 0


def test_limits_that_are_met_exactly_are_kept(place: Place) -> None:
    """One more is too many, in every respect."""
    content = archive(file(b"a/b/c", b"x" * 100), file(b"d"))
    place.unpack(content, limits=Limits(bytes=len(content), entries=2, depth=3))
    for number, limits in enumerate(
        (Limits(bytes=len(content) - 1), Limits(entries=1), Limits(depth=2)),
    ):
        assert "more than" in place.refuse(content, limits=limits, root=place.root.parent / f"root{number}")


def test_directory_types_are_understood_however_old(place: Place) -> None:
    """A trailing slash made a directory before there was a type for it; contiguous files are files."""
    place.unpack(
        archive(
            header(b"old/", b"\0", mode=0o755, magic=bytes(8)),
            header(b"newer/", b"0", mode=0o755),
            header(b"contiguous", b"7"),
            header(b"dir", DIRECTORY, mode=0o755, size=5),  # a size that means nothing
            file(b"after", b"x"),
        )
    )
    assert place.names() == {"old": "/", "newer": "/", "contiguous": "", "dir": "/", "after": "x"}
