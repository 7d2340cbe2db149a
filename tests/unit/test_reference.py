"""The reference in the docs says what the table of settings says."""

from __future__ import annotations

from coopfile.language.settings import SETTINGS
from scripts import reference


def test_reference_is_up_to_date() -> None:
    """docs/reference.md is what `make docs` would write."""
    assert reference.TARGET.read_text(encoding="utf-8") == reference.reference()


def test_reference_has_every_key() -> None:
    """No setting is missing from the page."""
    text = reference.reference()
    assert [setting.key for setting in SETTINGS if f"| `{setting.key}` |" not in text] == []
