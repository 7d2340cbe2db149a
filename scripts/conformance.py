"""Print what every back end of this machine makes of the probes of tests/containers, as a table.

``python scripts/conformance.py [--scenario NAME] [BACKEND...]``: a row for each probe, a column for
each back end, compared with native: OK, ``listed`` by `coop status` as weaker, ``differs`` in
what no plan promises, or DIFFERS. Exits with 1 when there is one of the last.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.containers.backends import BACKENDS, NATIVE, NATIVE_ROOT
from tests.containers.differences import Difference, explained
from tests.containers.networks import completed
from tests.containers.probes import verdicts
from tests.containers.scenarios import SCENARIOS, Verdicts
from tests.engines.cell import UnusableError
from tests.engines.engine import Engines
from tests.sandboxes import Workshop


def main() -> int:
    """Run the probes and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="only these probes")
    parser.add_argument("backend", nargs="*", metavar="BACKEND", help=", ".join(BACKENDS))
    options = parser.parse_args()
    names = [NATIVE, *(name for name in options.backend or BACKENDS if name != NATIVE)]
    workshop = Workshop()
    try:
        engines = Engines(workshop)
        try:
            table = _run(engines, names, options.scenario or list(SCENARIOS))
        finally:
            engines.close()
    finally:
        workshop.close()
    return _print(table)


def _run(engines: Engines, names: list[str], scenarios: list[str]) -> dict[str, Verdicts]:
    """Return the verdicts of each back end that this machine has."""
    table: dict[str, Verdicts] = {}
    for name in names:
        found: Verdicts = {}
        started = time.monotonic()
        try:
            for which in scenarios:
                try:
                    found |= _verdicts(engines, name, which)
                except (AssertionError, OSError, ValueError) as error:
                    print(f"{name}: {which}: {error}", file=sys.stderr)
        except UnusableError as error:
            print(f"{name}: not on this machine: {error}", file=sys.stderr)
            continue
        print(f"{name}: {time.monotonic() - started:.1f} s", file=sys.stderr)
        table[name] = found
    return table


def _verdicts(engines: Engines, name: str, which: str) -> Verdicts:
    """Return a back end's; of native, what others are compared with, is root's what only root can have."""
    found = verdicts(engines, name, which)
    if name != NATIVE:
        return found
    return completed(found, lambda: verdicts(engines, NATIVE_ROOT, which))


def _print(table: dict[str, Verdicts]) -> int:
    """Print the table, and below it every difference with its explanation; return the exit status."""
    baseline = table[NATIVE]
    names = [name for name in table if name != NATIVE]
    wide = max(map(len, baseline))
    print(" " * wide, *names, sep="  ")
    notes, unexplained = [], 0
    for probe, expected in baseline.items():
        cells = []
        for name in names:
            verdict = table[name].get(probe, "no verdict")
            if verdict == expected:
                cells.append("OK")
                continue
            difference = explained(probe, name, verdict)
            unexplained += difference is None
            cells.append(_cell(difference))
            if difference is None:
                notes.append(f"{name}: {probe}: {verdict!r}, not {expected!r}")
            else:
                notes.append(f"{name}: {probe}: {verdict}: {difference.why} ({difference.weakening})")
        print(
            probe.ljust(wide),
            *(cell.ljust(len(name)) for cell, name in zip(cells, names, strict=True)),
            sep="  ",
        )
    print("", *notes, sep="\n")
    return 1 if unexplained else 0


def _cell(difference: Difference | None) -> str:
    return "DIFFERS" if difference is None else "listed"


if __name__ == "__main__":
    sys.exit(main())
