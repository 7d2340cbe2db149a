"""What ``coop render`` prints, pasted into a shell: the real engines take it, and the plan holds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engines.engine import Engine
from tests.sandboxes import Project, Result

HOSTILE = [
    "a b",
    "it's",
    '"',
    "$(id)",
    "`id`",
    "\\",
    "new\nline",
    "-x",
    "--",
    "=ls",
    "*",
    "grüße",
    "\x1b[m",
    "",
]


def target(engine: Engine) -> list[str]:
    """Return the target and options that render for an engine."""
    name = engine.name.partition("+")[0].partition("-")[0]
    runtime = ["--set", f"sandbox.runtime={engine.runtime}"] if engine.runtime else []
    return [name, "--set", f"sandbox.backend={name}", *runtime]


def rendered(engine: Engine, project: Project, *words: str) -> str:
    """Return the text of ``coop render`` for an engine."""
    result = project.coop("render", *target(engine), *words)
    assert result.status == 0, result
    return result.out


def pasted(project: Project, text: str) -> Result:
    """Run a text with sh, as the project's owner."""
    path = project.write("../pasted.sh", text)
    return project.actor.run("sh", str(path), cwd=project.directory, environment=project.environment)


def last(result: Result) -> str:
    """Return the last line of the output of a run that succeeded."""
    assert result.status == 0, result
    return result.out.rstrip("\n").rpartition("\n")[2]


def test_hostile_arguments_arrive(engine: Engine, project: Project) -> None:
    """On the host's own tools, imported as an image, the command gets its arguments byte by byte."""
    program = "import json, sys; print(json.dumps(sys.argv[1:]))"
    text = rendered(engine, project, "--", "python3", "-I", "-S", "-c", program, *HOSTILE)
    assert json.loads(last(pasted(project, text))) == HOSTILE


def test_files_are_kept_apart(engine: Engine, project: Project) -> None:
    """Hidden files cannot be read, protected ones not written, and others are written as the caller's."""
    project.coopfile('files.hide = ["secret", "vault"]\nworkspace.protect = ["kept"]\n')
    for name in ("secret", "vault/key", "kept"):
        project.write(name, "before\n")
    tried = "cat secret; ls vault; echo x >kept; mv kept other; echo new >made; cat kept; echo end"
    result = pasted(project, rendered(engine, project, "--", "sh", "-c", tried))
    assert last(result) == "end"
    assert result.out.splitlines()[-2] == "before"
    for denied in ("secret", "vault", "kept"):
        assert denied in result.err
        assert "key" not in result.out
    assert (project.directory / "kept").read_text() == "before\n"
    assert (project.directory / "made").stat().st_uid == engine.actor.uid


def test_a_secret_is_inherited_and_not_printed(engine: Engine, project: Project) -> None:
    """The value of a host's variable reaches the command, and is not in the text."""
    project.coopfile('env.TOKEN = { host = "MY_TOKEN" }\n')
    project.environment["MY_TOKEN"] = "s3cret 'x'"
    text = rendered(engine, project, "--", "sh", "-c", 'echo "$TOKEN"')
    assert "s3cret" not in text
    assert last(pasted(project, text)) == "s3cret 'x'"


def test_the_steps_of_a_container(engine: Engine, project: Project) -> None:
    """One is kept, a command runs in it, it is committed without secrets, stopped and removed."""
    project.coopfile(f'base.image = "{engine.image("busybox")}"\nenv.TOKEN = {{ host = "MY_TOKEN" }}\n')
    project.environment["MY_TOKEN"] = "s3cret"

    def step(name: str) -> Result:
        command = ["--", "sh", "-c", "echo inside $TOKEN"] if name == "exec" else []
        return pasted(project, rendered(engine, project, "--step", name, *command))

    data: Any = json.loads(rendered(engine, project, "--json"))
    assert step("keep").status == 0
    try:
        assert last(step("exec")) == "inside s3cret"
        assert step("commit").status == 0
        image = data["commit"][0]["argv"][-1]
        assert "s3cret" not in engine.output("image", "inspect", image)
        engine.output("rmi", image)
        assert step("stop").status == 0
    finally:
        removed = step("remove")
    assert removed.status == 0
    assert engine.containers() == []


@pytest.mark.parametrize("engine", ["docker", "podman-rootless"], indirect=True)
def test_an_image_is_built_once(engine: Engine, project: Project) -> None:
    """The Dockerfile in the text is built, and the second time the image is there already."""
    project.coopfile(
        f'base.image = "{engine.image("busybox")}"\n[setup]\nrun = ["echo built >/made"]\nnetwork = "none"\n'
    )
    text = rendered(engine, project, "--", "cat", "/made")
    assert last(pasted(project, text)) == "built"
    assert pasted(project, text).out == "built\n"
    engine.output("rmi", json.loads(rendered(engine, project, "--json"))["image"]["reference"])
