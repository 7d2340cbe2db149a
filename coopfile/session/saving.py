"""What a session on a container engine has changed of its root file system, and keeping that.

The engine knows what has changed, by path; types and sizes are what the container itself says.
"""

from __future__ import annotations

import json
import time

from coopfile.engines import committed
from coopfile.engines.call import EngineError, ask, must
from coopfile.engines.inside import TYPES, describing, told_number
from coopfile.engines.timeouts import IMPORT, QUICK
from coopfile.engines.waiting import within
from coopfile.errors import CoopError
from coopfile.plan import canonical
from coopfile.plan.launch import inside
from coopfile.render import docker
from coopfile.render.container import LABEL_MANAGED, LABEL_OWNER, LABEL_PLAN, LABEL_SESSION
from coopfile.render.facts import Engine
from coopfile.rootfs.commit import Outcome
from coopfile.rootfs.overlay import ADDED, CHANGED, DELETED, Change
from coopfile.rootfs.store import Stage
from coopfile.session import client
from coopfile.session.model import SessionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from coopfile.plan.model import Plan
    from coopfile.session.store import State

_KINDS = {"A": ADDED, "C": CHANGED, "D": DELETED}
UNSHOWN = "container engines do not tell how the content of files differs"
_AT_ONCE = 200  # paths that are asked about
# What engines make in every container.
_ENGINES_OWN = (
    "/.dockerenv",
    "/dev",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/mtab",
    "/etc/resolv.conf",
    "/proc",
    "/run",
    "/sbin/docker-init",
    "/sys",
)


def changes(directory: str, state: State) -> tuple[tuple[Change, str], ...]:
    """Return what a session that runs has changed since it was started, by path, and ``Difference.stamp``.

    What is mounted is no part of it. Raises SessionGone, SessionError, EngineError.
    """
    facts = _facts(directory, state)
    engine = Engine(facts["engine"], facts["program"])
    listed = must(
        "what has changed is not known",
        docker.difference(engine, facts["container"]),
        IMPORT,
        facts["environment"],
    )
    mounted = (*_ENGINES_OWN, *_mounted(facts, engine))
    found = [item for item in _parsed(listed) if not _is_about(item[1], mounted)]
    paths = {path for _, path in found}
    leading = {above for path in paths for above in _above(path)}
    # A directory has changed already when something in it has.
    found = [(kind, path) for kind, path in found if not (kind == CHANGED and path in leading)]
    present = [path for kind, path in found if kind != DELETED]
    described = dict(zip(present, _described(facts, engine, present), strict=True))
    result = []
    for kind, path in sorted(found, key=lambda item: item[1]):
        type_, size, stamp = described.get(path, ("file", None, ""))
        result.append((Change(kind, path, type_, size), stamp))
    return tuple(result)


def commit(directory: str, state: State, counts: tuple[int, int, int]) -> Outcome:
    """Make what a session has changed a part of the images that its project's runs start with.

    The session goes on. ``counts`` are those of what it has changed. Raises SessionGone, SessionError,
    EngineError.
    """
    plan = canonical.from_json(state.plan, f"what the session {state.name} runs under")
    outcome = Outcome(None, counts)
    if not any(counts):
        return outcome
    facts = _facts(directory, state)
    engine, environment = Engine(facts["engine"], facts["program"]), facts["environment"]
    image = committed.name(plan, state.root)
    labels = (LABEL_MANAGED, LABEL_OWNER, LABEL_PLAN, LABEL_SESSION)
    must(
        "what has changed cannot be committed",
        docker.commit(engine, facts["container"], image, labels),
        IMPORT,
        environment,
    )
    argv = (engine.program, "image", "inspect", "--format", "{{.Size}}", image)
    size = ask(argv, QUICK, environment).out.strip()
    stage = Stage(image, "committed", None, "", int(size) if size.isdecimal() else 0, int(time.time()), {})
    return outcome.replace(stage=stage)


def committed_image(directory: str, state: State) -> str:
    """Return the engine's id of what is committed for a session's project; nothing if nothing is.

    Raises SessionGone, SessionError, EngineError.
    """
    plan = canonical.from_json(state.plan, f"what the session {state.name} runs under")
    facts = _facts(directory, state)
    image = committed.name(plan, state.root)
    argv = (str(facts["program"]), "image", "inspect", "--format", "{{.Id}}", image)
    answer = ask(argv, QUICK, facts["environment"])
    return answer.out.strip() if answer.status == 0 else ""


def reset(plan: Plan, root: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Drop what sessions of a project (its real path) have committed on engines; return whose it was.

    ``environment`` is that of the engines' own processes. Engines that do not answer are left out, unless
    it is the only one that the plan takes. Raises CoopError.
    """
    from coopfile.engines.choose import wanted
    from coopfile.engines.detect import NAMES, detect

    names = [name for name in wanted(plan) if name in NAMES] if committed.is_kept(plan) else []
    found = [item for name in names for item in detect(environment, [name])]
    if len(found) == 1 and found[0].engine is None:
        raise CoopError(f"{found[0].name}: {found[0].why}", found[0].remedy)
    engines = [item.engine for item in found if item.engine is not None]
    return tuple(engine.name for engine in engines if committed.drop(plan, root, engine, environment))


def _facts(directory: str, state: State) -> Mapping[str, Any]:
    if state.backend == "apple":
        raise SessionError(
            "what a session has changed is not known with Apple's container", session=state.name
        )
    plan = canonical.from_json(state.plan, f"what the session {state.name} runs under")
    if not committed.is_kept(plan):
        raise SessionError(
            f"the root file system of the session {state.name} cannot be written on {state.backend}",
            'session.commit = "ask" or "auto" makes it one that is to be committed',
            session=state.name,
        )
    connection, message, _ = client.request(directory, state.name, ("facts",))
    connection.close()
    facts: Mapping[str, Any] = message[1]
    return facts


def _parsed(text: str) -> Iterator[tuple[str, str]]:
    """Yield kind and path: a line has both, and goes on where the next one does not begin so."""
    lines: list[str] = []
    for line in text.split("\n")[:-1]:
        if line[:1] in _KINDS and line[1:3] == " /":
            lines.append(line)
        elif lines:
            lines[-1] += f"\n{line}"
    for line in lines:
        yield _KINDS[line[0]], line[2:]


def _is_about(path: str, mounted: Sequence[str]) -> bool:
    """Tell whether a path is where something is mounted, below that, or on the way there."""
    return any(inside(path, place) or inside(place, path) for place in mounted)


def _above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _mounted(facts: Mapping[str, Any], engine: Engine) -> tuple[str, ...]:
    """Return where something is mounted in a container."""
    template = "[{{json .Mounts}},{{json .HostConfig.Tmpfs}}]"
    argv = (engine.program, "container", "inspect", "--format", template, facts["container"])
    text = must("what is mounted is not known", argv, QUICK, facts["environment"])
    try:
        mounts, scratch = json.loads(text)
        return (*(str(mount["Destination"]) for mount in mounts or ()), *(scratch or {}))
    except (ValueError, KeyError, TypeError):
        raise EngineError("what is mounted is not known: its JSON is not understood", None, argv) from None


def _described(
    facts: Mapping[str, Any], engine: Engine, paths: Sequence[str]
) -> Iterator[tuple[str, int | None, str]]:
    """Yield type, size and stamp of each path."""
    for first in range(0, len(paths), _AT_ONCE):
        some = paths[first : first + _AT_ONCE]
        execution = docker.Execution(describing(some))
        argv = within(engine, facts["runtime"], facts["container"], execution)
        lines = ask(argv, IMPORT, facts["environment"]).out.split("\n")[:-1]
        for number in range(len(some)):
            kind, size, stamp = [*(lines[number] if number < len(lines) else "").split(" ", 2), "", ""][:3]
            # It is shown to people, and a command can have replaced the shell that tells.
            yield kind if kind in TYPES else "file", told_number(size), stamp
