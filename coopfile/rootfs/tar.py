"""Reading tar archives as they come in images: ustar, PAX, GNU and what is older.

Made for streams: it never seeks, and hands out data without copying it. Where
readers differ this one does as Go's archive/tar, which docker and podman use; names are bytes.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from typing import NamedTuple

from coopfile.rootfs import sparse
from coopfile.rootfs.damage import DamagedError, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from coopfile.rootfs.layers import Limits

FILE, HARD_LINK, SYMBOLIC_LINK, CHARACTER, BLOCK, DIRECTORY, FIFO = b"0", b"1", b"2", b"3", b"4", b"5", b"6"

# pax(1): name, mode, uid, gid, size, mtime, checksum, type, link, magic, prefix
_HEADER = struct.Struct("100s8s8s8s12s12s8sc100s6s2x32x32x8x8x155s12x")
_SIZE = 512
_ZEROS = bytes(_SIZE)
_WITHOUT_DATA = frozenset((HARD_LINK, SYMBOLIC_LINK, CHARACTER, BLOCK, DIRECTORY, FIFO))
_TYPES = {b"\0": FILE, b"7": FILE, b"S": FILE, FILE: FILE, **{kind: kind for kind in _WITHOUT_DATA}}
_XATTR = b"SCHILY.xattr."
_NO_ID = (1 << 32) - 1  # chown(2) takes it for "leave as it is"
_MOST_SIZE = 1 << 62
_SECOND = 1_000_000_000
_EARLIEST, _LATEST = -(1 << 31) * _SECOND, (1 << 34) * _SECOND  # what file systems keep


class Entry(NamedTuple):
    """One entry of an archive.

    ``kind`` is one of this module's constants, ``size`` that of the file, of which
    ``stored`` bytes follow in the archive; they differ if there is a ``sparse`` map of
    (offset, length). ``mtime`` is in nanoseconds. ``xattrs`` are (name, value).
    """

    kind: bytes
    name: bytes
    link: bytes
    mode: int
    uid: int
    gid: int
    mtime: int
    size: int
    stored: int
    sparse: list[tuple[int, int]] | None
    xattrs: tuple[tuple[bytes, bytes], ...]


class Reader:
    """The entries of an archive that comes in chunks of any size.

    Call ``next`` for an entry and then ``read`` for as much of its data as is wanted.
    Everything raises DamagedError for what is no archive, and for one that exceeds
    ``limits``.
    """

    def __init__(self, chunks: Iterator[bytes], limits: Limits) -> None:
        self.entries = 0
        """Headers read so far, those that only extend others included."""
        self._chunks = chunks
        self._limits = limits
        self._chunk = b""
        self._view = memoryview(b"")
        self._at = 0
        self._left = 0  # of this entry's data
        self._padding = 0

    def next(self) -> Entry | None:
        """Return the next entry, None at the end of the archive. What was not read of the last is skipped."""
        if self._left or self._padding:
            self._skip()
        records: list[tuple[bytes, bytes]] = []
        long_name = long_link = None
        extended = 0
        while True:
            block = self._block()
            if block is None or not _sum_is_right(block):
                if records or long_name is not None or long_link is not None:
                    raise DamagedError("the archive ends where an entry should begin")
                if block is not None:
                    self._check_end(block)
                return None
            self.entries += 1
            if self.entries > self._limits.entries:
                raise DamagedError(f"it has more than {self._limits.entries} entries")
            kind = block[156:157]
            if kind in _TYPES:
                return self._entry(block, records, long_name, long_link)
            size = _number(block[124:136])
            if kind == b"x":
                extended += size  # several count together
                records += _records(self._extension(size, extended))
            elif kind == b"L":
                long_name = self._extension(size).rstrip(b"\0")
            elif kind == b"K":
                long_link = self._extension(size).rstrip(b"\0")
            elif kind == b"g":  # docker and podman ignore these too; git archive writes a comment
                self._extension(size)
            else:
                raise DamagedError(f"{shown(_string(block[:100]))} is of an unknown type, {shown(kind)}")

    def read(self, most: int) -> memoryview:
        """Return between 1 and ``most`` bytes of the entry's data; 0 bytes only at its end."""
        at = self._at
        there = len(self._chunk) - at
        if not there:
            self._next_chunk()
            at, there = 0, len(self._chunk)
        count = min(most, there, self._left)
        self._left -= count
        self._at = at + count
        return self._view[at : at + count]

    def _entry(
        self,
        block: bytes,
        records: list[tuple[bytes, bytes]],
        long_name: bytes | None,
        long_link: bytes | None,
    ) -> Entry:
        name, mode, uid, gid, size, mtime, _, kind, link, magic, prefix = _HEADER.unpack(block)
        name, link = _string(name), _string(link)
        if magic == b"ustar\0" and prefix[0]:
            name = _string(prefix) + b"/" + name
        stored = _number(size)
        found = Entry(
            _TYPES[kind],
            name,
            link,
            _number(mode) & 0o7777,
            _number(uid),
            _number(gid),
            min(max(_number(mtime) * _SECOND, _EARLIEST), _LATEST),
            stored,
            stored,
            None,
            (),
        )
        if records:
            found = _extended(found, records)
        if long_name is not None or long_link is not None:
            found = found._replace(
                name=found.name if long_name is None else long_name,
                link=found.link if long_link is None else long_link,
            )
        if found.kind in _WITHOUT_DATA:
            found = found._replace(size=0, stored=0)
        elif found.name.endswith(b"/"):  # older than the type for directories
            if found.stored:
                raise DamagedError(f"{shown(found.name)} is a directory with data")
            found = found._replace(kind=DIRECTORY)
        if kind == b"S" or (records and found.kind == FILE):
            found = self._sparse(found, block if kind == b"S" else None, records)
        else:
            self._left, self._padding = found.stored, -found.stored % _SIZE
        _check(found, self._limits)
        return found

    def _sparse(self, entry: Entry, header: bytes | None, records: list[tuple[bytes, bytes]]) -> Entry:
        """Return an entry with its map if it has one, and set what there is to be read."""
        self._padding = -entry.stored % _SIZE
        stored = entry.stored
        if header is not None:
            size, stretches = sparse.of_old_header(header, self._whole_block, _number)
            self._left = stored
        else:
            known = sparse.of_records(records)
            self._left = stored
            if known is None:
                return entry
            size, given = known
            if given is None:
                given, used = self._leading_map()
                stored -= used
            stretches = given
        sparse.check(stretches, size, stored)
        return entry._replace(size=size, stored=stored, sparse=stretches)

    def _leading_map(self) -> tuple[list[tuple[int, int]], int]:
        """Read the map at the beginning of an entry's data; return it and how many bytes it took."""
        used = 0
        lines: list[bytes] = []
        rest = b""

        def line() -> bytes:
            nonlocal used, rest
            while not lines:
                if used > self._limits.header or self._left < _SIZE:
                    raise DamagedError("a sparse file's map is too long")
                self._left -= _SIZE
                used += _SIZE
                *whole, rest = (rest + self._whole_block()).split(b"\n")
                lines.extend(reversed(whole))
            return lines.pop()

        return sparse.of_data(line), used

    def _extension(self, size: int, total: int = 0) -> bytes:
        """Return the data of a header that extends the next one, with others if ``total`` is larger."""
        if size < 0 or max(size, total) > self._limits.header:
            raise DamagedError(f"an extended header has more than {self._limits.header} bytes")
        self._left, self._padding = size, -size % _SIZE
        parts = []
        while self._left:
            parts.append(bytes(self.read(size)))
        self._skip()
        return b"".join(parts)

    def _skip(self) -> None:
        left = self._left + self._padding
        self._left = self._padding = 0
        while left > len(self._chunk) - self._at:
            left -= len(self._chunk) - self._at
            self._next_chunk()
        self._at += left

    def _next_chunk(self) -> None:
        chunk = next(self._chunks, b"")
        if not chunk:
            raise DamagedError("the archive is cut off")
        self._chunk, self._view, self._at = chunk, memoryview(chunk), 0

    def _whole_block(self) -> bytes:
        block = self._block()
        if block is None:
            raise DamagedError("the archive is cut off")
        return block

    def _block(self) -> bytes | None:
        """Return the next 512 bytes, None at the end of the stream."""
        at = self._at
        block = self._chunk[at : at + _SIZE]
        self._at = at + len(block)
        while len(block) < _SIZE:
            chunk = next(self._chunks, b"")
            if not chunk:
                if block:
                    raise DamagedError("the archive is cut off")
                return None
            self._chunk, self._view = chunk, memoryview(chunk)
            missing = _SIZE - len(block)
            block += chunk[:missing]
            self._at = min(missing, len(chunk))
        return block

    def _check_end(self, block: bytes) -> None:
        """Check that what is no header is the end: two blocks of zeros, or one and nothing more."""
        if block == _ZEROS:
            second = self._block()
            if second is None or second == _ZEROS:
                return
        raise DamagedError(
            "it is not a tar archive" if self.entries == 0 else "a header has a wrong checksum"
        )


def _extended(entry: Entry, records: list[tuple[bytes, bytes]]) -> Entry:
    """Return an entry with what PAX records say of it; an empty value says nothing."""
    values = {key: value for key, value in records if value}
    changed: dict[str, bytes | int] = {}
    for key, field in ((b"path", "name"), (b"GNU.sparse.name", "name"), (b"linkpath", "link")):
        if key in values:
            changed[field] = values[key]
    for key in (b"uid", b"gid", b"size"):
        if key in values:
            text = values[key]
            if not text.isdigit() or len(text) > 20:
                raise DamagedError(f"the {key.decode()} of {shown(entry.name)} is not a number")
            changed["stored" if key == b"size" else key.decode()] = int(text)
    if b"mtime" in values:
        changed["mtime"] = _time(values[b"mtime"])
    if "stored" in changed:
        changed["size"] = changed["stored"]
    xattrs = tuple(
        (key[len(_XATTR) :], value) for key, value in dict(records).items() if key.startswith(_XATTR)
    )
    return entry._replace(xattrs=xattrs, **changed)  # type: ignore[arg-type]


def _check(entry: Entry, limits: Limits) -> None:
    _, name, link, _, uid, gid, _, size, stored, _, xattrs = entry
    if b"\0" in name or b"\0" in link or (xattrs and any(b"\0" in key for key, _ in xattrs)):
        raise DamagedError(f"{shown(name)} has a null byte in its name or target")
    if not 0 <= uid < _NO_ID or not 0 <= gid < _NO_ID:
        raise DamagedError(f"{shown(name)} has an impossible owner")
    if stored < 0 or not 0 <= size <= limits.bytes:
        raise DamagedError(f"{shown(name)} has more than {limits.bytes} bytes, or an impossible size")


def _records(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the records of a PAX header in their order: "LENGTH KEY=VALUE\\n"."""
    found = []
    at = 0
    while at < len(data):
        digits, blank, _ = data[at : at + 10].partition(b" ")
        if not blank or not digits.isdigit():
            raise DamagedError("a PAX header is malformed")
        space, end = at + len(digits), at + int(digits)
        equals = data.find(b"=", space, end)
        if not space + 1 < equals < end <= len(data) or data[end - 1] != 0x0A:
            raise DamagedError("a PAX header is malformed")
        found.append((data[space + 1 : equals], data[equals + 1 : end - 1]))
        at = end
    return found


def _time(text: bytes) -> int:
    """Return nanoseconds from a decimal number of seconds, without the rounding of floats."""
    sign, digits = (-1, text[1:]) if text.startswith(b"-") else (1, text)
    seconds, _, fraction = digits.partition(b".")
    if not seconds.isdigit() or (fraction and not fraction.isdigit()) or len(text) > 64:
        raise DamagedError("a time is not a number")
    time = sign * (int(seconds) * _SECOND + int(fraction[:9].ljust(9, b"0")))
    return min(max(time, _EARLIEST), _LATEST)


def _string(field: bytes) -> bytes:
    end = field.find(b"\0")
    return field if end < 0 else field[:end]


@lru_cache(maxsize=4096)
def _number(field: bytes) -> int:
    """Return a number written in octal digits, or in binary after a first byte of 0x80 or 0xff."""
    if field[0] & 0x80:
        if field[0] not in (0x80, 0xFF):
            raise DamagedError("a number in a header is too large")
        value = int.from_bytes(field[1:], "big") - (1 << 8 * (len(field) - 1) if field[0] == 0xFF else 0)
        if abs(value) > _MOST_SIZE:
            raise DamagedError("a number in a header is too large")
        return value
    digits = field.strip(b" \0").partition(b"\0")[0].rstrip(b" ")
    if not digits:
        return 0
    try:
        return int(digits, 8) if digits.isdigit() else _not_octal()
    except ValueError:
        return _not_octal()


def _not_octal() -> int:
    raise DamagedError("a number in a header is malformed")


def _sum_is_right(block: bytes) -> bool:
    """Tell whether a header's checksum is right: that of its bytes, with blanks for the sum itself."""
    try:
        given = _number(block[148:156])
    except DamagedError:
        return False
    # Adler-32 has the sum of all bytes plus one, modulo 65521, in its lower half, in a
    # fifteenth of the time that sum() takes. Against accidents that is as good.
    quick = (zlib.adler32(block) & 0xFFFF) - 1 - sum(block[148:156]) + 256
    if (given - quick) % 65521 == 0 and given < 1 << 17:
        return True
    signed = sum(byte - 256 if byte > 127 else byte for byte in block[:148] + block[156:]) + 256
    return given == signed  # which some old programs computed
