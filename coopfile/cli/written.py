"""Where in the Coopfile a setting was written, for errors that come up long after it was read."""

from __future__ import annotations

from coopfile.language.diagnostics import WHOLE, CoopfileError, Diagnostic, Position
from coopfile.language.locate import Lines, Located, Span, locate
from coopfile.language.settings import BY_KEY
from coopfile.language.sources import decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from coopfile.compiling import Compiled
    from coopfile.errors import SettingError
    from coopfile.language.merging import Origin, Valued
    from coopfile.language.value_type import ValueType

_LISTS = ("setup.run", "network.publish")  # whose items count one by one


def explain(error: SettingError, compiled: Compiled) -> CoopfileError:
    """Return an error of a setting with its place in the Coopfile."""
    position, line = place(compiled, error.key, error.number)
    return CoopfileError([Diagnostic("error", "machine", error.message, error.remedy, position, line)])


def place(compiled: Compiled, key: str, number: int) -> tuple[Position, str | None]:
    """Return where a setting was written, and that line; ``number`` is the item's of a list of ``_LISTS``."""
    origins = compiled.settings.origins(key)
    number = number if key in _LISTS else 0
    origin = origins[number]
    whole = Position(origin.source, *WHOLE)
    source = next(
        (item.source for item in compiled.reading.documents if item.source.name == origin.source), None
    )
    if source is None or origin.line is None:
        return whole, None
    text, _ = decode(source)
    if text is None:
        return whole, None
    lines = Lines(text)
    if key in _LISTS:
        span = _item(compiled.settings.values[key], number, key, text)
    else:
        span = _key(locate(text), lines, key, origin)
    line = origin.line if span is None else lines.position(span.start)[0]
    if span is None:
        return Position(origin.source, line, 1, 0), lines.text(line)
    column = lines.position(span.start)[1]
    return Position(origin.source, line, column, span.end - span.start), lines.text(line)


def _item(written: Valued, number: int, key: str, text: str) -> Span | None:
    """Return the place of an item on its line.

    A user's override has the same keys further down, so only the end of a path counts.
    """
    parts, lines, origin = tuple(key.split(".")), Lines(text), written.origins[number]
    found = [
        span
        for path, span in locate(text).values.items()
        if path[:-1][-2:] == parts and lines.position(span.start)[0] == origin.line
    ]
    kind: Any = BY_KEY[key].type
    if kind.ordered:
        same = [item == origin for item in written.origins[:number]].count(True)
        return found[same] if same < len(found) else None
    return next((span for span in found if _reads(text, span, kind.item) == written.value[number]), None)


def _reads(text: str, span: Span, kind: ValueType) -> object:
    """Return what a value in the text stands for."""
    import tomli

    return kind.parse(tomli.loads(f"value = {text[span.start : span.end]}")["value"])


def _key(located: Located, lines: Lines, key: str, origin: Origin) -> Span | None:
    """Return the place of a key on its line or before."""
    parts = tuple(key.split("."))
    found = [span for path, span in located.keys.items() if path[-2:] == parts]
    before = [span for span in found if lines.position(span.start)[0] <= (origin.line or 0)]
    return before[-1] if before else None
