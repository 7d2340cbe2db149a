"""The documents say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coopfile.cli.main import main
from coopfile.cli.parsing import VERBS
from coopfile.language.settings import SETTINGS
from scripts import reference

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", reference.files(), ids=lambda path: path.name)
def test_generated_files_are_up_to_date(path: Path) -> None:
    """The reference and the schemas are what `make docs` would write."""
    assert path.read_text(encoding="utf-8") == reference.files()[path]


def test_reference_has_every_key() -> None:
    """No setting is missing from the page."""
    text = reference.reference()
    assert [setting.key for setting in SETTINGS if f"| `{setting.key}` |" not in text] == []


def test_readme_names_every_command() -> None:
    """The table of commands is whole."""
    assert [verb for verb in VERBS if f"| `coop {verb}" not in README] == []


def block(kind: str, start: str) -> str:
    """Return the README's code block of a kind that begins with a text, without that text."""
    blocks: list[str] = re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL)
    return next(text for text in blocks if text.startswith(start)).removeprefix(start)


def test_readme_example_is_real(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The README's Coopfile comes to the plan that is printed below it, and its mistake is shown as there."""
    text = block("toml", "")
    (project / "Coopfile").write_text(text, encoding="utf-8")
    assert main(["plan"]) == 0
    assert capsys.readouterr().out == block("console", "$ coop plan\n")
    (project / "Coopfile").write_text(text.replace("[limits]", "[limit]"), encoding="utf-8")
    assert main(["check"]) == 1
    assert capsys.readouterr().out == block("console", "$ coop check\n")
