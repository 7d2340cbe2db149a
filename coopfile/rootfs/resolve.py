"""From what a reference named to one image: through indexes to a manifest and its config."""

from __future__ import annotations

from coopfile.rootfs import documents, platforms
from coopfile.rootfs.model import Descriptor, Image, Platform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_DEPTH = 4  # an index in an index in a layout's index, and one more


def resolve(
    what: str,
    reference: str,
    top: Descriptor,
    body: bytes,
    platform: Platform,
    read: Callable[[Descriptor], bytes],
    chosen: Platform | None = None,
) -> Image:
    """Return the image for a platform; raises CoopError.

    ``body`` is the verified content of ``top``, an index or a manifest; ``read``
    returns that of another descriptor, of at most ``MOST_DOCUMENT`` bytes. ``what``
    names the image in messages, ``chosen`` is the platform that led to ``top``, if one did.
    """
    descriptor = top
    for _ in range(_DEPTH):
        media_type, content = documents.kind(what, body, descriptor.media_type)
        descriptor = descriptor.replace(media_type=media_type)
        if media_type in documents.MANIFESTS:
            break
        entry = platforms.choose(what, documents.read_index(what, content), platform)
        descriptor, chosen = entry.descriptor, entry.platform or chosen
        body = read_checked(what, descriptor, read)
    else:
        raise documents.bad(what, "its indexes are nested too deep")
    manifest = documents.read_manifest(what, content)
    config = documents.read_config(what, read_checked(what, manifest.config, read), len(manifest.layers))
    if chosen is not None:  # images for many platforms are known to be wrong about themselves
        config = config.replace(platform=chosen)
    elif config.platform.architecture and platforms.fitness(config.platform, platform) is None:
        raise platforms.missing(what, platform, [str(config.platform)])
    return Image(reference, top.digest, descriptor, config, manifest.layers)


def read_checked(what: str, descriptor: Descriptor, read: Callable[[Descriptor], bytes]) -> bytes:
    """Return the content of a small blob, which has to be that of its descriptor."""
    if descriptor.size > documents.MOST_DOCUMENT:
        limit = documents.MOST_DOCUMENT >> 20
        raise documents.bad(what, f"{documents.short(descriptor.digest)} has more than {limit} MiB")
    return documents.check(what, read(descriptor), descriptor)
