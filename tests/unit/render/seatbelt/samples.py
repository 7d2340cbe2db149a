"""A made-up Mac, and what a Coopfile comes to on it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from coopfile.language.reading import read
from coopfile.language.sources import Source
from coopfile.plan.bind import bind
from coopfile.plan.launch import Host, Launch
from coopfile.plan.model import Plan
from coopfile.plan.resolve import resolve
from coopfile.record import Record
from coopfile.render import seatbelt
from coopfile.render.facts import DIRECTORY, Facts
from tests.unit.render.seatbelt.evaluator import Profile, Query

HOME = "/Users/dev"
WORKSPACE = f"{HOME}/src/app"
STATE = f"{HOME}/Library/Application Support/coop"
OWN = f"{HOME}/.config/coop/Coopfile"
TEMPORARY = "/private/var/folders/ab/cd_1/T"
PROXY = 8877

HOST = Host(
    uid=501,
    gid=20,
    user="dev",
    home=HOME,
    workspace=WORKSPACE,
    directory=f"{WORKSPACE}/lib",
    environment={"TERM": "xterm", "API_TOKEN": "s3cret", "SSH_AUTH_SOCK": "/private/tmp/agent"},
    shell="/bin/zsh",
    started=1_700_000_000,
)

REPRESENTATIVE = """
workspace = { path = "host", protect = ["scripts/deploy.sh"] }
session.user = "me"
[files]
read = ["~/.gitconfig", "~/.config/app/fixed", "/opt/data", "/tmp/shared"]
write = ["~/.config", "~/.cache/go-build", "/srv/out"]
hide = ["**/.env*", "secrets", "keys/[a-c]?.pem"]
[env]
EDITOR = "vi"
TOKEN = { host = "API_TOKEN" }
"""
MOUNTED = (
    f"{HOME}/.gitconfig",
    f"{HOME}/.config",
    f"{HOME}/.config/app/fixed",
    f"{HOME}/.cache/go-build",
    "/opt/data",
    "/private/tmp/shared",
    "/srv/out",
)
FACTS = Facts(
    HOST,
    "darwin",
    kinds=dict.fromkeys(MOUNTED, DIRECTORY),
    hidden=(f"{WORKSPACE}/deep/.env", f"{WORKSPACE}/keys/a1.pem"),
    inputs=(f"{WORKSPACE}/Coopfile", OWN),
    private=(STATE,),
    temporary=("/tmp", "/var/folders/ab/cd_1/T"),
    proxy=PROXY,
)


class Rendered(Record):
    """A plan, all that Seatbelt makes of it, and the profile in the evaluator."""

    plan: Plan
    launch: Launch
    facts: Facts
    text: str
    argv: tuple[str, ...]
    profile: Profile

    def may(self, operation: str, path: str | None = None, **more: Any) -> bool:
        """Return the verdict that all readings agree on."""
        return self.profile.allows(Query(operation, path, **more))

    def may_connect(self, host: str, port: int, *, udp: bool = False) -> bool:
        """Return whether a connection is allowed, or a datagram."""
        return self.may("network-outbound", host=host, port=port, udp=udp)


def compiled(text: str = "") -> Plan:
    """Return the plan of a Coopfile."""
    return resolve(read([Source("project", "Coopfile", text.encode())]).settings())


def with_network(mode: str, text: str = REPRESENTATIVE) -> str:
    """Return a Coopfile with a network mode."""
    return f'network.mode = "{mode}"\n{text}'


def permissive(text: str = REPRESENTATIVE) -> str:
    """Return a Coopfile with the permissive profile."""
    return f'sandbox.profile = "permissive"\n{text}'


def rendered(plan: Plan | str, facts: Facts = FACTS, command: Sequence[str] = ("make", "test")) -> Rendered:
    """Render a plan on the made-up Mac, or on another one."""
    made = compiled(plan) if isinstance(plan, str) else plan
    launch = bind(made, facts.host, tuple(command))
    text = seatbelt.profile(made, launch, facts)
    argv = seatbelt.argv(made, launch, facts, "/opt/coop/profile.sb")
    return Rendered(made, launch, facts, text, argv, Profile(text, parameters(argv)))


@functools.cache
def sample(text: str) -> Rendered:
    """Render a Coopfile on the made-up Mac, once for all tests."""
    return rendered(text)


def parameters(argv: Sequence[str]) -> dict[str, str]:
    """Return the parameters that sandbox-exec gets."""
    rest = list(
        argv[argv.index(seatbelt.SANDBOX_EXEC) + 1 : argv.index("-f", argv.index(seatbelt.SANDBOX_EXEC))]
    )
    assert rest[::2] == ["-D"] * (len(rest) // 2)
    found = dict(definition.split("=", 1) for definition in rest[1::2])
    assert len(found) == len(rest) // 2, "a parameter is defined twice"
    return found
