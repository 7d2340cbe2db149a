"""``Coopfile.lock``: what the image's name stood for when it was locked, and which packages were found.

It lies beside the Coopfile and is committed with it, so that every machine builds from
the same bytes until somebody renews it. TOML, written by coop.
"""

from __future__ import annotations

from coopfile import wholefile
from coopfile.errors import CoopError
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from coopfile.language.items import ImageReference, LocalImage
    from coopfile.plan.model import Plan

VERSION = 1
_HEAD = "# Written by coop: commit it. `coop rebuild --upgrade` renews it.\n"
# A package's name or version, or a manager's: what images say of themselves is nobody's word.
_WORD = r"[!-~]{1,200}"


class Lock(Record):
    """``image`` is a full reference without a digest, ``digest`` that of the index or manifest it named.

    Of a saved archive, which has neither, it is that of the config: the image's id. ``packages``
    are the versions that a build found of those asked for: by manager, then by name.
    """

    image: str
    digest: str
    packages: Mapping[str, Mapping[str, str]] = {}


def parse(text: bytes, name: str) -> Lock:
    """Return the lock of a text; ``name`` says in errors where it came from."""
    import re

    import tomli

    remedy = "coop lock --upgrade writes it again"
    try:
        data = tomli.loads(text.decode())
    except (ValueError, RecursionError) as error:  # the latter of arrays in arrays, from tomli itself too
        raise CoopError(f"{name} is not TOML: {error}", remedy) from None
    base = data.get("base")
    if data.get("version") != VERSION or not isinstance(base, dict):
        raise CoopError(f"{name} is not a lock of version {VERSION}", remedy)
    image, digest = base.get("image"), base.get("digest")
    if not isinstance(image, str) or not isinstance(digest, str):
        raise CoopError(f"{name} says nothing of base.image", remedy)
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise CoopError(f"{name}: base.digest is not a digest", remedy)
    if unknown := [key for key in data if key not in ("version", "base", "packages")]:
        raise CoopError(f"{name} has {unknown[0]!r}, which is of no lock of version {VERSION}", remedy)
    packages = data.get("packages", {})
    if not are_versions(packages):
        raise CoopError(f"{name}: packages has what is not a version of a package", remedy)
    return Lock(image, digest, packages)


def are_versions(packages: Any) -> bool:
    """Tell whether something is what ``Lock.packages`` has to be."""
    import re

    from coopfile.plan.model import Packages

    def word(item: object) -> bool:
        return isinstance(item, str) and re.fullmatch(_WORD, item) is not None

    return isinstance(packages, dict) and all(
        manager in Packages._fields
        and isinstance(versions, dict)
        and all(word(name) and word(version) for name, version in versions.items())
        for manager, versions in packages.items()
    )


def text(lock: Lock) -> str:
    """Return a lock as it is written: sorted, a package a line."""
    from coopfile.language.value_type import toml_string

    lines = [f"{_HEAD}version = {VERSION}", "", "[base]"]
    lines += [f"image = {toml_string(lock.image)}", f"digest = {toml_string(lock.digest)}"]
    for manager, versions in sorted(lock.packages.items()):
        if versions:
            lines += ["", f"[packages.{manager}]"]
            lines += [
                f"{toml_string(name)} = {toml_string(version)}" for name, version in sorted(versions.items())
            ]
    return "\n".join(lines) + "\n"


def write(lock: Lock, path: str) -> None:
    """Write a lock, whole or not at all."""
    try:
        wholefile.write(path, text(lock).encode())
    except OSError as error:
        raise CoopError(f"cannot write {path}: {error.strerror}") from None


def named(image: ImageReference | LocalImage) -> str:
    """Return what a lock calls an image: its reference without a digest."""
    return str(image.replace(digest=None))


def stale(lock: Lock, image: ImageReference | LocalImage, name: str) -> CoopError:
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
