"""Apple's ``container`` as far as it differs from the engines that ``coop run`` knows: images and names."""

from __future__ import annotations

import os
import tempfile

from coopfile.engines.call import Call, EngineError, ask, shown
from coopfile.engines.timeouts import BUILD, PULL
from coopfile.plan.model import is_built
from coopfile.render import apple, apple_images
from coopfile.render.dockerfile import dockerfile
from coopfile.render.images import reference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coopfile.plan.launch import Weakening
    from coopfile.plan.model import Plan
    from coopfile.render.container import Container
    from coopfile.render.facts import Engine, Facts


def ensure(
    plan: Plan,
    engine: Engine,
    environment: Mapping[str, str],
    tell: Callable[[str], None],
    show: Callable[[str], None] | None,
) -> str:
    """Return the name of a plan's image, made or fetched if it is not there; as ``images.ensure`` does."""
    image = reference(plan, ())
    if ask(apple.inspect_image(engine, image), environment=environment).status == 0:
        return image
    if not is_built(plan):
        tell(f"pulling {image}")
        pull = (engine.program, "image", "pull", "--progress", "none", apple.image_name(image))
        _do(f"{image} cannot be pulled", pull, PULL, environment, None, show)
        return image
    text = dockerfile(plan)
    apple_images.check_dockerfile(text)
    tell(f"building {image} (once; it is kept)")
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        build = apple_images.build(engine, image, plan.setup.network, os.path.realpath(empty))
        _do(f"{image} cannot be built", build, BUILD, environment, file.fileno(), show)
    return image


def _do(
    what: str,
    argv: tuple[str, ...],
    seconds: float,
    environment: Mapping[str, str],
    given: int | None,
    show: Callable[[str], None] | None,
) -> None:
    status, said = Call(argv, environment, given, merged=True).follow(seconds, show)
    if status != 0:
        raise EngineError(f"{what}: {shown(chr(10).join(said))}", None, argv, "\n".join(said))


def holes(made: Container, facts: Facts, workspace: str) -> tuple[Weakening, ...]:
    """Return what gives the sandbox more than the plan on this very machine.

    All that there is comes of file systems to which two spellings of a name are one.
    """
    return () if tells_case(workspace) else apple.holes(made, facts)


def tells_case(directory: str) -> bool:
    """Tell whether a directory's file system tells upper from lower case, for sure."""
    try:
        with tempfile.NamedTemporaryFile(prefix="coop-case-", dir=directory) as file:
            above, name = os.path.split(file.name)
            return not os.path.lexists(f"{above}/{name.upper()}")
    except OSError:
        return False
