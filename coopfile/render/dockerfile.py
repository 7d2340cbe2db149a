"""A plan's root file system as a Dockerfile: base, packages, set-up and agent.

The build's context is empty, and nothing newer is used than Docker's first builder
understands, so that BuildKit, Podman and Apple's builder make the same of it. Commands
are JSON arrays, which no builder expands: what the plan says reaches the shell as it is.
"""

from __future__ import annotations

import hashlib
import json
import re

from coopfile import data
from coopfile.errors import CoopError
from coopfile.language.items import ImageReference, LocalImage
from coopfile.plan.model import Plan
from coopfile.render.stages import Stage, stages

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)

# The kernel's MAX_ARG_STRLEN, with the NUL at the end of an argument.
_COMMAND_MAX = 128 * 1024 - 1
# Builders read lines of less than 64 KiB, and a character takes up to 12 bytes.
_PIECE = 5000
_NAME_MAX = 64


def dockerfile(plan: Plan, *, digest: str | None = None) -> str:
    """Return the Dockerfile of a plan, in ASCII: the same stages of plans give the same lines.

    ``digest`` (``sha256:<64 hex digits>``) pins a base image that has none of its own.
    Raises CoopError when the plan has no base image, or one in a file, when its digest is
    another or is none, and when a command is longer than the kernel passes on.
    """
    image = plan.base.image
    found = stages(plan)
    if image is None:
        raise _baseless(found)
    if isinstance(image, LocalImage):
        raise CoopError(
            f"base.image: no Dockerfile can begin with a file, and {image} is in one",
            "push the image to a registry and name it there; coop run needs no Dockerfile of yours",
        )
    for stage in found:
        for command in stage.commands:
            if len(command.encode()) > _COMMAND_MAX:
                raise CoopError(
                    f"{stage.key}: a command has more than the {_COMMAND_MAX:,} bytes that Linux passes on",
                    "make several commands of it",
                )
    return _template(image, _pinned(image, digest), found)


def image_tag(plan: Plan, *, digest: str | None = None) -> str:
    """Return the local name of the image that a plan's Dockerfile builds.

    ``localhost/coop/NAME:DIGITS``: NAME is the last part of the base image's, DIGITS
    are the first 24 hexadecimal digits of the SHA-256 over the Dockerfile's instructions
    and the network of the build. So only what changes the image changes its name: plans
    that differ in limits or files share it. Where no digest is known, the name stays the
    same when the base image's tag moves. No registry has the name, but engines would ask
    one on this machine for it: run it with ``--pull=never``. Raises as ``dockerfile``.
    """
    text = dockerfile(plan, digest=digest)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    inputs = "\n".join([*lines, plan.setup.network])
    digits = hashlib.sha256(inputs.encode("ascii")).hexdigest()[:24]
    assert isinstance(plan.base.image, ImageReference)  # dockerfile refuses others
    name = plan.base.image.repository.rpartition("/")[2][:_NAME_MAX].rstrip("._-")
    return f"localhost/coop/{name}:{digits}"


def _baseless(found: tuple[Stage, ...]) -> CoopError:
    if not found:
        return CoopError(
            "nothing is built of this plan: without base.image it uses the host's own tools",
            'name an image to build on, such as base.image = "debian:bookworm-slim"',
        )
    keys = ", ".join(stage.key for stage in found)
    return CoopError(
        f"{keys}: there is nothing to install into, for base.image is not set",
        'name an image to install into, such as base.image = "debian:bookworm-slim"',
    )


def _pinned(image: ImageReference, digest: str | None) -> str:
    """Return the reference after FROM, without the tag beside a digest: not every engine takes both."""
    if digest is not None and not _DIGEST.fullmatch(digest):
        raise CoopError(
            f"{json.dumps(digest)} is not the digest of an image",
            "a digest is sha256: and 64 digits of 0-9 a-f",
        )
    if digest is not None and image.digest not in (None, digest):
        raise CoopError(
            f"base.image is pinned to {image.digest}, and not to {digest}",
            "take the digest out of base.image, or write the one that is meant",
        )
    pin = image.digest or digest
    return str(image) if pin is None else str(ImageReference(image.registry, image.repository, None, pin))


def _template(image: ImageReference, base: str, found: tuple[Stage, ...]) -> str:
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # not HTML; commands go through the json filter
    )
    environment.filters["json"] = _json
    template = environment.from_string(data.text("templates/Dockerfile.j2"))
    return template.render(image=image, base=base, stages=found)


def _json(command: str) -> str:
    r"""Return a command as a JSON string of ASCII: on one line, or continued on more if it is long.

    The ends of a continued line are letters, digits or ``\u`` escapes, which no builder
    takes for a comment, a blank to strip or an escaped end of line.
    """
    pieces = [command[start : start + _PIECE] for start in range(0, len(command), _PIECE)]
    last = len(pieces) - 1
    lines = [
        (_guarded(piece[0]) if number > 0 else "")
        + _escaped(piece[number > 0 : len(piece) - (number < last)])
        + (_guarded(piece[-1]) if number < last else "")
        for number, piece in enumerate(pieces)
    ]
    return '"' + "\\\n".join(lines) + '"'


def _escaped(text: str) -> str:
    # No line has the sign of a here-document, whether or not a builder looks for it in JSON.
    return json.dumps(text)[1:-1].replace("<<", r"<\u003c")


def _guarded(char: str) -> str:
    if not char.isascii():
        return _escaped(char)
    return char if char.isalnum() else f"\\u{ord(char):04x}"
