"""The short way of ``coop run --session`` into a session that runs under the plan that is asked for.

Whether it does was found out the long way before; that is remembered for as long as neither the plan
nor what is known of the session changes.
"""

from __future__ import annotations

import os

from coopfile.cli import attached
from coopfile.cli.exec import below
from coopfile.find import directories
from coopfile.plan import cache
from coopfile.plan.model import to_data
from coopfile.plan.sessions import place
from coopfile.session import client, installs
from coopfile.session.model import Command, SessionGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from coopfile.audit import Entry
    from coopfile.cli.options import RunOptions
    from coopfile.find import Project
    from coopfile.plan.model import Plan
    from coopfile.session.model import Running


def rejoin(
    options: RunOptions, project: Project, plan: Plan, timeout: float | None, entry: Entry
) -> int | None:
    """Run the command and return the exit status; None if only the long way tells whether it may."""
    name = options.session
    assert name is not None
    command = tuple(options.command) or plan.agent.command
    directory = place(os.path.realpath(directories(os.environ).data), project.root, plan.access, name)
    key = _key(directory, plan)
    known = _entry(project, directory)
    digest = cache.recall(known, key) if known and command and options.ttl is None else None
    if not isinstance(digest, str):
        return None

    def begin(command: Command, streams: Sequence[int]) -> Running:
        installs.note(directory, command.argv)
        return client.begin(directory, name, command, streams, plan=digest)

    terminal = attached.terminal() if attached.has_terminal() else None
    entry.backend = "native"
    entry.secrets = lambda: client.secrets(directory, name, entry.about)
    asked = Command(command, (), below(project, None), timeout, terminal)
    try:
        dressed = attached.dressed(asked, {variable.name for variable in plan.env})
        return attached.run(begin, dressed, directory)
    except SessionGone as error:
        if error.begun:
            raise
        return None


def remember(project: Project, plan: Plan, directory: str, digest: str) -> None:
    """Remember that the session of a directory runs under a plan, which has this digest."""
    entry = _entry(project, directory)
    if entry:
        cache.remember(entry, _key(directory, plan), digest)


def _key(directory: str, plan: Plan) -> tuple[Any, ...]:
    try:
        status = os.stat(f"{directory}/state")
    except OSError:
        return ()
    stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return (directory, stamp, to_data(plan))


def _entry(project: Project, directory: str) -> str:
    """Return the file to remember it in; empty where a sandboxed command could write it."""
    own = os.path.realpath(directories(os.environ).cache)
    inside = own.startswith(project.root.rstrip("/") + "/")
    return "" if inside else f"{own}/sessions/{os.path.basename(directory)}"
