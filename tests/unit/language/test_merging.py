"""What merging promises: associativity, an identity, one origin for each item."""

from __future__ import annotations

from functools import reduce
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from coopfile.language.items import HostPattern, Variable
from coopfile.language.merging import Layer, Origin, Valued, defaults, gathered, merge, settings
from coopfile.language.settings import ADD, BY_KEY, MERGE, REPLACE
from coopfile.language.values import ListOf

ORIGINS = st.builds(Origin, st.sampled_from(["user", "project"]), st.sampled_from("fg"), st.integers(1, 9))
VARIABLES = st.builds(Variable, st.sampled_from("ABC"), st.sampled_from(["x", "y"]))


def listed(key: str, items: st.SearchStrategy[Any]) -> st.SearchStrategy[Valued]:
    """Values of a list, made as files make them."""
    kind = BY_KEY[key].type
    assert isinstance(kind, ListOf)
    return st.lists(st.tuples(items, ORIGINS), max_size=4).map(lambda pairs: gathered(kind, pairs))


def variables() -> st.SearchStrategy[Valued]:
    """Values of [env], each name once, sorted."""
    pairs = st.lists(st.tuples(VARIABLES, ORIGINS), max_size=3, unique_by=lambda pair: pair[0].name)
    ordered = pairs.map(lambda found: sorted(found, key=lambda pair: pair[0].name))
    return ordered.map(lambda found: Valued(tuple(v for v, _ in found), tuple(o for _, o in found)))


LAYERS = st.fixed_dictionaries(
    {},
    optional={
        "limits.pids": st.builds(Valued, st.integers(4, 99), ORIGINS.map(lambda origin: (origin,))),
        "network.allow": listed(
            "network.allow", st.builds(HostPattern, st.sampled_from(["a.b", "c.d", "e.f"]))
        ),
        "setup.run": listed("setup.run", st.sampled_from(["x", "y"])),
        "agent.command": listed("agent.command", st.sampled_from(["x", "y"])),
        "env": variables(),
    },
)


def test_the_layers_of_these_tests_have_every_merge_rule() -> None:
    """Adding (ordered or not), replacing and merging are all among them."""
    rules = {
        BY_KEY[key].merge for key in ("limits.pids", "network.allow", "setup.run", "agent.command", "env")
    }
    assert rules == {REPLACE, ADD, MERGE}


@given(LAYERS, LAYERS, LAYERS)
def test_merging_is_associative(first: Layer, second: Layer, third: Layer) -> None:
    """Values and origins do not depend on which layers are merged first."""
    assert merge(merge(first, second), third) == merge(first, merge(second, third))


@given(LAYERS)
def test_the_empty_layer_changes_nothing(layer: Layer) -> None:
    """It is the identity on both sides."""
    assert merge({}, layer) == layer == merge(layer, {})


@given(st.lists(LAYERS, max_size=4))
def test_settings_are_the_fold_of_the_layers(layers: list[Layer]) -> None:
    """Merging layer by layer, or all layers first, gives the same; every item has its origin."""
    found = settings(layers)
    assert found.values == merge(defaults(), reduce(merge, layers, {}))
    for valued in found.values.values():
        assert len(valued.origins) == (len(valued.value) if isinstance(valued.value, tuple) else 1)


@given(LAYERS)
def test_merging_a_layer_with_itself_changes_only_ordered_lists(layer: Layer) -> None:
    """Sets, variables and plain values are idempotent."""
    twice = merge(layer, layer)
    assert {key: valued for key, valued in twice.items() if key != "setup.run"} == {
        key: valued for key, valued in layer.items() if key != "setup.run"
    }


@given(LAYERS, LAYERS)
def test_unordered_lists_do_not_depend_on_the_order_of_layers(first: Layer, second: Layer) -> None:
    """Their value is a union; only the origins tell which layer came first."""
    key = "network.allow"
    one, other = merge(first, second).get(key), merge(second, first).get(key)
    assert (one and one.value) == (other and other.value)
