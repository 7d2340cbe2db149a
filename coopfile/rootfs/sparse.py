"""Maps of sparse files in tar archives: where each stretch of stored data belongs.

The four ways of writing them down are GNU tar's (tar manual, "Storing Sparse Files"):
old GNU headers of type S, and versions 0.0, 0.1 and 1.0 in PAX records.
"""

from __future__ import annotations

from coopfile.rootfs.damage import DamagedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Map = list[tuple[int, int]]
    """Stretches of data as (offset in the file, length), in the order of their data."""

_DIGITS = 20  # of a number that fits into 64 bits
_MOST_STRETCHES = 1 << 17  # a bound for memory: 128 Ki stretches of data in one file


def of_records(records: Sequence[tuple[bytes, bytes]]) -> tuple[int, Map | None] | None:
    """Return the real size and the map of a file from its PAX records.

    The map is None in version 1.0, where the file's data begins with it. None if the
    file is not sparse. Raises DamagedError.
    """
    values = dict(records)
    if b"GNU.sparse.major" in values or b"GNU.sparse.minor" in values:
        version = values.get(b"GNU.sparse.major"), values.get(b"GNU.sparse.minor")
        if version != (b"1", b"0"):
            raise DamagedError("a sparse file has an unknown version")
        return _number(values.get(b"GNU.sparse.realsize", b"")), None
    if b"GNU.sparse.size" not in values:
        if any(key.startswith(b"GNU.sparse.") for key in values):
            raise DamagedError("a sparse file has no size")
        return None
    size = _number(values[b"GNU.sparse.size"])
    if b"GNU.sparse.map" in values:
        text = values[b"GNU.sparse.map"]
        numbers = [_number(part) for part in text.split(b",")] if text else []
    else:
        pairs = [(key, value) for key, value in records if key in _PAIR]
        if [key for key, _ in pairs] != [*_PAIR] * (len(pairs) // 2):
            raise DamagedError("a sparse file's map is not made of pairs")
        numbers = [_number(value) for _, value in pairs]
    if b"GNU.sparse.numblocks" in values and 2 * _number(values[b"GNU.sparse.numblocks"]) != len(numbers):
        raise DamagedError("a sparse file's map is not as long as it says")
    return size, _pairs(numbers)


_PAIR = (b"GNU.sparse.offset", b"GNU.sparse.numbytes")


def of_old_header(block: bytes, more: Callable[[], bytes], number: Callable[[bytes], int]) -> tuple[int, Map]:
    """Return the real size and the map from an old GNU header; ``more`` returns the block after it."""
    size, found = number(block[483:495]), _slots(block, 386, 4, number)
    extended = block[482]
    while extended:
        block = more()
        found += _slots(block, 0, 21, number)
        if len(found) > _MOST_STRETCHES:
            raise DamagedError("a sparse file's map is too long")
        extended = block[504]
    return size, found


def _slots(block: bytes, at: int, count: int, number: Callable[[bytes], int]) -> Map:
    found = []
    for place in range(at, at + 24 * count, 24):
        if not block[place]:
            break
        found.append((number(block[place : place + 12]), number(block[place + 12 : place + 24])))
    return found


def of_data(line: Callable[[], bytes]) -> Map:
    """Return the map that stands at the beginning of a file's data (version 1.0), line by line."""
    count = _number(line())
    if count > _MOST_STRETCHES:
        raise DamagedError("a sparse file's map is too long")
    return [(_number(line()), _number(line())) for _ in range(count)]


def check(stretches: Map, size: int, stored: int) -> None:
    """Raise DamagedError unless a map fits the file's size and the data that is there for it."""
    end = 0
    for offset, length in stretches:
        if offset < end or length < 0:
            raise DamagedError("a sparse file's map overlaps itself")
        end = offset + length
    if end > size or sum(length for _, length in stretches) != stored:
        raise DamagedError("a sparse file's map does not fit its size")


def _pairs(numbers: list[int]) -> Map:
    if len(numbers) % 2 or len(numbers) > 2 * _MOST_STRETCHES:
        raise DamagedError("a sparse file's map is not made of pairs, or too long")
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > _DIGITS:
        raise DamagedError("a sparse file's map is not made of numbers")
    return int(text)
