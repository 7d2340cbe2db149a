"""From a plan's image to the layers of a root file system: resolved, fetched, unpacked, and found again."""

from __future__ import annotations

import os
from contextlib import closing

from coopfile.errors import CoopError
from coopfile.record import Record
from coopfile.rootfs import platforms
from coopfile.rootfs.store import Store, key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from coopfile.language.items import ImageReference
    from coopfile.plan.model import Plan
    from coopfile.rootfs.store import Stage

IMAGE = "image"
_OWNERS = "single"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Base(Record):
    """A built root file system: real paths of its layers, the highest first, and the image's environment."""

    layers: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]


def stage_key(image: ImageReference) -> str:
    """Return the key of an image's stage on this machine; the image has a digest."""
    platform = platforms.of_machine(os.uname().machine)
    return key(IMAGE, None, {"digest": image.digest, "platform": str(platform), "owners": _OWNERS})


def find(plan: Plan, store: Store) -> Base:
    """Return the root file system of a plan; raises CoopError, naming the command, if it is not built."""
    image = plan.base.image
    assert image is not None
    if image.digest is None:
        raise CoopError(f"base.image: {image} is not locked yet", "coop init locks and fetches it")
    stage = store.stage(stage_key(image))
    if stage is None:
        raise CoopError(f"base.image: {image} is not here yet", "coop init fetches it")
    return _base(stage)


def resolve(image: ImageReference, environment: Mapping[str, str]) -> str:
    """Ask the registry which digest an image's name stands for now."""
    from coopfile.rootfs.registry import RegistrySource

    with closing(RegistrySource(image, environment)) as source:
        return source.image(platforms.of_machine(os.uname().machine)).digest


def build(
    plan: Plan, store: Store, environment: Mapping[str, str], tell: Callable[[str], None]
) -> tuple[Base, tuple[str, ...]]:
    """Return a plan's root file system, fetched if need be, and the keys of its stages.

    ``environment`` is that of ``call.own_environment``, for credentials.
    """
    image = plan.base.image
    assert image is not None and image.digest is not None

    def make(directory: str) -> Mapping[str, Any]:
        return _fetch(image, directory, environment, tell)

    stage = store.build(stage_key(image), IMAGE, None, make, tell)
    return _base(stage), (stage.key,)


def _base(stage: Stage) -> Base:
    found = tuple((str(name), str(value)) for name, value in stage.about.get("environment", ()))
    return Base((os.path.realpath(stage.fs),), found)


def _fetch(
    image: ImageReference, directory: str, environment: Mapping[str, str], tell: Callable[[str], None]
) -> Mapping[str, Any]:
    """Download an image's layers beside a directory and unpack them into it."""
    import shutil
    import tempfile

    from coopfile.rootfs.download import fetch_all
    from coopfile.rootfs.layers import Layer
    from coopfile.rootfs.owners import SINGLE
    from coopfile.rootfs.registry import RegistrySource
    from coopfile.rootfs.unpack import unpack

    with closing(RegistrySource(image, environment)) as source:
        found = source.image(platforms.of_machine(os.uname().machine))
        size = sum(layer.size for layer in found.layers)
        tell(f"fetching {image}: {len(found.layers)} layers, {size / 1e6:.1f} MB")
        blobs = tempfile.mkdtemp(prefix="blobs-", dir=os.path.dirname(directory))
        try:
            paths = fetch_all(source, found.layers, blobs)
            tell("unpacking")
            layers = [
                Layer(paths[layer.digest], diff_id)
                for layer, diff_id in zip(found.layers, found.config.diff_ids, strict=True)
            ]
            unpacked = unpack(layers, directory, SINGLE)
        finally:
            shutil.rmtree(blobs, ignore_errors=True)
    return {
        "image": str(image),
        "manifest": found.manifest.digest,
        "environment": [list(item) for item in found.config.environment],
        "user": found.config.user,
        "directory": found.config.directory,
        "entries": unpacked.entries,
    }
