"""The data files are found beside the code."""

from __future__ import annotations

import os

import pytest

from coopfile import data
from coopfile.errors import CoopError


def test_a_checkout_finds_its_own_files() -> None:
    """The template of the starter Coopfile is found and read."""
    assert os.path.isfile(data.path("templates/Coopfile.j2"))
    assert data.text("templates/Coopfile.j2").startswith("#:schema ")


def test_a_missing_file_is_an_error_for_people() -> None:
    """A damaged installation gives a message and a remedy, not a traceback."""
    with pytest.raises(CoopError, match=r"lacks its file schema/none\.json") as caught:
        data.path("schema/none.json")
    assert caught.value.remedy
