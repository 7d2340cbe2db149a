"""What outlives a run on container engines: the same directories as on the native back end."""

from __future__ import annotations

from pathlib import Path

import pytest

from coopfile.plan.sessions import session_id
from tests.containers.asked import EACH_KIND, coop_run, options
from tests.engines.engine import MORE_NAMES, NAMES, Engine
from tests.sandboxes import Project, tree, wait_until

EVERY = pytest.mark.parametrize("engine", (*NAMES, *MORE_NAMES), indirect=True)
KEEP = 'session.persist=[".config/app/deep"]'


def store(project: Project) -> Path:
    """Return where coop keeps what the project's default session keeps."""
    return project.home / ".local/share/coop/sessions" / session_id(str(project.directory), None) / "persist"


@EVERY
def test_what_a_run_leaves_is_there_in_the_next(engine: Engine, project: Project) -> None:
    """Directories and caches last from engine to native and back, and belong to the caller."""
    settings = [KEEP, 'session.caches=["pip"]']
    script = "umask 077; cd; mkdir .claude/d; echo $COOP_SESSION > .claude/d/1; "
    script += "echo 2 > .config/app/deep/2; echo 3 > .cache/pip/3"
    made = coop_run(project, engine, "sh", "-c", script, settings=settings)
    assert made.status == 0, made
    assert {path.stat().st_uid for path in store(project).rglob("*")} == {engine.actor.uid}
    native = [word for setting in settings for word in ("--set", setting)]
    script = "cat ~/.claude/d/1 ~/.config/app/deep/2 ~/.cache/pip/3; echo 4 > ~/.claude/4"
    assert project.output(script, options=native).split() == [store(project).parent.name, "2", "3"]
    script = "cat ~/.claude/4; touch ~/.config/other ~/.cache/other; echo $PIP_CACHE_DIR; cd; echo .[a-z]*"
    again = coop_run(project, engine, "sh", "-c", script, settings=settings)
    assert again.status == 0 and again.out.split()[2:] == [".cache", ".claude", ".config"], again
    assert "session.persist" not in made.err + again.err


@EACH_KIND
def test_given_below_what_is_kept(engine: Engine, project: Project) -> None:
    """A file of the host's below a kept directory is read-only, run after run, also for two at once."""
    project.write(f"{project.home}/.claude/settings.json", "host")
    settings = ['files.read=["~/.claude/settings.json"]']
    script = "cat ~/.claude/settings.json; echo x > ~/.claude/settings.json; touch ~/.claude/own; sleep 1"
    argv = ("sh", "-c", script)
    beside = project.popen(*argv, options=[*options(engine), "--set", *settings])
    assert wait_until((store(project) / ".claude/own").exists)
    result = coop_run(project, engine, *argv, settings=settings)
    assert result.out == "host" and "Read-only" in result.err, result
    assert beside.communicate(timeout=60)[0] == b"host"
    assert (project.home / ".claude/settings.json").read_text() == "host"


@EACH_KIND
def test_planted_links(engine: Engine, project: Project) -> None:
    """What a command left where something is to be mounted is refused, and nothing is made where it leads."""
    project.write(f"{project.home}/.claude/s", "host")
    project.mkdir(".git/hooks")
    before = project.tree()
    project.output("ln -s /workspace/.git/hooks/pre-commit ~/.claude/s; ln -s /workspace ~/.claude/d")
    for setting in ('files.read=["~/.claude/s"]', 'session.persist=[".claude/d"]'):
        result = coop_run(project, engine, "true", settings=[setting])
        assert result.status == 125 and "is a symbolic link: a command left it there" in result.err, result
    assert project.tree() == before
    assert sorted(tree(store(project) / ".claude")) == ["d", "s"]


@EACH_KIND
def test_a_sandbox_that_could_plant_one_meanwhile(engine: Engine, project: Project) -> None:
    """While another run has a directory to itself, nothing of the host's is mounted below it by name."""
    project.write(f"{project.home}/.claude/s", "host")
    project.popen("sh", "-c", "touch ~/.claude/up; sleep 60")
    assert wait_until((store(project) / ".claude/up").exists)
    result = coop_run(project, engine, "true", settings=['files.read=["~/.claude/s"]'])
    assert result.status == 125 and "another sandbox is running that could replace" in result.err, result
    assert coop_run(project, engine, "sh", "-c", "ls ~/.claude/up").status == 0


@EACH_KIND
def test_nowhere_to_keep_anything(engine: Engine, project: Project) -> None:
    """Where coop's data cannot be written the run goes without, and says so."""
    project.environment["XDG_DATA_HOME"] = "/proc/none"
    result = coop_run(project, engine, "sh", "-c", "mkdir ~/.claude && echo done")
    assert result.out == "done\n" and "weaker than the plan: session.persist: thrown away" in result.err, (
        result
    )
