"""What an image is, wherever it comes from: the terms of the OCI image specification, for one platform."""

from __future__ import annotations

from coopfile.language.items import LocalImage
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from coopfile.language.items import ImageReference


class Platform(Record):
    """An operating system, an architecture and its variant, as Go names them: linux, arm64, v8."""

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


class Descriptor(Record):
    """A blob by its content: ``digest`` is ``sha256:<64 hex digits>`` (or sha512), ``size`` in bytes."""

    media_type: str
    digest: str
    size: int


class ImageConfig(Record):
    """What the image's config says that a run honours.

    ``environment`` holds (name, value); ``user`` is as written (a name, a uid, or both
    parts with a colon) and ``directory`` absolute, each empty if not set. ``diff_ids``
    are the digests of the uncompressed layers, in their order.
    """

    platform: Platform
    environment: tuple[tuple[str, str], ...]
    user: str
    directory: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    diff_ids: tuple[str, ...]


class Image(Record):
    """One image for one platform. ``digest`` is that of what the reference named: an index or a manifest.

    (An archive of ``docker save`` has neither: its config stands for them, in ``manifest`` too.)
    ``layers`` belong to ``config.diff_ids`` one by one, the lowest first.
    """

    reference: str
    digest: str
    manifest: Descriptor
    config: ImageConfig
    layers: tuple[Descriptor, ...]


def source_name(image: ImageReference | LocalImage) -> str | None:
    """Return what is the same for all images from one place; None for a path that is another elsewhere."""
    if isinstance(image, LocalImage):
        return f"{image.transport}:{image.path}" if image.path.startswith("/") else None
    return f"{image.registry}/{image.repository}"


if TYPE_CHECKING:

    class Source(Protocol):
        """Where images come from: a registry, or a directory or an archive on disk."""

        def image(self, platform: Platform) -> Image:
            """Resolve the image for a platform. Raises CoopError."""

        def fetch(self, blob: Descriptor, path: str, tell: Callable[[int], None] | None = None) -> None:
            """Put a blob, verified by size and digest, at a path that does not exist yet. Raises CoopError.

            ``tell`` hears how many bytes are new, fewer than none when it has to start again.
            """

        def close(self) -> None:
            """End every transfer, in whichever thread it is. The source is of no more use."""
