"""``coop status``: which back ends there are, which one enforces the plan, and how much of it."""

from __future__ import annotations

import argparse
import os
import sys

from coopfile.cli import output
from coopfile.cli.options import request
from coopfile.engines.choose import Choice, falls_back, known, look, wanted
from coopfile.launching import outside
from coopfile.record import Record
from coopfile.system import LINUX, system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.cli.examined import Kept
    from coopfile.native.probe import Ability
    from coopfile.plan.launch import Weakening

SUMMARY = "show what can enforce the plan here, what it cannot enforce, and what is built for it"
EPILOG = """examples:
  coop status
  coop status --json

The exit status is 0 when `coop run` can enforce the plan here, and 1 when it would refuse.
"""


class Backend(Record):
    """A back end of this machine: what it would do with the plan, or why it refuses.

    ``limits`` maps a key of the plan to what enforces it; ``taken`` tells whether the
    plan takes this back end at all.
    """

    name: str
    taken: bool
    choice: Choice | None
    why: str = ""
    remedy: str | None = None
    abilities: tuple[Ability, ...] = ()
    limits: tuple[tuple[str, str], ...] = ()
    weakenings: tuple[Weakening, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The back end for people."""
        return self.choice.title if self.choice else self.name


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options: it has none of its own."""


def main(options: argparse.Namespace) -> int:
    """Look at every back end, try the plan on it, and print what stands and what falls short."""
    from coopfile.compiling import compile_project

    compiled = compile_project(request(options))
    plan, project = compiled.plan, compiled.project
    taken = wanted(plan)
    names = sorted({*known(), *taken}, key=lambda name: (name not in taken, _place(name, taken)))
    seen: Kept | None = None
    if system() == LINUX:
        from coopfile.cli import examined

        backends = examined.backends(plan, project, names, taken)
        seen = examined.kept(plan, project, taken)
    else:
        backends = [
            Backend(tried.name, tried.name in taken, tried.choice, tried.why, tried.remedy)
            for tried in look(plan, names, outside(plan, project, os.environ))
        ]
    chosen = next((item for item in backends if item.taken and item.choice), None)
    on_host = chosen is None and falls_back(plan)
    if options.json:
        kept = seen.data() if seen else {"root": None, "store": None, "sessions": []}
        output.emit_json({**_data_of_all(backends, chosen, on_host), **kept})
    else:
        color = output.wants_color(options.color, sys.stdout)
        shown = [*_lines(backends, chosen, on_host, color), *(["", *seen.lines(color)] if seen else [])]
        output.emit("\n".join(shown))
    return 0 if chosen or on_host else 1


def _place(name: str, taken: tuple[str, ...]) -> int:
    return taken.index(name) if name in taken else known().index(name)


def _lines(backends: list[Backend], chosen: Backend | None, on_host: bool, color: bool) -> list[str]:
    """Return the report for people."""
    if chosen is not None:
        lines = [f"enforced by  {output.paint(chosen.title, 'bold', color)}"]
    elif on_host:
        lines = ["enforced by  " + output.paint("nothing: sandbox.fallback is host", "red", color)]
    else:
        lines = ["enforced by  " + output.paint("nothing: `coop run` refuses", "red", color)]
    for backend in backends:
        lines += ["", *_backend_lines(backend, backend is chosen, color)]
    return lines


def _backend_lines(backend: Backend, chosen: bool, color: bool) -> list[str]:
    note = "" if backend.taken else "  (not in sandbox.backend)"
    lines = [f"{_mark(backend.choice is not None, color)} {output.paint(backend.title, 'bold', color)}{note}"]
    if backend.choice is None:
        lines.append(f"    {output.safe(backend.why)}")
        lines += [f"    {output.safe(backend.remedy)}"] if backend.remedy else []
    for ability in backend.abilities:
        if chosen or not ability.present:
            lines.append(
                f"    {_mark(ability.present, color)} {ability.name:<18} {output.safe(ability.detail)}"
            )
        if not ability.present and ability.remedy:
            lines.append(f"        {output.safe(ability.remedy)}")
    if backend.choice is None:
        return lines
    lines += [f"    {_mark(how != 'nothing', color)} {key:<18} {how}" for key, how in backend.limits]
    if not backend.weakenings:
        lines.append("    the whole plan is enforced")
    for weakening in backend.weakenings:
        lines.append(f"    weaker: {weakening.key}: {output.safe(weakening.text)}")
        if weakening.remedy:
            lines.append(f"        to have it: {output.safe(weakening.remedy)}")
    return lines + [f"    skipped: {output.safe(skipped)}" for skipped in backend.skipped]


def _mark(good: bool, color: bool) -> str:
    return output.paint("✓", "green", color) if good else output.paint("✗", "red", color)


def _data_of_all(backends: list[Backend], chosen: Backend | None, on_host: bool) -> dict[str, object]:
    return {
        "backend": chosen.name if chosen else "host" if on_host else None,
        "isolation": chosen.choice.isolation if chosen and chosen.choice else "none",
        "usable": chosen is not None or on_host,
        "backends": [_data(backend) for backend in backends],
    }


def _data(backend: Backend) -> dict[str, object]:
    choice = backend.choice
    return {
        "name": backend.name,
        "title": backend.title,
        "usable": choice is not None,
        "taken": backend.taken,
        "isolation": choice.isolation if choice else None,
        "runtime": choice.engine.runtime or choice.engine.default_runtime
        if choice and choice.engine
        else None,
        "version": choice.engine.version if choice and choice.engine else None,
        "why": backend.why or None,
        "remedy": backend.remedy,
        "abilities": [{name: getattr(item, name) for name in item._fields} for item in backend.abilities],
        "limits": dict(backend.limits),
        "weakenings": [{name: getattr(item, name) for name in item._fields} for item in backend.weakenings],
        "skipped": list(backend.skipped),
    }
