"""Approval: what a project's files widen counts once their reader has said yes.

A Coopfile in a repository is a stranger's text. What it gives the sandbox beyond the
built-in defaults and the reader's own file is shown once and recorded, outside every
workspace and out of every sandbox's sight. The record is a plan with what was shown, so
that an edit which widens nothing more needs no new approval (design section 4).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from shlex import quote

from coopfile import wholefile
from coopfile.access.given import gains
from coopfile.compiling import Compiled, who_asks
from coopfile.errors import CoopError
from coopfile.find import real_home
from coopfile.language.directions import WIDENS
from coopfile.language.merging import BUILT_IN, Origin, Settings, defaults
from coopfile.language.settings import SETTINGS
from coopfile.plan import canonical
from coopfile.plan.compare import Change, compare
from coopfile.plan.launch import expand, inside, parents
from coopfile.plan.model import Access, Files, Plan, leaf, with_leaf
from coopfile.plan.resolve import resolve
from coopfile.record import Record
from coopfile.system import READING, is_own

# Written by the reader, not by the repository.
OWN_LAYERS = ("default", "user", "environment", "command line")
_SUFFIX = ".json"
_OWN = "it has to be a directory of yours (was coop started with sudo?); XDG_STATE_HOME puts it elsewhere"
_FILES = ("files.read", "files.write")
# What these say is nobody's business inside a sandbox; on the host itself it is as good as any command.
_ON_HOST = ("env", "agent.command")


class ApprovalError(CoopError):
    """A project widens its sandbox and nobody has approved that; ``changes`` are what is open."""

    decision = "refused"

    def __init__(self, compiled: Compiled, changes: Sequence[Change]) -> None:
        lines = "\n".join(describe(compiled, changes))
        request = compiled.request
        place = None if request.place == "direct" else request.place
        identity = request.identity
        if request.user is not None and compiled.user is not None and compiled.user.match:
            identity = compiled.user.match[0]
        named = [("-C", compiled.project.root), ("-f", request.file), ("--as", identity)]
        options = " ".join(
            f"{option} {quote(value)}" for option, value in (*named, ("--place", place)) if value
        )
        super().__init__(
            f"this project's Coopfile gives the sandbox more than the defaults:\n{lines}",
            f"read it, and if that is right: coop allow {options}",
        )
        self.changes = tuple(changes)
        self.plan = compiled.plan


class Approval(Record):
    """One recorded approval: for which project, file and user, and the widest plan that was approved."""

    subject: str
    plan: Plan


def unapproved(compiled: Compiled, directory: str) -> tuple[Change, ...]:
    """Return what the project's files widen and the record in ``directory`` does not cover."""
    own, asked = _own(compiled), compiled.asked
    wider = _widening(own, asked)
    approval = _read(_path(directory, compiled)) if wider else None
    if approval is None:
        return wider
    known = approval.plan
    if known.access is None or asked.access is None:
        known = known.replace(access=own.access)  # approved for somebody else than who asks
    since = {(change.key, change.new) for change in _beside_files(known, asked)}
    rest = (change for change in wider if change.key not in _FILES and (change.key, change.new) in since)
    return _in_order((*rest, *gains((own.files, known.files), asked.files, real_home(os.environ))))


def _widening(old: Plan, new: Plan) -> tuple[Change, ...]:
    """Return what a plan widens on this machine, where it is known which paths are one."""
    return _in_order((*_beside_files(old, new), *gains((old.files,), new.files, real_home(os.environ))))


def _beside_files(old: Plan, new: Plan) -> tuple[Change, ...]:
    """Return what else widens: where commands may come to run on the host itself, also how they run there."""
    on_host = _ON_HOST if new.sandbox.fallback == "host" else ()
    return tuple(
        change.replace(kind=WIDENS)
        for change in compare(old, new)
        if change.key not in _FILES
        and (change.kind == WIDENS or (change.key in on_host and change.new not in (None, ())))
    )


def _in_order(changes: Iterable[Change]) -> tuple[Change, ...]:
    order = {setting.key: number for number, setting in enumerate(SETTINGS)}
    return tuple(sorted(changes, key=lambda change: order.get(change.key, len(order))))


def require(compiled: Compiled, directory: str) -> None:
    """Raise ApprovalError for what the project's files widen and the record does not cover."""
    changes = unapproved(compiled, directory)
    if changes:
        raise ApprovalError(compiled, changes)


def widened(compiled: Compiled) -> tuple[Change, ...]:
    """Return what the project's files widen beyond the reader's own layers."""
    return _widening(_own(compiled), compiled.asked)


def _own(compiled: Compiled) -> Plan:
    """Return the plan that the reader's own layers make."""
    reading = compiled.reading
    user, access = who_asks(compiled.request, reading, OWN_LAYERS)
    return resolve(reading.settings(user, (*OWN_LAYERS, "override")), access)


def describe(compiled: Compiled, changes: Sequence[Change]) -> list[str]:
    """Return one line per change, with where it is written."""
    known: dict[str, dict[object, Origin]] = {}
    return [f"  {change.describe()}  ({_origin(compiled, change, known)})" for change in changes]


def _origin(compiled: Compiled, change: Change, known: dict[str, dict[object, Origin]]) -> Origin:
    """Return where a change is written; ``known`` keeps the origins of lists' items, which may be many."""
    valued = compiled.settings.values.get(change.key)
    if valued is None:  # who asks, not what is set
        return compiled.user.origin if compiled.user else BUILT_IN
    if not change.item:
        return valued.origins[-1] if valued.origins else BUILT_IN
    if change.key not in known:
        known[change.key] = dict(zip(valued.value, valued.origins, strict=False))
    if change.new is not None:
        return known[change.key].get(change.new, BUILT_IN)
    # What is left out has no place; what gives it instead has.
    home, given = real_home(os.environ), compiled.settings.values["files.write"]
    around = [
        pair
        for pair in zip(given.value, given.origins, strict=True)
        if inside(expand(change.old, home), expand(pair[0], home))
    ]
    return max(around, key=lambda pair: len(pair[0]), default=("", BUILT_IN))[1]


def subject(compiled: Compiled) -> str:
    """Return what an approval is for: the project, and the file and the user if they were named."""
    return " ".join(_parts(compiled))


def _parts(compiled: Compiled) -> list[str]:
    parts = [compiled.project.root]
    if compiled.request.file is not None:
        parts.append(f"with {compiled.request.file}")
    if compiled.user is not None:
        parts.append(f"for {compiled.user.name}")
    return parts


def approve(compiled: Compiled, directory: str) -> None:
    """Record what the project's files widen now as approved for it."""
    record = os.fsencode(subject(compiled).replace("\n", " ")) + b"\n"
    record += canonical.to_json(_approved(compiled)).encode()
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        wholefile.write(_path(directory, compiled), record, 0o600)
    except OSError as error:
        raise CoopError(f"cannot record the approval in {directory}: {error.strerror}", _OWN) from None


def _approved(compiled: Compiled) -> Plan:
    """Return the plan to record: as it is asked for, without what the reader's own layers alone widen.

    That was not shown, and is theirs to take back: a project that asks for it then has to be approved.
    """
    asked, wider = compiled.asked, widened(compiled)
    least = resolve(Settings(defaults()))
    plan = asked.replace(files=_approved_files(asked, wider), access=_approved_access(asked, wider))
    for setting in SETTINGS:
        if setting.key in _FILES:
            continue
        value, default = leaf(asked, setting.key), leaf(least, setting.key)
        shown = {change.new for change in wider if change.key == setting.key}
        deltas, on_host = setting.wider.compare(default, value), setting.key in _ON_HOST
        beyond = {delta.new for delta in deltas if delta.kind == WIDENS or on_host}
        if setting.wider.by_item:
            value = tuple(item for item in value if item in shown or item not in beyond)
        elif beyond and not shown:
            value = default
        plan = with_leaf(plan, setting.key, value)
    return plan


def _approved_files(asked: Plan, wider: Sequence[Change]) -> Files:
    home = real_home(os.environ)
    shown = {
        (change.key, expand(change.new, home)) for change in wider if change.key in _FILES and change.new
    }
    write = tuple(path for path in asked.files.write if ("files.write", expand(path, home)) in shown)
    held = {expand(path, home) for path in write}
    read = tuple(
        path
        for path in asked.files.read  # what stays read-only in what may be written was approved as that
        if ("files.read", place := expand(path, home)) in shown
        or not held.isdisjoint((place, *parents(place)))
    )
    return asked.files.replace(read=read, write=write)


def _approved_access(asked: Plan, wider: Sequence[Change]) -> Access | None:
    access = asked.access
    if access is None or any(change.key.startswith("access.") for change in wider):
        return access
    return access.replace(trust="public", tools=(), stores=(), sandboxed=True)


def revoke(compiled: Compiled, directory: str) -> bool:
    """Forget an approval; tell whether there was one."""
    try:
        os.unlink(_path(directory, compiled))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise CoopError(f"cannot remove the approval from {directory}: {error.strerror}", _OWN) from None
    return True


def every(directory: str) -> tuple[Approval, ...]:
    """Return all approvals, by subject."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise CoopError(f"cannot read {directory}: {error.strerror}", _OWN) from None
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


def _path(directory: str, compiled: Compiled) -> str:
    about = "\0".join(_parts(compiled))  # with spaces "x with y" could be a directory, or a file of x's
    return f"{directory}/{hashlib.sha256(os.fsencode(about)).hexdigest()}{_SUFFIX}"
