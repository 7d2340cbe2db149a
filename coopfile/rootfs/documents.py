"""The JSON documents of an image, checked: indexes, manifests and configs of OCI's and Docker's kinds.

Everything here is pure. What a document says is untrusted even when its digest is
right: whoever pushed it wrote it.
"""

from __future__ import annotations

import json
import posixpath
import re

from coopfile.errors import CoopError
from coopfile.record import Record
from coopfile.rootfs.model import Descriptor, ImageConfig, Platform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
INDEXES = (OCI_INDEX, DOCKER_LIST)
MANIFESTS = (OCI_MANIFEST, DOCKER_MANIFEST)
ACCEPTED = (*MANIFESTS, *INDEXES)
_CONFIGS = (OCI_CONFIG, DOCKER_CONFIG)
_OLD = re.compile(r"application/vnd\.docker\.distribution\.manifest\.v1\+(json|prettyjws)")

_OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
_DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar"
LAYERS = {
    _OCI_LAYER: "",
    f"{_OCI_LAYER}+gzip": "gzip",
    f"{_OCI_LAYER}+zstd": "zstd",
    _DOCKER_LAYER: "",
    f"{_DOCKER_LAYER}.gzip": "gzip",
    f"{_DOCKER_LAYER}.zstd": "zstd",
    f"{_DOCKER_LAYER}+zstd": "zstd",
}
"""How each media type of a layer is compressed."""

# What registries and other clients take at most, or well above what any image has.
MOST_DOCUMENT = 4 << 20  # bytes of an index, a manifest or a config
_MOST_ENTRIES = 1000  # of an index
_MOST_LAYERS = 500
_MOST_LAYER_BYTES = 64 << 30  # of all layers, compressed
_MOST_STRINGS = 10_000

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}", re.ASCII)
_OLD_REMEDY = "push it again with a current docker or podman, or use a newer image"


class Entry(Record):
    """One line of an index. ``platform`` is None where it names none; ``name`` is its tag, in layouts."""

    descriptor: Descriptor
    platform: Platform | None
    name: str = ""


class Manifest(Record):
    """What a manifest names: the config, and the layers from the lowest."""

    config: Descriptor
    layers: tuple[Descriptor, ...]


def is_digest(text: object) -> bool:
    """Tell whether this is a digest of a known algorithm, with all its digits."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def digest_of(algorithm: str, body: bytes) -> str:
    """Return the digest of some bytes; ``algorithm`` is sha256 or sha512."""
    import hashlib

    return f"{algorithm}:{hashlib.new(algorithm, body).hexdigest()}"


def check(what: str, body: bytes, descriptor: Descriptor) -> bytes:
    """Return some bytes if they are those of a descriptor; raises CoopError."""
    if len(body) != descriptor.size:
        raise wrong_size(what, descriptor, len(body))
    found = digest_of(descriptor.digest.partition(":")[0], body)
    if found != descriptor.digest:
        raise wrong_digest(what, descriptor.digest, found)
    return body


def wrong_size(what: str, descriptor: Descriptor, found: int) -> CoopError:
    """Return the error for a blob of another size than its descriptor says."""
    return CoopError(
        f"{what}: {short(descriptor.digest)} has {found} bytes where the image says {descriptor.size}",
        "the image is damaged where it comes from, or tampered with: nothing of it was used",
    )


def wrong_digest(what: str, wanted: str, found: str) -> CoopError:
    """Return the error for content that is not what its digest names."""
    return CoopError(
        f"{what}: the content of {short(wanted)} has the digest {short(found)}",
        "the image is damaged where it comes from, or tampered with: nothing of it was used",
    )


def short(digest: str) -> str:
    """Return a digest as people need it."""
    algorithm, _, digits = digest.partition(":")
    return f"{algorithm}:{digits[:12]}"


def kind(what: str, body: bytes, media_type: str) -> tuple[str, dict[str, Any]]:
    """Return the media type and the content of an index or a manifest.

    ``media_type`` is what came beside it, and empty if nothing did. The two have to
    agree, and the content has to be one thing only (CVE-2021-41190). Raises CoopError.
    """
    if _OLD.fullmatch(media_type):
        raise CoopError(f"{what} is in Docker's old format (schema 1)", _OLD_REMEDY)
    content = read_object(what, body)
    if content.get("schemaVersion") == 1:
        raise CoopError(f"{what} is in Docker's old format (schema 1)", _OLD_REMEDY)
    own = content.get("mediaType", "")
    indexed, layered = "manifests" in content, "layers" in content or "config" in content
    if not isinstance(own, str) or (indexed and layered) or not (indexed or layered):
        raise bad(what, "it is neither an index nor a manifest")
    known = media_type if media_type in ACCEPTED else ""
    if own and own not in ACCEPTED:
        raise bad(what, f"its media type is {printable(own)}")
    if own and known and own != known:
        raise bad(what, f"it says it is {own}, and came as {known}")
    found = own or known or (OCI_INDEX if indexed else OCI_MANIFEST)
    if (found in INDEXES) != indexed:
        raise bad(what, f"its content is not that of {found}")
    return found, content


def read_index(what: str, content: dict[str, Any]) -> tuple[Entry, ...]:
    """Return the images that an index names, without attestations and the like. Raises CoopError."""
    entries = content.get("manifests")
    if not isinstance(entries, list) or len(entries) > _MOST_ENTRIES:
        raise bad(what, f"an index has a list of at most {_MOST_ENTRIES} manifests")
    found = []
    for raw in entries:
        descriptor = read_descriptor(what, raw)
        notes = raw.get("annotations")
        notes = notes if isinstance(notes, dict) else {}
        platform = _platform(what, raw["platform"]) if raw.get("platform") is not None else None
        unknown = platform is not None and "unknown" in (platform.os, platform.architecture)
        image = descriptor.media_type in ACCEPTED or _OLD.fullmatch(descriptor.media_type)
        if image and not unknown and "vnd.docker.reference.type" not in notes:
            name = notes.get("org.opencontainers.image.ref.name", "")
            found.append(Entry(descriptor, platform, name if isinstance(name, str) else ""))
    return tuple(found)


def read_manifest(what: str, content: dict[str, Any]) -> Manifest:
    """Return what a manifest names; raises CoopError unless it is an image that can be had whole."""
    config = read_descriptor(what, content.get("config"))
    if config.media_type not in _CONFIGS:
        kept = content.get("artifactType") or config.media_type
        raise CoopError(
            f"{what} is not an image: it holds {printable(str(kept))}", "name an image, such as debian"
        )
    layers = content.get("layers")
    if not isinstance(layers, list) or len(layers) > _MOST_LAYERS:
        raise bad(what, f"it has more than {_MOST_LAYERS} layers, or no list of them")
    found = tuple(_layer(what, raw) for raw in layers)
    if sum(layer.size for layer in found) > _MOST_LAYER_BYTES:
        raise bad(what, f"its layers have more than {_MOST_LAYER_BYTES >> 30} GiB")
    return Manifest(config, found)


def _layer(what: str, raw: object) -> Descriptor:
    layer = read_descriptor(what, raw)
    assert isinstance(raw, dict)
    if "foreign" in layer.media_type or "nondistributable" in layer.media_type or raw.get("urls"):
        raise CoopError(
            f"{what} has a layer that is not in the registry but at other addresses ({layer.media_type})",
            "use an image whose layers are all in its registry",
        )
    if layer.media_type not in LAYERS:
        reason = "encrypted" if layer.media_type.endswith("encrypted") else "of an unknown kind"
        raise CoopError(
            f"{what} has a layer that is {reason} ({layer.media_type})",
            "use an image whose layers are tar archives: plain, gzip or zstd",
        )
    return layer


def read_descriptor(what: str, raw: object) -> Descriptor:
    """Return a descriptor; raises CoopError."""
    if not isinstance(raw, dict):
        raise bad(what, "a descriptor is missing")
    media_type, digest, size = raw.get("mediaType", ""), raw.get("digest"), raw.get("size")
    if not isinstance(digest, str) or not is_digest(digest):
        raise bad(what, f"{printable(str(digest))} is not a digest")
    if type(size) is not int or size < 0 or size > _MOST_LAYER_BYTES:
        raise bad(what, f"{short(digest)} has no possible size")
    if not isinstance(media_type, str) or printable(media_type) != media_type:
        raise bad(what, f"{short(digest)} has no media type")
    return Descriptor(media_type, digest, size)


def _platform(what: str, raw: object) -> Platform:
    if not isinstance(raw, dict):
        raise bad(what, "a platform is not an object")
    parts = [raw.get(key) or "" for key in ("os", "architecture", "variant")]
    if not all(isinstance(part, str) and printable(part, 40) == part for part in parts):
        raise bad(what, "a platform is not made of names")
    return Platform(*parts)


def read_config(what: str, body: bytes, layers: int | None) -> ImageConfig:
    """Return what an image's config says that coop honours; raises CoopError.

    ``layers`` is how many there are, for a manifest's config.
    """
    content = read_object(what, body)
    inner = content.get("config")
    inner = {} if inner is None else inner
    rootfs = content.get("rootfs")
    if not isinstance(inner, dict) or not isinstance(rootfs, dict):
        raise bad(what, "its config has not the form of one")
    diff_ids = _strings(what, "rootfs.diff_ids", rootfs.get("diff_ids"))
    if not all(is_digest(one) for one in diff_ids):
        raise bad(what, "rootfs.diff_ids are not digests")
    if layers is not None and len(diff_ids) != layers:
        raise bad(what, f"its config has {len(diff_ids)} layers, its manifest {layers}")
    return ImageConfig(
        platform=_platform(what, content),
        environment=_environment(_strings(what, "Env", inner.get("Env"))),
        user=_string(what, "User", inner.get("User"), 256),
        directory=_directory(_string(what, "WorkingDir", inner.get("WorkingDir"), 4095)),
        entrypoint=_strings(what, "Entrypoint", inner.get("Entrypoint")),
        command=_strings(what, "Cmd", inner.get("Cmd")),
        diff_ids=diff_ids,
    )


def _environment(lines: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the variables; the last of a name counts, and a name without a value sets nothing."""
    found = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if name and equals:
            found[name] = value
    return tuple(found.items())


def _directory(path: str) -> str:
    """Return a working directory as the absolute path that engines make of it."""
    if not path:
        return ""
    return "/" + posixpath.normpath("/" + path).lstrip("/")


def _strings(what: str, key: str, raw: object) -> tuple[str, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list) or len(raw) > _MOST_STRINGS:
        raise bad(what, f"{key} of its config is not a list of at most {_MOST_STRINGS} strings")
    return tuple(_string(what, key, one, MOST_DOCUMENT) for one in raw)


def _string(what: str, key: str, raw: object, longest: int) -> str:
    if raw is None:
        return ""
    if not isinstance(raw, str) or len(raw) > longest or "\0" in raw:
        raise bad(what, f"{key} of its config is not a string that can be used")
    try:
        raw.encode()
    except UnicodeEncodeError:
        raise bad(what, f"{key} of its config is not Unicode") from None
    return raw


def read_object(what: str, body: bytes) -> dict[str, Any]:
    """Return a JSON object; raises CoopError."""
    content = read_json(what, body)
    if not isinstance(content, dict):
        raise bad(what, "a document of it is not a JSON object")
    return content


def read_json(what: str, body: bytes) -> Any:
    """Return what a JSON document holds; raises CoopError."""
    if len(body) > MOST_DOCUMENT:
        raise bad(what, f"a document of it has more than {MOST_DOCUMENT >> 20} MiB")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise bad(what, "a document of it is not JSON") from None


def bad(what: str, why: str) -> CoopError:
    """Return the error for a document that makes no sense."""
    return CoopError(f"{what} cannot be used: {why}", "the image is damaged where it comes from; use another")


def printable(text: str, longest: int = 200) -> str:
    """Return a stranger's text as it may be shown on a terminal: one line, not too long."""
    line = "".join(char if char.isprintable() else " " for char in text[: 4 * longest])
    line = " ".join(line.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
