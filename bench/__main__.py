"""Measure ``coop run -- true`` beside its peers, interleaved, and print one table."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from bench import measure, subjects
from bench.measure import RunError, Subject, Timing


def main() -> int:
    """Run the measurement; 0 whatever the figures say, 1 when nothing could be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("-n", type=int, default=20, metavar="RUNS", help="runs of each, 1 to 200 (20)")
    parser.add_argument("--only", metavar="NAMES", help="a comma-separated choice: python,coop,bubblewrap")
    options = parser.parse_args()
    count = min(max(options.n, 1), 200)
    wanted = options.only.split(",") if options.only else [name for name, _ in subjects.SUBJECTS]

    here = os.getcwd()
    with subjects.a_place() as place:
        try:
            timings, skipped = _measure(place, wanted, count)
        finally:
            os.chdir(here)  # the place is about to go
    if not timings:
        sys.stdout.write("nothing could be measured\n")
    else:
        sys.stdout.write("\n".join(table(timings, count)) + "\n")
    for name, reason in skipped:
        sys.stdout.write(f"  {name:<11}skipped: {reason}\n")
    sys.stdout.write("".join(f"  {line}\n" for line in budget(timings)))
    return 0 if timings else 1


def _measure(
    place: subjects.Place, wanted: Sequence[str], count: int
) -> tuple[list[Timing], list[tuple[str, str]]]:
    ready: list[Subject] = []
    skipped: list[tuple[str, str]] = []
    log_path = os.path.join(place.scratch, "log")
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for name, prepare in subjects.SUBJECTS:
            if name not in wanted:
                continue
            before = os.path.getsize(log_path)
            try:
                subject = prepare(place)
                for _ in range(2):  # warm-up: caches of files, and coop's plan
                    measure.run_once(subject, log)
            except subjects.UnavailableError as reason:
                skipped.append((name, str(reason)))
            except RunError as error:
                with open(log_path, encoding="utf-8", errors="replace") as file:
                    file.seek(before)
                    said = file.read().strip().splitlines() or [""]
                skipped.append((name, f"{error}: {said[-1][:100]}".rstrip(": ")))
            else:
                ready.append(subject)
        return measure.interleaved(ready, count, log) if ready else [], skipped
    finally:
        os.close(log)


def table(timings: Sequence[Timing], count: int) -> list[str]:
    """Return the table's lines: milliseconds per run, and each median as a multiple of coop's."""
    medians = {timing.subject.name: timing.median for timing in timings}
    lines = [
        f"{count} interleaved runs of each, whole process, ms",
        "",
        f"  {'':<11}{'command':<20}{'median':>8}{'min':>8}{'max':>8}{'÷ python':>10}{'÷ coop':>8}",
    ]
    for timing in timings:
        ratios = [
            f"{timing.median / medians[base]:.2f}" if base in medians else "-" for base in ("python", "coop")
        ]
        lines.append(
            f"  {timing.subject.name:<11}{timing.subject.what:<20}{timing.median:>8.1f}"
            f"{min(timing.runs):>8.1f}{max(timing.runs):>8.1f}{ratios[0]:>10}{ratios[1]:>8}"
        )
    return lines


def budget(timings: Sequence[Timing]) -> list[str]:
    """Return one line per promise that this run can judge."""
    medians = {timing.subject.name: timing.median for timing in timings}
    lines = []
    if {"coop", "python", "bubblewrap"} <= medians.keys():
        allowed = 1.5 * medians["python"] + 1.5 * medians["bubblewrap"]
        ratio = medians["coop"] / allowed
        lines.append(
            f"budget: coop ≤ 1.5 python + 1.5 bubblewrap = {allowed:.1f} ms: "
            f"{ratio:.2f} of it, {'kept' if ratio <= 1 else 'exceeded'}"
        )
    for name, factor in (("podman", 5), ("docker", 8), ("srt", 12)):
        if {"coop", name} <= medians.keys():
            ratio = medians[name] / medians["coop"]
            verdict = "kept" if ratio >= factor else "missed"
            lines.append(f"budget: {factor} × faster than {name}: {ratio:.1f} ×, {verdict}")
    return ["", *lines] if lines else []


if __name__ == "__main__":
    sys.exit(main())
