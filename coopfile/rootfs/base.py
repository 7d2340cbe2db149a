"""From a plan to the layers of its root file system: found again, or built.

``find`` is on the path of every run on an image. What it found it keeps beside the store
(``DIRECTORY/found``), so that the next run neither hashes nor parses anything; a stage
that is gone and a project that was built anew are noticed.
"""

from __future__ import annotations

import marshal
import os
import zlib

from coopfile import __version__
from coopfile.errors import CoopError
from coopfile.plan import cache, sessions
from coopfile.plan.model import to_data
from coopfile.record import Record
from coopfile.rootfs.hold import hold

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from coopfile.native.building import Step
    from coopfile.plan.model import Access, Plan
    from coopfile.rootfs.build import StageError
    from coopfile.rootfs.progress import Progress
    from coopfile.rootfs.store import Root, Stage, Store


class Base(Record):
    """A built root file system: real paths of its layers, the highest first, and the image's environment.

    ``held`` are descriptors: while one of them is open, in any process, no layer is removed.
    ``committed`` is the key of the stage that a session added, the highest, if there is one.
    ``unused`` tells that one was added to other stages, and none to these.
    """

    layers: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    held: tuple[int, ...] = ()
    committed: str | None = None
    unused: bool = False


class Built(Record):
    """A root file system that has just been seen to, its stages and their keys, the image's first."""

    base: Base
    keys: tuple[str, ...]
    stages: tuple[Stage, ...]


def find(plan: Plan, directory: str, project: str) -> Base:
    """Return the root file system of a plan, and hold it.

    ``directory`` is the store's, ``project`` the real path of the workspace. Raises CoopError,
    naming the command to run, if it is not built or the plan has changed since.
    """
    added = committed_path(directory, project, plan.access)
    wanted = (__version__, os.uname().machine, project, added, *_inputs(plan))
    entry = f"{directory}/found/{zlib.crc32(marshal.dumps(wanted)):08x}"
    try:
        recalled = cache.recall(entry, wanted)
        if recalled is not None:
            stamps, keys, environment, committed, unused = recalled
            if all(_stamp(path) == stamp for path, stamp in stamps):
                held = [hold(f"{directory}/stages/{key}") for key in keys]
                if None not in held:
                    return _base(directory, keys, environment, held, committed, unused)
                for descriptor in held:
                    if descriptor is not None:
                        os.close(descriptor)
        return _search(plan, directory, project, added, entry, wanted)
    except OSError as error:
        from coopfile.rootfs.store import failure

        raise failure(error, directory) from None


def build(
    plan: Plan,
    store: Store,
    environment: Mapping[str, str],
    progress: Progress,
    *,
    project: str,
    rebuild: bool = False,
    debug: Callable[[Step, StageError], None] | None = None,
    accept: Callable[[Sequence[Stage]], None] = lambda _: None,
) -> Built:
    """Return a plan's root file system, with what is missing of it built; the project uses it from now on.

    ``environment`` is that of ``call.own_environment``, for credentials. With ``rebuild`` all that
    stands on the image is built anew, for this project only. ``debug`` gets the step that
    failed, while what it did is still in place. ``accept`` gets the stages before the project uses
    them, and may raise to leave it with what it had. Raises StageError when a command fails.
    """
    from coopfile.rootfs.build import Builder, build_all
    from coopfile.rootfs.store import failure

    builder = Builder(plan, store, environment, progress, project, debug)
    try:
        stages = build_all(builder, rebuild=rebuild, accept=accept)
    except OSError as error:
        raise failure(error, store.directory) from None
    keys = tuple(stage.key for stage in stages)
    return Built(_base(store.directory, keys, _environment(stages[0]), ()), keys, stages)


def _inputs(plan: Plan) -> tuple[Any, ...]:
    allowed = tuple(map(str, plan.network.allow)) if plan.setup.network == "proxy" else ()
    return (to_data(plan.base), to_data(plan.packages), to_data(plan.setup), plan.agent.install, allowed)


def _stamp(path: str) -> tuple[int, int] | None:
    """Return what changes when a file is replaced."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def committed_path(directory: str, project: str, access: Access | None) -> str:
    """Return the path of the record of what a project's sessions, and who asks, have committed."""
    return f"{directory}/committed/{sessions.project_id(project, access)}.json"


def _base(
    directory: str, keys: Any, environment: Any, held: Any, committed: str | None = None, unused: bool = False
) -> Base:
    real = os.path.realpath(directory)
    layers = tuple(f"{real}/stages/{key}/fs" for key in reversed(keys))
    return Base(layers, tuple((name, value) for name, value in environment), tuple(held), committed, unused)


def _environment(image: Stage) -> list[tuple[str, str]]:
    return [(str(name), str(value)) for name, value in image.about.get("environment", ())]


def _search(
    plan: Plan, directory: str, project: str, added: str, entry: str, wanted: tuple[Any, ...]
) -> Base:
    """Find the stages by their keys, and keep what was found in an entry."""
    from contextlib import ExitStack

    from coopfile.rootfs import committed
    from coopfile.rootfs.chain import chain, is_given
    from coopfile.rootfs.store import Store

    store = Store(directory)
    stamps = [(path, _stamp(path)) for path in (store.root_path(project), added)]
    root = store.root(project)
    links = chain(plan, root)
    keys = [link.key for link in links]
    with ExitStack() as opened:
        held = []
        for link in links:
            descriptor = hold(f"{directory}/stages/{link.key}")
            if descriptor is None:
                raise _missing(link.kind, keys, root)
            opened.callback(os.close, descriptor)
            held.append(descriptor)
        image = store.stage(keys[0])
        if image is None:
            raise _missing(links[0].kind, keys, root)
        assert plan.base.image is not None
        if not is_given(plan.base.image, image, root):
            raise CoopError(
                f"what the lock says of {plan.base.image.replace(digest=None)} has come from elsewhere",
                "coop init asks whether it is there, too",
            )
        known = committed.read(directory, project, plan.access)
        top = known.get(keys[-1])
        if top is not None:
            descriptor = hold(f"{directory}/stages/{top.stage}")
            if descriptor is None:
                raise CoopError("what was committed is no longer there", "coop reset goes on without it")
            opened.callback(os.close, descriptor)
            held.append(descriptor)
            keys.append(top.stage)
        opened.pop_all()
    found = (keys, _environment(image))
    about = (None if top is None else top.stage, bool(known) and top is None)
    cache.remember(entry, wanted, (stamps, *found, *about))
    return _base(directory, *found, held, *about)


def _missing(kind: str, keys: list[str], root: Root | None) -> CoopError:
    if root is None:
        what = "the root file system is not built yet"
    elif keys == list(root.stages):
        what = "a part of the root file system is no longer there"
    else:
        others = "has changed, or setup.network or what it leads to,"
        changed = "base.image has changed" if kind == "image" else f"{kind} {others}"
        what = f"{changed} since the root file system was built"
    return CoopError(what, "coop init builds it")
