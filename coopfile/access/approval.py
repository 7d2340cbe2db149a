"""Approval: what a project's files widen counts once their reader has said yes.

A Coopfile in a repository is a stranger's text. What it gives the sandbox beyond the
built-in defaults and the reader's own file is shown once and recorded, outside every
workspace and out of every sandbox's sight. The record is the approved plan itself, so
that an edit which widens nothing more needs no new approval (design section 4).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

from coopfile import wholefile
from coopfile.access.trust import access_for
from coopfile.compiling import Compiled
from coopfile.errors import CoopError
from coopfile.language.merging import BUILT_IN, Origin
from coopfile.plan import canonical
from coopfile.plan.compare import Change, compare, widening
from coopfile.plan.model import Plan
from coopfile.plan.resolve import resolve
from coopfile.record import Record
from coopfile.system import READING, is_own

# Written by the reader, not by the repository.
OWN_LAYERS = ("default", "user", "environment", "command line")
_SUFFIX = ".json"


class ApprovalError(CoopError):
    """A project widens its sandbox and nobody has approved that; ``changes`` are what is open."""

    decision = "refused"

    def __init__(self, compiled: Compiled, changes: Sequence[Change]) -> None:
        lines = "\n".join(describe(compiled, changes))
        request = compiled.request
        named = [("-C", compiled.project.root), ("-f", request.file), ("--as", request.identity)]
        options = " ".join(f"{option} {value}" for option, value in named if value)
        super().__init__(
            f"this project's Coopfile gives the sandbox more than the defaults:\n{lines}",
            f"read it, and if that is right: coop allow {options}",
        )
        self.changes = tuple(changes)
        self.plan = compiled.plan


class Approval(Record):
    """One recorded approval: for which project, file and user, and the plan that was approved."""

    subject: str
    plan: Plan


def unapproved(compiled: Compiled, directory: str) -> tuple[Change, ...]:
    """Return what the project's files widen and the record in ``directory`` does not cover."""
    wider = widened(compiled)
    if not wider:
        return ()
    approval = _read(_path(directory, subject(compiled)))
    if approval is None:
        return wider
    since = {(change.key, change.new) for change in widening(compare(approval.plan, compiled.asked))}
    return tuple(change for change in wider if (change.key, change.new) in since)


def require(compiled: Compiled, directory: str) -> None:
    """Raise ApprovalError for what the project's files widen and the record does not cover."""
    changes = unapproved(compiled, directory)
    if changes:
        raise ApprovalError(compiled, changes)


def widened(compiled: Compiled) -> tuple[Change, ...]:
    """Return what the project's files widen beyond the reader's own layers."""
    reading, request = compiled.reading, compiled.request
    user, access = None, None
    if request.identity is not None:
        enabled = bool(reading.settings(layers=OWN_LAYERS).value("sandbox.enabled"))
        user, access = access_for(reading.users_of(OWN_LAYERS), request.identity, request.place, enabled)
    own = resolve(reading.settings(user, (*OWN_LAYERS, "override")), access)
    return widening(compare(own, compiled.asked))


def describe(compiled: Compiled, changes: Sequence[Change]) -> list[str]:
    """Return one line per change, with where it is written."""
    return [f"  {change.describe()}  ({_origin(compiled, change)})" for change in changes]


def _origin(compiled: Compiled, change: Change) -> Origin:
    valued = compiled.settings.values.get(change.key)
    if valued is None:  # who asks, not what is set
        return compiled.user.origin if compiled.user else BUILT_IN
    if change.item:
        origins: dict[object, Origin] = dict(zip(valued.value, valued.origins, strict=False))
        return origins.get(change.new, BUILT_IN)
    return valued.origins[-1] if valued.origins else BUILT_IN


def subject(compiled: Compiled) -> str:
    """Return what an approval is for: the project, and the file and the user if they were named."""
    parts = [compiled.project.root]
    if compiled.request.file is not None:
        parts.append(f"with {compiled.request.file}")
    if compiled.user is not None:
        parts.append(f"for {compiled.user.name}")
    return " ".join(parts)


def approve(compiled: Compiled, directory: str) -> None:
    """Record that the plan, as it is, was approved for its project."""
    about = subject(compiled)
    record = os.fsencode(about.replace("\n", " ")) + b"\n" + canonical.to_json(compiled.asked).encode()
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        wholefile.write(_path(directory, about), record, 0o600)
    except OSError as error:
        raise CoopError(f"cannot record the approval in {directory}: {error.strerror}") from None


def revoke(compiled: Compiled, directory: str) -> bool:
    """Forget an approval; tell whether there was one."""
    try:
        os.unlink(_path(directory, subject(compiled)))
    except FileNotFoundError:
        return False
    return True


def every(directory: str) -> tuple[Approval, ...]:
    """Return all approvals, by subject."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return ()
    found = [_read(f"{directory}/{name}") for name in names if name.endswith(_SUFFIX)]
    return tuple(sorted((item for item in found if item is not None), key=lambda item: item.subject))


def _read(path: str) -> Approval | None:
    """Return what is recorded; a record that is damaged, or that others could have written, is none."""
    try:
        descriptor = os.open(path, READING | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not is_own(os.fstat(descriptor)):
            return None
        head, _, text = file.read().partition(b"\n")
    try:
        return Approval(os.fsdecode(head), canonical.from_json(text, path))
    except CoopError:
        return None


def _path(directory: str, about: str) -> str:
    return f"{directory}/{hashlib.sha256(os.fsencode(about)).hexdigest()}{_SUFFIX}"
