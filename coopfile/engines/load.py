"""Giving an engine an image that is in a file.

The engine is not sent to the file itself: a sandboxed command may be changing it. coop
reads it, verifies every part by the digest that the lock has, and hands on an archive of
the kind that ``docker save`` writes, which every engine loads, whatever the file's kind.
"""

from __future__ import annotations

import json
import os
import tarfile
import tempfile
from contextlib import closing

from coopfile.engines.call import Call, EngineError, shown
from coopfile.engines.timeouts import PULL
from coopfile.errors import CoopError
from coopfile.rootfs import documents, platforms
from coopfile.rootfs.download import Sink
from coopfile.rootfs.fetch import open_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopfile.language.items import LocalImage
    from coopfile.render.facts import Engine
    from coopfile.rootfs.local import LocalSource

_BLOCK = tarfile.BLOCKSIZE


def load(engine: Engine, image: LocalImage, name: str, environment: Mapping[str, str], project: str) -> None:
    """Have an engine hold an image, for this machine's platform, under a name. Raises CoopError.

    ``environment`` and ``project`` are as ``fetch.open_source`` takes them.
    """
    argv = (engine.program, "load")
    try:
        with tempfile.TemporaryFile() as file:
            with closing(open_file(image, environment, project)) as source:
                archive(source, name, file.fileno())
            file.seek(0)
            answer = Call(argv, environment, file.fileno()).answer(PULL)
    except OSError as error:
        place = tempfile.gettempdir()
        raise CoopError(
            f"{image} cannot be copied: {error.strerror}: {place}", "set TMPDIR to a directory with more room"
        ) from None
    if answer.status != 0:
        raise EngineError(f"{image} cannot be loaded: {shown(answer.said)}", None, argv, answer.said)


def archive(source: LocalSource, name: str, file: int) -> None:
    """Write an image to an open file as an archive that gives it a name; what is written is verified."""
    image = source.image(platforms.of_machine(os.uname().machine))
    config = source.config(image)
    called = f"{documents.digest_of('sha256', config).partition(':')[2]}.json"
    layers = {layer.digest: f"{layer.digest.partition(':')[2]}.tar" for layer in image.layers}
    entry = {"Config": called, "RepoTags": [name], "Layers": [layers[layer.digest] for layer in image.layers]}
    _member(file, "manifest.json", json.dumps([entry]).encode())
    _member(file, called, config)
    for layer in {layer.digest: layer for layer in image.layers}.values():
        _begin(file, layers[layer.digest], layer.size)
        sink = Sink(image.reference, layer, file, None)
        source.pour(layer, sink)
        sink.finish()
        _end(file, layer.size)
    os.write(file, bytes(2 * _BLOCK))


def _member(file: int, name: str, content: bytes) -> None:
    _begin(file, name, len(content))
    with open(file, "wb", closefd=False) as stream:
        stream.write(content)
    _end(file, len(content))


def _begin(file: int, name: str, size: int) -> None:
    header = tarfile.TarInfo(name)
    header.size = size
    os.write(file, header.tobuf(tarfile.GNU_FORMAT))


def _end(file: int, size: int) -> None:
    os.write(file, bytes(-size % _BLOCK))
