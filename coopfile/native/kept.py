"""The directories that outlive runs: making them, and places in them for other mounts.

What is in them was left by sandboxed commands. coop follows no link there, and reads nothing.
"""

from __future__ import annotations

import errno
import os
import stat

from coopfile.errors import CoopError
from coopfile.native.sources import open_real
from coopfile.plan.launch import Weakening, inside
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopfile.plan.launch import Launch, Mount

_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC


class Place(Record):
    """Where a mount goes into a directory that outlives runs: its real path, and the path in it."""

    source: str
    path: str
    mount: Mount

    @property
    def real(self) -> str:
        """The place on the host."""
        return f"{self.source}/{self.path}"


def make(launch: Launch) -> tuple[Weakening, ...]:
    """Make the directories that are missing; return what will not outlive the run since it cannot be."""
    try:
        for mount in launch.kept:
            try:
                os.mkdir(mount.source, 0o700)
            except FileExistsError:
                pass
            except FileNotFoundError:
                _make_all(launch.host.data, mount.source, launch.host.workspace)
    except OSError as error:
        text = f"thrown away at the end like the rest of the home: {error.filename}: {error.strerror}"
        remedy = "set XDG_DATA_HOME to a directory that you can write"
        keys = dict.fromkeys(_key(launch, mount) for mount in launch.kept)
        return tuple(Weakening(key, text, remedy) for key in keys)
    return ()


def opened(source: str) -> int:
    """Open a directory that outlives runs, by its real path. Raises OSError; CoopError for what is none."""
    try:
        descriptor = open_real(source)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise CoopError(f"{source} leads through a symbolic link", "remove it: coop makes it again") from None
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CoopError(f"{source} is not a directory", "remove it: coop makes it again")
    return descriptor


def _key(launch: Launch, mount: Mount) -> str:
    return "session.caches" if inside(mount.source, f"{launch.host.data}/caches") else "session.persist"


def _make_all(data: str, path: str, workspace: str) -> None:
    """Make a directory below coop's data, and note beside it which project it is of."""
    os.makedirs(data, mode=0o700, exist_ok=True)
    directory = data
    for depth, name in enumerate(path[len(data) + 1 :].split("/")):
        directory += f"/{name}"
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:
            pass
        if depth == 1:
            try:
                note = os.open(f"{directory}/project", _NEW, 0o600)
            except FileExistsError:
                continue
            os.write(note, os.fsencode(workspace) + b"\n")
            os.close(note)


def places(kept: Sequence[Mount], mounts: Sequence[Mount]) -> tuple[Place, ...]:
    """Return where mounts, or others of ``kept``, go into a directory of ``kept``."""
    found = []
    everything = (*mounts, *kept)
    for mount in everything if kept else ():
        around = [
            other
            for other in everything
            if other.target != mount.target and inside(mount.target, other.target)
        ]
        holder = max(around, key=lambda other: len(other.target), default=None)
        if holder is not None and holder in kept:
            found.append(Place(holder.source, mount.target[len(holder.target) + 1 :], mount))
    return tuple(found)


def open_place(root: int, path: str, *, directory: bool) -> int:
    """Open a place below a directory that outlives runs, for a mount; make what is missing.

    Raises CoopError where a command has left a link, or something of another kind, on the way.
    """
    current, walked = os.dup(root), ""
    names = path.split("/")
    try:
        for number, name in enumerate(names):
            walked += f"/{name}"
            parent = current
            current = _opened(parent, name, directory=directory or number < len(names) - 1)
            os.close(parent)
            _check(current, walked, directory=directory or number < len(names) - 1)
    except BaseException as error:
        os.close(current)
        if isinstance(error, OSError):
            raise CoopError(f"cannot mount anything at {walked[1:]}: {error.strerror}") from None
        raise
    return current


def _opened(parent: int, name: str, *, directory: bool) -> int:
    try:
        return os.open(name, _PATH, dir_fd=parent)
    except FileNotFoundError:
        pass
    try:
        if directory:
            os.mkdir(name, 0o700, dir_fd=parent)
        else:
            os.close(os.open(name, _NEW, 0o600, dir_fd=parent))
    except FileExistsError:
        pass  # another run made it
    return os.open(name, _PATH, dir_fd=parent)


def _check(found: int, path: str, *, directory: bool) -> None:
    mode = os.fstat(found).st_mode
    if not (stat.S_ISDIR(mode) if directory else stat.S_ISREG(mode)):
        kind = "a symbolic link" if stat.S_ISLNK(mode) else f"not a {'directory' if directory else 'file'}"
        raise CoopError(
            f"{path[1:]}, where something has to be mounted, is {kind}: a command left it there",
            "remove it",
        )
