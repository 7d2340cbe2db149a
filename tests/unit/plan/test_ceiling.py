"""The user's ceiling: what is beyond it, on which line, and whose leave is missing."""

from __future__ import annotations

import pytest

from coopfile.language.diagnostics import Diagnostic, render
from coopfile.language.reading import read
from coopfile.language.settings import SETTINGS
from coopfile.language.sources import Source
from coopfile.plan.ceiling import exceeding
from coopfile.plan.resolve import resolve

OWN = "~/.config/coop/Coopfile"


def held(
    ceiling: str, project: str = "", own: str = "", assignments: tuple[str, ...] = (), **environment: str
) -> tuple[Diagnostic, ...]:
    """Return what of a project's Coopfile (and other layers) is beyond a ceiling."""
    sources = [
        Source("user", OWN, f"{own}\n[ceiling]\n{ceiling}\n".encode()),
        Source("project", "Coopfile", project.encode()),
    ]
    reading = read(sources, environment=environment, assignments=assignments)
    settings = reading.settings()
    return exceeding(reading, settings, resolve(settings))


#: Per key: a ceiling, what is beyond it, and what is below or at it.
CASES: dict[str, tuple[str, str | None, str]] = {
    "base.image": ('"debian"', '"debian:13"', '"docker.io/library/debian:latest"'),
    "packages.apt": ('["git", "rg"]', '["git", "curl"]', '["git"]'),
    "packages.apk": ("[]", '["git"]', "[]"),
    "packages.dnf": ("[]", '["git"]', "[]"),
    "packages.pip": ("[]", '["git"]', "[]"),
    "packages.npm": ("[]", '["git"]', "[]"),
    "packages.cargo": ("[]", '["git"]', "[]"),
    "setup.run": ('["make tools"]', '["curl x | sh"]', '["make tools"]'),
    "setup.network": ('"veth"', '"host"', '"none"'),
    "agent.install": ('"npm i x"', '"npm i y"', '"npm i x"'),
    "agent.command": ('["x"]', '["x", "-y"]', '["x"]'),
    "workspace.path": ('"/workspace"', '"host"', '"/workspace"'),
    "workspace.protect": ('["Makefile"]', '["deploy"]', '["Makefile", "deploy"]'),
    "files.read": ('["~/.config"]', '["~/.ssh"]', '["~/.config/git"]'),
    "files.write": ('["~/.cache"]', '["~/.config"]', '["~/.cache/go"]'),
    "files.hide": ('["**/.env*"]', '["secrets"]', '["**/.env*", "secrets"]'),
    "network.mode": ('"proxy"', '"veth"', '"none"'),
    "network.allow": ('["*.github.com"]', '["pypi.org"]', '["api.github.com:443"]'),
    "network.publish": ('["3000"]', '["0.0.0.0:3000:3000"]', '["127.0.0.1:3000:3000"]'),
    "session.persist": ('[".cache"]', '[".ssh"]', '[".cache/pip"]'),
    "session.user": ('"root"', '"me"', '"root"'),
    "session.commit": ('"ask"', '"auto"', '"never"'),
    "session.caches": ('["pip"]', '["npm"]', '["pip"]'),
    "env": ('{ A = { host = "A" } }', '{ B = { host = "B" } }', '{ A = { host = "A" }, C = "x" }'),
    "limits.memory": ('"4g"', '"5g"', '"4096m"'),
    "limits.cpus": ("2", "2.5", "1"),
    "limits.pids": ("1000", "1001", "64"),
    "limits.tmp": ('"1g"', '"2g"', '"1g"'),
    "limits.timeout": ('"5m"', '"301s"', '"300s"'),
    "limits.output": ('"1m"', '"2m"', '"1k"'),
    "sandbox.enabled": ("true", "false", "true"),
    "sandbox.backend": ('"native"', '"seatbelt"', '["apple", "docker"]'),
    "sandbox.min_isolation": ('"userspace-kernel"', '"namespace"', '"vm"'),
    "sandbox.fallback": ('"refuse"', '"host"', '"refuse"'),
    "sandbox.profile": ('"permissive"', '"~/own.sb"', '"restrictive"'),
    "sandbox.runtime": ('"runsc"', '"crun"', '"runsc"'),
    "tools.confirm": ('"ask"', '"never"', '"ask"'),
}


def test_every_setting_is_tried() -> None:
    """Every key of the table has a case."""
    assert set(CASES) == {setting.key for setting in SETTINGS}


@pytest.mark.parametrize("key", CASES)
def test_beyond(key: str) -> None:
    """What is beyond the ceiling is one error, at its own line, that names the ceiling's."""
    ceiling, beyond, _ = CASES[key]
    (found,) = held(f"{key} = {ceiling}", f"coop = 1\n{key} = {beyond}\n")
    assert (found.severity, found.code) == ("error", "ceiling")
    assert found.message.startswith(key)
    assert f"{OWN}:3" in (found.help or "")
    assert found.position is not None
    missing = key in ("workspace.protect", "files.hide")
    assert (found.position.source, found.position.line) == ((OWN, 3) if missing else ("Coopfile", 2))


@pytest.mark.parametrize("key", CASES)
def test_below(key: str) -> None:
    """What is at the ceiling or below it is no error."""
    ceiling, _, below = CASES[key]
    assert held(f"{key} = {ceiling}", f"{key} = {below}\n") == ()


@pytest.mark.parametrize("image", ["debian", "oci:images/base:v1"])
def test_an_image_is_capped_by_its_name(image: str) -> None:
    """The lock gives it a digest, of which a ceiling without one says nothing."""
    one, two = (f"{image}@sha256:{digit * 64}" for digit in "ab")
    named = f"{image}:latest" if image == "debian" else image
    assert held(f'base.image = "{named}"', f'base.image = "{named}@sha256:{"a" * 64}"\n') == ()
    assert held(f'base.image = "{one}"', f'base.image = "{one}"\n') == ()
    assert held(f'base.image = "{one}"', f'base.image = "{two}"\n')
    assert held(f'base.image = "{one}"', f'base.image = "{image}"\n')
    assert held(f'base.image = "{named}"', 'base.image = "oci:images/other"\n')


def test_text() -> None:
    """The error shows the line that asks, and says where the ceiling is."""
    found = held('network.mode = "none"', '[network]\n  mode = "host"  # all of it\n')
    assert render(found) == (
        "Coopfile:2:3: error: network.mode is host, beyond the ceiling: none\n"
        ' 2 |   mode = "host"  # all of it\n'
        "   |   ^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "   = help: the ceiling is at ~/.config/coop/Coopfile:3"
    )


def test_every_item_has_its_own_error() -> None:
    """Of a list, exactly the items that are beyond the ceiling are named, each at its line."""
    project = '[files]\nread = [\n  "~/.ssh",\n  "~/.config/git",\n  "/srv",\n]\n'
    found = held('files.read = ["~/.config"]', project)
    assert [(one.message, one.position and one.position.line) for one in found] == [
        ('files.read: "/srv" is beyond the ceiling', 5),
        ('files.read: "~/.ssh" is beyond the ceiling', 3),
    ]


def test_every_layer_is_held() -> None:
    """The command line, the environment and the user's own file are held as well as the project's."""
    for asked in (
        held('network.mode = "none"', assignments=("network.mode=host",)),
        held('network.mode = "none"', COOP_NETWORK_MODE="host"),
        held('network.mode = "none"', own='network.mode = "host"'),
    ):
        assert [one.message for one in asked] == ["network.mode is host, beyond the ceiling: none"]
    (found,) = held('network.mode = "none"', assignments=("network.mode=host",))
    assert render([found]).startswith("--set network.mode: error: network.mode is host")


def test_what_may_be_written_may_be_read() -> None:
    """A ceiling on reading holds for paths to write too, unless writing has a ceiling that allows them."""
    project = '[files]\nwrite = ["~/.cache/go"]\n'
    (found,) = held('files.read = ["~/.config"]', project)
    assert found.message == 'files.write: "~/.cache/go" is beyond the ceiling'
    assert held('files.read = ["~/.config"]\nfiles.write = ["~/.cache"]', project) == ()
    assert held('files.read = []\nfiles.write = ["~/.cache"]', '[files]\nread = ["~/.cache/x"]') == ()


def test_built_in_items_need_no_leave() -> None:
    """An empty ceiling does not forbid what is built into every list."""
    assert held("session.persist = []") == ()


def test_a_default_beyond_the_ceiling() -> None:
    """A default that is beyond the ceiling is an error too, and the help says what to write."""
    (found,) = held('limits.memory = "1g"')
    assert found.message == "limits.memory is 2g, beyond the ceiling: 1g"
    assert found.help == f'the ceiling is at {OWN}:3; write limits.memory = "1g" to stay below it'
    assert found.position is not None and found.position.source == OWN


def test_a_host_variable_under_another_name() -> None:
    """A ceiling names variables by both names: pointing one at another of the host's is beyond it."""
    ceiling = 'env = { A = { host = "A" }, B = "literal" }'
    (found,) = held(ceiling, 'env = { A = { host = "SECRET" } }')
    assert found.message == 'env: "A from $SECRET" is beyond the ceiling'
    (found,) = held(ceiling, 'env = { B = { host = "B" } }')
    assert found.message == 'env: "B from $B" is beyond the ceiling'
