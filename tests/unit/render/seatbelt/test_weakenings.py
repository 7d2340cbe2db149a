"""What Seatbelt cannot keep of a plan is refused or listed, never silent."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from coopfile.errors import CoopError
from coopfile.plan.bind import bind
from coopfile.plan.launch import Weakening
from coopfile.render import seatbelt
from tests.unit.render.seatbelt.samples import FACTS, HOME, HOST, STATE, WORKSPACE, compiled

NARROW = 'workspace.path = "host"\nsession.user = "me"\n'


def listed(text: str) -> tuple[Weakening, ...]:
    """Return the weakenings of a Coopfile."""
    plan = compiled(text)
    return seatbelt.weakenings(plan, bind(plan, HOST, ()), FACTS)


def test_all(snapshot: SnapshotAssertion) -> None:
    """Everything that is listed, in words."""
    text = """
    sandbox = { profile = "~/p.sb", runtime = "runsc" }
    session = { persist = [".npm"], caches = ["pip"], commit = "ask" }
    network = { mode = "host", publish = ["3000"] }
    limits.cpus = 2
    """
    assert [(found.key, found.text, found.remedy) for found in listed(text)] == snapshot


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("workspace.path", 'session.user = "me"'),
        ("session.user", 'workspace.path = "host"'),
        ("network.mode", 'network.mode = "none"'),
        ("network.publish", '[network]\nmode = "host"\npublish = ["3000"]'),
        ("network.publish", '[network]\nmode = "none"\npublish = ["3000"]'),
        ("session.caches", 'session.caches = ["pip"]'),
        ("session.commit", 'session.commit = "auto"'),
        ("sandbox.runtime", 'sandbox.runtime = "runsc"'),
        ("sandbox.profile", 'sandbox.profile = "/p.sb"'),
        ("limits.cpus", "limits.cpus = 1"),
        ("env.DYLD_LIBRARY_PATH", 'env.DYLD_LIBRARY_PATH = "/x"'),
    ],
)
def test_listed(key: str, text: str) -> None:
    """A setting that is not kept is listed once, and not listed where it is not asked for."""
    assert [found.key for found in listed(text)].count(key) == 1
    assert key not in {found.key for found in listed(f'network.mode = "host"\n{NARROW}')}


@pytest.mark.parametrize(("profile", "listed_too"), [("./p.sb", True), ("/tmp/p.sb", True), ("/p.sb", False)])
def test_a_profile_that_the_sandbox_may_change(profile: str, listed_too: bool) -> None:
    """Of a profile of one's own where the plan lets write, it is said that it may not last."""
    (found,) = [item for item in listed(f'sandbox.profile = "{profile}"') if item.key == "sandbox.profile"]
    assert ("for the next run" in found.text) is listed_too


def test_always_listed() -> None:
    """However narrow the plan, it is a policy only, without limits."""
    assert [found.key for found in listed(f'network.mode = "host"\n{NARROW}')] == [
        "sandbox.min_isolation",
        "limits.memory",
        "limits.pids",
        "limits.tmp",
        "session.persist",
    ]


REFUSED = [
    ('base.image = "debian"', "base.image needs a root file system"),
    *((f'packages.{manager} = ["x"]', f"packages.{manager}") for manager in ("apt", "npm", "pip", "cargo")),
    ('setup.run = ["true"]', "setup.run"),
    ('agent.install = "true"', "agent.install"),
    ('sandbox.min_isolation = "vm"', "min_isolation is vm"),
    ('sandbox.min_isolation = "userspace-kernel"', "min_isolation is userspace-kernel"),
    ('network.mode = "veth"', "does not tell the internet from your LAN"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_refused(text: str, message: str) -> None:
    """What would be something else, or more than the plan, is refused by all three functions."""
    plan = compiled(text)
    launch = bind(plan, HOST, ())
    for made in (
        lambda: seatbelt.profile(plan, launch, FACTS),
        lambda: seatbelt.argv(plan, launch, FACTS, "/p.sb"),
        lambda: seatbelt.weakenings(plan, launch, FACTS),
    ):
        with pytest.raises(CoopError, match=message) as error:
            made()
        assert error.value.remedy


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"write": [f"{WORKSPACE}/.git/hooks"]}, "is protected in every sandbox"),
        ({"read": [STATE]}, "is hidden from every sandbox"),
        ({"read": [f"{WORKSPACE}/deep/.env"]}, "is hidden from every sandbox"),
        ({"write": ["~/.docker/run"]}, "leads to a container engine"),
        ({"read": ["/var/run/docker.sock"]}, "leads to a container engine"),
    ],
)
def test_paths_that_no_sandbox_gets(files: dict[str, list[str]], message: str) -> None:
    """A plan that names what is guarded is refused, and says which."""
    plan = compiled("\n".join(f"files.{key} = {paths}" for key, paths in files.items()))
    (path,) = [path.replace("~", HOME) for paths in files.values() for path in paths]
    facts = FACTS.replace(kinds={path: "directory"})
    with pytest.raises(CoopError, match=message):
        seatbelt.profile(plan, bind(plan, HOST, ()), facts)


@pytest.mark.parametrize("path", ["/", "/private", "/Users", HOME])
def test_temporary_directories_that_hold_more(path: str) -> None:
    """A TMPDIR that is the home, or around it, is not given away as a place for temporary files."""
    plan = compiled()
    with pytest.raises(CoopError, match="for temporary files"):
        seatbelt.profile(plan, bind(plan, HOST, ()), FACTS.replace(temporary=("/tmp", path)))


def test_proxy_that_nobody_knows() -> None:
    """Without the port of a proxy there is no profile in proxy mode: a guess would be somebody's port."""
    plan = compiled('network.mode = "proxy"')
    launch = bind(plan, HOST, ())
    facts = FACTS.replace(proxy=None)
    for made in (
        lambda: seatbelt.profile(plan, launch, facts),
        lambda: seatbelt.argv(plan, launch, facts, "/p.sb"),
        lambda: seatbelt.weakenings(plan, launch, facts),
    ):
        with pytest.raises(CoopError, match="that is not known") as error:
            made()
        assert "coop proxy" in str(error.value.remedy)


def test_proxy_that_others_can_use() -> None:
    """Whose the port is, and who can use it besides, is told."""
    texts = [found.text for found in listed('network.mode = "proxy"') if found.key == "network.mode"]
    assert any(f"port {FACTS.proxy} " in text and "every user of this machine" in text for text in texts)
