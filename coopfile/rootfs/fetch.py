"""An image's stage: from a registry or a file of the host into a directory."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager

from coopfile.errors import CoopError
from coopfile.find import real_home
from coopfile.language.items import LocalImage
from coopfile.plan.launch import expand
from coopfile.rootfs import platforms
from coopfile.rootfs.model import source_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from coopfile.language.items import ImageReference
    from coopfile.rootfs.local import LocalSource
    from coopfile.rootfs.model import Source
    from coopfile.rootfs.progress import Progress


@contextmanager
def threads() -> Iterator[None]:
    """Say in words that a thread cannot be started, of which Python makes a RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        remedy = "this user, or the machine, has too many processes, or too little memory: end some"
        raise CoopError("no more threads can be started", remedy) from None


def open_source(image: ImageReference | LocalImage, environment: Mapping[str, str], project: str) -> Source:
    """Return where an image comes from; ``project`` is the real path to which others are relative."""
    if isinstance(image, LocalImage):
        return open_file(image, environment, project)
    from coopfile.rootfs.configured import insecure
    from coopfile.rootfs.registry import RegistrySource

    return RegistrySource(image, environment, insecure(environment))


def open_file(image: LocalImage, environment: Mapping[str, str], project: str) -> LocalSource:
    """Return the file that an image is in; ``environment`` says where the home is."""
    from coopfile.rootfs.local import open_local

    home = real_home(environment)
    path = os.path.join(project, expand(image.path, home))
    return open_local(image.transport, path, image.name or "", image.digest)


def resolve(image: ImageReference | LocalImage, environment: Mapping[str, str], project: str) -> str:
    """Ask which digest an image's name stands for now."""
    with threads(), closing(open_source(image, environment, project)) as source:
        return source.image(platforms.of_machine(os.uname().machine)).digest


def fetch(
    image: ImageReference | LocalImage,
    directory: str,
    environment: Mapping[str, str],
    progress: Progress,
    project: str,
) -> Mapping[str, Any]:
    """Download an image's layers and unpack them into a directory; return what its stage is about."""
    import shutil
    import tempfile

    from coopfile.rootfs.disk import syncing
    from coopfile.rootfs.owners import SINGLE
    from coopfile.rootfs.transfer import transfer

    with closing(open_source(image, environment, project)) as source:
        found = source.image(platforms.of_machine(os.uname().machine))
        size = sum(layer.size for layer in found.layers)
        layers = f"{len(found.layers)} layer{'s' * (len(found.layers) != 1)}"
        progress.note(f"fetching {image}: {layers}, {size / 1e6:.1f} MB")
        blobs = tempfile.mkdtemp(prefix="blobs-", dir=os.path.dirname(directory))
        try:
            with syncing(blobs):
                unpacked = transfer(source, found, blobs, directory, SINGLE, progress)
        finally:
            shutil.rmtree(blobs, ignore_errors=True)
    return {
        "image": str(image),
        "source": source_name(image),
        "manifest": found.manifest.digest,
        "environment": [list(item) for item in found.config.environment],
        "user": found.config.user,
        "directory": found.config.directory,
        "entries": unpacked.entries,
    }
