"""``coop status``: which back end enforces the plan here, and how much of it."""

from __future__ import annotations

import argparse
import os
import sys

from coopfile.cli import output
from coopfile.cli.options import request
from coopfile.cli.run import prepare
from coopfile.errors import CoopError
from coopfile.find import directories
from coopfile.native.limits import KEYS
from coopfile.native.probe import Ability, probe
from coopfile.native.runner import Prepared
from coopfile.plan.bind import Weakening
from coopfile.plan.promises import unkept

SUMMARY = "show what enforces the plan on this machine, and what it cannot enforce"
EPILOG = """examples:
  coop status
  coop status --json

The exit status is 0 when `coop run` can enforce the plan here, and 1 when it would refuse.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options: it has none of its own."""


def main(options: argparse.Namespace) -> int:
    """Probe the machine, lay the plan out, and print what stands and what falls short."""
    from coopfile.compile import compile_project

    compiled = compile_project(request(options))
    abilities = probe()
    prepared, refusal = None, None
    try:
        prepared = prepare(compiled.plan, compiled.project, ("true",))
    except CoopError as error:
        refusal = error
    lacking = next((ability for ability in abilities if ability.needed and not ability.present), None)
    if refusal is None and lacking is not None:
        refusal = CoopError(f"{lacking.name}: {lacking.detail}", lacking.remedy)
    weakenings = (*(prepared.weakenings if prepared else ()), *unkept(compiled.plan))
    if options.json:
        _print_json(abilities, prepared, refusal, weakenings)
    else:
        color = output.wants_color(options.color, sys.stdout)
        output.emit("\n".join(_lines(abilities, prepared, refusal, weakenings, color)))
    return 0 if refusal is None else 1


def _lines(
    abilities: tuple[Ability, ...],
    prepared: Prepared | None,
    refusal: CoopError | None,
    weakenings: tuple[Weakening, ...],
    color: bool,
) -> list[str]:
    """Return the report for people."""
    lines = ["backend    native (Linux namespaces, Landlock, seccomp, cgroups)", "isolation  namespace"]
    for ability in abilities:
        mark = output.paint("✓", "green", color) if ability.present else output.paint("✗", "red", color)
        lines.append(f"  {mark} {ability.name:<18} {output.safe(ability.detail)}")
        if not ability.present and ability.remedy:
            lines.append(f"      {output.safe(ability.remedy)}")
    if prepared is not None:
        for controller, how in prepared.enforcement.how:
            good = how != "nothing"
            mark = output.paint("✓", "green", color) if good else output.paint("✗", "red", color)
            lines.append(f"  {mark} {KEYS[controller]:<18} {how}")
    if refusal is not None:
        lines.append(output.paint("refused    ", "red", color) + output.safe(refusal.message))
        if refusal.remedy:
            lines.append(f"           {output.safe(refusal.remedy)}")
    elif not weakenings:
        lines.append("weakenings none: the whole plan is enforced")
    for number, weakening in enumerate(weakenings):
        head = "weakenings " if number == 0 else " " * 11
        lines.append(f"{head}{weakening.key}: {output.safe(weakening.text)}")
        if weakening.remedy:
            lines.append(f"{' ' * 13}to have it: {output.safe(weakening.remedy)}")
    for skipped in prepared.layout.skipped if prepared else ():
        lines.append(f"skipped    {output.safe(skipped)}")
    own = directories(os.environ)
    lines.append(f"state      {output.safe(own.state)}, cache {output.safe(own.cache)}")
    return lines


def _print_json(
    abilities: tuple[Ability, ...],
    prepared: Prepared | None,
    refusal: CoopError | None,
    weakenings: tuple[Weakening, ...],
) -> None:
    output.emit_json(
        {
            "backend": "native",
            "isolation": "namespace",
            "usable": refusal is None,
            "refusal": refusal.message if refusal else None,
            "remedy": refusal.remedy if refusal else None,
            "abilities": [{name: getattr(item, name) for name in Ability._fields} for item in abilities],
            "limits": {KEYS[name]: how for name, how in (prepared.enforcement.how if prepared else ())},
            "weakenings": [{name: getattr(item, name) for name in Weakening._fields} for item in weakenings],
            "skipped": list(prepared.layout.skipped) if prepared else [],
        }
    )
