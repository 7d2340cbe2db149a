"""How tests ask coop for one engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engines.engine import Engine
from tests.sandboxes import Actor, Project, Result, tree

DOCKER = pytest.mark.parametrize("engine", ["docker"], indirect=True)
EACH_KIND = pytest.mark.parametrize("engine", ["docker", "podman-rootless"], indirect=True)


def options(engine: Engine, *assignments: str) -> list[str]:
    """Return the options of ``coop run`` for an engine, with its runtime, and more assignments."""
    name = engine.name.partition("+")[0].partition("-")[0]
    values = [f"sandbox.backend={name}", *assignments]
    values += [f"sandbox.runtime={engine.runtime}"] if engine.runtime else []
    return [word for value in values for word in ("--set", value)]


def coop_run(project: Project, engine: Engine, *argv: str, **how: Any) -> Result:
    """Run a command on an engine under the project's plan and ``settings``; takes what Project.run does."""
    settings = how.pop("settings", ())
    more = how.pop("options", ())
    return project.run(*argv, options=[*options(engine, *settings), *more], **how)


def image(engine: Engine, name: str) -> str:
    """Return the assignment that makes one of ``images.IMAGES`` the base."""
    return f"base.image={engine.image(name)}"


def altered(actor: Actor, directory: Path, lines: str) -> Actor:
    """Return the same actor with a coop that runs some lines of Python first.

    For what a test cannot wait for or has to foresee: how long coop waits, or a name it chooses.
    """
    script = directory / "altered-coop"
    start = Path(actor.coop[-1]).read_text().replace("entry()\n", "", 1)
    script.write_text(f"{start.rstrip()}\n{lines}\nentry()\n")
    script.chmod(0o755)
    made = object.__new__(type(actor))
    made.__dict__.update(actor.__dict__)
    made.coop = (*actor.coop[:-1], str(script))
    return made


def with_path(project: Project, path: str) -> None:
    """Give coop another PATH than what starts it."""
    project.wrap = ("/usr/bin/env", f"PATH={path}")


def leftovers(project: Project) -> list[str]:
    """Return what a run has left in the workspace."""
    return sorted(set(tree(project.directory)) - {"Coopfile"})


def lines(text: str) -> list[Any]:
    """Return the JSON values of a text, one a line."""
    return [json.loads(line) for line in text.splitlines()]
