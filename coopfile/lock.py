"""``Coopfile.lock``: what the image's name stood for when it was locked.

It lies beside the Coopfile and is committed with it, so that every machine builds from
the same bytes until somebody renews it. TOML, written by coop.
"""

from __future__ import annotations

import os

from coopfile.errors import CoopError
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.language.items import ImageReference
    from coopfile.plan.model import Plan

SUFFIX = ".lock"
VERSION = 1
_HEAD = "# Written by coop: commit it. `coop lock --upgrade` renews it.\n"


class Lock(Record):
    """``image`` is a full reference without a digest, ``digest`` that of the index or manifest it named."""

    image: str
    digest: str


def parse(text: bytes, name: str) -> Lock:
    """Return the lock of a text; ``name`` says in errors where it came from."""
    import re

    import tomli

    remedy = "coop lock writes it again"
    try:
        data = tomli.loads(text.decode())
    except ValueError as error:
        raise CoopError(f"{name} is not TOML: {error}", remedy) from None
    base = data.get("base")
    if data.get("version") != VERSION or not isinstance(base, dict):
        raise CoopError(f"{name} is not a lock of version {VERSION}", remedy)
    image, digest = base.get("image"), base.get("digest")
    if not isinstance(image, str) or not isinstance(digest, str):
        raise CoopError(f"{name} says nothing of base.image", remedy)
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise CoopError(f"{name}: base.digest is not a digest", remedy)
    return Lock(image, digest)


def text(lock: Lock) -> str:
    """Return a lock as it is written."""
    import json

    # A JSON string is the same in TOML.
    image, digest = json.dumps(lock.image), json.dumps(lock.digest)
    return f"{_HEAD}version = {VERSION}\n\n[base]\nimage = {image}\ndigest = {digest}\n"


def write(lock: Lock, path: str) -> None:
    """Write a lock, whole or not at all."""
    partial = f"{path}.{os.getpid()}.tmp"
    try:
        with open(partial, "x", encoding="utf-8") as file:
            file.write(text(lock))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise CoopError(f"cannot write {path}: {error.strerror}") from None


def named(image: ImageReference) -> str:
    """Return what a lock calls an image: its reference without a digest."""
    return str(image.replace(digest=None))


def stale(lock: Lock, image: ImageReference, name: str) -> CoopError:
    """Return the error of a lock that is of another image than the plan."""
    return CoopError(
        f"{name} is of {lock.image}, and base.image is now {named(image)}",
        "coop lock --upgrade renews it; commit it with the Coopfile",
    )


def locked(plan: Plan, lock: Lock | None, name: str) -> Plan:
    """Return a plan with the digest that its lock says, if it has none of its own.

    Raises CoopError when the lock is of another image.
    """
    image = plan.base.image
    if image is None or image.digest is not None or lock is None:
        return plan
    if lock.image != named(image):
        raise stale(lock, image, name)
    return plan.replace(base=plan.base.replace(image=image.replace(digest=lock.digest)))
