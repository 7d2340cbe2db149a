"""``coop stop``, as far as it needs no session that runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coopfile.cli import stop
from coopfile.cli.main import main
from coopfile.errors import CoopError
from coopfile.session import lifecycle, store


def test_json_is_one_document(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be ended is told beside what was, and of whatever kind the error is."""
    errors = {
        "a": CoopError("it does not answer", "try again"),
        "b": PermissionError(13, "Permission denied"),
    }

    def ended(directory: str, state: object) -> bool:
        name = Path(directory).name
        if name in errors:
            raise errors[name]
        return True

    known = [store.Known(f"/data/sessions/{name}", None, str(project)) for name in "abc"]
    monkeypatch.setattr(stop, "_wanted", lambda options: known)
    monkeypatch.setattr(lifecycle, "stop", ended)
    assert main(["stop", "--all", "--json"]) == 125
    told = json.loads(capsys.readouterr().out)
    assert told["stopped"] == ["c"]
    assert [(item["id"], item["error"]) for item in told["failed"]] == [
        ("a", "it does not answer"),
        ("b", "/data/sessions/b: Permission denied"),
    ]
