"""Every example compiles, and its plan is what it was when it was last reviewed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomli
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.json import JSONSnapshotExtension

from coopfile.compiling import Request, compile_project
from coopfile.language.settings import SETTINGS
from coopfile.plan.canonical import to_json
from coopfile.plan.model import Plan

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*Coopfile"))

# Small Coopfiles, each about one thing.
MATRIX = {
    "empty": "",
    "version-only": "coop = 1",
    "image-short": 'base.image = "debian"',
    "image-digest": f'base.image = "ghcr.io/o/r@sha256:{"ab" * 32}"',
    "image-layout": 'base.image = "oci:./images//base:v1"',
    "image-archive": f'base.image = "docker-archive:~/a b.tar:ghcr.io/o/r:1@sha256:{"ab" * 32}"',
    "packages-sorted": '[packages]\napt = ["zsh", "git", "git"]\npip = ["b", "a"]',
    "setup-ordered": '[setup]\nrun = ["b", "a", "b"]\nnetwork = "none"',
    "agent": '[agent]\ninstall = "npm i -g x"\ncommand = ["x", "--flag", ""]',
    "workspace-host": 'workspace.path = "host"',
    "workspace-protect": '[workspace]\npath = "/src"\nprotect = ["b/c", "a"]',
    "files": '[files]\nread = ["~/.gitconfig", "/opt/data"]\nwrite = ["~/.cache/x"]\nhide = ["**/*.pem"]',
    "network-host": 'network.mode = "host"',
    "network-bridge": 'network.mode = "bridge"',
    "proxy": '[network]\nmode = "proxy"\nallow = ["PyPI.org.", "*.github.com:443", "10.0.0.1:8080"]',
    "publish": '[network]\nmode = "veth"\npublish = ["3000", "127.0.0.1:8080:80", "[::1]:1:2"]',
    "session": '[session]\npersist = [".npm"]\nuser = "me"\ncommit = "auto"\ncaches = ["pip", "apt"]',
    "env": '[env]\nEDITOR = "vi"\nEMPTY = ""\nTOKEN = { host = "MY_TOKEN" }',
    "limits-small": '[limits]\nmemory = "64m"\ncpus = 0.5\npids = 8\ntmp = "1m"\ntimeout = "1s"',
    "limits-large": '[limits]\nmemory = "1t"\ncpus = 64\npids = 100000\ntmp = "10g"\ntimeout = "2h"',
    "limits-output": 'limits.output = "1k"',
    "limits-spelled": '[limits]\nmemory = "2048m"\ntimeout = "1m30s"',
    "sandbox-list": '[sandbox]\nbackend = ["podman", "native"]\nruntime = "runsc"',
    "sandbox-one": '[sandbox]\nbackend = "docker"\nmin_isolation = "vm"',
    "sandbox-off": '[sandbox]\nenabled = false\nfallback = "host"\nprofile = "permissive"',
    "tools": 'tools.confirm = "never"',
    "dotted": 'network.mode = "veth"\nlimits.memory = "1g"\nenv.A = "b"',
    "unicode": '[env]\nGREETING = "grüße, 世界"\n[workspace]\nprotect = ["naïve"]',
}


@pytest.fixture
def plans(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """Keep each plan in a file of its own, so that a change of one reads as such."""
    return snapshot.use_extension(JSONSnapshotExtension)


def compiled(directory: Path, file: Path | None = None, identity: str | None = None) -> Plan:
    """Compile one file, with nobody's own settings beside it."""
    request = Request(str(directory), file=None if file is None else str(file), identity=identity)
    return compile_project(request).plan


def data(plan: Plan) -> Any:
    """Return what the canonical JSON says."""
    return json.loads(to_json(plan))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example(path: Path, plans: SnapshotAssertion) -> None:
    """An example compiles to the reviewed plan."""
    assert data(compiled(path.parent, path)) == plans


@pytest.mark.parametrize(
    "identity",
    ["signal:+15555550100", "signal:+15555550123", "irc:stranger"],
    ids=["bob", "guest", "stranger"],
)
def test_team_example_by_user(identity: str, plans: SnapshotAssertion) -> None:
    """Who asks decides: the users of the team example get the reviewed plans."""
    path = ROOT / "examples" / "team.Coopfile"
    assert data(compiled(path.parent, path, identity)) == plans


@pytest.mark.parametrize("name", MATRIX)
def test_matrix(name: str, plans: SnapshotAssertion, project: Path) -> None:
    """A small Coopfile compiles to the reviewed plan."""
    (project / "Coopfile").write_text(MATRIX[name], encoding="utf-8")
    assert data(compiled(project)) == plans


def test_the_projects_own_file_compiles() -> None:
    """The Coopfile at the top of the checkout keeps the network off and the environment read-only."""
    plan = compiled(ROOT, ROOT / "Coopfile")
    assert plan.network.mode == "none"
    assert ".venv" in plan.workspace.protect


def test_examples_use_every_key() -> None:
    """Together the examples show every key of the language."""
    used: set[str] = set()

    def collect(table: dict[str, Any], prefix: str = "") -> None:
        for key, value in table.items():
            used.add(prefix + key)
            if isinstance(value, dict):
                collect(value, f"{prefix}{key}.")

    for path in EXAMPLES:
        collect(tomli.loads(path.read_text(encoding="utf-8")))
    assert {setting.key for setting in SETTINGS} - used == set()
