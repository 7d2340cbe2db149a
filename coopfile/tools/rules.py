"""Which rule of the plan refuses a path: asked for, or named in what a command has printed."""

from __future__ import annotations

import os
import re

from coopfile.errors import CoopError
from coopfile.find import real_home
from coopfile.plan.explain import Action, explain
from coopfile.tools import definitions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from coopfile.plan.model import Plan

WHAT_TO_DO = "that is the sandbox's rule: work without it, or ask its owner"
_MOST_LINES, _LONGEST_LINE = 100, 500  # of the end of what was printed
_MOST = 3  # paths that are told of
# What the C library says of EROFS, of EBUSY, which is what moving a guarded path gives, and of EACCES, all in
# the C locale; and what may have been tried.
_SAID = (
    ("Read-only file system", ("write",)),
    ("Device or resource busy", ("write",)),
    ("Permission denied", ("read", "write")),
)
_QUOTED = re.compile("'([^']+)'|\"([^\"]+)\"|\u2018([^\u2019]+)\u2019")


def refusal(plan: Plan, verb: str, path: str, workspace: str) -> str | None:
    """Say by which rule a path, as it is inside, may not be read or written; None if no rule says so.

    ``workspace`` is where it lies on the host; a relative path is taken to be below it.
    """
    inside = _inside(plan, workspace)
    asked = path[len(inside) :] if path.startswith(inside) else path
    home = real_home(os.environ)
    try:
        verdict = explain(plan, Action(verb, asked), home=home, workspace=workspace)
    except CoopError:
        return None
    if verdict.allowed:
        return None
    return f"{path} may not be {'read' if verb == 'read' else 'written'} ({verdict.key}): {verdict.reason}"


def refusals(plan: Plan, printed: str, workspace: str) -> tuple[str, ...]:
    """Say the same of paths that a command has complained of, as programs commonly do. A guess, bounded."""
    found: dict[str, None] = {}
    for line in printed.splitlines()[-_MOST_LINES:]:
        for said, verbs in _SAID:
            for path in _paths(line[:_LONGEST_LINE], said):
                if (
                    plan.base.image is not None
                    and path.startswith("/")
                    and not path.startswith(_inside(plan, workspace))
                ):
                    continue  # the image's own, of which the host's rules say nothing
                told = (refusal(plan, verb, path, workspace) for verb in verbs)
                found.update(dict.fromkeys(text for text in told if text is not None))
    return tuple(found)[:_MOST]


def _inside(plan: Plan, workspace: str) -> str:
    return definitions.workspace(plan, workspace).rstrip("/") + "/"


def _paths(line: str, said: str) -> Iterator[str]:
    """Yield what may be the path: what is quoted, or stands before the message, as ``path: message``."""
    before, there, after = line.partition(said)
    if not there:
        return
    quoted = [next(filter(None, found)) for found in _QUOTED.findall(before) + _QUOTED.findall(after)]
    yield from quoted or [before.rstrip(": ").rpartition(" ")[2]]
