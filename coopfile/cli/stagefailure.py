"""A command of a build that failed: which line of the Coopfile it is, and what it said."""

from __future__ import annotations

from coopfile.cli.progress import tidy
from coopfile.language.diagnostics import WHOLE, CoopfileError, Diagnostic, Position
from coopfile.language.locate import Lines, Located, Span, locate
from coopfile.language.sources import decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.compiling import Compiled
    from coopfile.language.merging import Origin
    from coopfile.rootfs.build import StageError

_LINES = 20  # of what the command said last
_SETUP = "setup.run"  # the stage whose commands stand in the Coopfile one by one


class FailedStageError(CoopfileError):
    """A stage that could not be built; ``said`` is the end of its command's output, safe to print."""

    def __init__(self, diagnostic: Diagnostic, said: tuple[str, ...]) -> None:
        super().__init__([diagnostic])
        self.said = said


def explain(error: StageError, compiled: Compiled, remedy: str | None) -> FailedStageError:
    """Return a failed command's error with its place in the Coopfile."""
    which = ""
    if error.stage == _SETUP and len(compiled.settings.value(_SETUP)) > 1:
        which = f" {error.number + 1}"
    message = f"{error.stage}: command{which} failed with status {error.status}"
    position, line = place(compiled, error.stage, error.number)
    diagnostic = Diagnostic("error", "stage", message, remedy, position, line)
    return FailedStageError(diagnostic, tail(error.output))


def tail(data: bytes) -> tuple[str, ...]:
    """Return the last lines of a command's output."""
    lines = [tidy(line) for line in data.split(b"\n")]
    return tuple([line for line in lines if line][-_LINES:])


def place(compiled: Compiled, key: str, number: int) -> tuple[Position, str | None]:
    """Return where a setting was written, and that line; ``number`` is the item's in ``setup.run``."""
    origins = compiled.settings.origins(key)
    number = number if key == _SETUP else 0
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
    same = [item == origin for item in origins[:number]].count(True)
    span = _span(locate(text), lines, key, origin, same)
    line = origin.line if span is None else lines.position(span.start)[0]
    if span is None:
        return Position(origin.source, line, 1, 0), lines.text(line)
    column = lines.position(span.start)[1]
    return Position(origin.source, line, column, span.end - span.start), lines.text(line)


def _span(located: Located, lines: Lines, key: str, origin: Origin, same: int) -> Span | None:
    """Return the place of a value on its line, the ``same``-th of that line; of packages that of the key.

    A user's override has the same keys further down, so only the end of a path counts.
    """
    parts = tuple(key.split("."))
    if key == _SETUP:
        found = [
            span
            for path, span in located.values.items()
            if path[:-1][-2:] == parts and lines.position(span.start)[0] == origin.line
        ]
        return found[same] if same < len(found) else None
    found = [span for path, span in located.keys.items() if path[-2:] == parts]
    before = [span for span in found if lines.position(span.start)[0] <= (origin.line or 0)]
    return before[-1] if before else None
