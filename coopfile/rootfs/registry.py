"""Images from registries."""

from __future__ import annotations

import os

from coopfile.rootfs import auth, documents
from coopfile.rootfs.download import download
from coopfile.rootfs.model import Descriptor
from coopfile.rootfs.resolve import resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coopfile.language.items import ImageReference
    from coopfile.rootfs.client import Client
    from coopfile.rootfs.model import Image, Platform
    from coopfile.rootfs.wire import Limits


class RegistrySource:
    """One reference in its registry: a ``Source``.

    ``environment`` says where credentials are, and is that of ``own_environment``.
    ``insecure`` are the registries, as references name them, that may be spoken to
    without TLS; those on the loopback interface may always.
    """

    def __init__(
        self,
        reference: ImageReference,
        environment: Mapping[str, str] | None = None,
        insecure: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> None:
        from coopfile.rootfs.client import Client  # oras and requests cost 110 ms

        variables = os.environ if environment is None else environment
        self.reference = reference
        self._client: Client = Client(
            reference,
            lambda: auth.find(reference.registry, reference.repository, variables),
            insecure,
            limits,
        )

    def image(self, platform: Platform) -> Image:
        """Resolve the image for a platform. Raises CoopError."""
        reference, what = self.reference, str(self.reference)
        media_type, promised, body = self._client.manifest(reference.digest or reference.tag or "latest")
        digest = reference.digest or documents.digest_of("sha256", body)
        top = documents.check(what, body, Descriptor(media_type, digest, len(body)))
        if promised.startswith("sha256:") and promised != documents.digest_of("sha256", body):
            raise documents.wrong_digest(what, promised, documents.digest_of("sha256", body))
        return resolve(what, what, Descriptor(media_type, digest, len(body)), top, platform, self._read)

    def fetch(self, blob: Descriptor, path: str, tell: Callable[[int], None] | None = None) -> None:
        """Download a blob to a path that does not exist yet, verified. Raises CoopError."""
        download(self._client, blob, path, tell)

    def close(self) -> None:
        """End every transfer. The source is of no more use."""
        self._client.close()

    def _read(self, descriptor: Descriptor) -> bytes:
        if descriptor.media_type in documents.ACCEPTED:
            return self._client.manifest(descriptor.digest)[2]
        return self._client.small_blob(descriptor.digest)
