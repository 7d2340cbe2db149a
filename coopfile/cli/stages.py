"""What `coop status` says of a project's root file system and of the store that holds it."""

from __future__ import annotations

import os

from coopfile.cli import output
from coopfile.cli.progress import megabytes
from coopfile.errors import CoopError
from coopfile.record import Record
from coopfile.rootfs import base
from coopfile.rootfs.chain import chain
from coopfile.rootfs.store import Store, disk_usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.find import Project
    from coopfile.plan.model import Plan

BUILT, NOT_BUILT, CHANGED = "built", "not built", "changed"


class Wanted(Record):
    """A stage of the plan; ``size`` is in bytes, None while it is not there."""

    kind: str
    key: str
    size: int | None


class RootFileSystem(Record):
    """The state of a plan's root file system, why it is not built, and its stages, the image first.

    ``unused`` tells that what sessions have committed stands on another one.
    """

    image: str
    state: str
    why: str
    remedy: str | None
    stages: tuple[Wanted, ...]
    unused: bool = False


class Holdings(Record):
    """The whole store: its directory, how many stages, and their bytes and those of downloads."""

    directory: str
    stages: int
    size: int
    downloads: int


def root_file_system(plan: Plan, project: Project, directory: str) -> RootFileSystem | None:
    """Return the state of a plan's root file system in a store; None for a plan without an image."""
    if plan.base.image is None:
        return None
    store = Store(directory)
    root = store.root(project.root)
    state, why, remedy = BUILT, "", None
    committed, unused = None, False
    try:
        base_found = base.find(plan, directory, project.root)
        committed, unused = base_found.committed, base_found.unused
        for descriptor in base_found.held:
            os.close(descriptor)
    except CoopError as error:
        state, why, remedy = NOT_BUILT if root is None else CHANGED, error.message, error.remedy
    try:
        links = chain(plan, root)
    except CoopError:
        links = ()  # not locked, which is what ``why`` says
    found = ((link, store.stage(link.key)) for link in links)
    stages = tuple(Wanted(link.kind, link.key, stage.size if stage else None) for link, stage in found)
    if committed is not None and (top := store.stage(committed)) is not None:
        stages += (Wanted(top.kind, top.key, top.size),)
    return RootFileSystem(str(plan.base.image), state, why, remedy, stages, unused)


def holdings(directory: str) -> Holdings:
    """Return what a store holds."""
    stages = Store(directory).stages()
    size = sum(stage.size for stage in stages)
    return Holdings(directory, len(stages), size, disk_usage(f"{directory}/caches"))


def lines(found: RootFileSystem | None, store: Holdings, color: bool) -> list[str]:
    """Return both for people."""
    shown = []
    if found is not None:
        style = "green" if found.state == BUILT else "yellow"
        shown.append(f"image  {output.safe(found.image)}: {output.paint(found.state, style, color)}")
        if found.why:
            shown.append(f"    {output.safe(found.why)}")
        if found.remedy:
            shown.append(f"    {output.safe(found.remedy)}")
        for stage in found.stages:
            size = "missing" if stage.size is None else megabytes(stage.size)
            shown.append(f"    {stage.kind:<18} {size:>12}")
        if found.unused:
            shown.append("    committed          not used: it stands on another base; coop reset drops it")
    downloads = f", {megabytes(store.downloads)} of downloads" if store.downloads else ""
    held = f"{megabytes(store.size)} in {store.stages} stages{downloads}" if store.stages else "empty"
    return [*shown, f"store  {output.safe(store.directory)}: {held}"]


def data(found: RootFileSystem | None, store: Holdings) -> dict[str, object]:
    """Return both as JSON-able data."""
    return {
        "root": found
        and {
            "image": found.image,
            "state": found.state,
            "why": found.why or None,
            "remedy": found.remedy,
            "stages": [{name: getattr(stage, name) for name in Wanted._fields} for stage in found.stages],
            "unused_commits": found.unused,
        },
        "store": {name: getattr(store, name) for name in Holdings._fields},
    }
