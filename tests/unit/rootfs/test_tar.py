"""The tar reader: what it takes for an archive, and what it refuses."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coopfile.rootfs.damage import DamagedError
from coopfile.rootfs.layers import Limits
from coopfile.rootfs.tar import Entry, Reader
from tests.unit.rootfs.archives import archive, file, hard, header, long, padded, pax, summed


def chunks(content: bytes, size: int) -> Iterator[bytes]:
    """Cut an archive into chunks."""
    for at in range(0, len(content), size):
        yield content[at : at + size]


def entries(content: bytes, size: int = 1 << 20, limits: Limits | None = None) -> list[tuple[Entry, bytes]]:
    """Read a whole archive, chunk by chunk."""
    reader = Reader(chunks(content, size), limits or Limits())
    found: list[tuple[Entry, bytes]] = []
    while True:
        entry = reader.next()
        if entry is None:
            return found
        data, left = b"", entry.stored
        while left:
            data += bytes(reader.read(left))
            left = entry.stored - len(data)
        found.append((entry, data))


MIXED = archive(
    pax({b"path": b"p" * 700, b"mtime": b"1.000000001"}) + file(b"x", b"1" * 700),
    long(b"g" * 600) + file(b"x", b"2"),
    hard(b"h", b"x"),
    pax({b"GNU.sparse.major": b"1", b"GNU.sparse.minor": b"0", b"GNU.sparse.realsize": b"5000"})
    + file(b"s", padded(b"1\n1000\n3\n") + b"abc"),
    file(b"last", b"3" * 512),
)


@pytest.mark.parametrize("size", [1, 7, 100, 511, 512, 513, 1000, 4096])
def test_it_does_not_matter_where_chunks_end(size: int) -> None:
    """Headers, names, maps and data may be cut anywhere."""
    whole = entries(MIXED)
    assert [entry.name for entry, _ in whole] == [b"p" * 700, b"g" * 600, b"h", b"s", b"last"]
    assert whole[3][0].sparse == [(1000, 3)]
    assert entries(MIXED, size) == whole


def test_what_is_not_read_is_skipped() -> None:
    """Whatever part of an entry's data was wanted."""
    for size in (100, 512, 1 << 20):
        reader = Reader(chunks(MIXED, size), Limits())
        names = []
        while (entry := reader.next()) is not None:
            names.append(entry.name)
            if entry.stored > 2:
                assert len(reader.read(2)) in (1, 2)
        assert names == [b"p" * 700, b"g" * 600, b"h", b"s", b"last"]


@pytest.mark.parametrize("cut", [1, 511, 513, 600, 1023, 1024 + 511])
def test_an_archive_that_is_cut_off_is_refused(cut: int) -> None:
    """In a header, in data, in padding, and in an extended header."""
    for content in (file(b"a", b"x" * 600) * 3, pax({b"path": b"y" * 600}) + file(b"a", b"x" * 600) * 3):
        with pytest.raises(DamagedError, match=r"cut off|ends where"):
            entries(content[:-cut])


def test_an_end_without_blocks_of_zeros_is_an_end() -> None:
    """As with one of them; after two, everything is padding."""
    for end in (b"", bytes(512), bytes(1024), bytes(1024) + b"rubbish" * 500):
        assert len(entries(file(b"a", b"1") + end)) == 1


def test_what_is_no_archive_is_refused() -> None:
    """Text, a zip file, an archive with another one's middle, a block of zeros before more entries."""
    for content in (b"hello" * 300, b"PK\3\4" + bytes(600), b"\xfd7zXZ\0" + bytes(600), b"short"):
        with pytest.raises(DamagedError, match=r"not a tar archive|cut off"):
            entries(content)
    with pytest.raises(DamagedError, match="wrong checksum"):
        entries(file(b"a") + b"junk" * 128)
    with pytest.raises(DamagedError, match="wrong checksum"):
        entries(file(b"a") + bytes(512) + file(b"b"))
    with pytest.raises(DamagedError, match="ends where an entry should begin"):
        entries(pax({b"path": b"x"}) + bytes(1024))


def test_every_flipped_bit_of_a_header_is_noticed() -> None:
    """By the checksum, if it is not in the sum's own blank bytes."""
    block = header(b"name", size=0, mode=0o755, mtime=1234567)
    for number in random.Random(1).sample(range(148 * 8), 200):
        changed = bytearray(block)
        changed[number // 8] ^= 1 << number % 8
        with pytest.raises(DamagedError):
            entries(bytes(changed))


def test_sums_of_signed_bytes_are_accepted() -> None:
    """Some old programs on some old machines wrote them."""
    block = bytearray(header(b"caf\xe9", magic=bytes(8)))
    block[148:156] = b" " * 8
    signed = sum(byte - 256 if byte > 127 else byte for byte in block)
    block[148:156] = b"%06o\0 " % signed
    assert entries(bytes(block))[0][0].name == b"caf\xe9"


def test_numbers_in_all_their_forms() -> None:
    """Octal with any padding, binary, negative, blank; anything else is refused."""
    forms = {b"0000017\0": 15, b"     17 ": 15, b"17\0\0\0\0\0\0": 15, b"17\0junk ": 15, bytes(8): 0}
    forms[b"\x80" + (1 << 31).to_bytes(7, "big")] = 1 << 31
    for field, value in forms.items():
        assert entries(header(b"a", uid=field))[0][0].uid == value
    assert (
        entries(header(b"a", mtime=b"\xff" + (-5).to_bytes(11, "big", signed=True)))[0][0].mtime == -5 * 10**9
    )
    for field in (
        b"12x\0",
        b"9\0",
        b"-7\0",
        b"1_7\0",
        b"0x1\0",
        b"+7\0",
        b"\x81" + bytes(7),
        b"\xfe" + bytes(7),
    ):
        with pytest.raises(DamagedError, match=r"malformed|too large"):
            entries(header(b"a", uid=field))
    for field in (
        b"\xff" + bytes([255] * 7),
        b"\x80" + (1 << 32).to_bytes(7, "big"),
        b"\x80\0\0\0\xff\xff\xff\xff",
    ):
        with pytest.raises(DamagedError, match="impossible owner"):
            entries(header(b"a", uid=field))
    with pytest.raises(DamagedError, match=r"size|malformed"):
        entries(header(b"a", size=b"\xff" * 12))


def test_pax_records_count_over_the_header() -> None:
    """For sizes beyond eight GiB as for small ones; an empty value says nothing; the last one counts."""
    records = [
        (b"uid", b"5"),
        (b"uid", b"70000"),
        (b"gid", b"80000"),
        (b"size", b"3"),
        (b"path", b""),
        (b"other", b"x"),
    ]
    entry, data = entries(pax(records) + header(b"a", size=0) + padded(b"abc"))[0]
    assert (entry.uid, entry.gid, entry.size, entry.name, data) == (70000, 80000, 3, b"a", b"abc")
    entry, _ = entries(pax({b"mtime": b"5."}) + pax({b"uid": b"1"}) + file(b"b"))[0]
    assert (entry.mtime, entry.uid) == (5 * 10**9, 1)
    entry, _ = entries(pax({b"path": b"global"}, kind=b"g") + file(b"c"))[0]
    assert entry.name == b"c"


@pytest.mark.parametrize(
    "body",
    [
        b"5 a=\n7 b=c\n",  # the second is too long by one
        b"no length\n",
        b"6 ab=\n"[:-1] + b"x",
        b"5 =a\n",
        b"4 a\n\n",
        b"0 a=b\n",
        b"-6 a=b\n",
        b"99999999999999999999 a=b\n",
        b" 6 a=b\n",
        b"6\na=b\n",
        b"100 a=b\n",
        b"\0" * 10,
    ],
)
def test_a_malformed_pax_header_is_refused(body: bytes) -> None:
    """Wherever its lengths do not lead from one record to the next."""
    with pytest.raises(DamagedError, match="malformed"):
        entries(header(b"x", b"x", size=len(body)) + padded(body) + file(b"a"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"size", b"-1"),
        (b"size", b"1e3"),
        (b"uid", b"x"),
        (b"uid", b"9" * 30),
        (b"gid", b"4294967295"),
        (b"mtime", b"now"),
        (b"mtime", b"1.x"),
        (b"mtime", b"."),
        (b"mtime", b"9" * 100),
        (b"size", b"9" * 20),
    ],
)
def test_impossible_pax_values_are_refused(key: bytes, value: bytes) -> None:
    """Before they are used for anything."""
    with pytest.raises(DamagedError):
        entries(pax({key: value}) + file(b"a"))


def test_extended_headers_are_bounded() -> None:
    """Before they are read: PAX headers, long names and long targets."""
    limits = Limits(header=4096)
    for kind in (b"x", b"g", b"L", b"K"):
        with pytest.raises(DamagedError, match="more than 4096 bytes"):
            entries(header(b"x", kind, size=4097), limits=limits)
    assert entries(pax({b"comment": b"c" * 4000}) + file(b"a"), limits=limits)[0][0].name == b"a"


def test_unknown_types_are_refused_by_name() -> None:
    """Parts of other volumes, labels and what nobody knows."""
    for kind in (b"M", b"V", b"D", b"N", b"X", b"z", b"\xff"):
        with pytest.raises(DamagedError, match=r"'odd' is of an unknown type"):
            entries(header(b"odd", kind))


def test_a_directory_with_data_is_refused() -> None:
    """Some readers would take it for data, some for the next header."""
    with pytest.raises(DamagedError, match="a directory with data"):
        entries(file(b"dir/", b"data"))


SPARSE = {b"GNU.sparse.major": b"1", b"GNU.sparse.minor": b"0", b"GNU.sparse.realsize": b"100"}


@pytest.mark.parametrize(
    ("records", "data"),
    [
        ({b"GNU.sparse.size": b"100", b"GNU.sparse.map": b"0,3,2,3"}, b"abcdef"),
        ({b"GNU.sparse.size": b"100", b"GNU.sparse.map": b"10,3,0,3"}, b"abcdef"),
        ({b"GNU.sparse.size": b"100", b"GNU.sparse.map": b"0,3,98,3"}, b"abcdef"),
        ({b"GNU.sparse.size": b"100", b"GNU.sparse.map": b"0,3,10"}, b"abc"),
        ({b"GNU.sparse.size": b"100", b"GNU.sparse.map": b"0,-3,0,3"}, b"abc"),
        ({b"GNU.sparse.size": b"100", b"GNU.sparse.map": b"0,x"}, b"abc"),
        ({b"GNU.sparse.size": b"100", b"GNU.sparse.map": b"0,3"}, b"abcd"),
        ({b"GNU.sparse.size": b"100", b"GNU.sparse.map": b"0,3", b"GNU.sparse.numblocks": b"2"}, b"abc"),
        ({b"GNU.sparse.size": b"100", b"GNU.sparse.offset": b"0"}, b"abc"),
        ({b"GNU.sparse.size": b"100", b"GNU.sparse.numbytes": b"0", b"GNU.sparse.offset": b"3"}, b""),
        ({b"GNU.sparse.map": b"0,3"}, b"abc"),
        ({**SPARSE, b"GNU.sparse.major": b"2"}, padded(b"0\n")),
        ({b"GNU.sparse.major": b"1", b"GNU.sparse.minor": b"0"}, padded(b"0\n")),
        (SPARSE, padded(b"1\n0\n")),
        (SPARSE, padded(b"2\n0\n3\n") + b"abc"),
        (SPARSE, padded(b"99999999999\n")),
        (SPARSE, padded(b"x\n")),
        (SPARSE, b""),
        (SPARSE, b"9" * 4096),
        (SPARSE, padded(b"1\n200\n3\n") + b"abc"),
    ],
)
def test_impossible_maps_of_sparse_files_are_refused(records: dict[bytes, bytes], data: bytes) -> None:
    """Overlapping, backward, too long, too short, of half a pair, of no numbers, of an unknown version."""
    with pytest.raises(DamagedError, match="sparse"):
        entries(pax(records) + file(b"a", data) + bytes(1024))


def test_impossible_maps_in_old_headers_are_refused() -> None:
    """And those that go on for ever."""
    base = bytearray(header(b"a", b"S", size=3, magic=b"ustar  \0"))
    base[386:410] = b"00000000000\0" + b"00000000004\0"
    base[483:495] = b"00000000144\0"
    with pytest.raises(DamagedError, match="does not fit"):
        entries(summed(base) + padded(b"abc"))
    backward = b"\xff" + (-3).to_bytes(11, "big", signed=True)
    base[386:434] = b"00000000012\0" + backward + b"00000000007\0" + b"00000000006\0"
    with pytest.raises(DamagedError, match="overlaps"):
        entries(summed(base) + padded(b"abc"))
    base[482] = 1
    slots = (b"00000000000\0" * 42).ljust(512, b"\1")
    with pytest.raises(DamagedError, match="too long"):
        entries(summed(base) + slots * 7000)


@settings(max_examples=300, deadline=None)
@given(
    content=st.binary(max_size=2048),
    flips=st.lists(st.tuples(st.integers(0, len(MIXED) - 1), st.integers(0, 255))),
)
def test_nothing_but_a_refusal_comes_of_rubbish(content: bytes, flips: list[tuple[int, int]]) -> None:
    """Random bytes, and archives with some bytes changed and their sums put right."""
    changed = bytearray(MIXED)
    for at, value in flips:
        changed[at] = value
    for at in range(0, len(changed), 512):
        if bytes(changed[at + 257 : at + 262]) == b"ustar":
            changed[at : at + 512] = summed(changed[at : at + 512])
    for one in (content, bytes(changed)):
        try:
            entries(one, 700, Limits(bytes=1 << 20))
        except DamagedError:
            pass


@settings(max_examples=100, deadline=None)
@given(
    names=st.lists(
        st.binary(min_size=1, max_size=300).filter(lambda name: b"\0" not in name), min_size=1, max_size=5
    ),
    form=st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT]),
    mtime=st.integers(1, 1 << 43).map(lambda number: number / 1000),
    uid=st.integers(0, 1 << 31),
    data=st.binary(max_size=2000),
)
def test_it_reads_what_tarfile_writes(
    names: list[bytes], form: int, mtime: float, uid: int, data: bytes
) -> None:
    """In all three formats, as far as each can hold it."""
    output = io.BytesIO()
    written = []
    with tarfile.open(fileobj=output, mode="w", format=form, errors="surrogateescape") as made:
        for name in names:
            member = tarfile.TarInfo(name.decode("utf-8", "surrogateescape"))
            member.size, member.uid, member.mtime = (
                len(data),
                uid,
                mtime if form == tarfile.PAX_FORMAT else int(mtime),
            )
            try:
                made.addfile(member, io.BytesIO(data))
            except ValueError:  # the format has no room for it
                continue
            written.append(name)
    try:
        found = entries(output.getvalue())
    except DamagedError as error:
        assert "a directory with data" in str(error)
        assert any(name.endswith(b"/") for name in names)
        return
    assert [entry.name for entry, _ in found] == written
    assert {entry.uid for entry, _ in found} <= {uid}
    assert all(abs(entry.mtime - mtime * 10**9) <= 10**9 for entry, _ in found)
    assert all(content == data for entry, content in found if not entry.name.endswith(b"/"))
