"""The stages that a plan's root file system is made of, and their keys."""

from __future__ import annotations

import os

from coopfile.errors import CoopError
from coopfile.record import Record
from coopfile.render.stages import stages
from coopfile.rootfs import platforms
from coopfile.rootfs.model import source_name
from coopfile.rootfs.store import key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopfile.language.items import ImageReference, LocalImage
    from coopfile.plan.model import Plan
    from coopfile.rootfs.store import Root, Stage

IMAGE = "image"
_OWNERS = "single"
# To be counted up when the same commands come to make another layer.
_RECIPE = 1


class Link(Record):
    """A stage to be: its key, its kind, the key of what it stands on, its commands (the image has none).

    ``generation`` makes it the project's own (``store.Root``), if it is not empty; ``cache`` is the
    package manager whose downloads are kept, if it has one.
    """

    key: str
    kind: str
    parent: str | None
    generation: str
    commands: tuple[str, ...] = ()
    cache: str | None = None


def image_key(image: ImageReference | LocalImage) -> str:
    """Return the key of an image's stage on this machine; the image has a digest."""
    platform = platforms.of_machine(os.uname().machine)
    return key(IMAGE, None, {"digest": image.digest, "platform": str(platform), "owners": _OWNERS})


def is_given(image: ImageReference | LocalImage, stage: Stage, root: Root | None) -> bool:
    """Tell whether a project may have the stage that there is of an image, whatever its lock says.

    A lock is the repository's word, and could have the digest of an image of this user's that nobody
    approved for the project. It may have what it uses already, and what came from the same place.
    """
    if root is not None and root.stages[:1] == (stage.key,):
        return True
    name = source_name(image)
    return name is not None and stage.about.get("source") == name


def chain(plan: Plan, root: Root | None, own: Mapping[str, str] | None = None) -> tuple[Link, ...]:
    """Return the stages of a plan, the image first.

    ``root`` is what the project uses now: which of its stages are its own stays so on the same image.
    ``own`` are other generations, by kind. Raises CoopError when the image is not locked.
    """
    image = plan.base.image
    assert image is not None
    if image.digest is None:
        raise CoopError(f"base.image: {image} is not locked yet", "coop init locks and fetches it")
    first = image_key(image)
    generations = dict(root.generations) if root is not None and root.stages[:1] == (first,) else {}
    generations.update(own or {})
    # A list of hosts counts as the network does, and only where a build has it.
    proxied = plan.setup.network == "proxy"
    allowed = {"allow": sorted(map(str, plan.network.allow))} if proxied else {}
    links = [Link(first, IMAGE, None, "")]
    for stage in stages(plan, caching=True):
        parent, generation = links[-1].key, generations.get(stage.key, "")
        # The network counts: `curl … || true` makes another layer with one than without.
        inputs = {
            "recipe": _RECIPE,
            "commands": list(stage.commands),
            "network": plan.setup.network,
            "generation": generation,
            **allowed,
        }
        made = key(stage.key, parent, inputs)
        links.append(Link(made, stage.key, parent, generation, stage.commands, stage.cache))
    return tuple(links)
