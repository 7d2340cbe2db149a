"""The launch: one command in one sandbox on this machine, and the words that it is told in."""

from __future__ import annotations

from coopfile.plan.sessions import DEFAULT
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopfile.language.items import HostPattern, PublishedPort
    from coopfile.plan.model import Limits

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Host(Record):
    """The facts of this machine that a launch depends on.

    Paths are absolute and free of links; ``directory`` is where the caller stands;
    ``shell`` is what a bare ``coop run`` starts; ``started`` is the time of the
    launch in seconds since the epoch. ``data`` is where coop keeps what outlives runs;
    without it nothing does. ``session`` is the name of the session that the launch is of.
    """

    uid: int
    gid: int
    user: str
    home: str
    workspace: str
    directory: str
    environment: Mapping[str, str]
    shell: str = "/bin/sh"
    started: int = 0
    data: str = ""
    session: str = DEFAULT


class Weakening(Record):
    """A promise of the plan that is kept in part, or not: what, why, and how to have it kept."""

    key: str
    text: str
    remedy: str | None = None


class Mount(Record):
    """A path of the host at a path of the sandbox. ``target`` may equal ``source``."""

    source: str
    target: str
    write: bool


class Fence(Record):
    """What is guarded below one mount, as paths relative to it.

    ``hide`` must not be seen and ``protect`` not be written; ``hold`` is what the host
    keeps in place meanwhile, so that nobody can make what does not exist yet.
    """

    mount: Mount
    hide: tuple[str, ...]
    protect: tuple[str, ...]
    hold: tuple[str, ...]


class Launch(Record):
    """One command in one sandbox on this machine: all that a back end needs.

    ``mounts`` begins with the workspace. ``protect`` and ``hide`` are relative to it.
    ``kept`` are coop's own directories, which outlive the run: nothing in them is guarded,
    and no path of ``mounts`` leads there.
    ``inherited`` are (variable, the host's variable) for values that come from the
    host's environment: they may be secret, and must not be written down. Without
    ``PATH`` in ``environment`` the image's own counts. ``allow`` is for the network ``proxy``, and
    ``listed`` says where that was written, as a sandbox may know it, if that is known.
    ``publish`` are ports of a network of its own.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    uid: int
    gid: int
    user: str
    home: str
    host: Host
    mounts: tuple[Mount, ...]
    protect: tuple[str, ...]
    hide: tuple[str, ...]
    network: str
    limits: Limits
    inherited: tuple[tuple[str, str], ...] = ()
    kept: tuple[Mount, ...] = ()
    skipped: tuple[str, ...] = ()
    allow: tuple[HostPattern, ...] = ()
    publish: tuple[PublishedPort, ...] = ()
    listed: str = ""


def expand(path: str, home: str) -> str:
    """Return a path of a Coopfile with its ``~`` replaced by a home."""
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def inside(path: str, root: str) -> bool:
    """Tell whether an absolute path is ``root`` or below it, by name."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def parents(path: str) -> list[str]:
    """Return the directories above a path, the outermost first, without the root."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: number + 1]) for number in range(len(parts))]
