"""Telling a person, or a program, what went wrong. Imported only when something did."""

from __future__ import annotations

import sys

from coopfile.cli import output
from coopfile.cli.stagefailure import FailedStageError
from coopfile.errors import CoopError
from coopfile.language.diagnostics import CoopfileError, render, to_json


def tell(error: CoopError, *, as_json: bool) -> None:
    """Print an error: to standard error as text, to standard output as JSON if that was asked for."""
    said = error.said if isinstance(error, FailedStageError) else ()
    if as_json:
        diagnostics = to_json(error.diagnostics) if isinstance(error, CoopfileError) else []
        data = {
            "error": error.message,
            "remedy": error.remedy,
            "status": error.status,
            "diagnostics": diagnostics,
        }
        output.emit_json({**data, "output": said} if said else data)
        return
    color = output.wants_color(None, sys.stderr)
    for line in said:
        output.emit(f"  {line}", sys.stderr)
    if isinstance(error, CoopfileError):
        output.emit(render(error.diagnostics, color=color), sys.stderr)
        return
    first, *more = error.message.split("\n")
    output.emit(f"coop: {output.paint('error:', 'red', color)} {output.safe(first)}", sys.stderr)
    for line in more:
        output.emit(f"      {output.safe(line)}", sys.stderr)
    if error.remedy:
        output.emit(f"      {output.paint('help:', 'cyan', color)} {output.safe(error.remedy)}", sys.stderr)
