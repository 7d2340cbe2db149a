"""``coop status``: which back ends there are, which one enforces the plan, and how much of it."""

from __future__ import annotations

import argparse
import os
import sys

from coopfile.cli import output, stages
from coopfile.cli.options import request
from coopfile.engines.choose import NATIVE, Choice, Tried, known, look, wanted
from coopfile.engines.making import Place
from coopfile.engines.making import preview as prepare_container
from coopfile.errors import CoopError
from coopfile.find import Project, directories
from coopfile.launching import place, prepare
from coopfile.native.limits import KEYS
from coopfile.native.network import UnusableError
from coopfile.native.probe import Ability, internet, probe
from coopfile.plan.bind import Weakening
from coopfile.plan.model import Plan
from coopfile.plan.promises import unkept
from coopfile.plan.sessions import session_id
from coopfile.record import Record
from coopfile.session import store, sweep

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
    where = place(plan, project, os.environ)
    backends = [
        _examine(tried, tried.name in taken, plan, project, where)
        for tried in look(plan, names, where.environment)
    ]
    chosen = next((item for item in backends if item.taken and item.choice), None)
    on_host = chosen is None and plan.sandbox.fallback == "host"
    directory = directories(os.environ).rootfs
    root = stages.root_file_system(plan, project, directory) if NATIVE in taken else None
    held = stages.holdings(directory)
    if options.json:
        sessions = [{"name": name, "running": runs} for name, runs in _sessions(project)]
        data = {**_data_of_all(backends, chosen, on_host), **stages.data(root, held), "sessions": sessions}
        output.emit_json(data)
    else:
        color = output.wants_color(options.color, sys.stdout)
        shown = [*_lines(backends, chosen, on_host, color), "", *stages.lines(root, held, color)]
        output.emit("\n".join(shown + _own_lines(plan, project)))
    return 0 if chosen or on_host else 1


def _place(name: str, taken: tuple[str, ...]) -> int:
    return taken.index(name) if name in taken else known().index(name)


def _examine(tried: Tried, taken: bool, plan: Plan, project: Project, where: Place) -> Backend:
    """Try the plan on a back end, without running anything."""
    backend = Backend(tried.name, taken, tried.choice, tried.why, tried.remedy)
    try:
        if tried.name == NATIVE:
            return _native(backend, plan, project)
        if tried.choice is None or tried.choice.engine is None:
            return backend
        made = prepare_container(plan, tried.choice.engine, where, ("true",))
    except CoopError as error:
        return backend.replace(choice=None, why=error.message, remedy=error.remedy)
    limits = tuple(
        (KEYS[name], "the engine's control group" if value is not None else "nothing")
        for name, value in (("memory", made.memory), ("pids", made.pids), ("cpu", made.cpus))
        if name != "cpu" or plan.limits.cpus is not None
    )
    return backend.replace(limits=limits, weakenings=made.weakenings, skipped=made.skipped)


def _native(backend: Backend, plan: Plan, project: Project) -> Backend:
    """Add what the machine can do, which says more than whether the plan fits."""
    backend = backend.replace(abilities=probe())
    if backend.choice is None:
        return backend
    try:
        prepared = prepare(plan, project, os.environ, ("true",))
    except UnusableError as error:
        return backend.replace(choice=None, why=f"network.mode: {error.message}", remedy=error.remedy)
    connected = internet(prepared.layout.writable, needed=plan.network.mode == "veth")
    backend = backend.replace(
        abilities=(*backend.abilities, connected),
        limits=tuple((KEYS[name], how) for name, how in prepared.enforcement.how),
        weakenings=(*prepared.weakenings, *unkept(plan)),
        skipped=prepared.layout.skipped,
    )
    lacking = next((item for item in backend.abilities if item.needed and not item.present), None)
    if lacking is not None:
        return backend.replace(choice=None, why=f"{lacking.name}: {lacking.detail}", remedy=lacking.remedy)
    return backend


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


def _own_lines(plan: Plan, project: Project) -> list[str]:
    own = directories(os.environ)
    kept = f"{own.data}/sessions/{session_id(project.root, plan.access)}"
    sessions = [f"{name} ({'running' if runs else 'stopped'})" for name, runs in _sessions(project)]
    return [
        *([f"sessions  {', '.join(sessions)}: coop ls tells more"] if sessions else []),
        f"kept   {output.safe(kept)}, of any size: coop rm removes it",
        f"state  {output.safe(own.state)}, cache {output.safe(own.cache)}",
    ]


def _sessions(project: Project) -> list[tuple[str, bool]]:
    """Return the project's sessions, and which of them run."""
    data = os.path.realpath(directories(os.environ).data)
    return sorted(
        (known.state.name, sweep.runs(known.directory, known.state))
        for known in store.known(data)
        if known.state is not None and known.root == project.root
    )


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
        "abilities": [{name: getattr(item, name) for name in Ability._fields} for item in backend.abilities],
        "limits": dict(backend.limits),
        "weakenings": [
            {name: getattr(item, name) for name in Weakening._fields} for item in backend.weakenings
        ],
        "skipped": list(backend.skipped),
    }
