"""Images built of plans by real engines: what is in them, when they are built again, and what is told."""

from __future__ import annotations

import json

import pexpect
import pytest

from tests.containers.asked import DOCKER, coop_run, image
from tests.engines.engine import Engine
from tests.engines.registry import Registry
from tests.sandboxes import Project, wait_until
from tests.unit.render.hostile import for_builders

BUILDERS = pytest.mark.parametrize("engine", ["docker", "podman-rootless"], indirect=True)


def plan(engine: Engine, *commands: str, install: str | None = None) -> str:
    """Return a Coopfile that builds on busybox."""
    lines = [
        f"base.image = {json.dumps(engine.image('busybox'))}",
        'setup.network = "none"',
        f"setup.run = {json.dumps(commands, ensure_ascii=False)}",
        f"sandbox.backend = {json.dumps([engine.name.partition('-')[0]])}",
    ]
    lines += [f"agent.install = {json.dumps(install)}"] if install else []
    return "\n".join(lines) + "\n"


def images(engine: Engine) -> set[str]:
    """Return the ids of all images."""
    return set(engine.output("images", "--all", "--quiet", "--no-trunc").split())


def built(engine: Engine) -> set[str]:
    """Return the names of the images that coop has built."""
    names = engine.output("images", "--format", "{{.Repository}}:{{.Tag}}").split()
    return {name for name in names if name.startswith("localhost/coop/")}


@BUILDERS
def test_hostile_commands_arrive(engine: Engine, project: Project) -> None:
    """Every set-up command does what it says, in order, and the agent's installation comes after them."""
    commands, files = for_builders()
    project.coopfile(plan(engine, *commands, install="cat /non-ascii >/installed"))
    script = 'for name; do printf "%s " "$name"; od -An -v -tx1 "/$name" | tr -d " \\n"; echo; done'
    names = [*files, "installed"]
    result = project.run("sh", "-c", script, "sh", *names, timeout=300)
    assert result.status == 0, result.err[-2000:]
    found = {name: bytes.fromhex(digits) for name, _, digits in map(_halves, result.out.splitlines())}
    assert found == {**files, "installed": files["non-ascii"]}


def _halves(line: str) -> tuple[str, str, str]:
    return line.partition(" ")


@pytest.mark.parametrize("engine", ["docker", "podman", "podman-rootless"], indirect=True)
def test_an_image_is_built_once_for_each_content(engine: Engine, project: Project) -> None:
    """Limits and the command do not count; a changed set-up command does, and the old image stays."""
    before = built(engine)
    project.coopfile(plan(engine, "echo one >/which"))
    first = project.run("cat", "/which")
    assert (first.status, first.out) == (0, "one\n"), first
    assert "coop: building localhost/coop/busybox:" in first.err
    (name,) = built(engine) - before

    again = project.run("cat", "/which", options=["--set", "limits.pids=77", "--set", "env.A=1"])
    assert (again.out, "building" in again.err) == ("one\n", False)

    project.coopfile(plan(engine, "echo two >/which"))
    other = project.run("cat", "/which")
    assert (other.out, "building" in other.err) == ("two\n", True)
    assert len(built(engine) - before) == 2
    assert name in built(engine)
    assert engine.containers() == []


@BUILDERS
def test_a_command_that_fails_is_shown_with_the_end_of_its_output(engine: Engine, project: Project) -> None:
    """Which of the commands, and what it said last; no container and no image of the failure is used."""
    before = built(engine)
    failing = "seq 1 50; echo of no use; exit 3"
    project.coopfile(plan(engine, "true", failing, "true"))
    result = project.run("true")
    assert result.status == 125
    assert f"error: setup.run[1] failed: {failing}" in result.err
    assert "\n      50\n      of no use\n" in result.err
    assert "\n      30\n" not in result.err
    assert (built(engine), engine.containers()) == (before, [])

    project.coopfile(plan(engine, "true", install="false"))
    result = project.run("true", options=["-q"])
    assert result.status == 125
    assert "error: agent.install failed: false" in result.err


@BUILDERS
def test_progress_is_shown_where_somebody_looks(engine: Engine, project: Project) -> None:
    """With -v each line as it comes, escaped; by default one line; with -q none."""
    says = "printf 'line of \\033[31mthe build\\n'"
    shown = "  line of \\x1b[31mthe build\n"
    for number, (words, lines, talks) in enumerate(
        [(["-v"], True, True), ([], False, True), (["-q"], False, False)]
    ):
        project.coopfile(plan(engine, f"{says}; : {number}"))
        result = project.run("true", options=words)
        assert result.status == 0, result
        assert (shown in result.err) == lines, result
        assert ("coop: building " in result.err) == talks
        assert talks or result.err == ""


@DOCKER
def test_progress_is_shown_on_a_terminal(engine: Engine, project: Project) -> None:
    """And ^C there ends the build."""
    project.coopfile(plan(engine, "echo beginning; sleep 1003; true"))
    terminal = project.terminal("true")
    terminal.expect("  beginning")
    terminal.sendintr()
    terminal.expect_exact(pexpect.EOF)
    terminal.wait()
    assert terminal.exitstatus == 130
    assert wait_until(lambda: engine.containers() == [], 20)


@BUILDERS
def test_an_image_is_pulled_by_tag_and_by_digest(
    engine: Engine, project: Project, registry: Registry
) -> None:
    """Both ways the image is fetched once, built on, and run."""
    tagged = engine.push(registry, "busybox")
    engine.output("pull", tagged)
    digest = json.loads(engine.output("image", "inspect", tagged))[0]["RepoDigests"][0].rpartition("@")[2]
    engine.output("rmi", tagged)
    pinned = f"{tagged.rpartition(':')[0]}@{digest}"
    for reference in (tagged, pinned):
        settings = [f"base.image={reference}"]
        first = coop_run(project, engine, "echo", "there", settings=settings)
        assert (first.status, first.out) == (0, "there\n"), first
        # Podman finds the digest in the image that was pushed, which it still has.
        assert f"coop: pulling {reference}" in first.err or (reference == pinned and engine.name != "docker")
        again = coop_run(project, engine, "echo", "there", settings=settings)
        assert "pulling" not in again.err
        if reference == pinned:
            build = [*settings, 'setup.run=["echo built >/made"]', "setup.network=none"]
            result = coop_run(project, engine, "cat", "/made", settings=build)
            assert (result.status, result.out) == (0, "built\n"), result
        if reference == tagged or engine.name == "docker":  # Podman would remove the image with every name
            engine.output("rmi", "--force", reference)


@DOCKER
def test_a_network_that_would_reach_more_is_refused(engine: Engine, project: Project) -> None:
    """The default network of a build cannot be had from an engine: it says what can."""
    result = coop_run(
        project, engine, "true", settings=[image(engine, "busybox"), 'setup.run=["echo other"]']
    )
    assert result.status == 125
    assert 'setup.network = "veth"' in result.err
    assert '"none" builds without a network' in result.err
