"""Images made in memory: a config, layers, a manifest, as registries and layouts hold them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from typing import Any

from coopfile.rootfs import documents
from coopfile.rootfs.model import Descriptor, Platform

AMD64 = Platform("linux", "amd64")
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def sha256(body: bytes) -> str:
    """Return the digest of some bytes."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def descriptor(body: bytes, media_type: str, **more: Any) -> dict[str, Any]:
    """Return the descriptor of some bytes, as it stands in documents."""
    return {"mediaType": media_type, "digest": sha256(body), "size": len(body), **more}


def of(raw: dict[str, Any]) -> Descriptor:
    """Return a document's descriptor as coop has it."""
    return Descriptor(raw["mediaType"], raw["digest"], raw["size"])


def tar(**files: bytes) -> bytes:
    """Return a tar archive of some files."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return raw.getvalue()


class MadeImage:
    """One image. Its documents are made when they are asked for, so change it before."""

    def __init__(self, platform: str = "linux/amd64", name: bytes = b"hello", **inner: Any) -> None:
        os, architecture, *variant = platform.split("/")
        self.config: dict[str, Any] = {
            "os": os,
            "architecture": architecture,
            "rootfs": {"type": "layers"},
            "config": {"Env": ["PATH=/bin", "A=b=c"], "User": "1000:1000", "WorkingDir": "/srv", **inner},
        }
        if variant:
            self.config["variant"] = variant[0]
        self.hold(tar(file=name))
        self.config_type = documents.OCI_CONFIG
        self.media_type = documents.OCI_MANIFEST
        self.more: dict[str, Any] = {}

    def hold(self, archive: bytes, layer: bytes | None = None) -> None:
        """Have one layer: an archive, and the same compressed if that is not to be done here."""
        self.tar = archive
        self.layer = gzip.compress(archive, mtime=0) if layer is None else layer
        self.layers: list[dict[str, Any]] = [descriptor(self.layer, LAYER)]
        self.config["rootfs"]["diff_ids"] = [sha256(archive)]

    @property
    def config_bytes(self) -> bytes:
        """The config as JSON."""
        return json.dumps(self.config).encode()

    @property
    def document(self) -> dict[str, Any]:
        """The manifest."""
        return {
            "schemaVersion": 2,
            "mediaType": self.media_type,
            "config": descriptor(self.config_bytes, self.config_type),
            "layers": self.layers,
            **self.more,
        }

    @property
    def manifest(self) -> bytes:
        """The manifest as JSON."""
        return json.dumps(self.document).encode()

    @property
    def blobs(self) -> dict[str, bytes]:
        """Config and layers by digest."""
        return {sha256(body): body for body in (self.config_bytes, self.layer)}

    def entry(self, platform: dict[str, str] | None, **more: Any) -> dict[str, Any]:
        """Return the image's line in an index."""
        given = {} if platform is None else {"platform": platform}
        return descriptor(self.manifest, self.media_type, **given, **more)


def index(*entries: dict[str, Any], media_type: str = documents.OCI_INDEX) -> bytes:
    """Return an index as JSON."""
    return json.dumps({"schemaVersion": 2, "mediaType": media_type, "manifests": list(entries)}).encode()


def layout_files(body: bytes, *images: MadeImage, more: tuple[bytes, ...] = ()) -> dict[str, bytes]:
    """Return the files of an OCI layout with an index and the blobs of images, by relative path."""
    blobs = [*more, *(held for image in images for held in (*image.blobs.values(), image.manifest))]
    return {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": body,
        **{f"blobs/sha256/{sha256(held)[7:]}": held for held in blobs},
    }
