"""What a rendering depends on beside the plan: a machine and its engine, as data.

``coop render --facts FILE`` reads the same as JSON (``read``), so that argv and
profiles for any machine can be made on any other. ``engines.collect`` looks at this
machine.
"""

from __future__ import annotations

from coopfile.plan.launch import Host
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "file"
DIRECTORY = "directory"
LINK = "link"
PLACEHOLDER = "placeholder"
LIMITS = ("memory", "swap", "cpu", "pids")


class Engine(Record):
    """A container engine: what it is, and what of a plan it can keep.

    ``name`` is docker, podman or apple and ``program`` what to call it by.
    ``remapped`` tells of a rootful daemon that maps ids (userns-remap); ``runtime`` is
    the OCI runtime to ask for, where it is not to be ``default_runtime``; ``limits`` are
    those of LIMITS that it can hold; ``init`` whether it has a program for PID 1, and
    ``init_path`` which one to name where its own would hide the command's exit status.
    ``seccomp`` tells whether it filters system calls; ``proxies`` whether its command
    line gives containers the caller's proxy settings unless told not to.
    """

    name: str
    program: str
    version: str = ""
    rootless: bool = False
    remapped: bool = False
    selinux: bool = False
    runtimes: tuple[str, ...] = ()
    runtime: str | None = None
    default_runtime: str = "runc"
    limits: tuple[str, ...] = LIMITS
    init: bool = True
    init_path: str | None = None
    seccomp: bool = True
    proxies: bool = False


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
    guards or mounts, and those above them in a mount, whether it is a file, a directory,
    a link, or a placeholder of coop's; what it does not name does not exist.
    ``hidden`` is what the globs of ``files.hide`` match now. ``real`` maps paths of the
    plan to what they lead to, where that differs. ``inputs`` are what the plan was made
    of and ``private`` coop's own state. ``masks`` is a directory with an empty ``file``
    and an empty ``directory`` that nobody may open: they stand in for what is hidden.
    ``accounts`` is a directory with a ``passwd`` and a ``group`` to mount over an image's.
    ``mounted`` is where other file systems are mounted below what is mounted.
    ``temporary`` are the directories for temporary
    files that host processes share. ``proxy`` is the port of the machine's loopback on
    which `coop proxy` serves the plan's list.
    """

    host: Host
    system: str = "linux"
    engine: Engine | None = None
    kinds: Mapping[str, str] = {}
    hidden: tuple[str, ...] = ()
    real: Mapping[str, str] = {}
    inputs: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    mounted: tuple[str, ...] = ()
    temporary: tuple[str, ...] = ()
    tools: tuple[Entry, ...] = ()
    masks: str = ""
    accounts: str = ""
    proxy: int | None = None

    def real_path(self, path: str) -> str:
        """Return what a path of the plan leads to on the host."""
        return self.real.get(path, path)

    def mask(self, kind: str) -> str:
        """Return the host's path of what stands in for a hidden file or directory."""
        return f"{self.masks}/{DIRECTORY if kind in (DIRECTORY, PLACEHOLDER) else FILE}"
