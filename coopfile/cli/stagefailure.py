"""A command of a build that failed: which line of the Coopfile it is, and what it said."""

from __future__ import annotations

from coopfile.cli.progress import tidy
from coopfile.cli.written import place
from coopfile.language.diagnostics import CoopfileError, Diagnostic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.compiling import Compiled
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
