"""Finding what files.hide names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coopfile.native.hidden import expand

FILES = (
    ".env",
    "a/.env",
    "a/b/.env.local",
    "a/b/secret.pem",
    "key.pem",
    "secrets/deep/x",
    "Readme",
    "d[1]/x",
    "odd\nname/.env",
)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Return a workspace."""
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return os.path.realpath(tmp_path)


@pytest.mark.parametrize(
    ("globs", "expected"),
    [
        ([], []),
        ([".env"], [".env"]),
        (["**/.env"], [".env", "a/.env", "odd\nname/.env"]),
        (["**/.env*"], [".env", "a/.env", "a/b/.env.local", "odd\nname/.env"]),
        (["*.pem"], ["key.pem"]),
        (["**/*.pem"], ["a/b/secret.pem", "key.pem"]),
        (["a/*/.env*"], ["a/b/.env.local"]),
        (["secrets"], ["secrets"]),
        (["secret?"], ["secrets"]),
        (["a/**"], ["a/.env", "a/b"]),
        (["missing", "no/*"], []),
        (["readme"], []),
        (["[kR]*"], ["Readme", "key.pem"]),
        (["[!kR]*.pem"], []),
        (["d[[]1]/x"], ["d[1]/x"]),
        ([".env", "**/.env"], [".env", "a/.env", "odd\nname/.env"]),
    ],
)
def test_found(root: str, globs: list[str], expected: list[str]) -> None:
    """Globs find what they name, once, and nothing below a match."""
    assert list(expand(root, globs)) == expected


def test_links(root: str, tmp_path: Path) -> None:
    """A matching link stands for its target inside the workspace, and for nothing outside."""
    (tmp_path / "inner.key").symlink_to("secrets/deep/x")
    (tmp_path / "outer.key").symlink_to("/etc/passwd")
    (tmp_path / "broken.key").symlink_to("nowhere")
    (tmp_path / "plain").symlink_to("a/.env")
    (tmp_path / "whole.key").symlink_to(".")
    assert expand(root, ["*.key"]) == ("secrets/deep/x",)
    assert expand(root, ["plain"]) == ("a/.env",)


def test_links_of_directories_are_not_walked(root: str, tmp_path: Path) -> None:
    """The search does not leave the workspace, nor run in circles."""
    (tmp_path / "circle").symlink_to(".")
    (tmp_path / "etc").symlink_to("/etc")
    assert expand(root, ["**/passwd"]) == ()
    assert "circle/.env" not in expand(root, ["**/.env"])
