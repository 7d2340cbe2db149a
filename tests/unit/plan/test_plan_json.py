"""Plans as JSON: the canonical text, the way back, the digest, the schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from coopfile import data
from coopfile.errors import CoopError
from coopfile.language.settings import BY_KEY
from coopfile.plan.canonical import digest, from_json, to_json
from coopfile.plan.model import PLAN_VERSION, SECTIONS, Access, Plan, with_leaf
from coopfile.plan.schema import main, plan_schema
from coopfile.record import Record
from tests.unit.plan.samples import ACCESS, PLAN
from tests.unit.plan.strategies import ACCESSES, LEAVES, PLANS


@given(PLANS)
@settings(max_examples=40)
def test_round_trip(plan: Plan) -> None:
    """A plan's JSON gives the plan back, and the same JSON again."""
    text = to_json(plan)
    assert from_json(text) == plan
    assert to_json(from_json(text.encode())) == text


@given(PLANS)
@settings(max_examples=40)
def test_canonical_text(plan: Plan) -> None:
    """The text is printable ASCII and line feeds, its keys are sorted and its numbers whole."""
    text = to_json(plan)
    assert text.isascii() and text.replace("\n", "").isprintable()

    def check(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert [key for key, _ in pairs] == sorted(key for key, _ in pairs)
        return dict(pairs)

    json.loads(text, object_pairs_hook=check, parse_float=pytest.fail)


@given(PLANS)
@settings(max_examples=40)
def test_layout_of_the_text_does_not_matter(plan: Plan) -> None:
    """Other white space and another order of keys mean the same plan, with the same digest."""
    shuffled = json.dumps(json.loads(to_json(plan), object_pairs_hook=lambda pairs: dict(pairs[::-1])))
    assert digest(from_json(shuffled)) == digest(plan)


def test_strategies_cover_the_model() -> None:
    """The strategies that the tests below rest on have every leaf of the model, and no other."""
    leaves = {
        f"{name}.{field}"
        for name, section in SECTIONS.items()
        if section is not Access
        for field in section._fields
    }
    assert set(LEAVES) == leaves | {"env"} == set(BY_KEY)


@pytest.mark.parametrize("key", LEAVES)
@given(st.data())
@settings(max_examples=20)
def test_no_leaf_escapes_the_digest(key: str, data: st.DataObject) -> None:
    """Two plans that differ in one leaf have different digests, whichever leaf it is."""
    plan, other = (with_leaf(PLAN, key, data.draw(LEAVES[key])) for _ in range(2))
    assert (digest(other) == digest(plan)) == (other == plan)


def fields(record: Record, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return the values of every field of a record and of the records below it."""
    found: dict[tuple[str, ...], Any] = {}
    for name in record._fields:
        value = getattr(record, name)
        here = (*path, name)
        found[here] = value
        for index, item in enumerate(value if isinstance(value, tuple) else (value,)):
            if isinstance(item, Record):
                found |= fields(item, (*here, str(index)))
    return found


def changed(record: Record, path: tuple[str, ...], value: Any) -> Any:
    """Return a copy of a record with another value at a path that ``fields`` gave."""
    name, rest = path[0], path[1:]
    if not rest:
        return record.replace(**{name: value})
    inner = getattr(record, name)
    if not isinstance(inner, tuple):
        return record.replace(**{name: changed(inner, rest[1:], value)})
    index = int(rest[0])
    item = changed(inner[index], rest[1:], value)
    return record.replace(**{name: (*inner[:index], item, *inner[index + 1 :])})


@given(PLANS, st.data())
def test_no_field_of_any_record_escapes_the_digest(plan: Plan, data: st.DataObject) -> None:
    """The digest sees every field that the records of the model have, also those inside of items."""
    path = data.draw(st.sampled_from(sorted(fields(plan))))
    assert digest(changed(plan, path, "something else")) != digest(plan)


@given(PLANS, ACCESSES)
def test_access_is_in_the_digest(plan: Plan, access: Access) -> None:
    """Who asks counts: another access is another plan."""
    other = plan.replace(access=access)
    assert (digest(other) == digest(plan)) == (access == plan.access)


@given(PLANS)
@settings(max_examples=40)
def test_schema_accepts_plans(plan: Plan) -> None:
    """The committed schema accepts every plan."""
    schema = json.loads(data.text("schema/plan.schema.json"))
    Draft202012Validator(schema).validate(json.loads(to_json(plan)))


def test_committed_schema_is_the_generated_one(capsys: pytest.CaptureFixture[str]) -> None:
    """``python -m coopfile.plan.schema`` prints what is committed."""
    main()
    assert capsys.readouterr().out == data.text("schema/plan.schema.json")


def test_schema_is_a_schema_and_strict() -> None:
    """The schema is valid 2020-12; every object requires all its keys and allows no other."""
    schema = plan_schema()
    Draft202012Validator.check_schema(schema)

    def walk(part: Any) -> int:
        if isinstance(part, list):
            return sum(map(walk, part))
        if not isinstance(part, dict):
            return 0
        if part.get("type") == "object":
            assert part["additionalProperties"] is False
            assert part["required"] == list(part["properties"])
        return (part.get("type") == "object") + sum(map(walk, part.values()))

    assert walk(schema) == len(SECTIONS) + 1 + 5


def broken(*path: str | int, value: Any) -> str:
    """Return the sample's JSON with one value replaced, or one key added."""
    whole = json.loads(to_json(PLAN.replace(access=ACCESS)))
    part = whole
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return json.dumps(whole)


NOT_PLANS = [
    ("", "it is not JSON"),
    ("[]", "[] is not of type 'object'"),
    ("{}", "'base' is a required property"),
    ("[" * 100_000, "it is not JSON"),
    ("1" * 10_000, "it is not JSON"),
    (b"\xff", "it is not JSON"),
    ('{"a": 1, "a": 2}', "the key 'a' stands twice"),
    (broken("limits", "memory", value=2.0), "2.0 is not a whole number"),
    (broken("limits", "memory", value=float("nan")), "NaN is not a whole number"),
    (broken("limits", "memory", value=True), "limits.memory: True is not of type 'integer'"),
    (broken("limits", "memory", value=-1), "limits.memory: -1 is less than the minimum"),
    (broken("limits", "pids", value=2**70), "limits.pids: "),
    (broken("limits", "extra", value=1), "limits: Additional properties are not allowed"),
    (broken("extra", value=1), "Additional properties are not allowed"),
    (broken("network", "mode", value="bridge"), "network.mode: 'bridge' is not one of"),
    (broken("network", "allow", 0, "port", value=70000), "network.allow.0.port: 70000 is greater"),
    (broken("network", "publish", 0, "host", value=0), "network.publish.0.host: 0"),
    (broken("session", "caches", value=["wheels"]), "session.caches.0: 'wheels' is not one of"),
    (broken("base", "image", value="debian"), "base.image: 'debian' is not valid under any"),
    (broken("env", 0, "host", value="EDITOR"), "env.0: "),
    (broken("env", 0, "value", value=None), "env.0"),
    (broken("version", value=PLAN_VERSION + 1), f"version: {PLAN_VERSION} was expected"),
    (broken("access", "trust", value="root"), "access.trust: 'root' is not one of"),
    (broken("files", "read", value=["~/b", "~/a"]), "files.read: the value is not in canonical form"),
    (broken("files", "read", value=["~/a", "~/a"]), "files.read: "),
    (broken("files", "read", value=["~/a/../.."]), 'files.read: ".." has no place in a path'),
    (broken("files", "read", value=["~/a/"]), "files.read: the value is not in canonical form"),
    (broken("workspace", "path", value="/usr"), "workspace.path: the workspace cannot be at"),
    (broken("packages", "apt", value=["-oX=y"]), "packages.apt"),
    (broken("agent", "command", value=["sh", "a\0b"]), "agent.command: an argument may not have a NUL"),
    (broken("sandbox", "backend", value=["auto", "native"]), 'sandbox.backend: "auto" stands alone'),
    (broken("network", "allow", 0, "host", value="127.1"), "network.allow: programs disagree"),
    (
        broken("network", "allow", 0, "host", value="Pypi.org"),
        "network.allow: the value is not in canonical form",
    ),
    (broken("base", "image", "registry", value="a b"), "base.image: "),
    (
        broken("env", value=[{"name": "A", "value": text, "host": None} for text in "xy"]),
        "env: ",
    ),
    (broken("env", 0, "name", value="A=B"), "env: "),
    (broken("env", 0, "name", value="A\nB"), "env: "),
    (broken("access", "tools", value=["b", "a"]), "access: a list is not in canonical order"),
]


@pytest.mark.parametrize(("text", "problem"), NOT_PLANS, ids=[case[1] for case in NOT_PLANS])
def test_what_is_not_a_plan_is_refused(text: str | bytes, problem: str) -> None:
    """Anything but a canonical plan is a CoopError that names the file, the key and the problem."""
    with pytest.raises(CoopError) as caught:
        from_json(text, "old.json")
    assert caught.value.message.startswith("old.json is not a plan:\n")
    assert problem in caught.value.message
    assert len(caught.value.message) < 2000


def test_many_problems_are_counted() -> None:
    """A text with many problems shows the first few and says how many more there are."""
    with pytest.raises(CoopError, match=r"and 9 more"):
        from_json("{}")


def test_commands_keep_their_order() -> None:
    """Lists whose order means something may repeat items and need not be sorted."""
    plan = with_leaf(PLAN, "setup.run", ("b", "a", "b"))
    assert from_json(to_json(plan)).setup.run == ("b", "a", "b")
