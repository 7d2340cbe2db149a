"""``coop commit``: make what a session has changed a part of the project's root file system."""

from __future__ import annotations

import argparse
import os

from coopfile.cli import output
from coopfile.cli.diff import session, size
from coopfile.cli.execution import say
from coopfile.cli.options import request
from coopfile.errors import CoopError
from coopfile.find import directories, find
from coopfile.plan.sessions import DEFAULT
from coopfile.rootfs.store import Store
from coopfile.session.commit import commit, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.rootfs.commit import Outcome
    from coopfile.session.store import State

SUMMARY = "keep what a session has changed of its root file system, for the runs after it"
EPILOG = """examples:
  coop commit               what the session "default" has changed: coop diff shows it
  coop commit work
  coop commit --replace     also if another session has committed since this one was started

It is a layer on what the Coopfile asks for, and every later run and session of the project starts
with it. When base, packages, setup or agent change it is not used until they are as they were; `coop
reset` drops it. The session goes on; its processes stand still meanwhile.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument("name", metavar="NAME", nargs="?", default=DEFAULT, help="the session's name")
    parser.add_argument(
        "--replace", action="store_true", help="drop what others have committed since it was started"
    )


def main(options: argparse.Namespace) -> int:
    """Commit, and say what it came to."""
    directory, state = session(options)
    store = Store(directories(os.environ).rootfs)
    outcome = commit(directory, state, store, replace=options.replace)
    if options.json:
        output.emit_json(_data(outcome))
        return 0
    if not options.quiet:
        text = words(outcome)
        output.emit(text if outcome.stage is None else f"{text} ({size(outcome.stage.size)} on disk)")
    for path in () if options.quiet else outcome.left:
        say(f"{path} is left out: a socket, or what every sandbox has of its own")
    if outcome.stage is not None and state.backend == "native":
        _tell_unused(options, state, outcome.stage.key)
    return 0


def _data(outcome: Outcome) -> dict[str, object]:
    added, changed, deleted = outcome.counts
    stage = outcome.stage
    return {
        "stage": None if stage is None else stage.key,
        "size": None if stage is None else stage.size,
        "added": added,
        "changed": changed,
        "deleted": deleted,
        "left_out": list(outcome.left),
    }


def _tell_unused(options: argparse.Namespace, state: State, key: str) -> None:
    """Say so if the project's next run does not have it, or none can be: its plan is another one by now."""
    from coopfile.compiling import compile_project
    from coopfile.rootfs import base

    asked = request(options)
    try:
        if find(asked.directory, asked.file, os.environ).root != state.root:
            asked = asked.replace(directory=state.root, file=None)
        plan = compile_project(asked).plan
        if plan.base.image is None:
            say("base.image is gone from the Coopfile: runs do not have what is committed")
            return
        found = base.find(plan, directories(os.environ).rootfs, state.root)
    except CoopError as error:
        say(f"runs do not have it yet: {error.message}")
        return
    for descriptor in found.held:
        os.close(descriptor)
    if found.committed != key:
        say(
            "the Coopfile asks for another root file system since the session was started: "
            "runs do not have what is committed, unless it is as it was"
        )
