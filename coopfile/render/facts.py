"""What a rendering depends on beside the plan: a machine and its engine, as data.

``coop render --facts FILE`` reads the same as JSON (``read``), so that argv and
profiles for any machine can be made on any other. ``engines.collect`` looks at this
machine.
"""

from __future__ import annotations

from coopfile.plan.bind import Host
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "file"
DIRECTORY = "directory"
LIMITS = ("memory", "swap", "cpu", "pids")


class Engine(Record):
    """A container engine: what it is, and what of a plan it can keep.

    ``name`` is docker, podman or apple and ``program`` what to call it by.
    ``remapped`` tells of a rootful daemon that maps ids (userns-remap);
    ``limits`` are those of LIMITS that it can hold; ``init`` whether it has a
    program for PID 1; ``isolation`` is that of each runtime by its name.
    """

    name: str
    program: str
    version: str = ""
    rootless: bool = False
    remapped: bool = False
    selinux: bool = False
    runtimes: tuple[str, ...] = ()
    runtime: str | None = None
    limits: tuple[str, ...] = LIMITS
    init: bool = True


class Entry(Record):
    """A path of the root file system that shows the host's own tools.

    ``kind`` is bind (``content`` is the host's path), link (its target), directory,
    or file (its text).
    """

    kind: str
    path: str
    content: str = ""


class Facts(Record):
    """A machine as renderings see it. Paths are absolute and free of links.

    ``system`` is linux, darwin or windows. ``kinds`` tells of each path that the plan
    guards whether it is a file or a directory; what it does not name does not exist.
    ``hidden`` is what the globs of ``files.hide`` match now. ``real`` maps paths of the
    plan to what they lead to, where that differs. ``inputs`` are what the plan was made
    of and ``private`` coop's own state. ``temporary`` are the directories for temporary
    files that host processes share.
    """

    host: Host
    system: str = "linux"
    engine: Engine | None = None
    kinds: Mapping[str, str] = {}
    hidden: tuple[str, ...] = ()
    real: Mapping[str, str] = {}
    inputs: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    temporary: tuple[str, ...] = ()
    tools: tuple[Entry, ...] = ()
