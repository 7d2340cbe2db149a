"""Scenarios: ways to run coop, each of which gives the verdicts of some probes by name.

``SENTENCES`` says of every probe what it shows.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.containers import inside
from tests.containers.backends import Backend

SENTENCES = inside.sentences()

Verdicts = dict[str, str]
Scenario = Callable[[Backend], Verdicts]
SCENARIOS: dict[str, Scenario] = {}
# Scenarios that are not for every back end yet, and the probes of each.
BACKENDS_OF: dict[str, tuple[str, ...]] = {}
_PROBES_OF: dict[str, tuple[str, ...]] = {}


def scenario(*backends: str, **probes: str) -> Callable[[Scenario], Scenario]:
    """Add a scenario, whose own probes are given with what each shows; ``backends``: on these alone."""

    def add(function: Scenario) -> Scenario:
        named = {name.replace("_", " "): text for name, text in probes.items()}
        SCENARIOS[function.__name__] = function
        SENTENCES.update(named)
        if backends:
            BACKENDS_OF[function.__name__] = backends
            _PROBES_OF[function.__name__] = tuple(named)
        return function

    return add


def is_for(which: str, backend: str) -> bool:
    """Tell whether a scenario is run on a back end."""
    return backend in BACKENDS_OF.get(which, (backend,))


def is_probed(probe: str, backend: str) -> bool:
    """Tell whether a probe is of a scenario that is run on a back end."""
    return all(is_for(which, backend) for which, probes in _PROBES_OF.items() if probe in probes)
