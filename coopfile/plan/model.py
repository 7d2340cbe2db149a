"""The plan: what a sandbox may have, resolved, portable, frozen.

Every field changes behaviour and is in the digest. The leaves have the names of
the settings table's keys: ``plan.network.mode`` is ``network.mode``. Host facts
(uid, paths of this machine, values of variables) enter at ``bind`` only.

Units: sizes in bytes, durations in milliseconds, processors in thousandths.
Unordered lists are sorted, so that equal policies are equal plans.
"""

from __future__ import annotations

from coopfile import startup
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from coopfile.language.items import HostPattern, ImageReference, LocalImage, PublishedPort, Variable

PLAN_VERSION = 1


class Base(Record):
    """Where the root file system comes from; no image means the host's own tools."""

    image: ImageReference | LocalImage | None


class Packages(Record):
    """Packages to install at build, per package manager, sorted."""

    apt: tuple[str, ...]
    apk: tuple[str, ...]
    dnf: tuple[str, ...]
    pip: tuple[str, ...]
    npm: tuple[str, ...]
    cargo: tuple[str, ...]


class Setup(Record):
    """Commands run at build, in order, and their network mode."""

    run: tuple[str, ...]
    network: str


class Agent(Record):
    """How the agent is installed, and what a bare ``coop run`` starts (empty: a shell)."""

    install: str | None
    command: tuple[str, ...]


class Workspace(Record):
    """``path`` inside the sandbox (or ``host``), and paths below it that stay read-only."""

    path: str
    protect: tuple[str, ...]


class Files(Record):
    """More of the host: paths that begin with ``/`` or ``~/``; ``hide`` holds globs."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    hide: tuple[str, ...]


class Network(Record):
    """``mode`` is none, proxy, veth or host; ``allow`` counts in proxy mode only."""

    mode: str
    allow: tuple[HostPattern, ...]
    publish: tuple[PublishedPort, ...]


class Session(Record):
    """What outlives a command: directories below the home, named caches, installed tools."""

    persist: tuple[str, ...]
    user: str
    commit: str
    caches: tuple[str, ...]


class Limits(Record):
    """``timeout`` and ``output`` are per tool call; ``cpus`` None means all of them."""

    memory: int
    cpus: int | None
    pids: int
    tmp: int
    timeout: int
    output: int


class Sandbox(Record):
    """Which back end may enforce the plan, and what happens when none can."""

    enabled: bool
    backend: tuple[str, ...]
    min_isolation: str
    fallback: str
    profile: str
    runtime: str | None


class Tools(Record):
    """Confirmation before a shell command in an interactive session: ask or never."""

    confirm: str


# What an access may give.
TOOLS = ("bash", "edit_file", "read_file", "write_file")
STORES = ("private", "shared", "social")


class Access(Record):
    """Who asks: the matched user, the trust after the place's ceiling, and what that gives.

    ``user`` is None for an identity that no user matches; ``sandboxed`` tells
    whether the trust asks for tool calls in the sandbox, which they are unless
    ``sandbox.enabled`` is off for all. The table is design section 11's.
    """

    user: str | None
    trust: str
    place: str
    tools: tuple[str, ...]
    stores: tuple[str, ...]
    sandboxed: bool


class Plan(Record):
    """The whole, in the order of the language reference."""

    base: Base
    packages: Packages
    setup: Setup
    agent: Agent
    workspace: Workspace
    files: Files
    network: Network
    session: Session
    env: tuple[Variable, ...]
    limits: Limits
    sandbox: Sandbox
    tools: Tools
    access: Access | None = None
    version: int = PLAN_VERSION

    @property
    def falls_back_to_host(self) -> bool:
        """Whether commands may run on the host itself where no back end will do.

        Those of users whose trust asks for a sandbox may not (design section 11).
        """
        trusted = self.access is None or not self.access.sandboxed
        return self.sandbox.fallback == "host" and trusted


SECTIONS: dict[str, type[Record]] = {
    "base": Base,
    "packages": Packages,
    "setup": Setup,
    "agent": Agent,
    "workspace": Workspace,
    "files": Files,
    "network": Network,
    "session": Session,
    "limits": Limits,
    "sandbox": Sandbox,
    "tools": Tools,
    "access": Access,
}

# The values that are records, by their names in ``language.items``: most plans have none of them,
# and a cached run does not import what it does not need. Of several, the fields tell which it is.
_ITEMS = {
    "base.image": ("ImageReference", "LocalImage"),
    "network.allow": ("HostPattern",),
    "network.publish": ("PublishedPort",),
    "env": ("Variable",),
}
_BUNDLES = {"base.image": "image"}  # where a run finds them with what else it takes then


def to_data(value: Any) -> Any:
    """Return a plan, or a part of one, as JSON-able data (dicts, lists, scalars)."""
    if isinstance(value, Record):
        return {name: to_data(getattr(value, name)) for name in value._fields}
    if isinstance(value, tuple):
        return [to_data(item) for item in value]
    return value


def from_data(data: Mapping[str, Any]) -> Plan:
    """Build the plan that ``to_data`` took apart; the data is trusted to have its shape."""
    parts: dict[str, Any] = {}
    for name, value in data.items():
        section = SECTIONS.get(name)
        if section is None or value is None:
            parts[name] = _item(name, value)
        else:
            parts[name] = section(**{key: _item(f"{name}.{key}", inner) for key, inner in value.items()})
    return Plan(**parts)


def _item(key: str, value: Any) -> Any:
    many = isinstance(value, list | tuple)
    if not value or key not in _ITEMS:
        return tuple(value) if many else value
    startup.load_more(_BUNDLES.get(key, "items"))
    from coopfile.language import items

    records = {frozenset(record._fields): record for record in (getattr(items, name) for name in _ITEMS[key])}
    made = tuple(records[frozenset(item)](**item) for item in (value if many else (value,)))
    return made if many else made[0]


def is_built(plan: Plan) -> bool:
    """Tell whether a plan's image has to be built from a Dockerfile first."""
    packages = plan.packages
    lists = (getattr(packages, manager) for manager in packages._fields)
    return bool(any(lists) or plan.setup.run or plan.agent.install)


def leaf(plan: Plan, key: str) -> Any:
    """Return the value at a dotted key of the settings table, such as ``network.mode``."""
    value: Any = plan
    for part in key.split("."):
        value = getattr(value, part)
    return value


def with_leaf(plan: Plan, key: str, value: Any) -> Plan:
    """Return the plan with another value at a key of the settings table, or of ``access``."""
    section, _, field = key.partition(".")
    if not field:
        return plan.replace(**{section: value})
    return plan.replace(**{section: getattr(plan, section).replace(**{field: value})})
