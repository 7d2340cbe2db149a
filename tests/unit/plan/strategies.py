"""Hypothesis strategies for plans: arbitrary ones, and pairs that differ in one leaf."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from coopfile.language.images import TRANSPORTS
from coopfile.language.items import HostPattern, ImageReference, LocalImage, PublishedPort, Variable
from coopfile.language.settings import BACKENDS, BY_KEY, NETWORK_MODES, TRUST_LEVELS
from coopfile.plan.model import (
    Access,
    Agent,
    Base,
    Files,
    Limits,
    Network,
    Packages,
    Plan,
    Sandbox,
    Session,
    Setup,
    Tools,
    Workspace,
)
from coopfile.record import Record

_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
# Every text that a command may be, with a bias to what is awkward in JSON and on a terminal.
TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=_BIDI, include_characters="\t\n"),
    min_size=1,
    max_size=8,
).filter(str.strip) | st.sampled_from(["é", '"', "\\", "a b", "\U0001f600", "-x", "\ue000", "a\u2028b", "'"])
PACKAGES = st.sampled_from(["git", "g++", "a=1-2", "@scope/pkg@^1.2", "x[y]>=3"])
NAMES = st.sampled_from(["A", "B", "C", "PATH", "API_KEY"])
# Few and nested, so that paths meet and cover each other.
PATHS = st.sampled_from(["~/a", "~/a/b", "~/a/b/c", "~/ab", "~/b", "/opt", "/opt/x", "/srv"])
RELATIVE = st.sampled_from([".git", ".git/hooks", ".gitconfig", "a", "a/b", "b"])
GLOBS = RELATIVE | st.sampled_from(["**/.env*", "*.pem", "[!a]?"])
HOSTS = st.sampled_from(["pypi.org", "github.com", "api.github.com", "deep.api.github.com"])
ADDRESSES = st.sampled_from(["::1", "10.0.0.1"])
PORTS = st.integers(1, 65535)


def unordered(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Lists whose order means nothing: distinct and sorted, as plans have them."""
    return st.frozensets(items, max_size=4).map(lambda found: tuple(sorted(found, key=str)))


def ordered(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Lists that keep their order and may repeat items."""
    return st.lists(items, max_size=3).map(tuple)


def numbers(key: str) -> st.SearchStrategy[int]:
    """The numbers that the language allows at a key."""
    kind: Any = BY_KEY[key].type
    return st.integers(getattr(kind, "minimum", 1), kind.maximum)


HEX = "0123456789abcdef"
DIGESTS = st.text(HEX, min_size=64, max_size=64).map(lambda digits: "sha256:" + digits)
IMAGES = st.builds(
    ImageReference,
    st.sampled_from(["docker.io", "ghcr.io", "localhost:5000"]),
    st.sampled_from(["library/debian", "team/app"]),
    st.just("latest") | st.just("1.2"),
    st.none() | DIGESTS,
) | st.builds(
    LocalImage,
    st.sampled_from(TRANSPORTS),
    st.sampled_from(["images/base", "/srv/a b", "~/saved.tar"]),
    st.none() | st.sampled_from(["v1", "ghcr.io/team/app:1"]),
    st.none() | DIGESTS,
)
HOST_PORTS = st.none() | st.sampled_from([22, 80, 443, 8080]) | PORTS
HOST_PATTERNS = st.builds(HostPattern, HOSTS, st.booleans(), HOST_PORTS) | st.builds(
    HostPattern, ADDRESSES, st.just(False), HOST_PORTS
)
PUBLISHED = st.builds(PublishedPort, st.sampled_from(["127.0.0.1", "::1", "0.0.0.0"]), PORTS, PORTS)
PUBLISHED_LISTS = st.lists(PUBLISHED, max_size=4, unique_by=lambda port: (port.address, port.host)).map(
    lambda found: tuple(sorted(found, key=str))
)
VARIABLES = st.builds(lambda name, value: Variable(name, value, None), NAMES, TEXT) | st.builds(
    lambda name, host: Variable(name, None, host), NAMES, NAMES
)
ENVIRONMENTS = st.lists(VARIABLES, max_size=4, unique_by=lambda variable: variable.name).map(
    lambda found: tuple(sorted(found, key=lambda variable: variable.name))
)
BACKEND_LISTS = st.just(("auto",)) | st.lists(
    st.sampled_from(BACKENDS), min_size=1, max_size=3, unique=True
).map(tuple)
ACCESSES = st.builds(
    Access,
    user=st.none() | TEXT,
    trust=st.sampled_from(TRUST_LEVELS),
    place=st.sampled_from(["direct", "group"]),
    tools=unordered(st.sampled_from(["bash", "read_file", "write_file"])),
    stores=unordered(st.sampled_from(["private", "shared", "social"])),
    sandboxed=st.booleans(),
)

#: A strategy per leaf of the plan, under its key.
LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "base.image": st.none() | IMAGES,
    "packages.apt": unordered(PACKAGES),
    "packages.apk": unordered(PACKAGES),
    "packages.dnf": unordered(PACKAGES),
    "packages.pip": unordered(PACKAGES),
    "packages.npm": unordered(PACKAGES),
    "packages.cargo": unordered(PACKAGES),
    "setup.run": ordered(TEXT),
    "setup.network": st.sampled_from(NETWORK_MODES),
    "agent.install": st.none() | TEXT,
    "agent.command": ordered(TEXT),
    "workspace.path": st.sampled_from(["/workspace", "host", "/w"]),
    "workspace.protect": unordered(RELATIVE),
    "files.read": unordered(PATHS),
    "files.write": unordered(PATHS),
    "files.hide": unordered(GLOBS),
    "network.mode": st.sampled_from(NETWORK_MODES),
    "network.allow": unordered(HOST_PATTERNS),
    "network.publish": PUBLISHED_LISTS,
    "session.persist": unordered(RELATIVE),
    "session.user": st.sampled_from(["root", "me"]),
    "session.commit": st.sampled_from(["never", "ask", "auto"]),
    "session.caches": unordered(st.sampled_from(["cargo", "npm", "pip"])),
    "env": ENVIRONMENTS,
    "limits.memory": numbers("limits.memory"),
    "limits.cpus": st.none() | numbers("limits.cpus"),
    "limits.pids": numbers("limits.pids"),
    "limits.tmp": numbers("limits.tmp"),
    "limits.timeout": numbers("limits.timeout"),
    "limits.output": numbers("limits.output"),
    "sandbox.enabled": st.booleans(),
    "sandbox.backend": BACKEND_LISTS,
    "sandbox.min_isolation": st.sampled_from(["namespace", "userspace-kernel", "vm"]),
    "sandbox.fallback": st.sampled_from(["refuse", "host"]),
    "sandbox.profile": st.sampled_from(["restrictive", "permissive", "/p.sb", "~/q.sb"]),
    "sandbox.runtime": st.none() | st.sampled_from(["runsc", "crun"]),
    "tools.confirm": st.sampled_from(["ask", "never"]),
}

_SECTIONS: dict[str, type[Record]] = {
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
}


def _section(name: str) -> st.SearchStrategy[Any]:
    section = _SECTIONS[name]
    return st.builds(section, **{field: LEAVES[f"{name}.{field}"] for field in section._fields})


PLANS = st.builds(
    Plan, **{name: _section(name) for name in _SECTIONS}, env=ENVIRONMENTS, access=st.none() | ACCESSES
)
