"""Every example, and small plans, on every kind of engine: the argv is what was last reviewed."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from coopfile.compiling import Request as Compile
from coopfile.compiling import compile_project
from coopfile.engines.detect import isolation
from coopfile.errors import CoopError
from coopfile.plan.model import Plan
from coopfile.render.container import Request
from coopfile.render.facts import Facts
from coopfile.render.factsfile import from_json
from coopfile.render.script import script
from coopfile.render.steps import Rendering, rendering

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*Coopfile"))
FACTS = Path(__file__).parent / "facts"
ENGINES = ("docker-rootful", "docker-rootless", "docker-runsc", "podman-rootful", "podman-rootless")

# Small Coopfiles, each about one thing that engines are told.
MATRIX = {
    "empty": "",
    "network-host": 'network.mode = "host"',
    "network-veth": '[network]\nmode = "veth"\npublish = ["3000", "127.0.0.1:8080:80", "[::1]:1:2"]',
    "network-proxy": '[network]\nmode = "proxy"\nallow = ["pypi.org"]',
    "user-me": 'session.user = "me"',
    "limits": '[limits]\nmemory = "64m"\ncpus = 0.5\npids = 8\ntmp = "1m"',
    "cpus-whole": "limits.cpus = 3",
    "workspace-host": 'workspace.path = "host"',
    "protect-missing": 'workspace.protect = ["a/b/c"]',
    "protect-existing": 'workspace.protect = ["Makefile"]',
    "protect-below-a-file": 'workspace.protect = ["Makefile/x"]',
    "protect-below-hidden": 'workspace.protect = ["secrets/key"]',
    "files": '[files]\nread = ["~/.gitconfig", "/opt/none"]\nwrite = ["~/.cache/x"]',
    "env": '[env]\nEDITOR = "vi"\nEMPTY = ""\nKEY = { host = "ANTHROPIC_API_KEY" }\nNONE = { host = "NONE" }',
    "image": 'base.image = "debian:bookworm-slim"',
    "built": 'base.image = "debian"\npackages.apt = ["git"]\nsetup.network = "none"',
    "runtime": 'sandbox.runtime = "kata"',
    "isolation": 'sandbox.min_isolation = "userspace-kernel"',
    "back-end": 'sandbox.backend = "native"',
}


class ScriptExtension(SingleFileSnapshotExtension):
    """Keeps each text in a file of its own, which a shell could run."""

    file_extension = "sh"
    _write_mode = WriteMode.TEXT


@pytest.fixture
def scripts(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """Return the snapshots of texts."""
    return snapshot.use_extension(ScriptExtension)


def facts(name: str) -> Facts:
    """Return the facts of a fixture."""
    return from_json((FACTS / f"{name}.json").read_bytes(), name)


def compiled(directory: Path, file: Path | None = None) -> Plan:
    """Return the plan of a file."""
    return compile_project(Compile(str(directory), file=None if file is None else str(file))).plan


def rendered(plan: Plan, engine: str) -> Rendering:
    """Render a plan for an engine of the fixtures."""
    found = facts(engine)
    assert found.engine is not None
    runtime = plan.sandbox.runtime or found.engine.runtime or found.engine.default_runtime
    return rendering(plan, found, Request(), isolation(runtime))


def text(plan: Plan, engine: str) -> str:
    """Return the text that runs a plan, or why there is none."""
    try:
        return script(rendered(plan, engine))
    except CoopError as error:
        return f"error: {error.message}\nhelp: {error.remedy}\n"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example(path: Path, engine: str, scripts: SnapshotAssertion) -> None:
    """An example comes to the reviewed text with each engine."""
    assert text(compiled(path.parent, path), engine) == scripts


@pytest.mark.parametrize("engine", ["docker-rootful", "podman-rootless"])
@pytest.mark.parametrize("name", MATRIX)
def test_small(name: str, engine: str, scripts: SnapshotAssertion, project: Path) -> None:
    """A small Coopfile comes to the reviewed text with a rootful and a rootless engine."""
    (project / "Coopfile").write_text(MATRIX[name], encoding="utf-8")
    assert text(compiled(project), engine) == scripts


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", sorted(MATRIX.keys() - {"network-proxy"}))
def test_every_container_is_hardened(name: str, engine: str, project: Path) -> None:
    """Whatever the plan says: no capability, no new privileges, a read-only root, no engine's socket."""
    (project / "Coopfile").write_text(MATRIX[name], encoding="utf-8")
    found = rendered(compiled(project), engine)
    for step in ("run", "keep"):
        argv = " ".join(found.step(step))
        for words in ("--cap-drop ALL", "--security-opt no-new-privileges", " --read-only ", "--pull never"):
            assert words in argv
        for word in ("--privileged", "docker.sock", "--pid", "--cap-add", "--device", "--volume"):
            assert word not in argv.replace("--pids-limit", "")


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_project_and_plan_have_the_same_text(engine: str, project: Path) -> None:
    """Nothing of the machine that renders gets in: neither time nor environment nor paths."""
    (project / "Coopfile").write_text(MATRIX["image"])
    first = text(compiled(project), engine)
    other = project / "other"
    other.mkdir()
    (other / "Coopfile").write_text(MATRIX["image"])
    assert text(compiled(other), engine) == first
    assert str(project) not in first
