"""Reading texts in tests: from the text of a Coopfile to its problems or its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from coopfile.language.diagnostics import CoopfileError, Diagnostic
from coopfile.language.merging import Settings
from coopfile.language.reading import Reading, read
from coopfile.language.sources import Source

NAMES = {"user": "~/.config/coop/Coopfile", "project": "Coopfile", "local": "Coopfile.local"}


def reading(
    project: str | bytes = "",
    *,
    user: str | bytes | None = None,
    local: str | bytes | None = None,
    environment: Mapping[str, str] | None = None,
    assignments: Sequence[str] = (),
) -> Reading:
    """Read the texts of the three files, and what comes from outside them."""
    texts = {"user": user, "project": project, "local": local}
    sources = [
        Source(layer, NAMES[layer], text.encode() if isinstance(text, str) else text)
        for layer, text in texts.items()
        if text is not None
    ]
    return read(sources, environment=environment, assignments=assignments)


def settings(project: str = "", **more: Any) -> Settings:
    """Return the merged settings."""
    return reading(project, **more).settings()


def problems(project: str | bytes = "", **more: Any) -> tuple[Diagnostic, ...]:
    """Return the problems that a text must have."""
    with pytest.raises(CoopfileError) as error:
        reading(project, **more)
    return error.value.diagnostics


def problem(project: str | bytes = "", **more: Any) -> Diagnostic:
    """Return the one problem that a text must have."""
    (found,) = problems(project, **more)
    return found


def marked(diagnostic: Diagnostic) -> str:
    """Return what a problem's caret is about: its line, and the marked part of the line's text."""
    position = diagnostic.position
    assert position and diagnostic.source_line is not None
    start = position.column - 1
    return f"{position.line}:{diagnostic.source_line[start : start + position.length]}"
