"""Engines mount by name: no sandbox beside may be able to swap what is named meanwhile."""

from __future__ import annotations

import pytest

from tests.containers.asked import EACH_KIND, coop_run, options
from tests.engines.engine import Engine
from tests.sandboxes import Project, wait_until

MANY = 5


def start_and_wait(project: Project, *settings: str) -> None:
    """Start a sandbox that stays, and wait until its command runs."""
    project.popen("sh", "-c", "touch up; sleep 60", options=settings)
    assert wait_until((project.directory / "up").exists)


@EACH_KIND
@pytest.mark.parametrize("beside", ["native", "engine"])
def test_what_a_sandbox_beside_could_replace_is_not_mounted(
    engine: Engine, project: Project, beside: str
) -> None:
    """A directory that one sandbox guards and a running one does not is refused while that one runs."""
    project.mkdir("d")
    start_and_wait(project, *(options(engine) if beside == "engine" else []))
    project.write("d/.env", "secret")  # hidden from now on; the sandbox beside does not pin its directory
    result = coop_run(project, engine, "ls", settings=['files.hide=["**/.env"]'])
    assert result.status == 125
    assert f"another sandbox is running that could replace {project.directory}/d" in result.err
    assert not engine.containers() or beside == "engine"


@EACH_KIND
def test_sandboxes_that_guard_the_same_run_beside_each_other(engine: Engine, project: Project) -> None:
    """Runs of one plan do not keep each other from running, one after the other or all at once."""
    project.write("d/.env", "secret")
    project.coopfile('files.hide = ["**/.env"]\n')
    start_and_wait(project, *options(engine))
    running = [project.popen("cat", "d/.env", options=options(engine)) for _ in range(MANY)]
    for process in running:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 1, err
        assert b"Permission denied" in err


@EACH_KIND
def test_a_native_sandbox_waits_for_mounts_to_be_made(engine: Engine, project: Project) -> None:
    """Native runs that come meanwhile start when the container has, and work."""
    containers = [project.popen("true", options=options(engine)) for _ in range(2)]
    native = [project.popen("true") for _ in range(MANY)]
    for process in (*containers, *native):
        assert process.wait(60) == 0
