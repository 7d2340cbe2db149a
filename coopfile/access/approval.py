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

from coopfile.compile import Compiled
from coopfile.errors import CoopError
from coopfile.language.merging import BUILT_IN, Settings
from coopfile.plan import canonical
from coopfile.plan.compare import Change, compare, widening
from coopfile.plan.model import Plan
from coopfile.plan.resolve import resolve
from coopfile.record import Record

# Written by the reader, not by the repository.
OWN_LAYERS = ("default", "user", "environment", "command line")
_SUFFIX = ".json"


class ApprovalError(CoopError):
    """A project widens its sandbox and nobody has approved that; ``changes`` are what is open."""

    def __init__(self, root: str, changes: Sequence[Change], settings: Settings) -> None:
        lines = "\n".join(describe(changes, settings))
        super().__init__(
            f"this project's Coopfile gives the sandbox more than the defaults:\n{lines}",
            f"read it, and if that is right: coop -C {root} allow",
        )
        self.changes = tuple(changes)


class Approval(Record):
    """One recorded approval: the project's real path and the plan that was approved."""

    root: str
    plan: Plan


def unapproved(compiled: Compiled, directory: str) -> tuple[Change, ...]:
    """Return what the project's files widen and the record in ``directory`` does not cover."""
    wider = widened(compiled)
    if not wider:
        return ()
    approval = load(directory, compiled.project.root)
    if approval is None:
        return wider
    since = {(change.key, change.new) for change in widening(compare(approval.plan, compiled.plan))}
    return tuple(change for change in wider if (change.key, change.new) in since)


def widened(compiled: Compiled) -> tuple[Change, ...]:
    """Return what the project's files widen beyond the reader's own layers."""
    user = compiled.user if compiled.user and compiled.user.origin.layer == "user" else None
    layers = (*OWN_LAYERS, "override") if user else OWN_LAYERS
    own = resolve(compiled.reading.settings(user, layers), compiled.plan.access)
    return widening(compare(own, compiled.plan))


def describe(changes: Sequence[Change], settings: Settings) -> list[str]:
    """Return one line per change, with where it is written."""
    lines = []
    for change in changes:
        origins = settings.origins(change.key) if change.key in settings.values else ()
        origin = origins[-1] if origins else BUILT_IN
        if change.item:
            origin = dict(zip(settings.value(change.key), origins, strict=False)).get(change.new, origin)
        lines.append(f"  {change.describe()}  ({origin})")
    return lines


def approve(compiled: Compiled, directory: str) -> None:
    """Record that the plan, as it is, was approved for its project."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    path = _path(directory, compiled.project.root)
    partial = f"{path}.{os.getpid()}"
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.fsencode(compiled.project.root) + b"\n" + canonical.to_json(compiled.plan).encode())
            file.flush()
            os.fsync(descriptor)
        os.replace(partial, path)
    except OSError as error:
        raise CoopError(f"cannot record the approval in {directory}: {error.strerror}") from None


def revoke(directory: str, root: str) -> bool:
    """Forget a project's approval; tell whether there was one."""
    try:
        os.unlink(_path(directory, root))
    except FileNotFoundError:
        return False
    return True


def load(directory: str, root: str) -> Approval | None:
    """Return a project's approval; one that cannot be read, or is another's, is none."""
    return _read(_path(directory, root), root)


def every(directory: str) -> tuple[Approval, ...]:
    """Return all approvals, by path."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return ()
    found = [_read(f"{directory}/{name}", None) for name in names if name.endswith(_SUFFIX)]
    return tuple(sorted((item for item in found if item is not None), key=lambda item: item.root))


def _read(path: str, root: str | None) -> Approval | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            return None
        head, _, text = file.read().partition(b"\n")
    if root is not None and os.fsencode(root) != head:
        return None
    try:
        return Approval(os.fsdecode(head), canonical.from_json(text, path))
    except CoopError:
        return None


def _path(directory: str, root: str) -> str:
    return f"{directory}/{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}{_SUFFIX}"
