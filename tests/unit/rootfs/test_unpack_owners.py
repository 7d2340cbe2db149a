"""Owners, set-id bits and extended attributes: as root, with a range of ids, with one id."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coopfile.errors import CoopError
from coopfile.rootfs.owners import EXACT, MAPPED
from coopfile.rootfs.tree import remove_tree
from coopfile.rootfs.unpack import unpack
from tests.unit.rootfs.archives import (
    FIFO,
    Place,
    archive,
    become_nobody,
    directory,
    file,
    header,
    in_child,
    link,
    mode_of,
    pax,
)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving files away takes root")


def test_extended_attributes_that_mean_something_to_the_kernel_are_left_out(place: Place) -> None:
    """Those for users are kept, binary values included, on files and directories."""
    records = {
        b"SCHILY.xattr.user.kept": b"a\0=\n\xff",
        b"SCHILY.xattr.user.overlay.opaque": b"y",
        b"SCHILY.xattr.trusted.overlay.opaque": b"y",
        b"SCHILY.xattr.trusted.other": b"y",
        b"SCHILY.xattr.security.selinux": b"label",
        b"SCHILY.xattr.security.capability": bytes.fromhex("0100000200200000000000000000000000000000"),
        b"SCHILY.xattr.system.posix_acl_access": bytes.fromhex("02000000"),
        b"SCHILY.xattr.": b"nameless",
    }
    done = place.unpack(
        archive(
            pax(records) + file(b"f", b"x", mode=0o444),
            pax(records) + directory(b"d", 0o555),
            pax(records) + link(b"l", b"f"),
        )
    )
    try:
        os.setxattr(place.base, "user.test", b"")
    except OSError:
        pytest.skip("this file system has no attributes for users")
    assert os.listxattr(place / "f") == ["user.kept"]
    assert os.getxattr(place / "f", "user.kept") == b"a\0=\n\xff"
    assert os.listxattr(place / "d") == ["user.kept"]
    assert os.listxattr(place / "l", follow_symlinks=False) == []
    assert done.attributes == 7 + 7 + 8


def test_with_one_id_everything_is_the_callers_and_without_set_id_bits(open_base: Path) -> None:
    """A file that lends its owner's rights would lend the caller's own; what is changed is counted."""
    content = archive(
        file(b"suid", b"x", mode=0o4755, uid=0),
        file(b"sgid", b"x", mode=0o2755, gid=42),
        file(b"sticky", b"x", mode=0o1644, uid=1000),
        directory(b"mail", 0o2775, gid=8),
        directory(b"locked", 0o555, uid=7),
        file(b"locked/f", b"1"),
        link(b"l", b"x", uid=5),
    )

    def check() -> None:
        become_nobody()
        place = Place(open_base)
        done = place.unpack(content, archive(file(b"locked/f", b"2"), file(b"locked/g")))
        assert mode_of(place / "suid") == 0o755
        assert mode_of(place / "sgid") == 0o755
        assert mode_of(place / "sticky") == 0o1644
        assert mode_of(place / "mail") == 0o2775
        assert mode_of(place / "locked") == 0o555
        assert (place / "locked/f").read_text() == "2"
        assert {path.lstat().st_uid for path in place.root.rglob("*")} == {os.geteuid()}
        assert (done.owners, done.set_ids) == (5, 2)
        remove_tree(str(place.root))
        assert not place.root.exists()

    in_child(check)


def test_an_attribute_that_the_file_system_has_no_room_for_is_left_out(place: Place) -> None:
    """Of 200 KiB, which no file system of Linux takes; the file is there."""
    done = place.unpack(archive(pax({b"SCHILY.xattr.user.big": b"x" * 200_000}) + file(b"f", b"x")))
    assert (place / "f").read_text() == "x"
    assert done.attributes == 1


@as_root
def test_root_keeps_owners_set_id_bits_and_capabilities(place: Place) -> None:
    """As they are in the archive, for every kind of file."""
    capability = bytes.fromhex("0100000200200000000000000000000000000000")
    done = place.unpack(
        archive(
            directory(b"./", uid=3, gid=4),
            pax({b"SCHILY.xattr.security.capability": capability}) + file(b"ping", b"x", uid=1, gid=2),
            file(b"suid", b"x", mode=0o6755, uid=5, gid=6),
            directory(b"d", 0o2775, uid=7, gid=8),
            link(b"l", b"x", uid=9, gid=10),
            header(b"p", FIFO, uid=11, gid=12),
            pax({b"uid": b"2000000000", b"gid": b"3000000000"}) + file(b"big", uid=1),
            file(b"binary", uid=b"\x80" + (70000).to_bytes(7, "big")),
        ),
        owners=EXACT,
    )
    names = ("", "ping", "suid", "d", "l", "p", "big", "binary")
    found = {name: (place / name).lstat() for name in names}
    assert {name: (status.st_uid, status.st_gid) for name, status in found.items()} == {
        **{"": (3, 4), "ping": (1, 2), "suid": (5, 6), "d": (7, 8), "l": (9, 10), "p": (11, 12)},
        **{"big": (2000000000, 3000000000), "binary": (70000, 0)},
    }
    assert mode_of(place / "suid") == 0o6755
    assert mode_of(place / "d") == 0o2775
    assert os.getxattr(place / "ping", "security.capability") == capability
    assert (done.owners, done.set_ids, done.attributes) == (0, 0, 0)


@as_root
def test_ids_are_mapped_by_a_user_namespace_and_refused_outside_its_ranges(open_base: Path) -> None:
    """Root of the namespace unpacks; on the host the files belong to the range."""
    place = Place(open_base)
    layer = place.layer(archive(directory(b"d", 0o555, uid=10, gid=20), file(b"d/f", mode=0o4755, uid=10)))
    beyond = place.layer(archive(file(b"far", uid=5000)))
    os.chown(place.root.parent, 300000, 300000)

    def check() -> None:
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        unpack([layer], str(place.root), MAPPED)
        with pytest.raises(CoopError, match="5000:0 is outside the ranges"):
            unpack([beyond], f"{place.root}2", MAPPED)
        remove_tree(f"{place.root}2")

    in_child(check, ids=(300000, 1000))
    assert ((place / "d").stat().st_uid, (place / "d").stat().st_gid) == (300010, 300020)
    assert mode_of(place / "d") == 0o555
    assert mode_of(place / "d/f") == 0o4755
