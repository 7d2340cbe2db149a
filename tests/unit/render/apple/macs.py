"""A Mac as renderings see it, with a project in which something stands at every guarded path."""

from __future__ import annotations

import shlex

from coopfile.plan.launch import Host, expand
from coopfile.plan.model import Plan
from coopfile.render.container import Container
from coopfile.render.facts import DIRECTORY, FILE, Engine, Facts
from tests.unit.render.apple.checker import World

HOME = "/Users/you"
WORKSPACE = f"{HOME}/shop"
MASKS = f"{HOME}/.local/state/coop/masks"
ENGINE = Engine(name="apple", program="container", version="1.2.2")
HIDDEN = (f"{WORKSPACE}/.env", f"{WORKSPACE}/deep/er/key.pem", f"{WORKSPACE}/secrets")
DIRECTORIES = (".git", ".git/hooks", ".vscode", ".idea", "deep/er", "infra", "secrets", ".venv")


def host(workspace: str = WORKSPACE, *, uid: int = 501) -> Host:
    """Return a host whose caller stands below the workspace, and has the variables of the examples."""
    environment = {"LANG": "de_DE.UTF-8", "API_TOKEN": "s3cret", "ANTHROPIC_API_KEY": "s3cret"}
    directory, data = f"{workspace}/deep", f"{HOME}/.local/share/coop"
    return Host(uid, 20, "you", HOME, workspace, directory, environment, "/bin/zsh", data=data)


def facts(plan: Plan, *, hidden: tuple[str, ...] = HIDDEN, engine: Engine = ENGINE) -> Facts:
    """Return a Mac that has all that a plan guards and mounts.

    Paths of ``files.read`` and ``files.write`` whose names have a dot are files.
    """
    kinds: dict[str, str] = {WORKSPACE: DIRECTORY}
    paths = [f"{WORKSPACE}/{path}" for path in (*plan.workspace.protect, *DIRECTORIES)]
    paths += hidden
    for path in paths:
        parts = path.split("/")
        for number in range(2, len(parts)):
            kinds["/".join(parts[:number])] = DIRECTORY
        directory = path.removeprefix(f"{WORKSPACE}/") in DIRECTORIES
        kinds.setdefault(path, DIRECTORY if directory else FILE)
    for path in (*plan.files.read, *plan.files.write):
        expanded = expand(path, HOME)
        dotted = "." in expanded.rpartition("/")[2][1:] or expanded.endswith(".gitconfig")
        kinds.setdefault(expanded, FILE if dotted else DIRECTORY)
    return Facts(
        host=host(),
        system="darwin",
        engine=engine,
        kinds=kinds,
        hidden=tuple(path for path in hidden if path in kinds),
        inputs=(f"{WORKSPACE}/Coopfile",),
        masks=MASKS,
    )


def world(machine: Facts, made: Container) -> World:
    """Return the same machine for the reader of argv, with what coop makes for a container."""
    kinds = {
        **machine.kinds,
        **dict.fromkeys(made.kept, DIRECTORY),
        MASKS: DIRECTORY,
        f"{MASKS}/file": FILE,
        f"{MASKS}/directory": DIRECTORY,
    }
    return World(
        frozenset(path for path, kind in kinds.items() if kind == DIRECTORY),
        frozenset(path for path, kind in kinds.items() if kind == FILE),
    )


def shown(argv: tuple[str, ...]) -> str:
    """Return argv with an option a line."""
    return " ".join(shlex.quote(word) for word in argv).replace(" --", " \\\n  --")
