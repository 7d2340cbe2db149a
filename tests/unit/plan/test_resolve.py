"""From settings to a plan: every key of the table, and nothing else."""

from __future__ import annotations

import pytest

from coopfile.language.reading import read
from coopfile.language.settings import BUILT_IN_PERSIST, BUILT_IN_PROTECT, SETTINGS
from coopfile.language.sources import Source
from coopfile.plan.canonical import digest, from_json, to_json
from coopfile.plan.model import SECTIONS, Access, Plan, leaf
from coopfile.plan.resolve import resolve
from tests.unit.plan.samples import ACCESS

FULL = b"""
coop = 1
base.image = "debian:bookworm-slim"
packages.apt = ["ripgrep", "git"]
setup = { run = ["b", "a"], network = "bridge" }
agent = { install = "npm install -g x", command = ["x", "--flag"] }
workspace = { path = "host", protect = ["scripts/deploy.sh"] }
files = { read = ["~/.gitconfig"], write = ["~/.cache/go-build/"], hide = ["**/.env*"] }
network = { mode = "proxy", allow = ["PyPI.org", "*.github.com:443"], publish = ["3000"] }
session = { persist = [".npm"], user = "me", commit = "ask", caches = ["pip", "cargo"] }
env = { EDITOR = "vi", KEY = { host = "API_KEY" } }
limits = { memory = "1.5g", cpus = 0.5, pids = 64, tmp = "1g", timeout = "1m30s", output = "1m" }
sandbox = { backend = ["podman", "native"], min_isolation = "vm", profile = "permissive", runtime = "runsc" }
tools.confirm = "never"
"""


def resolved(text: bytes = b"", access: Access | None = None) -> Plan:
    """Return the plan of a project's Coopfile."""
    return resolve(read([Source("project", "Coopfile", text)]).settings(), access)


def test_model_and_table_have_the_same_leaves() -> None:
    """No key of the table is missing in the model, and no leaf of the model in the table."""
    leaves = {
        f"{name}.{field}"
        for name, section in SECTIONS.items()
        if section is not Access
        for field in section._fields
    }
    sections = {name for name, section in SECTIONS.items() if section is not Access}
    assert leaves | {"env"} == {setting.key for setting in SETTINGS}
    assert sections | {"env", "access", "version"} == set(Plan._fields)


def test_defaults() -> None:
    """The plan of nothing is narrow: no network, nothing of the host, the built-in lists."""
    plan = resolved()
    assert plan.network.mode == "none"
    assert plan.files.read == plan.files.write == plan.env == ()
    assert plan.base.image is None and plan.access is None
    assert plan.workspace.protect == BUILT_IN_PROTECT
    assert plan.session.persist == BUILT_IN_PERSIST
    assert plan.sandbox.enabled and plan.sandbox.fallback == "refuse"


def test_every_value_arrives() -> None:
    """Each leaf has the value of its key, typed and in canonical units."""
    settings = read([Source("project", "Coopfile", FULL)]).settings()
    plan = resolve(settings, ACCESS)
    assert all(leaf(plan, setting.key) == settings.value(setting.key) for setting in SETTINGS)
    assert plan.access == ACCESS
    assert (plan.limits.memory, plan.limits.cpus, plan.limits.timeout) == (3 * 2**29, 500, 90_000)
    assert plan.setup.run == ("b", "a") and plan.packages.apt == ("git", "ripgrep")
    assert plan.setup.network == "veth"


@pytest.mark.parametrize("text", [b"", FULL], ids=["defaults", "full"])
def test_round_trip_of_what_the_language_says(text: bytes) -> None:
    """A plan made of a Coopfile survives JSON, which is as strict as the language."""
    plan = resolved(text)
    assert from_json(to_json(plan)) == plan


def test_order_and_spelling_do_not_matter() -> None:
    """Two spellings of one policy are one plan, with one digest."""
    one = resolved(b'[files]\nread = ["~/a", "~/b/"]\n[limits]\nmemory = "1024m"\n')
    other = resolved(b'[limits]\nmemory = "1g"\n[files]\nread = ["~/b", "~//a", "~/a"]\n')
    assert one == other and digest(one) == digest(other)


def test_who_asks_is_part_of_the_plan() -> None:
    """The same settings for somebody else are another plan."""
    assert digest(resolved()) != digest(resolved(access=ACCESS))
