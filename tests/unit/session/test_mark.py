"""What tells of a session's container on disk."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from coopfile.render.facts import Engine
from coopfile.session import mark
from coopfile.session.mark import Mark

DOCKER = Engine("docker", "/usr/bin/docker", "28", rootless=True)


def test_it_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what leads to the engine, and without what may be secret; the rest is as it is now."""
    environment = {"DOCKER_HOST": "unix:///x", "PATH": "/bin", "HOME": "/h", "TOKEN": "s3cret"}
    mark.write(str(tmp_path), Mark(DOCKER, environment, "owner"))
    assert "s3cret" not in (tmp_path / "container").read_text()
    monkeypatch.setenv("CONTAINER_HOST", "unix:///other")
    monkeypatch.setenv("LANG", "C.UTF-8")
    found = mark.read(str(tmp_path))
    assert found is not None
    assert (found.engine.name, found.engine.program, found.owner) == ("docker", "/usr/bin/docker", "owner")
    expected = {"DOCKER_HOST": "unix:///x", "PATH": "/bin", "HOME": "/h", "LANG": "C.UTF-8"}
    assert {name: found.environment[name] for name in expected} == expected
    assert "CONTAINER_HOST" not in found.environment
    mark.remove(str(tmp_path))
    mark.remove(str(tmp_path))
    assert mark.read(str(tmp_path)) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "\xff",
        json.dumps({"engine": "docker", "program": "docker", "owner": "x", "environment": {}}),
        json.dumps({"engine": "docker", "program": "/x", "owner": "x", "environment": []}),
    ],
)
def test_what_makes_no_sense_is_nothing(tmp_path: Path, text: str) -> None:
    """A program that is looked for along PATH is not started either."""
    (tmp_path / "container").write_text(text, encoding="latin-1")
    assert mark.read(str(tmp_path)) is None


@pytest.mark.parametrize("how", ["another user", "writable for others"])
def test_of_others_making_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """The program in it is started, so it has to be of who reads it: root may have kept a user's HOME."""
    mark.write(str(tmp_path), Mark(DOCKER, {}, "owner"))
    assert mark.read(str(tmp_path)) is not None
    if how == "another user":
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    else:
        (tmp_path / "container").chmod(0o666)
    assert mark.read(str(tmp_path)) is None
