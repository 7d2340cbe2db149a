"""Archives made to hurt: whatever they say, nothing outside of the root changes (``Place`` looks)."""

from __future__ import annotations

import os
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coopfile.errors import CoopError
from coopfile.rootfs.layers import Limits
from coopfile.rootfs.owners import EXACT, SINGLE
from tests.unit.rootfs.archives import (
    CHARACTER,
    DIRECTORY,
    FIFO,
    Place,
    archive,
    directory,
    file,
    gz,
    hard,
    header,
    link,
    long,
    pax,
)

ESCAPES = (
    b"../canary",
    b"../../outside/etc/passwd",
    b"a/../../canary",
    b"./../canary",
    b"/../canary",
    b"..",
    b"a/../..",
)


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("kind", [b"0", b"2", b"5", b"6", b"3"])
def test_a_name_that_leads_out_is_refused(place: Place, name: bytes, kind: bytes) -> None:
    """Of any kind of entry, also by PAX and GNU headers."""
    for entry in (
        header(name, kind, link=b"x"),
        pax({b"path": name}) + header(b"a", kind, link=b"x"),
        long(name) + header(b"a", kind, link=b"x"),
    ):
        root = place.root.parent / f"root{time.monotonic_ns()}"
        assert "leads out of the image" in place.refuse(archive(entry), root=root)
        assert place.names(root) == {}


@pytest.mark.parametrize("name", ESCAPES)
def test_a_hard_link_that_leads_out_is_refused(place: Place, name: bytes) -> None:
    """So that what is outside can neither be read nor written through it."""
    assert "leads out of the image" in place.refuse(archive(hard(b"x", name)))
    assert place.names() == {}


def test_a_whiteout_that_leads_out_is_refused(place: Place) -> None:
    """In a name as in the part that a whiteout hides."""
    lower = archive(file(b"a"))
    for number, name in enumerate((b"../.wh.canary", b"a/../../.wh.canary", b"../.wh..wh..opq")):
        message = place.refuse(lower, archive(file(name)), root=place.root.parent / f"root{number}")
        assert "leads out of the image" in message
    for number, name in enumerate((b".wh.", b".wh..", b".wh...", b"d/.wh..", b"d/.wh...")):
        message = place.refuse(lower, archive(file(name)), root=place.root.parent / f"root-{number}")
        assert "a whiteout of nothing" in message


def test_a_directory_with_the_name_of_a_whiteout_is_refused(place: Place) -> None:
    """It would be there as such, or not, depending on who reads it."""
    assert "a directory whose name is a whiteout's" in place.refuse(archive(file(b"a/.wh.b/c")))


def test_absolute_names_are_inside(place: Place) -> None:
    """Of files, directories and hard links; those of links are theirs to keep."""
    outside = os.fsencode(place.outside)
    place.unpack(
        archive(
            file(b"/etc/passwd", b"inside"),
            file(b"//double", b"d"),
            hard(b"linked", b"/etc/passwd"),
            pax({b"path": outside + b"/etc/passwd"}) + file(b"x", b"inside"),
            pax({b"linkpath": outside + b"/etc/passwd"}) + hard(b"second", b"x"),
        )
    )
    assert (place / "etc/passwd").read_text() == "inside"
    assert (place / "linked").read_text() == "inside"
    assert (place / "double").read_text() == "d"
    assert (place / "second").read_text() == "inside"


def _targets(place: Place) -> list[bytes]:
    return [
        os.fsencode(place.outside),
        b"../../outside",
        b"../" * 40 + os.fsencode(place.outside)[1:],
        b"/proc/self/root" + os.fsencode(place.outside),
        b"/proc/self/cwd/..",
    ]


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("split", [False, True])
def test_nothing_is_written_through_a_link_that_leads_out(place: Place, number: int, split: bool) -> None:
    """Whether the link is of the same layer or of an earlier one: its target is looked for inside."""
    target = _targets(place)[number]
    made = (
        pax({b"linkpath": target}) + link(b"evil", b"x"),
        pax({b"linkpath": b"evil"}) + link(b"second", b"x"),
    )
    used = (
        file(b"evil/new", b"n"),
        file(b"second/etc/passwd", b"overwritten"),
        file(b"evil/etc/passwd", b"overwritten"),
        directory(b"evil/etc", 0o777),
        link(b"evil/etc/link", b"x"),
        header(b"evil/fifo", FIFO),
        header(b"evil/device", CHARACTER),
        directory(b"second/sub/", 0o700),
    )
    layers = (archive(*made), archive(*used)) if split else (archive(*made, *used),)
    place.unpack(*layers)
    assert os.readlink(place / "evil").encode() == target
    assert "overwritten" in place.names().values()


@pytest.mark.parametrize("number", range(5))
def test_nothing_is_removed_through_a_link_that_leads_out(place: Place, number: int) -> None:
    """By whiteouts, opaque directories and entries of another kind."""
    target = _targets(place)[number]
    place.unpack(
        archive(pax({b"linkpath": target}) + link(b"evil", b"x")),
        archive(file(b"evil/etc/.wh.passwd"), file(b"evil/.wh.etc"), file(b"evil/.wh..wh..opq")),
        archive(directory(b"evil/etc/passwd")),
        archive(file(b".wh.evil")),
    )
    assert "evil" not in place.names()


@pytest.mark.parametrize("number", range(5))
def test_no_hard_link_is_made_to_what_a_link_leads_to(place: Place, number: int) -> None:
    """Through a parent it is not found; of the link itself it is a second name."""
    target = _targets(place)[number]
    evil = pax({b"linkpath": target}) + link(b"evil", b"x")
    message = place.refuse(archive(evil, hard(b"x", b"evil/etc/passwd")), root=place.root.parent / "root1")
    assert "which is not there" in message
    direct = pax({b"linkpath": target + b"/etc/passwd"}) + link(b"direct", b"x")
    place.unpack(archive(direct, hard(b"x", b"direct"), file(b"x", b"overwritten")))
    assert (place / "x").read_text() == "overwritten"
    assert os.readlink(place / "direct").encode() == target + b"/etc/passwd"


def test_an_entry_replaces_a_link_and_does_not_follow_it(place: Place) -> None:
    """Files, directories, FIFOs and links alike; neither target nor mode of the target changes."""
    passwd = os.fsencode(place.outside / "etc/passwd")
    etc = os.fsencode(place.outside / "etc")
    entries = []
    for name, again in (
        (b"a", file(b"a", b"new", mode=0o777)),
        (b"b", directory(b"b", 0o777)),
        (b"c", header(b"c", FIFO, mode=0o777)),
        (b"d", link(b"d", b"new")),
        (b"e", header(b"e", CHARACTER)),
    ):
        for suffix, target in ((b"", passwd), (b"-dir", etc)):
            changed = again if not suffix else pax({b"path": name + suffix}) + again
            entries += [pax({b"linkpath": target}) + link(name + suffix, b"x"), changed]
    place.unpack(archive(*entries))
    names = place.names()
    assert (names["a"], names["b"], names["c"], names["d"]) == ("new", "/", "?", "-> new")
    assert "e" not in names


@pytest.mark.parametrize("kind", [b"0", b"2", b"1", b"6", b"3"])
def test_the_root_itself_cannot_be_replaced(place: Place, kind: bytes) -> None:
    """By a link, least of all."""
    for name in (b"./", b"/", b".", b"", b"a/.."):
        entry = header(name, kind, link=os.fsencode("/")) if name[-1:] != b"/" or kind != b"0" else b""
        if entry:
            root = place.root.parent / f"root{time.monotonic_ns()}"
            assert "its root is no directory" in place.refuse(archive(entry), root=root)
            assert root.is_dir() and not root.is_symlink()


def test_links_that_lead_in_circles_are_refused(place: Place) -> None:
    """As are those that lead through very many others."""
    assert "too many links" in place.refuse(archive(link(b"a", b"b"), link(b"b", b"a"), file(b"a/x")))
    chain = [link(b"l%d" % number, b"l%d" % (number + 1)) for number in range(60)]
    assert "too many links" in place.refuse(archive(*chain, file(b"l0/x")), root=place.root.parent / "root2")
    knot = [link(b"k", b"k/" * 45 + b"k")]
    assert "too many links" in place.refuse(archive(*knot, file(b"k/x")), root=place.root.parent / "root3")


def test_a_file_where_a_directory_has_to_be_is_refused(place: Place) -> None:
    """Also at the end of a link."""
    assert "no directory" in place.refuse(archive(file(b"a"), file(b"a/b")))
    message = place.refuse(
        archive(file(b"a"), link(b"l", b"a"), file(b"l/b")), root=place.root.parent / "root2"
    )
    assert "no directory" in message


def test_impossible_hard_links_are_refused(place: Place) -> None:
    """To nothing, to a directory, to what they replace, to the root, and with names that say nothing."""
    cases = (
        (hard(b"x", b"missing"), "which is not there"),
        (hard(b"x", b"missing/dir"), "which is not there"),
        (directory(b"d") + hard(b"x", b"d"), "a hard link to a directory"),
        (file(b"d/f") + hard(b"d", b"d/f"), "replaces what it is a hard link to"),
        (hard(b"x", b"/"), "which is not there"),
        (hard(b"x", b""), "which is not there"),
        (link(b"x", b""), "a link to nothing"),
        (file(b"d/f", b"1") + file(b".wh.d") + hard(b"x", b".wh.d"), "which is not there"),
    )
    for number, (entries, message) in enumerate(cases):
        assert message in place.refuse(archive(entries), root=place.root.parent / f"root{number}")


def test_names_that_no_file_can_have_are_refused(place: Place) -> None:
    """Too long ones by the kernel, null bytes before it is asked."""
    for number, entry in enumerate(
        (
            pax({b"path": b"n" * 300}) + file(b"x"),
            pax({b"path": b"d/" * 200 + b"n" * 256}) + file(b"x"),
            pax({b"linkpath": b"n" * 5000}) + link(b"x", b"y"),
        )
    ):
        assert "too long" in place.refuse(archive(entry), root=place.root.parent / f"root{number}")
    for number, entry in enumerate(
        (
            pax({b"path": b"a\0b"}) + file(b"x"),
            pax({b"linkpath": b"a\0b"}) + link(b"x", b"y"),
            pax({b"linkpath": b"a\0b"}) + hard(b"x", b"y"),
            pax({b"SCHILY.xattr.user.a\0b": b"v"}) + file(b"x"),
            long(b"a\0b") + file(b"x"),
        )
    ):
        assert "null byte" in place.refuse(archive(entry), root=place.root.parent / f"root-{number}")


def test_a_path_cannot_be_too_deep_however_it_gets_there(place: Place) -> None:
    """By its own names or by way of links to what is deep already."""
    deep = b"d/" * 30
    limits = Limits(depth=40)
    assert "more than 40 directories deep" in place.refuse(
        archive(file(b"x/" * 40 + b"f")), limits=limits, root=place.root.parent / "root1"
    )
    assert "more than 40 directories deep" in place.refuse(
        archive(file(deep + b"f"), link(b"l", deep), file(b"l/" + deep + b"f")), limits=limits
    )


def test_the_number_of_entries_and_of_directories_is_bounded(place: Place) -> None:
    """Over all layers, and also of directories that only other entries' names make."""
    limits = Limits(entries=100)
    many = [file(b"f%d" % number) for number in range(60)]
    assert "more than 100 entries" in place.refuse(
        archive(*many), archive(*many), limits=limits, root=place.root.parent / "root1"
    )
    headers = [pax({b"comment": b"x"}) for _ in range(101)]
    assert "more than 100 entries" in place.refuse(
        archive(*headers, file(b"a")), limits=limits, root=place.root.parent / "root2"
    )
    deep = [file(b"%d/" % number * 30 + b"f") for number in range(10)]
    assert "more than 100 directories" in place.refuse(archive(*deep), limits=limits)


def test_what_is_kept_in_memory_is_bounded(place: Place) -> None:
    """Headers of one entry together, and over all layers directories' attributes and the paths of both."""
    extra = pax({b"SCHILY.xattr.trusted.x": b"x" * 1000})
    limits = Limits(header=1200, memory=10_000)
    deep = b"".join(pax({b"path": b"/".join([name * 99] * 11)}) + directory(b"d") for name in (b"a", b"b"))
    refused = [
        ("more than 1200 bytes", [archive(extra, extra, file(b"a"))]),
        ("attributes have more than", [archive(*[extra + directory(b"d%d" % n) for n in range(10)])]),
        ("attributes have more than", [archive(extra + directory(b"d")) for _ in range(10)]),
        ("attributes have more than", [archive(deep)]),
        (
            "attributes have more than",
            [b"", archive(link(b"l", b"a" * 90), *[file(b"l/%d" % n) for n in range(150)])],
        ),
    ]
    for number, (message, layers) in enumerate(refused):
        assert message in place.refuse(*layers, limits=limits, root=place.root.parent / f"root{number}")
    names = archive(*[file(b"%099d" % n) for n in range(90)])
    place.unpack(
        *[names for _ in range(5)], archive(*[extra + file(b"f%d" % n) for n in range(20)]), limits=limits
    )


def test_the_size_is_bounded(place: Place) -> None:
    """Of one file by what its header says, of holes, of a layer and of all layers together."""
    limits = Limits(bytes=1 << 20)
    half = archive(file(b"half", bytes(700 << 10)))
    assert "more than 1048576 bytes" in place.refuse(
        archive(header(b"big", size=2 << 20)), limits=limits, root=place.root.parent / "root1"
    )
    hole = pax({b"GNU.sparse.size": b"1000000000000", b"GNU.sparse.map": b"", b"GNU.sparse.numblocks": b"0"})
    assert "more than 1048576 bytes" in place.refuse(
        archive(hole + file(b"hole")), limits=limits, root=place.root.parent / "root2"
    )
    after = place.layer(archive(file(b"a")) + bytes(2 << 20), gz)
    assert "more than 1048576 bytes" in place.refuse(after, limits=limits, root=place.root.parent / "root3")
    message = place.refuse(half, half, limits=limits)
    assert "the image has more than 1048576 bytes" in message


def test_a_wrong_digest_is_refused(place: Place) -> None:
    """Of what is in the archive and of what follows it; an unknown kind of digest too."""
    content = archive(file(b"a", b"1"))
    good = place.layer(content, gz)
    wrong = good.replace(diff_id="sha256:" + "0" * 64)
    assert "its content has the digest sha256:" in place.refuse(wrong, root=place.root.parent / "root1")
    longer = place.layer(content + b"smuggled" * 64).replace(diff_id=good.diff_id)
    assert "its content has the digest" in place.refuse(longer, root=place.root.parent / "root2")
    unknown = good.replace(diff_id="md5:" + "0" * 32)
    assert "of an unknown kind" in place.refuse(unknown, root=place.root.parent / "root3")
    later = place.refuse(good, wrong, root=place.root.parent / "root4")
    assert later.startswith("layer 2 of the image")
    place.unpack(good)


def test_messages_cannot_be_made_to_draw_on_a_terminal(place: Place) -> None:
    """Names from an archive are shown quoted and shortened."""
    message = place.refuse(archive(pax({b"path": b"../\x1b[2J\n\xff" + b"n" * 5000}) + file(b"x")))
    assert message.isprintable()
    assert len(message) < 500


def test_everything_asked_for_a_million_times_is_done_once(place: Place) -> None:
    """Twenty thousand opaque markers over a full directory take no longer than reading them."""
    many = [file(b"d/f%d" % number) for number in range(2000)]
    markers = [file(b"d/.wh..wh..opq")] * 10000 + [file(b".wh.d")] * 10000
    started = time.monotonic()
    place.unpack(archive(file(b"d/lower")), archive(*many, *markers))
    assert time.monotonic() - started < 20
    assert len(place.names()) == 2001


def test_no_thread_and_no_descriptor_outlives_a_refusal(place: Place) -> None:
    """However large the rest of the layers is."""
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    big = archive(file(b"../x"), file(b"big", os.urandom(24 << 20)))
    place.refuse(big, big)
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == descriptors


NAMES = st.lists(
    st.sampled_from(
        [b"a", b"b", b"l", b"m", b"..", b".", b"", b".wh.a", b".wh.l", b".wh..wh..opq", b"etc", b"\xff"]
    ),
    min_size=1,
    max_size=5,
).map(b"/".join)
KINDS = st.sampled_from([b"0", b"0", b"1", b"2", b"2", b"5", b"6", b"3"])
ENTRIES = st.lists(st.tuples(NAMES, KINDS, NAMES, st.booleans()), max_size=14)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(layers=st.lists(ENTRIES, min_size=1, max_size=3))
def test_no_sequence_of_entries_gets_out(
    layers: list[list[tuple[bytes, bytes, bytes, bool]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Random names, kinds and targets, some of them pointing at the canaries; refused or not."""
    place = Place(tmp_path_factory.mktemp("hostile"))
    outside = os.fsencode(place.outside)
    made = []
    for entries in layers:
        blocks = []
        for name, kind, target, out in entries:
            to = (outside + b"/" + target) if out else target
            data = b"overwritten" if kind == b"0" and not name.endswith(b"/") else b""
            blocks.append(pax({b"linkpath": to}) + header(name, kind, size=len(data), mode=0o777))
            blocks.append(data.ljust(512 if data else 0, b"\0"))
        made.append(archive(*blocks))
    try:
        place.unpack(*made, owners=EXACT if os.geteuid() == 0 else SINGLE)
    except CoopError:
        pass
    assert DIRECTORY == b"5"
