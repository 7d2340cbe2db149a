"""What changes from one plan to another: what widens, what narrows, what only differs."""

from __future__ import annotations

import re

from coopfile.language.diagnostics import visible
from coopfile.language.directions import (
    DIFFERENT,
    DIFFERS,
    GROWING,
    NARROWS,
    WIDENS,
    Delta,
    Ranked,
    compare_files,
)
from coopfile.language.settings import BY_KEY, SETTINGS, TRUST_LEVELS
from coopfile.plan.model import STORES, TOOLS, Access, Plan, leaf
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from coopfile.language.directions import Direction, Kind

_QUOTED_WORD = re.compile(r'"[^"\\\s]+"')

# What a plan has beside the settings.
_TRUST = Ranked(*reversed(TRUST_LEVELS))
# A plan without access serves whoever calls, sandboxed: what `full` gives.
_WHOEVER = Access(user=None, trust="full", place="direct", tools=TOOLS, stores=STORES, sandboxed=True)
_ACCESS: dict[str, Direction] = {
    "user": DIFFERS,
    "trust": _TRUST,
    "place": DIFFERS,
    "tools": GROWING,
    "stores": GROWING,
    "sandboxed": Ranked(True, False),
}


class Change(Record):
    """One difference between two plans, at a key of the settings table or below ``access``.

    ``old`` and ``new`` are typed values. Where ``item`` is true they are items of
    a list, and None stands on the side that lacks the item.
    """

    key: str
    kind: Kind
    old: Any
    new: Any
    item: bool = False

    def describe(self) -> str:
        """Return one line for people, such as ``widens  files.read: + ~/.ssh``."""
        if self.item and self.old is None:
            step = f"+ {visible(str(self.new))}"
        elif self.item and self.new is None:
            step = f"- {visible(str(self.old))}"
        else:
            step = f"{self._show(self.old)} → {self._show(self.new)}"
        return f"{self.kind:<7} {self.key}: {step}"

    def _show(self, value: Any) -> str:
        return visible(str(value)) if self.item else show(self.key, value)


def compare(old: Plan, new: Plan) -> tuple[Change, ...]:
    """Return every difference between two plans, in the order of the settings table.

    Equal plans have none, unequal plans at least one.
    """
    changes = [
        Change(setting.key, delta.kind, delta.old, delta.new, setting.wider.by_item)
        for setting in SETTINGS
        for delta in _deltas(setting.key, setting.wider, old, new)
    ]
    changes += _access(old.access, new.access)
    changes += [
        Change("version", delta.kind, delta.old, delta.new)
        for delta in DIFFERS.compare(old.version, new.version)
    ]
    return tuple(changes)


def widening(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Return those changes that give the sandbox more."""
    return tuple(change for change in changes if change.kind == WIDENS)


def show(key: str, value: Any) -> str:
    """Return the human text of a whole value at a key: as in a Coopfile, safe to print.

    Quotes are left out where nothing needs them.
    """
    setting = BY_KEY.get(key)
    if value is None:
        return "not set"
    if isinstance(value, Access):
        return visible(f"{value.user or 'an unknown user'} ({value.trust})")
    if setting is None:
        return visible(str(value).lower() if isinstance(value, bool) else str(value))
    text = setting.type.show(value)
    return visible(text[1:-1] if _QUOTED_WORD.fullmatch(text) else text)


def _deltas(key: str, direction: Direction, old: Plan, new: Plan) -> tuple[Delta, ...]:
    if key in ("files.read", "files.write"):
        both = compare_files(old.files.read, old.files.write, new.files.read, new.files.write)
        return both[key == "files.write"]
    return direction.compare(leaf(old, key), leaf(new, key))


def _access(old: Access | None, new: Access | None) -> Iterable[Change]:
    if old is None and new is None:
        return ()
    changes = [
        Change(f"access.{name}", delta.kind, delta.old, delta.new, direction.by_item)
        for name, direction in _ACCESS.items()
        for delta in direction.compare(getattr(old or _WHOEVER, name), getattr(new or _WHOEVER, name))
    ]
    if old is None or new is None:
        kinds = {change.kind for change in changes} & {NARROWS, WIDENS} or {DIFFERENT}
        return [Change("access", kind, old, new) for kind in sorted(kinds)]
    return changes
