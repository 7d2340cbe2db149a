"""``coop ls``: the sessions of a project, or of all of them."""

from __future__ import annotations

import argparse
import os
import sys
import time

from coopfile.cli import output
from coopfile.cli.options import request
from coopfile.cli.progress import megabytes
from coopfile.cli.sessions import data_directory
from coopfile.errors import CoopError
from coopfile.find import find
from coopfile.plan import canonical
from coopfile.record import Record
from coopfile.session import lifecycle, store
from coopfile.session.model import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from coopfile.session.store import Known

SUMMARY = "list the sessions of this project"
EPILOG = """examples:
  coop ls            NAME, STATE, AGE since it was started last, BACKEND, PROCESSES and MEMORY now
  coop ls --all      of every project
  coop ls --json     with ids and times
  coop ls -q         names alone

STATE is running or stopped (it starts again when it is used); changing, while it is being started or
ended; unreachable, if it does not answer; damaged, if what is known of it makes no sense.
"plan: changed" says that it runs under another plan than the project has now: stop it, and it starts
under that.
"""

RUNNING, STOPPED, CHANGING = "running", "stopped", "changing"
UNREACHABLE, DAMAGED = "unreachable", "damaged"
_COLORS = {RUNNING: "green", UNREACHABLE: "red", DAMAGED: "red"}
_AGES = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))  # seconds


class Row(Record):
    """A session as it is listed.

    ``changed`` tells whether the plan has, since it was started, None where that is not known.
    ``problem`` says what is wrong with it.
    """

    known: Known
    status: str
    usage: Usage | None = None
    changed: bool | None = None
    problem: str = ""

    @property
    def name(self) -> str:
        """Its name, or its id where that is all there is."""
        return self.known.id if self.known.state is None else self.known.state.name


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument("--all", action="store_true", help="list the sessions of every project")


def main(options: argparse.Namespace) -> int:
    """Look at each session, and print what there is to know."""
    root = None if options.all else find(options.directory, options.file, os.environ).root
    found = [known for known in store.known(data_directory()) if root is None or known.root == root]
    if options.quiet and not options.json:
        names = {known.id if known.state is None else known.state.name for known in found}
        output.emit("\n".join(sorted(names)))
        return 0
    plans = _Plans(options)
    rows = [examine(known, plans) for known in found]
    rows.sort(key=lambda row: (row.known.root or "", row.name))
    if options.json:
        output.emit_json({"sessions": [_data(row) for row in rows]})
    elif rows:
        color = output.wants_color(options.color, sys.stdout)
        output.emit("\n".join(_table(rows, options.all, color, time.time())))
    else:
        output.emit("no sessions" if options.all else "this project has no sessions")
    return 0


def examine(known: Known, plans: _Plans) -> Row:
    """Look at one session; nothing that is wrong with it is an error."""
    row = _examined(known, plans)
    if row.status in (UNREACHABLE, DAMAGED) and store.is_starting(known.directory):
        return row.replace(status=CHANGING, problem="")
    return row


def _examined(known: Known, plans: _Plans) -> Row:
    state = known.state
    if state is None:
        text = "it runs; " if store.is_alive(known.directory) else ""
        return Row(known, DAMAGED, problem=f"{text}{known.directory}/state makes no sense")
    changed = plans.differ(state)
    try:
        live = lifecycle.join(known.directory, state)
        if live is None:
            return Row(known, STOPPED, changed=changed)
        return Row(known, RUNNING, live.usage(), changed)
    except CoopError as error:
        if state.backend == "native" and not store.is_alive(known.directory):
            return Row(known, STOPPED, changed=changed)  # it has ended meanwhile
        return Row(known, UNREACHABLE, changed=changed, problem=error.message)


class _Plans:
    """The digests of what projects' plans are now, as far as that is cheap to know."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._known: dict[str, str | None] = {}

    def differ(self, state: store.State) -> bool | None:
        """Tell whether a session's plan is another one now; None where that is not known."""
        if state.user is not None:
            return None
        if state.root not in self._known:
            self._known[state.root] = self._digest(state.root)
        now = self._known[state.root]
        return None if now is None else now != state.digest

    def _digest(self, root: str) -> str | None:
        from coopfile.compiling import compile_project

        options = self._options
        asked = request(options).replace(identity=None, place="direct")
        if options.all:
            asked = asked.replace(directory=root, file=None)
        try:
            return canonical.digest(compile_project(asked).plan)
        except CoopError:
            return None  # `coop check` tells


def _table(rows: list[Row], everywhere: bool, color: bool, now: float) -> Iterator[str]:
    head = ["NAME", "STATE", "AGE", "BACKEND", "PROCESSES", "MEMORY", *(["PROJECT"] if everywhere else [])]
    table = [head, *(_cells(row, everywhere, now) for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(head))]
    for number, (line, row) in enumerate(zip(table, [None, *rows], strict=True)):
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        if number == 0:
            padded = [output.paint(cell, "bold", color) for cell in padded]
        elif row is not None and row.status in _COLORS:
            padded[1] = output.paint(padded[1], _COLORS[row.status], color)
        notes = _notes(row) if row is not None else []
        yield "  ".join([*padded, *notes]).rstrip()


def _cells(row: Row, everywhere: bool, now: float) -> list[str]:
    state, usage = row.known.state, row.usage
    memory = None if usage is None else usage.memory
    return [
        output.safe(row.name),
        row.status,
        "-" if state is None else _age(now - state.started),
        "-" if state is None else output.safe(state.backend),
        "-" if usage is None else str(usage.processes),
        "-" if memory is None else megabytes(memory),
        *([output.safe(row.known.root or "-")] if everywhere else []),
    ]


def _notes(row: Row) -> list[str]:
    notes = [f"({output.safe(row.problem)})"] if row.problem else []
    return [*notes, "plan: changed"] if row.changed and row.status == RUNNING else notes


def _age(seconds: float) -> str:
    """Return a time in its largest unit; a clock that was set back gives none."""
    whole = max(int(seconds), 0)
    return next((f"{whole // size}{unit}" for size, unit in _AGES if whole >= size), "0s")


def _data(row: Row) -> dict[str, object]:
    state, usage = row.known.state, row.usage
    return {
        "name": None if state is None else state.name,
        "id": row.known.id,
        "state": row.status,
        "project": row.known.root,
        "user": None if state is None else state.user,
        "backend": None if state is None else state.backend,
        "created": None if state is None else state.created,
        "started": None if state is None else state.started,
        "ttl": None if state is None or state.ttl_ms is None else state.ttl_ms / 1000,
        "leased": None if state is None else state.leased,
        "processes": None if usage is None else usage.processes,
        "memory": None if usage is None else usage.memory,
        "plan_changed": row.changed,
        "problem": row.problem or None,
    }
