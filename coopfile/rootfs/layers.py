"""The uncompressed bytes of a layer's blob, verified while they are read.

Inflating and hashing run in threads of their own: both leave the interpreter's lock
to the thread that writes files, so that one layer keeps two to three processors busy.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import threading
import zlib
from collections import deque

from coopfile.errors import CoopError
from coopfile.record import Record
from coopfile.rootfs.damage import DamagedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO, Protocol

    class _Coder(Protocol):
        """What inflates one member of a file: a gzip member or a frame of zstd."""

        @property
        def eof(self) -> bool: ...

        def step(self, data: memoryview) -> tuple[bytes, int]:
            """Return at most ``_MOST`` bytes of output, and how much of the input was used.

            What was not used has to come again.
            """


_READ = 256 << 10  # inflates to about what a second-level cache holds
_FIRST = 16 << 10  # after a member's end: the rest is copied for every member, and they may be tiny
_MOST = 1 << 20
_ENOUGH = 256 << 10
_AHEAD = 16  # chunks between two threads
_SLACK = 1 << 30  # what may come out however small a blob is: a file of zeros is no attack
_WINDOW_LOG = 27  # 128 MiB, which is what zstd itself accepts unless told otherwise
_HASHES = ("sha256", "sha512")


class Layer(Record):
    """One layer: the file that holds its blob, and the digest of what is in it uncompressed."""

    path: str
    diff_id: str


class Limits(Record):
    """What an image may have at most, all layers together where it is a sum.

    ``bytes`` counts uncompressed archives, and bounds every file; ``entries`` are headers
    in archives, and as many directories may be there without one; ``depth`` is how many
    names a path may have; ``ratio`` is how much larger than its blob a layer may be,
    beyond the first GiB; ``header`` is in bytes, of a PAX header, a long name or the map
    of a sparse file; ``memory`` is in bytes, of the paths and of directories' attributes
    that have to be known until the end.
    """

    bytes: int = 64 << 30
    entries: int = 2_000_000
    depth: int = 256
    ratio: int = 200
    header: int = 1 << 20
    memory: int = 512 << 20


class Stream:
    """A layer being read: an iterator over chunks of its archive.

    Iterating raises DamagedError for a blob that cannot be inflated or holds too
    much, OSError and CoopError for one that cannot be read; ``verify`` then tells
    whether all of it was what it had to be. ``close`` ends the threads at any time.
    """

    def __init__(self, layer: Layer, limits: Limits, wait: Callable[[Layer], None] | None = None) -> None:
        self.position = 0
        """How much of the blob has been read, in bytes."""
        self.size = 0
        """The size of the blob in bytes, 0 before it was opened."""
        self._layer = layer
        self._limits = limits
        self._wait = wait
        self._chunks, self._hashed = _Pipe(), _Pipe()
        self._algorithm, _, self._expected = layer.diff_id.partition(":")
        self._found = ""
        self._waiting = wait is not None
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._inflate, self._hash)]
        for thread in self._threads:
            thread.start()

    def __iter__(self) -> Iterator[bytes]:
        while True:
            chunk = self._chunks.get()
            if isinstance(chunk, BaseException):
                raise chunk
            if not chunk:
                return
            yield chunk

    def verify(self) -> None:
        """Raise DamagedError unless the archive, which has to be read to its end, has the layer's digest."""
        for thread in self._threads:
            thread.join()
        if self._found != self._expected:
            raise DamagedError(
                f"its content has the digest {self._algorithm}:{self._found}, not {self._layer.diff_id}"
            )

    def close(self) -> None:
        """End the threads, whatever they are doing; one that waits for a blob ends when it has it."""
        self._chunks.close()
        self._hashed.close()
        for thread in self._threads:
            if not self._waiting:
                thread.join()

    def _inflate(self) -> None:
        try:
            if self._algorithm not in _HASHES:
                raise DamagedError("its digest is of an unknown kind")
            if self._wait is not None:
                self._wait(self._layer)
            self._waiting = False
            with open(self._layer.path, "rb", buffering=0) as file:
                self.size = os.fstat(file.fileno()).st_size
                for chunk in _bounded(_inflated(file, self._advance), self._limits, lambda: self.position):
                    if not (self._hashed.put(chunk) and self._chunks.put(chunk)):
                        return
            end: bytes | BaseException = b""
        except BaseException as error:
            end = error
        self._hashed.put(b"")
        self._chunks.put(end)

    def _advance(self, count: int) -> None:
        self.position += count

    def _hash(self) -> None:
        if self._algorithm not in _HASHES:
            return
        digest = hashlib.new(self._algorithm)
        while True:
            chunk = self._hashed.get()
            if not isinstance(chunk, bytes) or not chunk:
                break
            digest.update(chunk)
        self._found = digest.hexdigest()


class _Pipe:
    """A few chunks on their way from one thread to another; b"" or an exception is the last."""

    def __init__(self) -> None:
        self._items: deque[bytes | BaseException] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, item: bytes | BaseException) -> bool:
        """Wait for room and add an item; False once the pipe is closed."""
        with self._changed:
            while len(self._items) >= _AHEAD and not self._closed:
                self._changed.wait()
            if not self._closed:
                self._items.append(item)
                self._changed.notify()
            return not self._closed

    def get(self) -> bytes | BaseException:
        """Wait for an item and take it; b"" once the pipe is closed."""
        with self._changed:
            while not self._items and not self._closed:
                self._changed.wait()
            if self._closed:
                return b""
            self._changed.notify()
            return self._items.popleft()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _bounded(chunks: Iterator[bytes], limits: Limits, position: Callable[[], int]) -> Iterator[bytes]:
    """Pass chunks on until there are more than a layer may have."""
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if total > limits.bytes:
            raise DamagedError(f"it has more than {limits.bytes} bytes")
        if total > _SLACK + limits.ratio * position():
            raise DamagedError(f"it is a bomb: more than {limits.ratio} times as large as its blob")
        yield chunk


def _inflated(file: IO[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    """Yield a blob uncompressed, in chunks of up to a MiB and few smaller than 256 KiB."""
    start = file.read(_READ)
    # The name of an archive's first file comes first in it, and may begin with anything.
    kind = b"" if start[257:262] == b"ustar" else start[:4]
    advance(len(start))
    if kind[:2] == b"\x1f\x8b":
        pieces = _members(file, start, _Gzip, advance)
    elif kind == b"\x28\xb5\x2f\xfd" or (kind[1:] == b"\x2a\x4d\x18" and kind[0] & 0xF0 == 0x50):
        pieces = _members(file, start, _zstd(), advance)
    else:  # reading the archive will tell whether it is one
        pieces = _plain(file, start, advance)
    waiting: list[bytes] = []
    count = 0
    for piece in pieces:
        waiting.append(piece)
        count += len(piece)
        if count >= _ENOUGH:
            yield waiting[0] if len(waiting) == 1 else b"".join(waiting)
            waiting, count = [], 0
    if count:
        yield b"".join(waiting)


def _plain(file: IO[bytes], start: bytes, advance: Callable[[int], None]) -> Iterator[bytes]:
    while start:
        yield start
        start = file.read(_MOST)
        advance(len(start))


def _members(
    file: IO[bytes], start: bytes, new: Callable[[], _Coder], advance: Callable[[int], None]
) -> Iterator[bytes]:
    """Inflate members that follow each other, with nothing but zeros after the last."""
    coder: _Coder | None = new()
    data, width = memoryview(start), _READ
    while True:
        if not data:
            more = file.read(_READ)
            advance(len(more))
            data = memoryview(more)
            if not more and coder is None:
                return
        if coder is None:
            rest = bytes(data).lstrip(b"\0") if data[0] == 0 else data
            data, width = memoryview(rest), _FIRST
            if not data:
                continue
            coder = new()
        try:
            piece, used = coder.step(data[:width])
        except Exception as error:  # zlib.error or ZstdError, of a module that may not be there
            raise DamagedError(f"it cannot be inflated: {error}") from None
        if piece:
            yield piece
        elif not data and not coder.eof:
            raise DamagedError("it cannot be inflated: its blob is cut off")
        data, width = data[used:], min(2 * width, _READ)
        if coder.eof:
            coder = None


class _Gzip:
    def __init__(self) -> None:
        self._coder = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._coder.eof

    def step(self, data: memoryview) -> tuple[bytes, int]:
        output = self._coder.decompress(data, _MOST)
        coder = self._coder
        return output, len(data) - len(coder.unused_data if coder.eof else coder.unconsumed_tail)


def _zstd() -> Callable[[], _Coder]:
    """Return what makes a coder for one frame; raises CoopError if this Python has none."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            module = importlib.import_module(name)
            break
        except ImportError:
            continue
    else:
        raise CoopError(
            "the image has a layer compressed with zstd, which Python before 3.14 does not know",
            "install it for the Python that runs coop: pip install backports.zstd",
        )
    options = {module.DecompressionParameter.window_log_max: _WINDOW_LOG}

    class Zstd:
        def __init__(self) -> None:
            self._coder = module.ZstdDecompressor(options=options)
            self._held = 0  # bytes that it has taken and that are not all used yet

        @property
        def eof(self) -> bool:
            return bool(self._coder.eof)

        def step(self, data: memoryview) -> tuple[bytes, int]:
            given = data[:0] if self._held else data
            self._held = self._held or len(data)
            output = self._coder.decompress(given, _MOST)
            if not self._coder.eof and not self._coder.needs_input:
                return output, 0
            used = self._held - (len(self._coder.unused_data) if self._coder.eof else 0)
            self._held = 0
            return output, used

    return Zstd
