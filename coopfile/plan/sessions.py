"""What outlives a run: whose it is, where it is kept, and where the sandbox finds it.

Every directory of ``session.persist``, and every one of a named cache, is a directory of
its own in coop's data: none lies below another, so nothing that a sandbox writes is on
the way to what the next one mounts.
"""

from __future__ import annotations

from coopfile.record import Record

try:
    # hashlib would load OpenSSL, which takes 3 ms of every run.
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coopfile.plan.model import Access, Plan

DEFAULT = "default"  # the name of the session that has none
NAME_RULE = "a name has 1 to 64 letters, digits, dots, hyphens and underscores, and begins with no . or -"

_OWN, _OWN_DIGITS = "python", 8  # what begins and ends the name of a session that a program has for itself
_HASH = 10  # bytes
_SLUG = 32  # characters
_LONGEST = 200  # bytes of a name; a file system takes 255
_LONGEST_NAME = 64  # characters of a session's


class Cache(Record):
    """A named cache: directories below the home, and variables that lead its tools there."""

    directories: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]


# The default places, which an image may have moved by the same variables. Sources: pip's
# "Caching", npm-config(7), the Cargo Book on CARGO_HOME, `go help environment`.
# System packages are installed when an image is built, which has caches of its own.
CACHES = {
    "cargo": Cache((".cargo/git", ".cargo/registry"), (("CARGO_HOME", ".cargo"),)),
    "go": Cache(
        (".cache/go-build", "go/pkg/mod"), (("GOCACHE", ".cache/go-build"), ("GOMODCACHE", "go/pkg/mod"))
    ),
    "npm": Cache((".npm",), (("npm_config_cache", ".npm"),)),
    "pip": Cache((".cache/pip",), (("PIP_CACHE_DIR", ".cache/pip"),)),
}


class Kept(Record):
    """One directory that outlives runs.

    ``key`` and ``item`` are the setting and its item; ``path`` is relative to the home
    inside, ``place`` to coop's data.
    """

    key: str
    item: str
    path: str
    place: str


def is_name(text: str) -> bool:
    """Tell whether a session can have this name: ``NAME_RULE``."""
    plain = text.replace(".", "").replace("_", "").replace("-", "")
    return (
        0 < len(text) <= _LONGEST_NAME
        and text[0] not in ".-"
        and text.isascii()
        and (plain.isalnum() or not plain)
    )


def own_name(process: int, token: str) -> str:
    """Return the name of a session that a process has for itself; ``token`` has 8 hexadecimal digits."""
    return f"{_OWN}-{process}-{token}"


def is_own_name(name: str) -> bool:
    """Tell whether a name is one of ``own_name``, which nobody else may give."""
    first, *rest = name.split("-")
    return (
        first == _OWN
        and len(rest) == 2
        and rest[0].isdecimal()
        and len(rest[1]) == _OWN_DIGITS
        and not rest[1].strip("0123456789abcdef")
    )


def place(data: str, root: str, access: Access | None, name: str = DEFAULT) -> str:
    """Return the directory of a session, whether there is one or not; ``data`` is coop's, a real path."""
    return f"{data}/sessions/{session_id(root, access, name)}"


def session_id(root: str, access: Access | None, name: str = DEFAULT) -> str:
    """Return the id of a session of a project (its real path) and of who asks."""
    return f"{slug(root)}-{_digest(root, *_who(access), name)}"


def project_id(root: str, access: Access | None) -> str:
    """Return the id of what the sessions of a project and of who asks share."""
    return f"{slug(root)}-{_digest(root, *_who(access))}"


def kept(plan: Plan, root: str, name: str = DEFAULT) -> Iterator[Kept]:
    """Yield what a plan keeps for a project's session; of equal paths ``session.persist`` comes first."""
    own = f"sessions/{session_id(root, plan.access, name)}/persist"
    for path in plan.session.persist:
        yield Kept("session.persist", path, path, f"{own}/{flat(path)}")
    shared = f"caches/{project_id(root, plan.access)}" if plan.session.caches else ""
    for cache in plan.session.caches:
        for path in CACHES[cache].directories if cache in CACHES else ():
            yield Kept("session.caches", cache, path, f"{shared}/{cache}/{flat(path)}")


def variables(caches: Sequence[str], home: str) -> dict[str, str]:
    """Return the environment that leads the tools of named caches to them."""
    found = [CACHES[name].variables for name in caches if name in CACHES]
    return {variable: f"{home}/{path}" for pairs in found for variable, path in pairs}


def slug(root: str) -> str:
    """Return the name of a project's directory in lower case letters, digits and hyphens."""
    base = root.rstrip("/").rpartition("/")[2].lower()
    plain = "".join(character if character.isascii() and character.isalnum() else "-" for character in base)
    return plain.strip("-")[:_SLUG] or "project"


def flat(path: str) -> str:
    """Return a relative path as one name, another one for every path."""
    name = path.replace("%", "%25").replace("/", "%2F")
    name = name if name.strip(".") else name.replace(".", "%2E")
    return name if len(name.encode("utf-8", "surrogateescape")) <= _LONGEST else f"%%{_digest(path)}"


def log_path(state: str, session: str) -> str:
    """Return the file of what was blocked, of a session by its id; ``state`` is coop's directory for such."""
    return f"{state}/denials/{session}.jsonl"


def _who(access: Access | None) -> tuple[str, ...]:
    """Return what tells users apart; the caller, and who sits at the terminal and owns it, is nobody else."""
    if access is None or (access.user is None and access.trust == "owner"):
        return ("caller",)
    return ("nobody",) if access.user is None else ("user", access.user)


def _digest(*parts: str) -> str:
    # As one text that tells where each part ends, whatever bytes a path has.
    return blake2b(ascii(parts).encode("ascii"), digest_size=_HASH).hexdigest()
