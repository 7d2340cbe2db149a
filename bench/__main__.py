"""Measure coop beside its peers, interleaved: its runs in one table, how it gets images in others."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from bench import images, measure, networks, pulls, scale, sessions, subjects
from bench.measure import Call, RunError, Subject, Timing
from coopfile.errors import CoopError

TYPE_CHECKING = False
if TYPE_CHECKING:
    Subjects = Sequence[tuple[str, Callable[[subjects.Place], Subject | Call]]]
    Skipped = list[tuple[str, str]]

_PULLS = 5  # rounds of what takes seconds
_MOST = 5000  # sandboxes at once


def main() -> int:
    """Run the measurements; 0 whatever the figures say, 1 when nothing could be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("-n", type=int, default=20, metavar="RUNS", help="runs of each, 1 to 200 (20)")
    parser.add_argument("--only", metavar="NAMES", help="a comma-separated choice: python,coop,bubblewrap")
    parser.add_argument("--no-images", action="store_true", help="leave out what needs an image to be made")
    parser.add_argument("--disk", action="store_true", help="measure on an ext4 of its own, not on a tmpfs")
    parser.add_argument(
        "--scale",
        metavar="COUNTS",
        nargs="?",
        const=scale.COUNTS,
        type=_counts,
        help="only many idle sandboxes at once: 1,10,50,200",
    )
    options = parser.parse_args()
    count = min(max(options.n, 1), 200)
    wanted = options.only.split(",") if options.only else None

    _say(f"{os.cpu_count()} processors, load before: {' '.join(f'{load:.2f}' for load in os.getloadavg())}")
    here = os.getcwd()
    with subjects.a_place(options.disk) as place:
        _say(f"projects, and what coop keeps, on {place.where}")
        try:
            if options.scale:
                found = _scale(place, options.scale, limits=True)
            else:
                found = _all(place, count, wanted, not options.no_images)
        finally:
            os.chdir(here)  # the place is about to go
    return 0 if found else 1


def _all(place: subjects.Place, count: int, wanted: Sequence[str] | None, with_images: bool) -> bool:
    """Measure everything; tell whether anything could be."""
    registry = None
    more: Subjects = (("exec", sessions.whole),)
    if with_images:
        try:
            registry = place.cleanup.enter_context(images.registry(os.path.join(place.scratch, "registry")))
            more = (*more, *pulls.kept(place, registry.images[0][1]))
        except subjects.UnavailableError as reason:
            _say(f"images are left out: {reason}")
    timings, skipped = _measure(place, (*subjects.SUBJECTS, *more), wanted, count)
    title = f"{count} interleaved runs of each, whole process, ms"
    _report(table(timings, title, ("python", "coop")), skipped, budget(timings))
    found = bool(timings)
    timings, skipped = _measure(place, sessions.CALLS, wanted, count)
    title = f"{count} interleaved commands from one Python process, output captured, ms"
    _report(table(timings, title, ("bubblewrap", "docker")), skipped, budget(timings))
    found = found or bool(timings)
    timings, skipped = _measure(place, networks.SUBJECTS, wanted, count)
    title = f"{count} interleaved runs of each on a host that forwards packets, whole process, ms"
    _report(table(timings, title, ("none",)), skipped, budget(timings))
    found = found or bool(timings)
    if wanted is None or "scale" in wanted:
        found = _scale(place, (10,)) or found
    for name, reference, layers in registry.images if registry else ():
        size = sum(os.path.getsize(layer) for layer in layers) / 1e6
        rounds = min(count, _PULLS)
        timings, skipped = _measure(place, pulls.pulls(place, reference, layers), wanted, rounds)
        image = f"image {name} ({len(layers)} layers, {size:.0f} MB)"
        title = f"{rounds} interleaved pulls of {image} to {place.where}, whole process, ms"
        _report(table(timings, title, ("tar", "podman")), skipped, pull_budget(timings))
        found = found or bool(timings)
    return found


def _counts(text: str) -> tuple[int, ...]:
    counts = tuple(int(part) for part in text.split(","))
    if not all(0 < count <= _MOST for count in counts):
        raise ValueError
    return counts


def _scale(place: subjects.Place, counts: Sequence[int], *, limits: bool = False) -> bool:
    """Measure idle sandboxes, so many at once; tell whether that could be done."""
    samples: list[tuple[str, scale.Sample]] = []
    skipped: Skipped = []
    with scale.adopting():
        ready = []
        for kind in scale.kinds(place):
            ready.append(kind) if isinstance(kind, scale.Kind) else skipped.append(kind)
        for count in counts:
            for kind in ready:
                try:
                    samples.append((kind.name, scale.measure(kind, count)))
                except CoopError as error:
                    skipped.append((kind.name, f"{count} at once: {error.message[:100]}"))
    own = [sample for name, sample in samples if name == "coop"]
    lines = ["idle sandboxes at once; of each:", "", *scale.table(samples)]
    if own and limits:
        lines += ["", f"with {own[-1].count} sessions:", "", *scale.limits(own[-1])]
    promises = [_at_most(bound, part) for bound, part in scale.promises(samples)] if own else []
    _report(lines, skipped, promises)
    return bool(samples)


def _measure(
    place: subjects.Place, known: Subjects, wanted: Sequence[str] | None, count: int
) -> tuple[list[Timing], Skipped]:
    ready: list[Subject | Call] = []
    skipped: Skipped = []
    log_path = os.path.join(place.scratch, "log")
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for name, prepare in known:
            if wanted is not None and name not in wanted:
                continue
            before = os.path.getsize(log_path)
            try:
                subject = prepare(place)
                for _ in range(
                    1 if isinstance(subject, Subject) and subject.reset else 2
                ):  # warm-up: caches of files, and coop's plan
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


def table(timings: Sequence[Timing], title: str, against: Sequence[str]) -> list[str]:
    """Return the table's lines: milliseconds per run, and each median as a multiple of some subjects'."""
    if not timings:
        return [f"{title}: nothing could be measured"]
    medians = {timing.subject.name: timing.median for timing in timings}
    ratios = "".join(f"{'÷ ' + name:>10}" for name in against)
    lines = [
        title,
        "",
        f"  {'':<11}{'command':<20}{'median':>8}{'min':>8}{'max':>8}{ratios}",
    ]
    for timing in timings:
        ratios = "".join(
            f"{timing.median / medians[name]:>10.2f}" if name in medians else f"{'-':>10}" for name in against
        )
        lines.append(
            f"  {timing.subject.name:<11}{timing.subject.what:<20}{timing.median:>8.1f}"
            f"{min(timing.runs):>8.1f}{max(timing.runs):>8.1f}{ratios}"
        )
    return lines


def budget(timings: Sequence[Timing]) -> list[str]:
    """Return one line per promise about runs that this measurement can judge."""
    medians = {timing.subject.name: timing.median for timing in timings}
    lines = []
    for name, what in (("coop", "coop"), ("image", "coop on an image")):
        if {name, "python", "bubblewrap"} <= medians.keys():
            allowed = 1.5 * medians["python"] + 1.5 * medians["bubblewrap"]
            bound = f"{what} ≤ 1.5 python + 1.5 bubblewrap = {allowed:.1f} ms"
            lines.append(_at_most(bound, medians[name] / allowed))
    for name, factor in (("podman", 5), ("docker", 8), ("srt", 12)):
        if {"coop", name} <= medians.keys():
            ratio = medians[name] / medians["coop"]
            verdict = "kept" if ratio >= factor else "missed"
            lines.append(f"budget: {factor} × faster than {name}: {ratio:.1f} ×, {verdict}")
    if {"coop", "proxy"} <= medians.keys():
        lines.append(_at_most("coop with a proxy ≤ 1.2 coop run", medians["proxy"] / (1.2 * medians["coop"])))
    if {"none", "veth"} <= medians.keys():
        lines.append(_at_most("coop with veth ≤ 1.5 without", medians["veth"] / (1.5 * medians["none"])))
    if {"coop", "init"} <= medians.keys():
        lines.append(_at_most("coop init, all there ≤ 2 coop run", medians["init"] / (2 * medians["coop"])))
    return lines + [_at_most(bound, part) for bound, part in sessions.promises(timings)]


def pull_budget(timings: Sequence[Timing]) -> list[str]:
    """Return one line per promise about fetching images that this measurement can judge."""
    medians = {timing.subject.name: timing.median for timing in timings}
    return [
        _at_most(f"coop ≤ {factor:g} {name}", medians["coop"] / (factor * medians[name]))
        for name, factor in (("podman", 0.6), ("tar", 1.3))
        if {"coop", name} <= medians.keys()
    ]


def _at_most(bound: str, part: float) -> str:
    return f"budget: {bound}: {part:.2f} of it, {'kept' if part <= 1 else 'exceeded'}"


def _report(lines: Sequence[str], skipped: Skipped, promises: Sequence[str]) -> None:
    _say("")
    for line in lines:
        _say(line)
    for name, reason in skipped:
        _say(f"  {name:<11}skipped: {reason}")
    for line in ["", *promises] if promises else []:
        _say(f"  {line}".rstrip())


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
