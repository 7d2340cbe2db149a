"""What sessions have committed on a container engine: an image, which stands for the plan's from then on."""

from __future__ import annotations

import hashlib

from coopfile.engines.call import ask
from coopfile.engines.images import exists
from coopfile.plan.sessions import project_id
from coopfile.render.images import reference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopfile.plan.model import Plan
    from coopfile.render.facts import Engine

_NAME = "localhost/coop-committed"
_DIGITS = 24


def name(plan: Plan, root: str) -> str:
    """Return the name of what is committed for a project (its real path), its user, and this very base."""
    key = "\0".join((project_id(root, plan.access), reference(plan, ())))
    return f"{_NAME}:{hashlib.sha256(key.encode()).hexdigest()[:_DIGITS]}"


def is_kept(plan: Plan) -> bool:
    """Tell whether a plan's sessions have anything that may be committed."""
    return plan.session.commit != "never" and plan.base.image is not None


def find(plan: Plan, root: str, engine: Engine, environment: Mapping[str, str]) -> str | None:
    """Return the image that stands for the plan's own, if there is one."""
    if not is_kept(plan) or engine.name == "apple":
        return None
    image = name(plan, root)
    return image if exists(engine, image, environment) else None


def drop(plan: Plan, root: str, engine: Engine, environment: Mapping[str, str]) -> bool:
    """Remove what is committed; tell whether there was anything. What runs on it goes on."""
    image = find(plan, root, engine, environment)
    if image is None:
        return False
    # Docker takes away the name of an image in use; Podman would take away the containers that use it.
    ways = (("image", "rm"), ("image", "untag")) if engine.name == "podman" else (("image", "rm", "--force"),)
    return any(ask((engine.program, *way, image), environment=environment).status == 0 for way in ways)
