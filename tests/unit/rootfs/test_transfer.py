"""Fetching and unpacking at once: in order, ended by the first error, and told as it goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coopfile.errors import CoopError
from coopfile.rootfs.model import Descriptor, Image, ImageConfig
from coopfile.rootfs.owners import SINGLE
from coopfile.rootfs.progress import Progress
from coopfile.rootfs.transfer import transfer
from tests.unit.rootfs.images import AMD64, LAYER, sha256, tar

LONG = 20.0  # seconds, after which a test has failed


class Held:
    """A source of blobs, each of which comes when it is let go."""

    def __init__(self, *archives: bytes, damaged: int = -1) -> None:
        self.gates = [threading.Event() for _ in archives]
        self.closed = threading.Event()
        self.ended: list[int] = []
        self._archives = archives
        layers = tuple(Descriptor(LAYER, sha256(archive), len(archive)) for archive in archives)
        diff_ids = tuple(
            sha256(b"other" if index == damaged else archive) for index, archive in enumerate(archives)
        )
        config = ImageConfig(AMD64, (), "", "", (), (), diff_ids)
        self.made = Image("held", layers[0].digest, layers[0], config, layers)

    def image(self, _: object) -> Image:
        """Return the image."""
        return self.made

    def fetch(self, blob: Descriptor, path: str, tell: Callable[[int], None] | None = None) -> None:
        """Wait for the blob's gate, and write it in two pieces."""
        index = self.made.layers.index(blob)
        try:
            end = time.monotonic() + LONG
            while not self.gates[index].wait(0.01):
                if self.closed.is_set() or time.monotonic() > end:
                    raise CoopError("the download was stopped")
            body = self._archives[index]
            Path(path).write_bytes(body)
            for count in (100, len(body) - 100):
                if tell is not None:
                    tell(count)
        finally:
            self.ended.append(index)

    def close(self) -> None:
        """End every transfer."""
        self.closed.set()


class Heard(Progress):
    """Keeps what it hears, and lets a layer go when the one before it has been unpacked."""

    def __init__(self, source: Held, root: Path) -> None:
        self.downloads: list[tuple[int, int, int, int]] = []
        self.unpacks: list[tuple[int, int, int, int]] = []
        self._source = source
        self._root = root

    def downloading(self, layer: int, layers: int, done: int, size: int) -> None:
        """Keep it."""
        self.downloads.append((layer, layers, done, size))

    def unpacking(self, layer: int, layers: int, done: int, size: int) -> None:
        """Keep it; let the next layer go."""
        self.unpacks.append((layer, layers, done, size))
        if (self._root / f"file{layer}").exists() and layer < layers:
            self._source.gates[layer].set()


def moved(source: Held, path: Path) -> Heard:
    """Transfer an image whose first layer may come at once; return what was heard."""
    (path / "blobs").mkdir()
    heard = Heard(source, path / "root")
    source.gates[0].set()
    transfer(source, source.made, str(path / "blobs"), str(path / "root"), SINGLE, heard)
    return heard


def test_a_layer_is_unpacked_while_the_next_is_on_its_way(tmp_path: Path) -> None:
    """Each blob here comes only when the layer below it is in the directory."""
    heard = moved(Held(*(tar(**{f"file{number}": b"x" * 2000}) for number in (1, 2, 3))), tmp_path)
    assert sorted(path.name for path in (tmp_path / "root").iterdir()) == ["file1", "file2", "file3"]
    size = heard.downloads[0][3]
    assert heard.downloads == [(n, 3, done, size) for n in (1, 2, 3) for done in (100, size)]
    assert [one for one in dict.fromkeys(heard.unpacks) if one[2] == one[3]] == [
        (n, 3, size, size) for n in (1, 2, 3)
    ]


def test_a_blob_that_is_two_layers_is_fetched_once(tmp_path: Path) -> None:
    """The same layer twice is one download and two unpackings."""
    source = Held(*[tar(file1=b"x" * 2000)] * 2)
    heard = moved(source, tmp_path)
    assert source.ended == [0] and {one[0] for one in heard.downloads} == {1}
    assert {one[0] for one in heard.unpacks} == {1, 2}


def test_a_damaged_layer_ends_the_downloads(tmp_path: Path) -> None:
    """What is wrong with a layer is said at once, though others never come."""
    source = Held(tar(file1=b"1"), tar(file2=b"2"), tar(file3=b"3"), damaged=0)
    (tmp_path / "blobs").mkdir()
    source.gates[0].set()
    with pytest.raises(CoopError, match=r"layer 1 of the image .* has the digest"):
        transfer(source, source.made, str(tmp_path / "blobs"), str(tmp_path / "root"), SINGLE, Progress())
    assert source.closed.is_set() and sorted(source.ended) == [0, 1, 2]


def test_a_failed_download_ends_the_unpacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download's error is the one that is raised, and no thread stays behind it."""
    source = Held(tar(file1=b"1"), tar(file2=b"2"))
    fetch = source.fetch

    def failing(blob: Descriptor, path: str, tell: Callable[[int], None] | None = None) -> None:
        if blob == source.made.layers[1]:
            raise CoopError("the registry has burnt down")
        fetch(blob, path, tell)

    monkeypatch.setattr(source, "fetch", failing)
    before = threading.enumerate()
    with pytest.raises(CoopError, match="burnt down"):
        moved(source, tmp_path)
    assert source.closed.is_set()
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(LONG)
    assert not any(thread.is_alive() for thread in left)


def test_an_interrupt_ends_the_downloads(tmp_path: Path) -> None:
    """An interrupt while layers are unpacked closes the source and is passed on."""

    class Interrupting(Progress):
        def unpacking(self, layer: int, layers: int, done: int, size: int) -> None:
            raise KeyboardInterrupt

    source = Held(tar(file1=b"1"), tar(file2=b"2"))
    (tmp_path / "blobs").mkdir()
    source.gates[0].set()
    with pytest.raises(KeyboardInterrupt):
        transfer(source, source.made, str(tmp_path / "blobs"), str(tmp_path / "root"), SINGLE, Interrupting())
    assert source.closed.is_set() and sorted(source.ended) == [0, 1]
