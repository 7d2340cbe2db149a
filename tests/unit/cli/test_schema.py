"""``coop schema`` prints schemas that hold for what coop takes and gives."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import tomli

from coopfile.cli.main import main

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples").glob("*Coopfile"))


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """Return the schema of Coopfiles and that of plans, as they are printed."""
    schemas = []
    for option in ([], ["--plan"]):
        assert main(["schema", *option]) == 0
        schemas.append(json.loads(capsys.readouterr().out))
    return schemas


def test_schemas_are_schemas(printed: list[dict[str, object]]) -> None:
    """Both are valid JSON Schema 2020-12 and say so."""
    for schema in printed:
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_editor_accepts_the_examples(path: Path, printed: list[dict[str, object]]) -> None:
    """An editor with the schema has nothing to mark in an example, and would mark a misspelt key."""
    validator = jsonschema.Draft202012Validator(printed[0])
    document = tomli.loads(path.read_text(encoding="utf-8"))
    assert [error.message for error in validator.iter_errors(document)] == []
    assert list(validator.iter_errors({**document, "netwrok": {}})) != []


def test_plans_satisfy_their_schema(
    printed: list[dict[str, object]], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `coop plan --json` prints is what the schema of plans describes."""
    assert main(["plan", "--json"]) == 0
    jsonschema.Draft202012Validator(printed[1]).validate(json.loads(capsys.readouterr().out))
