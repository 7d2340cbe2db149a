"""Which files a Seatbelt profile gives and guards: a launch and facts as lists of filters.

Every filter is an expression of SBPL. Nothing here relies on the order of rules: what
is given excludes by itself what it must not cover, and what is denied is never given again.
"""

from __future__ import annotations

import posixpath

from coopfile.errors import CoopError
from coopfile.plan.bind import fences
from coopfile.plan.hosttools import HOME_PROTECT
from coopfile.plan.launch import Mount, inside
from coopfile.record import Record
from coopfile.render import sbpl
from coopfile.render.facts import LINK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from coopfile.plan.launch import Launch
    from coopfile.render.facts import Facts

# The same files as under /, by another name.
_ALIAS = "/System/Volumes/Data"

# Links of every macOS, whether facts name them or not; and firmlinks, which realpath(3) leaves as
# they are, while the kernel knows the files by their names under /.
_LINKS = {
    "/etc": "/private/etc",
    "/home": f"{_ALIAS}/home",
    "/tmp": "/private/tmp",
    "/var": "/private/var",
    **{
        f"{_ALIAS}{path}": path
        for path in ("/Applications", "/Library", "/Users", "/Volumes", "/opt", "/private", "/usr/local")
    },
}

# Whoever can talk to a container engine can mount anything.
_ENGINES = (
    "/private/var/run/docker",
    "/private/var/run/docker.sock",
    "/private/var/run/docker.sock.raw",
    "/Users/Shared/.docker",
)
_HOME_ENGINES = (
    ".colima",
    ".docker/desktop",
    ".docker/run",
    ".local/share/containers/podman/machine",
    ".orbstack/run",
    ".rd",
)

# Beside HOME_PROTECT: what macOS starts by itself.
_STARTUP = (*HOME_PROTECT, "Library/LaunchAgents")

# Keys and tokens below the home: not to be read even where a profile reads everywhere else.
HOME_SECRETS = (
    ".aws",
    ".azure",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".config/op",
    ".docker/config.json",
    ".gem/credentials",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pgpass",
    ".pypirc",
    ".python_history",
    ".ssh",
    ".terraform.d",
    ".vault-token",
    ".zsh_history",
    ".bash_history",
    "Library/Application Support/Firefox",
    "Library/Application Support/Google/Chrome",
    "Library/Cookies",
    "Library/Keychains",
    "Library/Mail",
    "Library/Messages",
    "Library/Safari",
)


class Given(Record):
    """What of the host a launch gives: real paths.

    ``mounts`` begins with the workspace and holds what the host has; ``skipped`` says
    what it does not have. ``temporary`` are writable too.
    """

    mounts: tuple[Mount, ...]
    temporary: tuple[str, ...]
    skipped: tuple[str, ...]

    def writable(self) -> tuple[str, ...]:
        """Return the roots below which something can be written."""
        roots = [mount.source for mount in self.mounts if mount.write]
        return tuple(dict.fromkeys([*roots, *self.temporary]))


class Rules(Record):
    """The filters of a profile's rules about files, in order.

    ``links`` are only followed. ``sockets`` is where UNIX sockets are used, and may be
    nowhere. ``unseen`` is neither read nor written,
    ``protected`` not written; ``pinned`` are directories that are not made, moved or
    removed, for something guarded is below them.
    """

    read: tuple[str, ...]
    links: tuple[str, ...]
    write: tuple[str, ...]
    sockets: tuple[str, ...]
    temporary: tuple[str, ...]
    unseen: tuple[str, ...]
    protected: tuple[str, ...]
    pinned: tuple[str, ...]


def real_path(facts: Facts, path: str) -> str:
    """Return what a path leads to: as the facts say of it, or of what holds it, or as on every macOS."""
    return _led(_led(path, _LINKS), facts.real) if path not in facts.real else _led(facts.real[path], _LINKS)


def _led(path: str, links: Mapping[str, str]) -> str:
    holder = path
    while holder.strip("/"):
        if holder in links:
            return links[holder] + path[len(holder) :]
        holder = posixpath.dirname(holder)
    return path


def given(launch: Launch, facts: Facts) -> Given:
    """Return the launch's paths as they are on the host. Raises CoopError for what none may have.

    The target of a mount is its source where the path was written in full.
    """
    mounts, skipped = [], []
    for number, mount in enumerate(launch.mounts):
        source = real_path(facts, mount.source)
        if number == 0 or source in facts.kinds or mount.source in facts.kinds:
            target = source if mount.target == mount.source else mount.target
            mounts.append(Mount(source, target, mount.write))
        else:
            skipped.append(f"{mount.source}: not on this host")
    temporary = tuple(dict.fromkeys(real_path(facts, path) for path in facts.temporary))
    gives = Given(tuple(mounts), temporary, tuple(skipped))
    _refuse(launch, facts, gives)
    return gives


def real_home(launch: Launch, facts: Facts) -> str:
    """Return the real path of the caller's home, which root's is not: it is below /var."""
    return real_path(facts, launch.host.home)


def _refuse(launch: Launch, facts: Facts, gives: Given) -> None:
    home, workspace = real_home(launch, facts), gives.mounts[0].source
    for path in gives.temporary:
        if path.count("/") < 2 or inside(home, path):
            raise CoopError(
                f"{path} is for temporary files, and holds far more: the sandbox would be given all of it",
                "set TMPDIR to a directory for nothing else",
            )
    real = launch.replace(host=launch.host.replace(home=home, workspace=workspace))
    guarded = (_real(facts, paths) for paths in (facts.hidden, facts.inputs, facts.private))
    fences(real, gives.mounts, *guarded)  # for what it refuses
    for path in (*_ENGINES, *(f"{home}/{name}" for name in _HOME_ENGINES)):
        for mount in gives.mounts[1:]:
            if inside(mount.source, path):
                raise CoopError(
                    f"{mount.source} leads to a container engine, and through it to the whole host",
                    "take it out of files.read and files.write",
                )
    for mount in launch.mounts:
        written = _led(mount.source, _LINKS)
        if real_path(facts, mount.source) != written:
            for root in gives.writable():
                if inside(written, root):
                    raise CoopError(
                        f"{mount.source} is behind a symbolic link inside {root}, which is writable",
                        "name what the link leads to: the sandbox could point it elsewhere",
                    )


def _real(facts: Facts, paths: Iterable[str]) -> tuple[str, ...]:
    """Return real paths: a rule about any other would match nothing."""
    return tuple(real_path(facts, path) for path in paths)


def rules(launch: Launch, facts: Facts, gives: Given, write: sbpl.Writer, *, everywhere: bool) -> Rules:
    """Return the filters. ``everywhere`` tells that the profile reads the whole host."""
    guards = _Guards(launch, facts, gives, write)
    written = list(_written(gives.mounts))
    return Rules(
        read=tuple(dict.fromkeys(_subpath(write, mount.source) for mount in gives.mounts)),
        links=tuple(dict.fromkeys(_links(launch, facts, write))),
        write=tuple(dict.fromkeys(_below(write, root, inner) for root, inner in written)),
        sockets=tuple(dict.fromkeys(_subpath(write, root) for root, inner in written if not inner)),
        temporary=tuple(_shared(gives, write)),
        unseen=tuple(dict.fromkeys(guards.unseen(everywhere))),
        protected=tuple(dict.fromkeys(guards.protected())),
        pinned=tuple(dict.fromkeys(guards.pinned())),
    )


def _links(launch: Launch, facts: Facts, write: sbpl.Writer) -> Iterator[str]:
    """Yield filters for what may be links on the way to what is given: the kernel asks about each."""
    for mount in launch.mounts:
        written = _led(mount.source, _LINKS)
        if real_path(facts, mount.source) != written:
            for path in (written, *_above(written)):
                yield f"(literal {write.path(path)})"


def _written(mounts: Sequence[Mount]) -> Iterator[tuple[str, list[str]]]:
    """Yield each writable root with the read-only paths in it.

    What is given to read stays read-only below what is writable, whichever way leads there;
    either may give below the other. Of one path in both lists reading wins, but for the
    workspace, which is not of the lists where it does not keep the host's path.
    """
    for mount in mounts:
        inner = sorted(
            other.source
            for other in mounts
            if not other.write
            and inside(other.source, mount.source)
            and (other.source != mount.source or _tree(other, mounts) == _tree(mount, mounts))
        )
        if mount.write and mount.source not in inner:
            yield mount.source, inner


def _tree(mount: Mount, mounts: Sequence[Mount]) -> str:
    """Return which mounts lie over and below a mount where there is a tree of them."""
    if mount.target == mount.source:
        return "host"
    return "workspace" if mount is mounts[0] else "home"


def _shared(gives: Given, write: sbpl.Writer) -> Iterator[str]:
    """Yield a filter for each temporary directory, without what the plan gives of it to read only."""
    for path in gives.temporary:
        mounts = [mount for mount in gives.mounts if inside(mount.source, path) and not mount.write]
        yield _below(write, path, [mount.source for mount in mounts])


class _Guards:
    """What is guarded, as pairs of a root and a path below it."""

    def __init__(self, launch: Launch, facts: Facts, gives: Given, write: sbpl.Writer) -> None:
        self._launch, self._facts, self._gives, self._write = launch, facts, gives, write
        self._workspace, self._home = gives.mounts[0].source, real_home(launch, facts)
        self._hidden, self._private, self._inputs = (
            _real(facts, paths) for paths in (facts.hidden, facts.private, facts.inputs)
        )
        self._writable = gives.writable()
        self._startup = tuple(
            name
            for name in _STARTUP
            if any(f"{self._home}/{name}".startswith(f"{root.rstrip('/')}/") for root in self._writable)
        )
        self._named = [(self._workspace, name) for name in launch.protect]
        self._named += [(self._home, name) for name in self._startup]
        for root, name in self._named:
            self._refuse_links(root, name)

    def _refuse_links(self, root: str, path: str) -> None:
        walked = root
        for name in path.split("/"):
            walked = f"{walked}/{name}"
            if self._facts.kinds.get(walked) == LINK:
                raise CoopError(
                    f"{walked} is a symbolic link, and what it stands for cannot be guarded",
                    "replace the link by what it leads to: the sandbox could point it elsewhere",
                )

    def unseen(self, everywhere: bool) -> Iterator[str]:
        write, home = self._write, self._home
        for glob in self._launch.hide:
            yield f"(regex {write.pattern(self._workspace, sbpl.glob_pattern(glob))})"
        engines = (*_ENGINES, *(f"{home}/{name}" for name in _HOME_ENGINES))
        for path in (*self._hidden, *self._private, *engines):
            yield from _exactly(write, path)
        if everywhere:
            sources = [mount.source for mount in self._gives.mounts]
            for path in (*(f"{home}/{name}" for name in HOME_SECRETS), _ALIAS):
                if not any(inside(path, source) for source in sources):
                    yield from _exactly(write, path, [other for other in sources if inside(other, path)])

    def protected(self) -> Iterator[str]:
        write, home = self._write, self._home
        for name in self._launch.protect:
            yield from _exactly(write, f"{self._workspace}/{name}")
            yield f"(regex {write.pattern(self._workspace, sbpl.name_pattern(name))})"
        for path in self._inputs:
            yield from _exactly(write, path)
        for name in self._startup:
            path = f"{home}/{name}"
            # What a Coopfile names itself below the home, it may have.
            mounts = self._gives.mounts
            named = [mount.source for mount in mounts if mount.write and inside(mount.source, path)]
            yield from _exactly(write, path, named)
            if not named:
                yield f"(regex {write.pattern(home, sbpl.name_pattern(name))})"

    def pinned(self) -> Iterator[str]:
        """Yield the directories on the way to what is guarded: moved away, they would take it along."""
        write = self._write
        for root in self._writable:
            yield from self._literals([root])
        exact = [*self._hidden, *self._private, *self._inputs]
        for path in (*exact, *self._writable):
            yield from self._literals(_above(path))
        for root, name in self._named:
            yield from self._literals(_above(f"{root}/{name}"))
            for above in _above(name):
                if self._in_writable(f"{root}/{above}"):
                    yield f"(regex {write.pattern(root, sbpl.name_pattern(above, '$'))})"

    def _literals(self, paths: Iterable[str]) -> Iterator[str]:
        for path in paths:
            if self._in_writable(path):
                yield f"(literal {self._write.path(path)})"

    def _in_writable(self, path: str) -> bool:
        return any(inside(path, root) for root in self._writable)


def _above(path: str) -> Iterator[str]:
    """Yield the directories above a path, the innermost first, without ``/`` and the empty one."""
    while (path := posixpath.dirname(path)).strip("/"):
        yield path


def _subpath(write: sbpl.Writer, path: str) -> str:
    return f"(subpath {write.path(path)})"


def _exactly(write: sbpl.Writer, path: str, but: Sequence[str] = ()) -> Iterator[str]:
    """Yield filters for a path and all below it, whether it exists yet or not, ``but`` for some."""
    yield _below(write, path, but)
    if path not in but:
        yield f"(literal {write.path(path)})"


def _below(write: sbpl.Writer, path: str, but: Sequence[str] = ()) -> str:
    """Return a filter for a path and all below it, ``but`` for some and all below them."""
    if not but:
        return _subpath(write, path)
    exceptions = " ".join(f"(require-not {_subpath(write, other)})" for other in but)
    return f"(require-all {_subpath(write, path)} {exceptions})"
