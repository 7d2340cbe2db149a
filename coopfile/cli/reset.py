"""``coop reset``: drop what sessions of a project have committed."""

from __future__ import annotations

import argparse
import os
import time

from coopfile.cli import output
from coopfile.cli.diff import size
from coopfile.cli.execution import say
from coopfile.cli.options import request
from coopfile.cli.sessions import data_directory
from coopfile.find import directories
from coopfile.rootfs.store import Store
from coopfile.session import store as sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from coopfile.plan.model import Plan

SUMMARY = "drop what sessions of this project have committed: runs have the root file system as it was built"
EPILOG = """examples:
  coop reset                drop all that is committed for this project
  coop reset --as x:ann     what sessions of that user have committed
  coop clean                then frees the room on disk

What session.persist keeps stays. A session that runs goes on with what it was started with.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options: it has none of its own."""


def main(options: argparse.Namespace) -> int:
    """Drop it, and say what it was."""
    from coopfile.compiling import compile_project
    from coopfile.rootfs import commit

    compiled = compile_project(request(options))
    root, plan = compiled.project.root, compiled.plan
    dropped = commit.reset(Store(directories(os.environ).rootfs), plan, root)
    engines = _on_engines(plan, root)
    if options.json:
        found = [{"stage": stage.key, "size": stage.size} for stage in dropped]
        output.emit_json({"dropped": found, "engines": list(engines)})
    elif not options.quiet:
        for engine in engines:
            output.emit(f"dropped what was committed on {engine}")
        for stage in dropped:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(stage.created))
            output.emit(f"dropped {size(stage.size)}, committed {when}")
        if not dropped and not engines:
            output.emit("nothing is committed for this project")
        for name in _running(root, plan) if dropped or engines else ():
            say(f"the session {name} goes on with what it was started with: coop stop {name}")
    return 0


def _on_engines(plan: Plan, root: str) -> tuple[str, ...]:
    """Drop what is committed on container engines, if the plan's sessions may be on any; return which."""
    from coopfile.engines import committed
    from coopfile.engines.call import own_environment
    from coopfile.session import saving

    if not committed.is_kept(plan):
        return ()
    return saving.reset(plan, root, own_environment(os.environ, (root,)))


def _running(root: str, plan: Plan) -> Iterator[str]:
    """Yield the names of the project's sessions, of who asks, that run."""
    user = None if plan.access is None else plan.access.user
    for known in sessions.known(data_directory()):
        state = known.state
        if (
            state is not None
            and (state.root, state.user) == (root, user)
            and sessions.is_alive(known.directory)
        ):
            yield state.name
