"""The JSON Schema: the committed file, its completeness, and its agreement with the types."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from coopfile import data
from coopfile.language import schema
from coopfile.language.settings import SETTINGS, Setting
from coopfile.language.values import BadValue

VALIDATOR = Draft202012Validator(schema.generate())


def below(key: str, value: Any) -> dict[str, Any]:
    """Return the document that has a value at a dotted key."""
    first, _, rest = key.partition(".")
    return {first: below(rest, value) if rest else value}


def valid(document: object) -> bool:
    """Tell whether the schema accepts a document."""
    return not list(VALIDATOR.iter_errors(document))


def objects(part: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a schema."""
    if isinstance(part, dict):
        yield part
        for inner in part.values():
            yield from objects(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from objects(inner)


def test_the_committed_file_is_the_generated_one() -> None:
    """`python -m coopfile.language.schema` writes it."""
    run = [sys.executable, "-m", "coopfile.language.schema"]
    printed = subprocess.run(run, capture_output=True, check=True, timeout=60).stdout.decode()
    assert data.text("schema/coopfile.schema.json") == schema.dump() == printed


def test_the_schema_is_one() -> None:
    """It is valid under the draft that it names."""
    Draft202012Validator.check_schema(schema.generate())


def test_every_key_explains_itself() -> None:
    """Each has a title, a description and examples; those with a default have that."""
    for setting in SETTINGS:
        section, _, key = setting.key.partition(".")
        found = schema.generate()["$defs"][section]
        found = found["properties"][key] if key else found
        assert found["title"] and found["description"] == setting.help and found["examples"]
        assert ("default" in found) == (setting.default is not None)
    user = schema.generate()["properties"]["users"]["items"]
    assert all(part["title"] and part["description"] for part in user["properties"].values())


def test_no_table_takes_unknown_keys() -> None:
    """Editors and coop mark the same misspellings."""
    for part in objects(schema.generate()):
        if part.get("type") == "object":
            assert part["additionalProperties"] is not True and "additionalProperties" in part
    assert (
        not valid({"x": 1})
        and not valid({"network": {"x": 1}})
        and not valid({"users": [{"name": "a", "x": 1}]})
    )


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_defaults_and_examples_are_valid_everywhere(setting: Setting) -> None:
    """At the top, in a ceiling, and in a user's override; and the types agree."""
    values = [tomli.loads(f"v = {setting.example}")["v"]]
    if setting.default is not None:
        plain: Any = list(setting.default) if isinstance(setting.default, tuple) else setting.default
        values.append({} if setting.merge == "merge" else plain)
    for value in values:
        document = below(setting.key, value)
        assert valid(document) and valid({"ceiling": document})
        assert valid({"users": [{"name": "a", "override": document}]})
        setting.type.parse(value)


def test_users_need_a_name_and_overrides_have_no_users() -> None:
    """What the reader refuses by shape, the schema refuses too."""
    assert not valid({"users": [{}]})
    assert not valid({"users": {"name": "a"}})
    assert not valid({"users": [{"name": "a", "override": {"users": []}}]})
    assert not valid({"ceiling": {"coop": 1}})
    assert not valid({"coop": 2})


WORDS = st.sampled_from(
    [
        "",
        "a",
        "host",
        "auto",
        "2g",
        "1.5G",
        "90s",
        "1h30M",
        "5Ms",
        "~/x",
        "/x",
        "./x",
        "~",
        "*.a.b:1",
        "[::1]:2",
        "80",
        "[::1]:1:2",
        "1.2.3.4:5:6",
        "a@sha256:" + "0" * 64,
        "x:y",
        "é",
        " ",
        "\n",
        "..",
        "../a",
        "a/..b",
        "**/x",
        "@a/b",
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["A", "host", "COOP_X", "a=b"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.sampled_from(SETTINGS), ANYTHING)
def test_the_schema_accepts_whatever_the_types_accept(setting: Setting, raw: object) -> None:
    """An editor never marks what coop would take."""
    try:
        setting.type.parse(raw)
    except BadValue:
        return
    assert valid(json.loads(json.dumps(below(setting.key, raw))))
