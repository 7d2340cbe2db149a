"""What a plan comes to with one container engine: its image, and the argv of each step."""

from __future__ import annotations

import hashlib

from coopfile.errors import CoopError
from coopfile.language.items import LocalImage
from coopfile.plan.canonical import digest
from coopfile.plan.launch import Weakening, inside
from coopfile.plan.model import is_built
from coopfile.record import Record
from coopfile.render import apple, apple_images, docker, windows
from coopfile.render.apple_images import Step
from coopfile.render.container import container
from coopfile.render.dockerfile import dockerfile
from coopfile.render.images import tools_archive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopfile.plan.launch import Mount
    from coopfile.plan.model import Plan
    from coopfile.render.container import Container, Request
    from coopfile.render.facts import Engine, Facts

Argv = tuple[str, ...]

PULL, BUILD, IMPORT = "pull", "build", "import"

# Steps that pass the host's variables on.
INHERITING = ("run", "exec")
# Steps that start a container, and so need its image.
STARTING = ("run", "keep")

_ISOLATION = ("namespace", "userspace-kernel", "vm")


class Image(Record):
    """The image of the containers, and how it comes to be there: pull, build or import.

    ``present`` succeeds when it is there; ``argv`` gets it, and reads ``stdin``: the text
    of a Dockerfile to build, or the compressed tar of a root file system to import.
    """

    reference: str
    source: str
    present: Argv
    argv: Argv
    stdin: str | bytes | None


class Rendering(Record):
    """All that there is to say about a plan on an engine.

    ``name`` is the container's and ``steps`` are (name, argv). ``variables`` are (variable,
    the host's variable): the steps of ``INHERITING`` have to be started with those set.
    ``masks`` is the directory of what stands in for hidden paths, if anything is hidden,
    and ``kept`` the directories that outlive the container: both have to be there.
    ``commit`` makes an image of what ``keep`` started, a step after the other;
    ``directories`` have to be there, empty, for the image and last for the commit.
    Nothing that has ``holes`` keeps the plan.
    """

    backend: str
    name: str
    isolation: str
    system: str
    plan: str
    image: Image
    steps: tuple[tuple[str, Argv], ...]
    commit: tuple[Step, ...]
    directories: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]
    masks: str | None
    kept: tuple[str, ...]
    weakenings: tuple[Weakening, ...]
    holes: tuple[Weakening, ...]
    skipped: tuple[str, ...]

    def step(self, name: str) -> Argv:
        """Return the argv of a step."""
        return dict(self.steps)[name]


def token(plan: Plan, facts: Facts) -> str:
    """Return what tells the containers of a project and plan from those of its namesakes."""
    identity = f"{facts.host.workspace}\0{digest(plan)}"
    return hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:8]


def rendering(plan: Plan, facts: Facts, request: Request, isolation: str) -> Rendering:
    """Return the steps of a plan with the engine of the facts, which gives ``isolation``.

    Raises CoopError for what no rendering can keep, as ``container`` does.
    """
    engine = facts.engine
    assert engine is not None
    if plan.base.image is None and facts.system == "linux" and not facts.tools:
        raise CoopError(
            "base.image is not set, and the facts name none of the host's tools",
            "`coop render facts` on that host names them under tools",
        )
    if isinstance(plan.base.image, LocalImage):
        raise CoopError(
            f"base.image: {plan.base.image} is in a file, which coop itself checks and loads",
            "coop run does that; or push the image to a registry and name it there",
        )
    if plan.base.image is not None:
        facts = facts.replace(tools=())  # the image has its own
    made = container(plan, facts, request)
    masked = [mount for mount in made.mounts if inside(mount.source, facts.masks)]
    holes = (*made.holes, *_holes(plan, engine, isolation))
    weakenings = made.weakenings
    masks = facts.masks if masked and engine.name != "apple" else None
    # Only to refuse what the engine itself would act on; the values are not for showing.
    docker.variables(made, facts.host.environment, facts.host.environment)
    if engine.name == "apple":
        image, steps, commit, directories = _apple(plan, facts, made)
        holes += apple.holes(made, facts)
        weakenings += apple.weakenings(made, facts)
    else:
        holes += _spellings(made, facts.system, masked)
        if facts.system == "windows":
            made = windows.outer_sources(made)
            masks = None if masks is None else windows.outer(masks)
        image, steps, commit, directories = _docker(plan, facts, made)
    return Rendering(
        backend=engine.name,
        name=made.name,
        isolation=isolation,
        system=facts.system,
        plan=digest(plan),
        image=image,
        steps=(*steps, ("build", image.argv)),
        commit=commit,
        directories=directories,
        variables=made.inherited,
        masks=masks,
        kept=made.kept,
        weakenings=weakenings,
        holes=holes,
        skipped=made.skipped,
    )


_Parts = tuple[Image, tuple[tuple[str, Argv], ...], tuple[Step, ...], tuple[str, ...]]


def _docker(plan: Plan, facts: Facts, made: Container) -> _Parts:
    engine, name = made.engine, made.image
    present = (engine.program, "image", "inspect", name)
    if is_built(plan):
        build = docker.build(engine, name, plan.setup.network)
        image = Image(name, BUILD, present, build, dockerfile(plan))
    elif plan.base.image is not None:
        image = Image(name, PULL, present, (engine.program, "pull", name), None)
    else:
        image = Image(name, IMPORT, present, docker.load(engine, name), tools_archive(facts.tools))
    steps = (
        ("run", docker.run(made)),
        ("keep", docker.keep(_without_secrets(made))),
        ("exec", docker.execute(made)),
        ("stop", docker.stop(engine, made.name)),
        ("remove", docker.remove(engine, made.name)),
    )
    return image, steps, (Step(docker.commit(engine, made.name, _committed(made))),), ()


def _apple(plan: Plan, facts: Facts, made: Container) -> _Parts:
    engine, name = made.engine, made.image
    present = apple_images.inspect_image(engine, name)
    holder = facts.masks.rpartition("/")[0]
    contexts: tuple[str, ...] = (f"{holder}/{made.name}",)
    if is_built(plan):
        contexts = (f"{holder}/empty", *contexts)
        text = dockerfile(plan)
        apple_images.check_dockerfile(text)
        build = apple_images.build(engine, name, plan.setup.network, contexts[0])
        image = Image(name, BUILD, present, build, text)
    else:
        pull = (engine.program, "image", "pull", "--progress", "none", name)
        image = Image(name, PULL, present, pull, None)
    steps = (
        ("run", apple.run(made, facts)),
        ("keep", apple.keep(_without_secrets(made), facts)),
        ("exec", apple.execute(made)),
        ("stop", apple.stop(engine, made.name)),
        ("remove", apple.remove(engine, made.name)),
    )
    # What the image says of its environment is not known here; runs are told all but its PATH.
    config = apple_images.ImageConfig(directory="/")
    commit = apple_images.commit(engine, made.name, _committed(made), contexts[-1], config)
    return image, steps, commit, contexts


def _without_secrets(made: Container) -> Container:
    """Return the container for ``keep``: its environment is in the image that a commit makes."""
    return made.replace(inherited=())


def _committed(made: Container) -> str:
    return f"localhost/coop/{made.name}"


def _holes(plan: Plan, engine: Engine, isolation: str) -> list[Weakening]:
    """Return how this back end is not what the plan asks for."""
    found = []
    if _ISOLATION.index(isolation) < _ISOLATION.index(plan.sandbox.min_isolation):
        text = f"{plan.sandbox.min_isolation} is asked for, and this is {isolation}"
        found.append(Weakening("sandbox.min_isolation", text, "an OCI runtime such as runsc or kata"))
    if not {"auto", engine.name}.intersection(plan.sandbox.backend):
        text = f"{engine.name} is not among the plan's back ends: {', '.join(plan.sandbox.backend)}"
        found.append(Weakening("sandbox.backend", text, f"add {engine.name}, or render another"))
    if is_built(plan) and plan.setup.network not in ("none", "host"):
        text = "the build also reaches this machine, its neighbours and metadata services"
        remedy = None if engine.name == "apple" else 'setup.network = "none"'
        found.append(Weakening("setup.network", text, remedy))
    return found


def _spellings(made: Container, system: str, masked: Sequence[Mount]) -> tuple[Weakening, ...]:
    """Return what guards do not hold where the host takes ``.GIT`` for ``.git``.

    A guard is mounted over one spelling of a path; another leads to the same file past it.
    """
    if system == "linux":
        return ()
    targets = [mount.target for mount in made.mounts if mount not in masked]
    guarded = any(inside(path, other) for path in targets for other in targets if path != other)
    text = "the file systems of {} take .GIT for .git, and only one spelling of a path is guarded"
    keys = (["workspace.protect"] if guarded else []) + (["files.hide"] if masked else [])
    remedy = "a workspace on a file system that tells upper from lower case"
    return tuple(Weakening(key, text.format(system), remedy) for key in keys)
