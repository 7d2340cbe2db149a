"""The short way through ``coop init`` for a project where there is nothing left to do."""

from __future__ import annotations

import os

from coopfile.errors import CoopError
from coopfile.find import directories, find
from coopfile.plan import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.cli.options import RunOptions
    from coopfile.find import Project
    from coopfile.plan.model import Plan


def tell_ready(options: RunOptions) -> bool:
    """Say that the root file system is ready, if that is certain without compiling, asking or building."""
    if options.command or options.timeout or options.plan or options.session or options.ttl:
        return False  # not init's: argparse says so
    if not os.path.lexists(os.path.join(options.directory, options.file or "Coopfile")):
        return False  # init writes one, also below a project that has one
    try:
        project = find(options.directory, options.file, os.environ)
        own = directories(os.environ)
        found = cache.load(own.cache, cache.key(project, options.compile_options, os.environ))
        if found is None:
            return False
        plan, _ = found
        if plan.base.image is None or not _is_built(plan, project, own.rootfs):
            return False
    except (CoopError, OSError):
        return False
    if not options.quiet:
        from coopfile.cli.execution import say
        from coopfile.lock import named

        say(f"{named(plan.base.image)} is ready")
    return True


def _is_built(plan: Plan, project: Project, directory: str) -> bool:
    """Tell whether the project uses a plan's stages, as was recorded after its lock was written."""
    from coopfile.rootfs import base
    from coopfile.rootfs.store import Store

    found = base.find(plan, directory, project.root)
    for descriptor in found.held:
        os.close(descriptor)
    store = Store(directory)
    used = store.root(project.root)
    built = found.layers[1:] if found.committed else found.layers
    keys = tuple(os.path.basename(os.path.dirname(layer)) for layer in reversed(built))
    if used is None or used.stages != keys or found.unused:
        return False
    recorded = os.stat(store.root_path(project.root)).st_mtime_ns
    return project.lock is None or project.lock.stamp[3] <= recorded
