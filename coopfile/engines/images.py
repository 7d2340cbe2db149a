"""Making sure that the image of a plan's containers is there: imported, built, or pulled."""

from __future__ import annotations

import json
import re
import tarfile
from typing import cast

from coopfile.engines.call import Call, EngineError, ask, file_of, must, shown
from coopfile.engines.detect import ISOLATION, isolation
from coopfile.engines.timeouts import BUILD, IMPORT, PULL
from coopfile.errors import CoopError
from coopfile.language.items import LocalImage
from coopfile.plan.model import is_built
from coopfile.record import Record
from coopfile.render import docker
from coopfile.render.images import on_engine, reference, tools_archive, tools_tag
from coopfile.render.stages import stages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import IO

    from coopfile.plan.model import Plan
    from coopfile.render.facts import Engine, Entry

_WIDEST = 300  # characters of a line
_LINES = 15
# Docker's first builder, Buildah, and BuildKit: Step 4/7 : RUN …, STEP 4/7: RUN …, #7 [4/7] RUN …
_STEP = re.compile(r"(?:Step|STEP|#\d+ \[) *(\d+)/\d+[ :\]]")
_NOISE = re.compile(rf"{_STEP.pattern}| ---> |Removing intermediate container |DEPRECATED:")
_INSTRUCTIONS_BEFORE = 3
_CONFIGURATION = re.compile(r"[0-9a-f]{64}\.json", re.ASCII)
_LARGEST_CONFIGURATION = 4 << 20  # bytes


class _Task(Record):
    """What is to be had where, as in ``ensure``."""

    plan: Plan
    engine: Engine
    project: str
    environment: Mapping[str, str]
    tell: Callable[[str], None]
    show: Callable[[str], None] | None


def ensure(
    plan: Plan,
    engine: Engine,
    tools: Sequence[Entry],
    project: str,
    environment: Mapping[str, str],
    tell: Callable[[str], None],
    show: Callable[[str], None] | None = None,
) -> str:
    """Return the name of the image, made or fetched if it is not there.

    ``tools`` are those of the facts, and ``project`` is the real path of the workspace.
    ``tell`` hears of what takes long, and ``show`` each line of what the engine says meanwhile.
    """
    image = reference(plan, tools)
    if exists(engine, image, environment):
        return image
    task = _Task(plan, engine, project, environment, tell, show)
    if is_built(plan):
        _build(task, image)
    elif plan.base.image is not None:
        _get(task, image)
    else:
        _import(engine, image, tools, environment)
    return image


def ensure_tools(engine: Engine, tools: Sequence[Entry], environment: Mapping[str, str]) -> str:
    """Return the name of the image of the host's tools, made if it is not there."""
    image = tools_tag(tools)
    if not exists(engine, image, environment):
        _import(engine, image, tools, environment)
    return image


def _import(engine: Engine, image: str, tools: Sequence[Entry], environment: Mapping[str, str]) -> None:
    what = "the image of the host's tools cannot be made"
    must(what, docker.load(engine, image), IMPORT, environment, tools_archive(tools))


def exists(engine: Engine, image: str, environment: Mapping[str, str]) -> bool:
    """Tell whether an engine has an image; raises EngineError when it does not answer."""
    argv = (engine.program, "image", "inspect", "--format", "{{.Id}}", image)
    return ask(argv, environment=environment).status == 0


def _get(task: _Task, image: str) -> None:
    """Fetch the plan's own image, which is called ``image`` there."""
    wanted = task.plan.base.image
    if isinstance(wanted, LocalImage):
        from coopfile.engines.load import load

        task.tell(f"loading {wanted}")
        load(task.engine, wanted, image, task.environment, task.project)
    else:
        _pull(task, image)


def _pull(task: _Task, image: str) -> None:
    task.tell(f"pulling {image}")
    argv = (task.engine.program, "pull", image)
    status, said = Call(argv, task.environment, merged=True).follow(PULL, task.show)
    if status != 0:
        raise EngineError(
            f"{image} cannot be pulled: {shown(_reason(said))}",
            f"is the name right, and the registry within reach? try: {task.engine.name} pull {image}",
            argv,
            "\n".join(said),
        )


def _build(task: _Task, image: str) -> None:
    """Build the image of a plan with packages, set-up or an agent."""
    from coopfile.render.dockerfile import dockerfile

    plan, engine, environment, show = task.plan, task.engine, task.environment, task.show
    known = on_engine(plan)
    text = dockerfile(known)
    if plan.setup.network not in ("none", "host"):
        raise CoopError(
            f'setup.network = "{plan.setup.network}": {engine.name} would let the build reach this machine '
            "and its neighbours too",
            'the native back end builds so; setup.network = "none" builds without a network, "host" with all '
            "of it",
        )
    level = isolation(engine.default_runtime)
    if ISOLATION.index(level) < ISOLATION.index(plan.sandbox.min_isolation):
        raise CoopError(
            f"min_isolation = {plan.sandbox.min_isolation}: {engine.name} would build the image with "
            f"{engine.default_runtime}, which gives {level}",
            "make a runtime that gives it the engine's default, or name an image that has everything already",
        )
    base = str(known.base.image)
    if not exists(engine, base, environment):
        _get(task, base)
    _refuse_triggers(engine, base, environment)
    task.tell(f"building {image} (once; it is kept)")
    *argv, context = docker.build(engine, image, plan.setup.network)
    argv += [*_limits(plan, engine), context]
    with file_of(text.encode()) as given:
        call = Call(argv, environment, given.fileno(), merged=True)
        status, said = call.follow(BUILD, show and (lambda line: show(_plain(line))))
    if status != 0:
        raise EngineError(_failure(plan, engine, said, shown_already=show is not None), None, argv)


def _refuse_triggers(engine: Engine, image: str, environment: Mapping[str, str]) -> None:
    """Refuse an image that adds steps of its own to builds: the engine itself would fetch what they name."""
    has = _has_triggers_of_docker if engine.name == "docker" else _has_triggers_of_podman
    if has(engine, image, environment):
        raise CoopError(
            f"{image} has ONBUILD instructions, which would run at the build without being in the plan",
            "name an image without them",
        )


def _has_triggers_of_docker(engine: Engine, image: str, environment: Mapping[str, str]) -> bool:
    argv = (engine.program, "image", "inspect", "--format", "{{json .Config.OnBuild}}", image)
    found = must(f"{image} cannot be looked at", argv, environment=environment).strip()
    return found not in ("null", "[]", "")


def _has_triggers_of_podman(engine: Engine, image: str, environment: Mapping[str, str]) -> bool:
    """Look into the image itself: what Podman shows of it leaves them out."""
    argv = (engine.program, "save", "--format", "docker-archive", image)
    try:
        with (
            Call(argv, environment).output(IMPORT) as output,
            tarfile.open(fileobj=cast("IO[bytes]", output), mode="r|") as archive,
        ):
            for member in archive:
                # The configuration is the one called by its digest; it may be anywhere among the layers.
                if _CONFIGURATION.fullmatch(member.name) and member.size <= _LARGEST_CONFIGURATION:
                    file = archive.extractfile(member)
                    if file is not None:
                        return has_triggers(file.read())
    except (tarfile.TarError, ValueError):
        pass
    raise EngineError(f"{image} cannot be looked at: it has no configuration that can be read", None, argv)


def has_triggers(configuration: bytes) -> bool:
    """Tell whether an image's configuration may be read as one with ONBUILD instructions.

    As Go reads JSON: keys in any case, and of several with one name each counts.
    """
    found: list[object] = []

    def note(pairs: list[tuple[str, object]]) -> None:
        found.extend(value for key, value in pairs if key.casefold() == "onbuild" and value)

    json.loads(configuration, object_pairs_hook=note)
    return bool(found)


def _limits(plan: Plan, engine: Engine) -> list[str]:
    """Return the options that hold a build to the plan's memory, where the engine can."""
    if "memory" not in engine.limits:
        return []
    swap = ["--memory-swap", f"{plan.limits.memory}b"] if "swap" in engine.limits else []
    return ["--memory", f"{plan.limits.memory}b", *swap]


def _failure(plan: Plan, engine: Engine, said: Sequence[str], *, shown_already: bool) -> str:
    """Return what to tell of a build that failed: at which command, and the end of its output."""
    commands = [
        (f"{stage.key}[{number}]" if stage.key == "setup.run" else stage.key, command)
        for stage in stages(plan)
        for number, command in enumerate(stage.commands)
    ]
    steps = [int(match[1]) for line in said if (match := _STEP.match(line))]
    # The first instructions are FROM, USER and WORKDIR.
    number = steps[-1] - 1 - _INSTRUCTIONS_BEFORE if steps else -1
    if 0 <= number < len(commands):
        key, command = commands[number]
        first, more, _ = command.strip().partition("\n")
        title = f"{key} failed: {first[:_WIDEST]}{'…' if more or len(first) > _WIDEST else ''}"
    else:
        title = f"{engine.name} could not build the image"
    lines = [line[:_WIDEST] for line in map(_plain, said) if line.strip() and not _NOISE.match(line)]
    return "\n".join([title, *([] if shown_already else lines[-_LINES:])])


def _plain(line: str) -> str:
    """Return a line without the colour by which Docker's first builder marks standard error."""
    return line.removeprefix("\x1b[91m").removeprefix("\x1b[0m").removesuffix("\x1b[0m")


def _reason(said: Sequence[str]) -> str:
    """Return the lines of an engine's output that tell of errors; all if none seems to."""
    return "\n".join([line for line in said if "rror" in line] or said)
