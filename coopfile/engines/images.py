"""Making sure that the image of a plan's containers is there: imported, built, or pulled."""

from __future__ import annotations

from coopfile.engines.call import EngineError, ask, must
from coopfile.errors import CoopError
from coopfile.render import docker
from coopfile.render.images import is_built, reference, tools_archive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coopfile.plan.model import Plan
    from coopfile.render.facts import Engine, Facts

_IMPORT = 60.0
_PULL = 1800.0
_BUILD = 7200.0  # seconds; a build compiles what it is told to


def ensure(plan: Plan, facts: Facts, environment: Mapping[str, str], tell: Callable[[str], None]) -> str:
    """Return the name of the image, made or fetched if it is not there; ``tell`` hears of what takes long."""
    engine = facts.engine
    assert engine is not None
    image = reference(plan, facts)
    if exists(engine, image, environment):
        return image
    if is_built(plan):
        _build(plan, engine, image, environment, tell)
    elif plan.base.image is not None:
        tell(f"pulling {image}")
        _pull(engine, image, environment)
    else:
        what = "the image of the host's tools cannot be made"
        archive = tools_archive(facts.tools)
        must(what, docker.load(engine, image), _IMPORT, environment, archive)
    return image


def exists(engine: Engine, image: str, environment: Mapping[str, str]) -> bool:
    """Tell whether an engine has an image; raises EngineError when it does not answer."""
    argv = (engine.program, "image", "inspect", "--format", "{{.Id}}", image)
    return ask(argv, environment=environment).status == 0


def _pull(engine: Engine, image: str, environment: Mapping[str, str]) -> None:
    try:
        must(f"{image} cannot be pulled", (engine.program, "pull", "--quiet", image), _PULL, environment)
    except EngineError as error:
        remedy = f"is the name right, and the registry within reach? try: {engine.program} pull {image}"
        raise EngineError(error.message, remedy, error.argv, error.said) from None


def _build(
    plan: Plan, engine: Engine, image: str, environment: Mapping[str, str], tell: Callable[[str], None]
) -> None:
    """Build the image of a plan with packages, set-up or an agent."""
    from coopfile.render.dockerfile import dockerfile

    text = dockerfile(plan)
    if plan.setup.network not in ("none", "host"):
        raise CoopError(
            f'setup.network = "{plan.setup.network}": {engine.name} would let the build reach this machine '
            "and its neighbours too",
            'setup.network = "none" builds without a network, "host" with all of it',
        )
    assert plan.base.image is not None
    base = str(plan.base.image)
    if not exists(engine, base, environment):
        tell(f"pulling {base}")
        _pull(engine, base, environment)
    tell(f"building {image} (once; it is kept)")
    argv = docker.build(engine, image, plan.setup.network)
    must(f"building {image} failed", argv, _BUILD, environment, text.encode())
