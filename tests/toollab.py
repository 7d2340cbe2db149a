"""Programs of an actor's that have tools: ``coopfile.ToolExecutor`` in the actor's project."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

from tests.sandboxes import DEADLINE, Project, Result, Workshop

Tools = Callable[..., Result]

RACE = float(os.environ.get("COOP_RACE", "4"))  # seconds of each race

BEGIN = """
import sys; sys.path.insert(0, sys.argv.pop(1))
import json, os, signal, subprocess, threading, time
import coopfile
executor = coopfile.ToolExecutor(overrides={"tools.confirm": "never"})

def call(name, who=None, /, **arguments):
    "Call a tool; print nothing."
    return executor.execute(name, arguments, who)

def tell(name, who=None, /, **arguments):
    "Call a tool, and print what came of it on one line."
    result = executor.execute(name, arguments, who)
    print(int(result.error), int(result.denied), json.dumps(result.text))

"""


def argv(project: Project, workshop: Workshop, script: str) -> list[str]:
    """Return the argv of a program that has coop's library and its tools."""
    end = "\nexecutor.close()\n"
    command = [project.actor.coop[0], "-I", "-W", "error", "-c", BEGIN + script + end, str(workshop.library)]
    return [*project.actor.prefix, *command]


@pytest.fixture
def tools(project: Project, workshop: Workshop) -> Tools:
    """Return what runs such a program, which has to succeed."""

    def run_program(script: str, **more: str) -> Result:
        environment = {**project.environment, **more}
        done = subprocess.run(
            argv(project, workshop, script),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=project.directory,
            env=environment,
            timeout=DEADLINE + 2 * RACE,
            check=False,
        )
        result = Result(done.returncode, done.stdout, done.stderr)
        assert result.status == 0, result
        return result

    return run_program


def log(project: Project) -> list[str]:
    """Return the lines of the actor's audit logs."""
    place = project.home / ".local/state/coop/audit"
    return (
        [line for path in sorted(place.iterdir()) for line in path.read_text().splitlines()]
        if os.path.isdir(place)
        else []
    )
