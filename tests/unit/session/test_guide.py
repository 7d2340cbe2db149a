"""docs/python.md does what it says; the native tests run it in real sandboxes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import coopfile
from tests import guide
from tests.unit.session.host import HostBackend

GUIDE = Path(coopfile.__file__).parent.parent / "docs" / "python.md"


def test_the_guide(
    project: Path, host: HostBackend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With processes of the host instead of sandboxes; all but what starts one anew."""
    monkeypatch.setattr("coopfile.session.session.Machine", lambda: host)
    monkeypatch.setattr("coopfile.wrap", lambda argv, plan, timeout: argv)
    results = guide.run(GUIDE)
    assert (results.failed, results.attempted > 30) == (0, True), capsys.readouterr().out


def test_the_guide_names_everything() -> None:
    """Every public name, and every option of a command."""
    text = GUIDE.read_text(encoding="utf-8")
    names = {name for name in coopfile.__all__ if name not in ("__version__", "Plan", "Call", "Result")}
    options = {"timeout", "environment", "directory", "stdin", "stdout", "stderr", "output", "ttl", "leased"}
    assert [name for name in sorted(names | options) if not re.search(rf"\b{name}\b", text)] == []
