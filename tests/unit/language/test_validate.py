"""The short way to know that keys and tables are right agrees with the schema."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coopfile.language import validate
from coopfile.language.settings import SETTINGS
from coopfile.language.sources import Source

WORDS = sorted({part for setting in SETTINGS for part in setting.key.split(".")})
KEYS = st.sampled_from([*WORDS, "coop", "users", "ceiling", "name", "trust", "match", "override", "nmae", ""])
SCALARS = st.sampled_from([1, True, 0.5, "a", "none", "host", [], ["a"], [1], [{}]])
TABLES = st.dictionaries(KEYS, SCALARS | st.dictionaries(KEYS, SCALARS, max_size=2), max_size=4)
# Mostly right, so that one thing that is wrong is not hidden by others.
RIGHT: Any = st.fixed_dictionaries(
    {},
    optional={
        "env": st.dictionaries(KEYS, SCALARS, max_size=2),
        **{
            name: st.dictionaries(st.sampled_from(WORDS), SCALARS, max_size=2)
            for name in ("network", "limits", "files", "session")
        },
    },
)
USERS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={"name": SCALARS, "match": SCALARS, "override": RIGHT | SCALARS | TABLES, "nmae": SCALARS},
    )
    | SCALARS
    | TABLES,
    max_size=2,
)
DOCUMENTS = st.builds(
    lambda top, users, ceiling, more: {**top, **users, **ceiling, **more},
    RIGHT,
    st.fixed_dictionaries({}, optional={"users": USERS | SCALARS | TABLES}),
    st.fixed_dictionaries({}, optional={"ceiling": RIGHT | SCALARS | TABLES}),
    st.just({}) | TABLES,
)


def toml(value: Any) -> str:
    """Write a value as TOML, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


@settings(max_examples=600)
@given(DOCUMENTS, st.sampled_from(["user", "project"]))
def test_agreement(data: dict[str, Any], layer: str) -> None:
    """The schema says nothing more of a document than is said where it is asked only if need be."""
    text = "".join(f"{json.dumps(key)} = {toml(value)}\n" for key, value in data.items())
    source = Source(layer, "Coopfile", text.encode())
    found = validate.read_document(source)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validate, "is_plain", lambda _: False)
        assert validate.read_document(source) == found


def test_every_setting_is_plain() -> None:
    """So the schema is not loaded for a Coopfile that is right."""
    for setting in SETTINGS:
        section, _, key = setting.key.partition(".")
        assert validate.is_plain({section: {key: 1} if key else 1}), setting.key


def test_what_is_loaded() -> None:
    """Nothing that reads schemas, unless there is something to say."""
    script = (
        "import sys\nfrom coopfile.language import validate\nfrom coopfile.language.sources import Source\n"
        "for text in sys.argv[1:]:\n"
        "    validate.read_document(Source('project', 'Coopfile', text.encode()))\n"
        "    print('jsonschema' in sys.modules)\n"
    )
    argv = [sys.executable, "-c", script, 'network.mode = "none"', 'network.moed = "none"']
    assert subprocess.check_output(argv, text=True, timeout=60) == "False\nTrue\n"
