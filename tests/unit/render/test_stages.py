"""Commands that install packages, and where they keep what they download."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from coopfile.plan.model import Packages
from coopfile.render.stages import CACHES, stages
from tests.unit.plan.samples import PLAN

MANAGERS = ("apt", "apk", "dnf", "pip", "npm", "cargo")
CARGO = """#!/bin/sh
echo "$@" > "$CARGO_HOME/said"
touch "$CARGO_HOME/registry/index" "$CARGO_HOME/git/checkout"
"""


def command(manager: str, *, caching: bool) -> str:
    """Return the command that installs a package and nothing else."""
    wanted = {name: ("package",) if name == manager else () for name in MANAGERS}
    plan = PLAN.replace(packages=Packages(**wanted))
    (stage,) = (stage for stage in stages(plan, caching=caching) if stage.key == f"packages.{manager}")
    assert stage.cache == (manager if caching else None)
    (found,) = stage.commands
    return found


@pytest.mark.parametrize("manager", MANAGERS)
def test_downloads_are_kept_where_they_are_asked_for(manager: str) -> None:
    """Downloads go to the manager's own directory, which nothing removes, or are not kept at all."""
    kept, plain = command(manager, caching=True), command(manager, caching=False)
    assert f"{CACHES}/{manager}" in kept and CACHES not in plain
    removed = [part for part in kept.split(" && ") if part.startswith("rm ") and CACHES in part]
    assert not removed
    for text in (kept, plain):
        subprocess.run(["sh", "-n", "-c", text], check=True, timeout=30)


@pytest.mark.parametrize("before", ["nothing", "links", "directories"])
def test_cargo_keeps_its_home(tmp_path: Path, before: str) -> None:
    """cargo's downloads are kept through links that go with the installation, its settings stay."""
    home, programs, caches = tmp_path / "a home", tmp_path / "bin", tmp_path / "caches"
    for directory in (home, programs, caches):
        directory.mkdir()
    (home / "config.toml").write_text("")
    if before == "links":
        (home / "registry").symlink_to("nowhere")
    elif before == "directories":
        (home / "registry").mkdir()
        (home / "git").mkdir()
    (programs / "cargo").write_text(CARGO)
    (programs / "cargo").chmod(0o755)
    subprocess.run(
        ["sh", "-c", command("cargo", caching=True).replace(CACHES, str(caches))],
        env={"CARGO_HOME": str(home), "PATH": f"{programs}:/usr/bin:/bin"},
        check=True,
        timeout=30,
    )
    assert (home / "said").read_text() == "install --root=/usr/local --locked package\n"
    assert sorted(path.name for path in home.iterdir()) == ["config.toml", "said"]
    kept = [(caches / "cargo" / name).exists() for name in ("registry/index", "git/checkout")]
    assert kept == [before != "directories"] * 2
