"""Blobs of layers: compressed in every way there is, damaged in every way, and too good to be true."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import importlib
import lzma
import os
import random
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from coopfile.errors import CoopError
from coopfile.rootfs import layers
from coopfile.rootfs.layers import Layer, Limits, Stream
from coopfile.rootfs.owners import SINGLE
from coopfile.rootfs.unpack import unpack
from tests.unit.rootfs.archives import Place, archive, digest, file, gz

CONTENT = archive(
    file(b"random", random.Random(5).randbytes(1 << 20)), file(b"zeros", bytes(5 << 20)), file(b"end", b"e")
)


def zstandard() -> Any:
    """Return the module for zstd, if this Python has one."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    pytest.skip("this Python has no zstd")


def in_members(data: bytes, compress: Callable[[bytes], bytes], size: int) -> bytes:
    """Compress data as many members, as eStargz and zstd:chunked do."""
    return b"".join(compress(data[at : at + size]) for at in range(0, len(data), size))


def zstd(data: bytes) -> bytes:
    """Return data as a frame of zstd."""
    compressed: bytes = zstandard().compress(data)
    return compressed


SKIPPED = b"\x5a\x2a\x4d\x18\x08\0\0\0metadata"

FORMS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "gzip": gz,
    "gzip stored": lambda data: gzip.compress(data, 0),
    "gzip members": lambda data: in_members(data, gz, 100_000),
    "gzip tiny members": lambda data: in_members(data[:20000], gz, 10) + gz(data[20000:]),
    "gzip empty members": lambda data: gz(b"") + gz(data) + gz(b"") * 50,
    "gzip padded": lambda data: gz(data) + bytes(700_000),
    "gzip with a name": lambda data: b"\x1f\x8b\x08\x08\0\0\0\0\0\xffname\0" + gz(data)[10:],
    "zstd": zstd,
    "zstd frames": lambda data: in_members(data, zstd, 100_000),
    "zstd with other frames": lambda data: (
        SKIPPED + in_members(data, lambda part: zstd(part) + SKIPPED, 1 << 20)
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_compression_is_told_by_its_beginning(place: Place, form: str) -> None:
    """And gives the same bytes; what was read of the blob is all of it."""
    layer = place.layer(CONTENT, FORMS[form])
    stream = Stream(layer, Limits())
    assert b"".join(stream) == CONTENT
    stream.verify()
    assert stream.position == stream.size == os.path.getsize(layer.path)
    stream.close()


@pytest.mark.parametrize("form", ["gzip", "gzip members", "zstd", "zstd frames"])
@pytest.mark.parametrize("part", [0.001, 0.5, 0.999999])
def test_a_blob_that_is_cut_off_is_refused(place: Place, form: str, part: float) -> None:
    """Wherever that is."""
    whole = FORMS[form](CONTENT)
    layer = place.layer(CONTENT, lambda _: whole[: int(len(whole) * part)])
    assert place.refuse(layer)


@pytest.mark.parametrize("form", ["gzip", "zstd"])
def test_a_blob_with_a_wrong_byte_is_refused(place: Place, form: str) -> None:
    """In its data or in its own checksum."""
    whole = FORMS[form](CONTENT)
    for number, at in enumerate((len(whole) // 2, len(whole) - 6)):
        changed = bytearray(whole)
        changed[at] ^= 0x10
        layer = place.layer(CONTENT, lambda _: bytes(changed))  # noqa: B023 - called at once
        assert place.refuse(layer, root=place.root.parent / f"root{number}")


@pytest.mark.parametrize("form", ["zstd frames", "gzip members"])
def test_a_member_whose_output_fills_a_step_exactly_loses_nothing(place: Place, form: str) -> None:
    """The last bytes of one and the first of the next may be in the same input."""
    content = archive(file(b"a", bytes((8 << 20) - 1536)))
    assert len(content) == 8 << 20
    compress = FORMS[form.split()[0]]
    layer = place.layer(content * 3, lambda data: in_members(data, compress, 8 << 20))
    stream = Stream(layer, Limits())
    assert b"".join(stream) == content * 3
    stream.close()


@pytest.mark.parametrize("form", ["gzip", "zstd"])
def test_rubbish_after_the_compressed_data_is_refused(place: Place, form: str) -> None:
    """Since it is no part of what was hashed."""
    layer = place.layer(CONTENT, lambda data: FORMS[form](data) + b"rubbish")
    assert "cannot be inflated" in place.refuse(layer)


def test_other_compressions_are_refused_as_no_archive(place: Place) -> None:
    """The specification has none."""
    compressions: list[Callable[[bytes], bytes]] = [bz2.compress, lzma.compress, zlib.compress]
    for number, compress in enumerate(compressions):
        layer = place.layer(CONTENT, compress)
        assert "not a tar archive" in place.refuse(layer, root=place.root.parent / f"root{number}")


@pytest.mark.parametrize("compress", [gz, zstd])
def test_a_bomb_is_stopped_in_time(place: Place, compress: Callable[[bytes], bytes]) -> None:
    """Long before it has filled the disk, whether it says so itself or not."""
    start, zeros = compress(archive(file(b"a"))), compress(bytes(8 << 20)) * 40
    layer = place.layer(b"", lambda _: start + zeros)
    limits = Limits(bytes=100 << 20)
    assert "more than 104857600 bytes" in place.refuse(layer, limits=limits, root=place.root.parent / "root1")


def test_a_ratio_no_honest_layer_has_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond an amount that does no harm."""
    content = archive(file(b"zeros", bytes(32 << 20)))
    place.unpack(place.layer(content, gz), root=place.root.parent / "root1")
    monkeypatch.setattr(layers, "_SLACK", 16 << 20)
    message = place.refuse(place.layer(content, gz), limits=Limits(ratio=100))
    assert "a bomb: more than 100 times" in message


def test_a_window_that_takes_gigabytes_is_refused(place: Place) -> None:
    """Of zstd: a frame says how much memory it wants."""
    module = zstandard()
    options = {
        module.CompressionParameter.window_log: 31,
        module.CompressionParameter.enable_long_distance_matching: 1,
    }
    try:
        coder = module.ZstdCompressor(options=options)
    except (ValueError, module.ZstdError):
        pytest.skip("this zstd makes no such window")
    frame = coder.compress(CONTENT) + coder.flush()
    assert "cannot be inflated" in place.refuse(place.layer(CONTENT, lambda _: frame))


def test_without_zstd_it_says_what_to_install(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has it since 3.14 only."""

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(CoopError, match="compressed with zstd") as caught:
        place.unpack(place.layer(CONTENT, lambda _: b"\x28\xb5\x2f\xfd" + bytes(100)))
    assert "pip install" in str(caught.value.remedy)


def test_a_missing_blob_is_an_error_of_its_layer(place: Place) -> None:
    """Not a traceback from a thread."""
    assert "No such file" in place.refuse(Layer(str(place.base / "missing"), digest(b"")))


def test_what_goes_wrong_while_waiting_for_a_blob_ends_the_unpacking(place: Place) -> None:
    """With the download's own message."""

    def wait(layer: Layer) -> None:
        raise CoopError("the registry is gone", "try again")

    with pytest.raises(CoopError, match="the registry is gone"):
        unpack([place.layer(CONTENT)], str(place.root), SINGLE, None, None, wait)


def test_a_blob_that_is_waited_for_does_not_hold_up_a_failure(place: Place) -> None:
    """The first layer is bad: nobody waits for the second."""
    released = threading.Event()
    first, second = place.layer(b"no archive" * 100), place.layer(CONTENT)

    def wait(layer: Layer) -> None:
        if layer is second:
            released.wait(30)

    before = set(threading.enumerate())
    started = time.monotonic()
    with pytest.raises(CoopError, match="not a tar archive"):
        unpack([first, second], str(place.root), SINGLE, None, None, wait)
    assert time.monotonic() - started < 20
    released.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(20)


def test_sha512_is_a_digest_too(place: Place) -> None:
    """The specification has both."""
    layer = place.layer(CONTENT, gz).replace(diff_id="sha512:" + hashlib.sha512(CONTENT).hexdigest())
    place.unpack(layer)
    assert (place / "end").read_text() == "e"
