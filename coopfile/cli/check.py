"""``coop check``: find mistakes in a Coopfile, all of them at once, and what is probably not meant."""

from __future__ import annotations

import argparse
import sys

from coopfile.cli import output

SUMMARY = "check the Coopfile and say everything that is wrong with it"
EPILOG = """examples:
  coop check                      0: it compiles; 1: it has mistakes, which are printed
  coop check -f other.Coopfile
  coop check --json               for an editor or a script
  coop check --files-only         whatever this machine can do: it is for another

Whether a back end here can enforce the plan is looked at, too, and whether the image is here or can be had,
once it is approved. Warnings do not change the exit status.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument(
        "--files-only", action="store_true", help="do not look for back ends and the image on this machine"
    )


def main(options: argparse.Namespace) -> int:
    """Compile every layer and print all diagnostics; 1 when there are errors among them."""
    from collections.abc import Sequence

    from coopfile.cli.lints import of_overrides, position, warnings
    from coopfile.cli.options import request
    from coopfile.compiling import compile_project
    from coopfile.language.diagnostics import CoopfileError, Diagnostic, render, to_json

    try:
        compiled = compile_project(request(options))
    except CoopfileError as error:
        found: Sequence[Diagnostic] = error.diagnostics
    else:
        found = (*of_overrides(compiled), *compiled.reading.warnings, *warnings(compiled))
        if not options.files_only:
            from coopfile.cli import surroundings

            here = surroundings.look_around(compiled, lambda key: position(compiled, key))
            found = (*found, *here)
    errors = sum(diagnostic.severity == "error" for diagnostic in found)
    if options.json:
        output.emit_json({"ok": not errors, "diagnostics": to_json(found)})
        return 1 if errors else 0
    if found:
        output.emit(render(found, color=output.wants_color(options.color, sys.stdout)))
    if not options.quiet:
        output.emit(_summary(errors, len(found) - errors))
    return 1 if errors else 0


def _summary(errors: int, warnings: int) -> str:
    counts = [
        f"{count} {noun}{'' if count == 1 else 's'}"
        for count, noun in ((errors, "error"), (warnings, "warning"))
        if count
    ]
    return ", ".join(counts) if counts else "no problems found"
