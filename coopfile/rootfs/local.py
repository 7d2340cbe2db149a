"""Images on disk: OCI layouts, and what ``docker save`` and ``podman save`` write.

Where a name has to be chosen, ``oci:PATH:TAG`` means the annotation that layouts keep
tags in, and ``docker-archive:PATH:NAME`` the whole name that was saved.
"""

from __future__ import annotations

import posixpath
from contextlib import closing

from coopfile.errors import CoopError
from coopfile.rootfs import documents, platforms
from coopfile.rootfs.download import into
from coopfile.rootfs.imagefiles import ArchiveFiles, DirectoryFiles
from coopfile.rootfs.model import Descriptor, Image
from coopfile.rootfs.resolve import read_checked, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from coopfile.rootfs.download import Sink
    from coopfile.rootfs.imagefiles import Files
    from coopfile.rootfs.model import Platform

    LocalSource: TypeAlias = "LayoutSource | SavedSource"

_PIECE = 1 << 20
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_BLOB = "blobs/{}/{}"


def open_local(transport: str, path: str, name: str = "", digest: str | None = None) -> LocalSource:
    """Return the source of ``oci:``, ``oci-archive:`` or ``docker-archive:`` for an absolute path.

    ``name`` is a layout's tag or an archive's saved name, empty for the only one there
    is. No link on the path is followed, for a sandbox may have made it; the image has to
    be that of ``digest`` if it is given. Raises CoopError when there is nothing of that kind.
    """
    what = f"{transport}:{path}" + (f":{name}" if name else "")
    if transport == "oci":
        return LayoutSource(what, DirectoryFiles(path), name, digest)
    archive = ArchiveFiles(path)
    # What docker saves since 25 is both, and its manifest.json knows whole names.
    if transport == "docker-archive" and archive.has("manifest.json"):
        return SavedSource(what, archive, name, digest)
    return LayoutSource(what, archive, name, digest)


class LayoutSource:
    """An image of an OCI layout, in a directory or an archive: a ``Source``."""

    def __init__(self, what: str, files: Files, name: str, digest: str | None = None) -> None:
        self._what = what
        self._files = files
        self._name = name
        self._digest = digest
        self._closed = False

    def image(self, platform: Platform) -> Image:
        """Resolve the image for a platform. Raises CoopError.

        A digest counts before the name, as with a registry: the name may mean another
        image by now.
        """
        self._check()
        body = self._files.read("index.json", documents.MOST_DOCUMENT)
        if self._digest not in (None, documents.digest_of("sha256", body)):
            return self._pinned(self._digest, platform)
        _, content = documents.kind(self._what, body, documents.OCI_INDEX)
        entries = documents.read_index(self._what, content)
        named = [entry for entry in entries if self._name in ("", entry.name, _tag(entry.name))]
        if not named:
            raise self._unknown([entry.name for entry in entries if entry.name])
        names = {entry.name for entry in named}
        if len(names) > 1:
            raise self._unknown([entry.name for entry in entries if entry.name])
        if len(named) == 1:
            top = named[0].descriptor
            return resolve(self._what, self._what, top, self._read(top), platform, self._read)
        # One name for images of several platforms: the layout's own index is theirs.
        chosen = platforms.choose(self._what, named, platform)
        found = resolve(
            self._what,
            self._what,
            chosen.descriptor,
            self._read(chosen.descriptor),
            platform,
            self._read,
            chosen.platform,
        )
        return found.replace(digest=documents.digest_of("sha256", body))

    def config(self, image: Image) -> bytes:
        """Return an image's config as it is. Raises CoopError."""
        _, content = documents.kind(self._what, self._read(image.manifest), image.manifest.media_type)
        return read_checked(self._what, documents.read_manifest(self._what, content).config, self._read)

    def fetch(self, blob: Descriptor, path: str, tell: Callable[[int], None] | None = None) -> None:
        """Copy a blob to a path that does not exist yet, verified. Raises CoopError."""
        with into(self._what, blob, path, tell) as sink:
            self.pour(blob, sink)

    def pour(self, blob: Descriptor, sink: Sink) -> None:
        """Write a blob to a sink, which verifies it. Raises CoopError."""
        name = _BLOB.format(*blob.digest.split(":"))
        _pour(self._what, self._files, name, blob, sink, lambda: self._closed)

    def close(self) -> None:
        """Close the files, and end what is being copied from them. The source is of no more use."""
        self._closed = True
        self._files.close()

    def _pinned(self, digest: str, platform: Platform) -> Image:
        """Resolve what a digest names."""
        try:
            body = self._files.read(_BLOB.format(*digest.split(":")), documents.MOST_DOCUMENT)
        except CoopError:
            raise changed(self._what, digest) from None
        top = Descriptor("", digest, len(body))
        documents.check(self._what, body, top)
        return resolve(self._what, self._what, top, body, platform, self._read)

    def _check(self) -> None:
        marker = documents.read_object(self._what, self._files.read("oci-layout", documents.MOST_DOCUMENT))
        version = marker.get("imageLayoutVersion")
        if not isinstance(version, str) or not version.startswith("1."):
            raise documents.bad(self._what, "its oci-layout is not of version 1")

    def _read(self, descriptor: Descriptor) -> bytes:
        algorithm, _, digits = descriptor.digest.partition(":")
        body = self._files.read(_BLOB.format(algorithm, digits), documents.MOST_DOCUMENT)
        return documents.check(self._what, body, descriptor)

    def _unknown(self, names: list[str]) -> CoopError:
        return unknown(self._what, self._name, names)


class SavedSource:
    """An image of an archive that ``docker save`` or ``podman save`` wrote: a ``Source``.

    Such an archive has no manifest. The config's digest, which docker calls the
    image's id, stands for it; it names the layers by what they unpack to.
    """

    def __init__(self, what: str, files: ArchiveFiles, name: str, digest: str | None = None) -> None:
        self._what = what
        self._files = files
        self._name = name
        self._digest = digest
        self._closed = False
        self._places: dict[str, str] = {}

    def image(self, platform: Platform) -> Image:
        """Resolve the image for a platform. Raises CoopError."""
        saved = self._saved()
        place = _name(self._what, saved.get("Config"))
        body = self._files.read(place, documents.MOST_DOCUMENT)
        digest = documents.digest_of("sha256", body)
        if self._digest not in (None, digest):
            raise changed(self._what, self._digest)
        raw = saved.get("Layers")
        layers = [_name(self._what, one) for one in raw] if isinstance(raw, list) else []
        config = documents.read_config(self._what, body, len(layers))
        if config.platform.architecture and platforms.fitness(config.platform, platform) is None:
            raise platforms.missing(self._what, platform, [str(config.platform)])
        found = [self._layer(*pair) for pair in zip(layers, config.diff_ids, strict=True)]
        self._places[digest] = place
        manifest = Descriptor(documents.DOCKER_CONFIG, digest, len(body))
        return Image(self._what, digest, manifest, config, tuple(found))

    def config(self, image: Image) -> bytes:
        """Return an image's config as it is. Raises CoopError."""
        place = self._places[image.manifest.digest]
        return documents.check(self._what, self._files.read(place, documents.MOST_DOCUMENT), image.manifest)

    def fetch(self, blob: Descriptor, path: str, tell: Callable[[int], None] | None = None) -> None:
        """Copy a layer that ``image`` named to a path that does not exist yet, verified. Raises CoopError."""
        with into(self._what, blob, path, tell) as sink:
            self.pour(blob, sink)

    def pour(self, blob: Descriptor, sink: Sink) -> None:
        """Write a layer that ``image`` named to a sink, which verifies it. Raises CoopError."""
        place = self._places.get(blob.digest)
        if place is None:
            raise CoopError(f"{self._what} holds no {documents.short(blob.digest)}", None)
        _pour(self._what, self._files, place, blob, sink, lambda: self._closed)

    def close(self) -> None:
        """Close the files, and end what is being copied from them. The source is of no more use."""
        self._closed = True
        self._files.close()

    def _saved(self) -> dict[str, Any]:
        body = self._files.read("manifest.json", documents.MOST_DOCUMENT)
        saved = documents.read_json(self._what, body)
        if not isinstance(saved, list) or not all(isinstance(one, dict) for one in saved):
            raise documents.bad(self._what, "its manifest.json is not a list of images")
        names: list[str] = []
        found = []
        for one in saved:
            raw = one.get("RepoTags")
            tags = [tag for tag in raw if isinstance(tag, str)] if isinstance(raw, list) else []
            names += tags
            if not self._name or any(_same(self._name, tag) for tag in tags):
                found.append(one)
        if len(found) != 1:
            raise unknown(self._what, self._name, names)
        return dict(found[0])

    def _layer(self, name: str, diff_id: str) -> Descriptor:
        """Return the descriptor of a layer; a plain one needs no reading, for its digest is the diff_id."""
        with closing(self._files.open(name)) as file:
            magic = file.read(4)
            compression = next((how for start, how in _MAGIC.items() if magic.startswith(start)), "")
            digest = f"sha256:{file.digest('sha256')}" if compression else diff_id
            size = file.size
        self._places[digest] = name
        suffix = f"+{compression}" if compression else ""
        return Descriptor(f"application/vnd.oci.image.layer.v1.tar{suffix}", digest, size)


def _pour(
    what: str, files: Files, name: str, blob: Descriptor, sink: Sink, closed: Callable[[], bool]
) -> None:
    """Write a blob from among some files to a sink, until the source is closed. Raises CoopError."""
    with closing(files.open(name)) as file:
        if file.size != blob.size:
            raise documents.wrong_size(what, blob, file.size)
        while piece := file.read(_PIECE):
            if closed():  # whoever is interrupted waits for this, and a layer may have gigabytes
                raise CoopError(f"{what}: the copy was stopped", None)
            sink.write(piece)


def changed(what: str, digest: str | None) -> CoopError:
    """Return the error for an image that is not there any more."""
    return CoopError(
        f"{what} does not hold {documents.short(str(digest))}, to which it is locked: it was changed",
        "if you changed it yourself, coop lock --upgrade takes what is there now",
    )


def unknown(what: str, name: str, names: list[str]) -> CoopError:
    """Return the error for a name that is not there, or that is missing where there are several."""
    shown = ", ".join(documents.printable(one, 80) for one in dict.fromkeys(names[:20]))
    if not name and not names:
        return documents.bad(what, "it does not hold one image")
    there = f"there is {shown}" if shown else "no image there has a name"
    if name:
        return CoopError(f"{what}: there is no image of that name", there)
    return CoopError(f"{what} holds several images", f"say which, after another colon: {shown}")


def _same(wanted: str, saved: str) -> bool:
    """Tell whether a name means a saved one, which has its registry left out if that is docker's."""
    wanted = wanted if ":" in posixpath.basename(wanted) else f"{wanted}:latest"
    return _short(wanted) == _short(saved)


def _tag(name: str) -> str:
    """Return the tag of a layout's name, which podman writes in full."""
    return name.rpartition(":")[2]


def _short(name: str) -> str:
    for prefix in ("docker.io/library/", "docker.io/", "library/"):
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


def _name(what: str, raw: object) -> str:
    if not isinstance(raw, str) or not raw or "\0" in raw:
        raise documents.bad(what, "its manifest.json names no file where it should")
    return raw
