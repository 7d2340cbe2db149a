"""Laying settings over each other, and remembering where each of them came from.

A layer maps keys of the settings table to typed values with their origins.
``merge`` is associative and has the empty layer as its identity, so that any
number of layers fold into one, from the first to the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, reduce
from typing import Any

from coopfile.language.composite import Environment, ListOf
from coopfile.language.diagnostics import visible
from coopfile.language.settings import ADD, BY_KEY, MERGE, SETTINGS, Setting
from coopfile.record import Record


class Origin(Record):
    """Where a value was written. ``line`` is None outside files."""

    layer: str
    source: str
    line: int | None = None

    def __str__(self) -> str:
        """Return ``Coopfile:14``, ``COOP_NETWORK_MODE``, ``--set network.mode`` or ``built in``."""
        return visible(self.source) if self.line is None else f"{visible(self.source)}:{self.line}"


BUILT_IN = Origin("default", "built in")


class Valued(Record):
    """A typed value. ``origins`` has one for each item of a tuple, in its order; one for anything else."""

    value: Any
    origins: tuple[Origin, ...]


Layer = Mapping[str, Valued]


class Settings(Record):
    """Every setting of the table, merged from the layers that count."""

    values: Mapping[str, Valued]

    def value(self, key: str) -> Any:
        """Return the typed value at a key of the settings table, such as ``network.mode``."""
        return self.values[key].value

    def origins(self, key: str) -> tuple[Origin, ...]:
        """Return where the value comes from: item by item for lists and variables, else one origin."""
        return self.values[key].origins


@cache
def defaults() -> Layer:
    """Return the layer under all others: every key of the table."""
    layer = {}
    for setting in SETTINGS:
        value = None if setting.default is None else setting.type.parse(setting.default)
        count = len(value) if isinstance(value, tuple) else 1
        layer[setting.key] = Valued(value, (BUILT_IN,) * count)
    return layer


def merge(lower: Layer, upper: Layer) -> Layer:
    """Return both layers in one. ``upper`` wins, or adds, as the settings table says."""
    merged = dict(lower)
    for key, value in upper.items():
        below = lower.get(key)
        merged[key] = value if below is None else _merge_one(BY_KEY[key], below, value)
    return merged


def settings(layers: Iterable[Layer]) -> Settings:
    """Return the settings that the layers make on top of the defaults, the first layer first."""
    return Settings(reduce(merge, layers, defaults()))


def gathered(kind: ListOf, items: Iterable[tuple[Any, Origin]]) -> Valued:
    """Return the value of a list made of items with origins; of equal items the first origin stays."""
    listed = list(items)
    if kind.ordered:
        return Valued(tuple(item for item, _ in listed), tuple(origin for _, origin in listed))
    first: dict[Any, Origin] = {}
    for item, origin in listed:
        first.setdefault(item, origin)
    value = kind.arrange(list(first))
    return Valued(value, tuple(first[item] for item in value))


def _merge_one(setting: Setting, lower: Valued, upper: Valued) -> Valued:
    if setting.merge == ADD and isinstance(setting.type, ListOf):
        return gathered(setting.type, (*_pairs(lower), *_pairs(upper)))
    if setting.merge == MERGE and isinstance(setting.type, Environment):
        latest = {variable.name: (variable, origin) for variable, origin in (*_pairs(lower), *_pairs(upper))}
        chosen = [latest[name] for name in sorted(latest)]
        return Valued(tuple(variable for variable, _ in chosen), tuple(origin for _, origin in chosen))
    return upper


def _pairs(valued: Valued) -> Iterable[tuple[Any, Origin]]:
    return zip(valued.value, valued.origins, strict=True)
