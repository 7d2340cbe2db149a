"""Telling a person, or a program, what went wrong. Imported only when something did."""

from __future__ import annotations

import sys

from coopfile.cli import output
from coopfile.errors import CoopError
from coopfile.language.diagnostics import CoopfileError, render, to_json


def tell(error: CoopError, *, as_json: bool) -> None:
    """Print an error: to standard error as text, to standard output as JSON if that was asked for."""
    if as_json:
        diagnostics = to_json(error.diagnostics) if isinstance(error, CoopfileError) else []
        output.emit_json(
            {
                "error": error.message,
                "remedy": error.remedy,
                "status": error.status,
                "diagnostics": diagnostics,
            }
        )
        return
    color = output.wants_color(None, sys.stderr)
    if isinstance(error, CoopfileError):
        output.emit(render(error.diagnostics, color=color), sys.stderr)
        return
    first, *more = error.message.split("\n")
    output.emit(f"coop: {output.paint('error:', 'red', color)} {output.safe(first)}", sys.stderr)
    for line in more:
        output.emit(f"      {output.safe(line)}", sys.stderr)
    if error.remedy:
        output.emit(f"      {output.paint('help:', 'cyan', color)} {output.safe(error.remedy)}", sys.stderr)
