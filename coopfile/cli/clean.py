"""``coop clean``: remove the stages of root file systems that no project uses."""

from __future__ import annotations

import argparse
import os

from coopfile.cli import output
from coopfile.cli.execution import say
from coopfile.cli.progress import clip, megabytes
from coopfile.errors import CoopError
from coopfile.find import directories, find
from coopfile.rootfs.store import Store
from coopfile.session import removing, store, sweep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.rootfs.store import Stage
    from coopfile.session.container import Orphan

SUMMARY = "remove what no project uses any more: of root file systems, and of what runs have kept"
EPILOG = """examples:
  coop clean --dry-run     what it would free
  coop clean
  coop clean --caches      with what package managers have downloaded, for every project
  coop clean --sessions    with what session.persist kept for projects that are gone

A project counts while its directory exists; what runs or is built now stays. What runs have
kept for projects that exist is `coop rm`'s to remove. Containers go whose run, or what kept their
session, was killed; of sessions that were to end with a program,
or of which nothing sound is known, what else they have left goes.
"""

_WIDEST = 60  # columns that tell stages of one kind apart


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    parser.add_argument(
        "--caches", action="store_true", help="remove the downloads of projects that are in use, too"
    )
    parser.add_argument(
        "--sessions", action="store_true", help="remove what runs have kept for projects that are gone, too"
    )


def main(options: argparse.Namespace) -> int:
    """Collect, and say how much was freed."""
    own = directories(os.environ)
    freed = Store(own.rootfs).collect(dry_run=options.dry_run, caches=options.caches)
    data = os.path.realpath(own.data)
    orphans = _orphans(data, options)  # before what tells of them is forgotten
    found = sweep.forgotten(data)
    gone = tuple(item for item in found if item.empty or options.sessions)
    if gone and not options.dry_run:
        removing.remove([item.path for item in gone], own.state)
    dead = [path for path in sweep.abandoned(data) if path not in {item.path for item in found}]
    if not options.dry_run:
        dead = [path for path in dead if sweep.tidy(path, own.state)]
    if options.json:
        stages = [{"key": stage.key, "kind": stage.kind, "size": stage.size} for stage in freed.stages]
        output.emit_json(
            {
                "stages": stages,
                "downloads": freed.downloads,
                "kept": [item.path for item in gone],
                "sessions": dead,
                "containers": [{"engine": item.engine, "id": item.id} for item in orphans],
                "size": freed.size,
                "removed": not options.dry_run,
            }
        )
    elif not options.quiet:
        for stage in freed.stages:
            output.emit(f"{megabytes(stage.size):>12}  {stage.kind:<14}  {describe(stage)}".rstrip())
        if freed.downloads:
            output.emit(f"{megabytes(freed.downloads):>12}  downloads")
        for item in found:
            if item not in gone:
                project = output.safe(item.project)
                output.emit(f"kept for {project}, which is gone: coop clean --sessions removes it")
        if dead:
            output.emit(f"{'would forget' if options.dry_run else 'forgot'} {len(dead)} sessions that ended")
        for orphan in orphans:
            verb = "would remove" if options.dry_run else "removed"
            output.emit(f"{verb} a container of {orphan.engine} that nothing looks after: {orphan.id[:12]}")
        verb = "would free" if options.dry_run else "freed"
        output.emit(f"{verb} {megabytes(freed.size)} in {len(freed.stages)} stages")
    return 0


def _orphans(data: str, options: argparse.Namespace) -> tuple[Orphan, ...]:
    """Remove the containers of runs and sessions that were killed; or only find them."""
    from coopfile.engines.call import own_environment
    from coopfile.session import container

    # Where sandboxed commands may have put a program that is called like an engine.
    writable = {known.root for known in store.known(data) if known.root is not None}
    try:
        project = find(options.directory, None, os.environ)
        if project.lock_path is not None:
            writable.add(project.root)
        environment = own_environment(os.environ, sorted(writable))
    except CoopError as error:
        say(f"containers are not looked at: {error.message}")
        return ()
    return container.sweep(data, environment, dry_run=options.dry_run)


def describe(stage: Stage) -> str:
    """Return what tells a stage from others of its kind: the image, the packages or the first command."""
    about = stage.about
    packages = about.get("versions")
    commands = about.get("commands")
    if isinstance(packages, dict) and packages:
        text = " ".join(map(str, packages))
    elif isinstance(commands, list) and commands:
        text = " ".join(str(commands[0]).split())
    else:
        text = str(about.get("image", ""))
    return clip(output.safe(text), _WIDEST)
