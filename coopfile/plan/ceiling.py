"""Holding a plan to the ``[ceiling]`` of the user's own file, which no other layer may exceed.

- Where a setting has a wider and a narrower side, the plan may not be wider.
- Of a list that only grows, the ceiling is the set that may be used; of one that
  takes away, what has to be in it. A list of which no value is wider, such as
  packages, is held like one that grows.
- Any other setting has to be what the ceiling says. An image that it names without a
  digest may have any, as the lock gives it one.

What is built into every list needs nobody's leave.
"""

from __future__ import annotations

from coopfile.language.diagnostics import Diagnostic, quoted
from coopfile.language.directions import DIFFERENT, DIFFERS, GROWING, PROFILE, WIDENS
from coopfile.language.items import ImageReference, LocalImage
from coopfile.language.settings import ADD, BY_KEY
from coopfile.language.syntax import read_text
from coopfile.plan.compare import show
from coopfile.plan.model import leaf
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from coopfile.language.diagnostics import Position
    from coopfile.language.directions import Direction
    from coopfile.language.merging import Origin, Settings
    from coopfile.language.reading import Reading
    from coopfile.plan.model import Plan

BUILT_IN = "default"


def exceeding(reading: Reading, settings: Settings, plan: Plan) -> tuple[Diagnostic, ...]:
    """Return one error per value, or per item of a list, that is beyond the user's ceiling.

    Each stands at the line that asks for too much, and names the ceiling's.
    """
    found: list[Diagnostic] = []
    for key in reading.ceiling:
        limit = _Limit(reading, settings, plan, key)
        found += limit.items() if limit.by_item else limit.whole()
    return tuple(found)


class _Limit(Record):
    """One capped key, and the plan that is held to it."""

    reading: Reading
    settings: Settings
    plan: Plan
    key: str

    @property
    def direction(self) -> Direction:
        setting = BY_KEY[self.key]
        return GROWING if setting.wider is DIFFERS and setting.merge == ADD else setting.wider

    @property
    def by_item(self) -> bool:
        return self.direction.by_item

    def whole(self) -> Iterator[Diagnostic]:
        """Hold a value that is one thing."""
        most = self.reading.ceiling[self.key].value
        value = _under(most, leaf(self.plan, self.key))
        exact = self.direction in (DIFFERS, PROFILE)
        for delta in self.direction.compare(most, value):
            if delta.kind == WIDENS or (exact and delta.kind == DIFFERENT):
                origin = self.settings.origins(self.key)[0]
                beyond = "not what the ceiling fixes" if exact else "beyond the ceiling"
                message = f"{self.key} is {show(self.key, value)}, {beyond}: {show(self.key, most)}"
                help = f"the ceiling is {self._line()}"
                if origin.layer == BUILT_IN:
                    help += f"; write {self.key} = {BY_KEY[self.key].type.show(most)} to stay below it"
                yield self._error(message, help, origin)

    def items(self) -> Iterator[Diagnostic]:
        """Hold a list, or the variables, item by item."""
        allowed = self.reading.ceiling[self.key].value
        used = {self.key: leaf(self.plan, self.key)}
        if self.key == "files.read":
            # What may be written may be read: it takes a leave to read, or one to write.
            allowed = (*allowed, *self._ceiling_of("files.write"))
            if "files.write" not in self.reading.ceiling:
                used["files.write"] = self.plan.files.write
        for key, values in used.items():
            origins = dict(zip(values, self.settings.origins(key), strict=True))
            for delta in self.direction.compare(allowed, values):
                if delta.kind != WIDENS:
                    continue
                if delta.new is None:
                    message = f"{key} has to have {quoted(str(delta.old))}, says the ceiling"
                    yield self._error(message, f"the ceiling is {self._line()}; add it", None)
                elif origins[delta.new].layer != BUILT_IN:
                    message = f"{key}: {quoted(str(delta.new))} is beyond the ceiling"
                    some = show(self.key, self.reading.ceiling[self.key].value)
                    help = f"the ceiling of {self.key} is {some}, {self._line()}"
                    yield self._error(message, help, origins[delta.new])

    def _ceiling_of(self, key: str) -> tuple[Any, ...]:
        valued = self.reading.ceiling.get(key)
        return valued.value if valued else ()

    def _line(self) -> str:
        """Say where the ceiling was written."""
        position, _ = self._place()
        return f"at {position.source}:{position.line}" if position else "in your own file"

    def _place(self) -> tuple[Position | None, str | None]:
        for document in reversed(self.reading.documents):
            if self.key in document.ceiling:
                return read_text(document.source).place(("ceiling", *self.key.split(".")), key=True)
        return None, None

    def _error(self, message: str, help: str, origin: Origin | None) -> Diagnostic:
        position, line = self._place()
        if origin is not None and origin.layer != BUILT_IN:
            position, line = self.reading.place(origin)
        return Diagnostic("error", "ceiling", message, help, position, line)


def _under(most: Any, value: Any) -> Any:
    """Return a value without what the ceiling says nothing of: an image's digest."""
    if isinstance(value, ImageReference | LocalImage) and getattr(most, "digest", None) is None:
        return value.replace(digest=None)
    return value
