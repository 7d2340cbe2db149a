"""Image references, as Docker's users write them, and images in local files, as Podman's and skopeo's do."""

from __future__ import annotations

import re
from typing import Any

from coopfile.language.diagnostics import quoted
from coopfile.language.items import ImageReference, LocalImage
from coopfile.language.paths import HostPath, RelativePath
from coopfile.language.value_type import BadValue, ValueType, check_string, toml_string

# The grammar of github.com/distribution/reference.
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_REGISTRY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:]+\])(?::([0-9]{{1,5}}))?", re.ASCII)
_NAME_MAX = 255

_HUB = "docker.io"
TRANSPORTS = ("oci", "oci-archive", "docker-archive")
_TRANSPORT = re.compile(
    r"(oci|oci-archive|docker-archive|docker-daemon|containers-storage|dir|ostree|sif|docker|https?):",
    re.ASCII,
)
# Wider than what the OCI specification says of org.opencontainers.image.ref.name, but without @.
_LOCAL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:+-]{0,254}", re.ASCII)


class Image(ValueType):
    """An OCI image. Typed: an ``ImageReference`` in full, or a ``LocalImage``.

    Read as Docker does: ``debian`` is ``docker.io/library/debian:latest``; a first
    component with a dot or a port, or ``localhost``, is a registry. A digest is
    sha256 with all its 64 digits. ``oci:PATH[:TAG]`` is the directory of an OCI layout,
    ``oci-archive:PATH[:TAG]`` a tar of one, ``docker-archive:PATH[:NAME]`` what
    ``docker save`` and ``podman save`` write; the first colon ends the path, which is
    absolute, below ``~/``, or relative to the project.
    """

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        patterns = (r"^[^\s@]+(@sha256:[0-9a-f]{64})?$", rf"^({'|'.join(TRANSPORTS)}):[^:]+")
        return {"type": "string", "anyOf": [{"pattern": pattern} for pattern in patterns]}

    def parse(self, raw: object) -> ImageReference | LocalImage:
        """Return the image. Raises BadValue."""
        text = check_string(raw, "an image", '"debian:bookworm-slim"')
        transport = _TRANSPORT.match(text)
        if transport and transport[1] in TRANSPORTS:
            return self._local(transport[1], text[transport.end() :])
        if any(char.isspace() for char in text):
            raise BadValue(f"{quoted(text)} is not an image reference", "it has no spaces")
        if transport:
            self._refuse_transport(text, transport[1])
        name, _, digest = text.partition("@")
        return self._reference(name, self._digest(digest, "@" in text))

    def show(self, value: ImageReference | LocalImage) -> str:
        """Return the reference in full."""
        return toml_string(str(value))

    @staticmethod
    def _refuse_transport(text: str, transport: str) -> None:
        rest = text[len(transport) + 1 :]
        if transport in ("docker", "http", "https"):
            raise BadValue(
                f"{quoted(text)} is an address", f"write the reference alone: {quoted(rest.lstrip('/'))}"
            )
        raise BadValue(
            f"{quoted(text)}: images cannot be taken from {transport}:",
            f"save it to a file: {', '.join(f'{known}:PATH' for known in TRANSPORTS)}; "
            f"an image called {transport} is docker.io/library/{transport}",
        )

    def _local(self, transport: str, rest: str) -> LocalImage:
        # A path may have an @, but no colon; a name has no @.
        rest, at, digits = rest.partition("@sha256:")
        digest = self._digest(f"sha256:{digits}", bool(at))
        path, colon, name = rest.partition(":")
        if colon and not _LOCAL_NAME.fullmatch(name):
            raise BadValue(
                f"{quoted(name)} is not the name of an image in a file",
                "the first colon ends the path; a name has letters, digits, _ . / : + and -",
            )
        if not path:
            raise BadValue(f"{transport}: names no file", f"such as {transport}:images/base")
        kind = HostPath() if path.startswith(("/", "~", "$")) else RelativePath()
        return LocalImage(transport, kind.parse(path), name or None, digest)

    @staticmethod
    def _digest(digest: str, given: bool) -> str | None:
        if not given:
            return None
        algorithm, colon, digits = digest.partition(":")
        if algorithm != "sha256" or not colon:
            raise BadValue(
                f"{quoted(digest)} is not a sha256 digest", "after @ comes sha256: and 64 hexadecimal digits"
            )
        if not re.fullmatch(r"[0-9a-f]*", digits, re.ASCII):
            raise BadValue(
                f"{quoted(digits)} is not hexadecimal", "a digest has the digits 0-9 and a-f, in lower case"
            )
        if len(digits) != 64:
            raise BadValue(
                f"a sha256 digest has 64 hexadecimal digits, this one has {len(digits)}",
                "copy all of it; `docker images --digests --no-trunc` shows whole ones",
            )
        return digest

    def _reference(self, name: str, digest: str | None) -> ImageReference:
        tail = name[name.rfind("/") + 1 :]
        tag: str | None = None
        if ":" in tail:
            tag = tail.partition(":")[2]
            name = name[: len(name) - len(tag) - 1]
            if not _TAG.fullmatch(tag):
                raise BadValue(
                    f"{quoted(tag)} is not a tag",
                    "a tag has up to 128 letters, digits, _, . and -, and begins with none of . -",
                )
        first, slash, rest = name.partition("/")
        if slash and (any(char in first for char in ".:[") or first.lower() == "localhost"):
            registry, repository = self._registry(first), rest
        else:
            registry, repository = _HUB, name
        if registry == "index.docker.io":
            registry = _HUB
        if registry == _HUB and "/" not in repository:
            if re.fullmatch(r"[0-9a-f]{64}", repository):
                raise BadValue(
                    "64 hexadecimal digits are an image's id, not its name",
                    "write the name, or name@sha256:…",
                )
            repository = f"library/{repository}"
        if repository != repository.lower():
            raise BadValue("the name of an image is in lower case", f"write {quoted(name.lower())}")
        if not _REPOSITORY.fullmatch(repository):
            raise BadValue(
                f"{quoted(name)} is not an image's name",
                "it has lower-case letters and digits, with . _ - between them and / between parts",
            )
        if len(registry) + 1 + len(repository) > _NAME_MAX:
            raise BadValue("the name of the image is too long", f"{_NAME_MAX} characters are the most")
        return ImageReference(registry, repository, tag or (None if digest else "latest"), digest)

    @staticmethod
    def _registry(text: str) -> str:
        match = _REGISTRY.fullmatch(text.lower())
        if not match:
            raise BadValue(f"{quoted(text)} is not a registry", "such as ghcr.io or localhost:5000")
        if match[1] and not 0 < int(match[1]) < 65536:
            raise BadValue(f"{match[1]} is not a port", "ports are 1 to 65535")
        return text.lower()
