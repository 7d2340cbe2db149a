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


def scenario(**probes: str) -> Callable[[Scenario], Scenario]:
    """Add a scenario, whose own probes are given with what each shows."""

    def add(function: Scenario) -> Scenario:
        SCENARIOS[function.__name__] = function
        SENTENCES.update({name.replace("_", " "): text for name, text in probes.items()})
        return function

    return add
