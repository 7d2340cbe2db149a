"""Images with Apple's command line: building them, and making one of a container.

There is no ``commit`` (apple/container#1019). A root file system can be exported, and
an image built of that; what the image said of its processes has to be said again.
"""

from __future__ import annotations

import json
import re
import unicodedata

from coopfile.errors import CoopError
from coopfile.record import Record
from coopfile.render.apple_text import Argv, argv_of, identifier, image_name, is_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.render.facts import Engine

DOCKERFILE_MAX = 16 * 1024 - 1
_ARCHIVE = "rootfs.tar"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)


class Step(Record):
    """One of several commands, each after the one before has succeeded, and its standard input."""

    argv: Argv
    stdin: str | None = None


class ImageConfig(Record):
    """What an image says of the processes that are started from it, in the terms of OCI's image config.

    ``user`` and ``directory`` may be empty: root, and ``/``.
    """

    environment: tuple[tuple[str, str], ...] = ()
    directory: str = ""
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


def inspect_image(engine: Engine, image: str) -> Argv:
    """Return the argv that prints what is known of an image as a JSON array, or fails if it is not here."""
    return argv_of(engine, "image", "inspect", image_name(image))


def build(engine: Engine, tag: str, network: str, context: str) -> Argv:
    """Return the argv that builds an image of a Dockerfile on standard input; see ``check_dockerfile``.

    ``context`` is the path of a directory, which has to exist. Raises CoopError for a
    build that should have less than the internet, for the builder always has that.
    """
    if network not in ("host", "veth"):
        raise CoopError(
            f'setup.network = "{network}" cannot be had: Apple\'s builder always has the internet',
            "build with another engine",
        )
    return _build(engine, tag, context)


def check_dockerfile(text: str) -> None:
    """Raise CoopError for a Dockerfile that is too long for Apple's builder (apple/container#735)."""
    size = len(text.encode())
    if size > DOCKERFILE_MAX:
        raise CoopError(
            f"the Dockerfile has {size:,} bytes, and Apple's builder takes no more than {DOCKERFILE_MAX:,}",
            "make the set-up commands shorter, or build with another engine",
        )


def commit(engine: Engine, container: str, tag: str, directory: str, config: ImageConfig) -> tuple[Step, ...]:
    """Return the steps that make an image of a container's root file system, mounts left out.

    ``config`` is what the container's image says. ``directory`` is an empty one of the
    caller's, who removes it afterwards: it comes to hold the whole file system. The
    container may run: its file system is frozen meanwhile.
    """
    archive = f"{directory.rstrip('/')}/{_ARCHIVE}"
    export = argv_of(engine, "export", "--output", archive, identifier(container))
    return (Step(export), Step(_build(engine, tag, directory), commit_dockerfile(config)))


def commit_dockerfile(config: ImageConfig) -> str:
    """Return the Dockerfile that makes an image of an exported root file system and a config."""
    lines = ["FROM scratch", f"ADD {_ARCHIVE} /"]
    for name, value in config.environment:
        if not _VARIABLE.fullmatch(name):
            raise CoopError(f"{name!a} is not a variable that a Dockerfile can set")
        lines.append(f"ENV {name}={_quoted(value)}")
    if config.directory:
        lines.append(f"WORKDIR {_quoted(config.directory)}")
    if config.user:
        lines.append(f"USER {_quoted(config.user)}")
    for instruction, words in (("ENTRYPOINT", config.entrypoint), ("CMD", config.command)):
        if words:
            lines.append(f"{instruction} {json.dumps([_text(word) for word in words])}")
    text = "".join(f"{line}\n" for line in lines)
    check_dockerfile(text)
    return text


def _build(engine: Engine, tag: str, context: str) -> Argv:
    if not context.startswith("/"):
        raise CoopError(f"{context!a} is not an absolute path of a directory to build in")
    return argv_of(engine, "build", "--tag", image_name(tag), "--file", "-", "--progress", "plain", context)


def _quoted(value: str) -> str:
    """Return a value of an instruction that the builder neither splits nor expands."""
    if any(unicodedata.category(character) == "Cc" for character in _text(value)):
        raise CoopError(f"a Dockerfile cannot hold {value!a}: it has a control character")
    return '"' + re.sub(r'(["\\$])', r"\\\1", value) + '"'


def _text(value: str) -> str:
    if not is_text(value):
        raise CoopError(f"a Dockerfile cannot hold {value!a}: it is not text in UTF-8")
    return value
