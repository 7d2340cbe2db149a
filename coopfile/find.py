"""Finding the files that make a plan, and the directories that are coop's own.

Only names and statuses; reading is ``read_bounded``'s. Everything here is on the path
of a cached run.
"""

from __future__ import annotations

import os
import stat
import sys

from coopfile.errors import CoopError
from coopfile.native.marks import is_placeholder
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "Coopfile"
_LOCAL = ".local"
_LOCK = ".lock"
LARGEST = 1 << 20  # bytes; a Coopfile is a page or two


class Place(Record):
    """A file of one layer. ``stamp`` changes whenever its content may have.

    ``name`` is how people see it; ``stamp`` is (device, inode, size, mtime, ctime).
    """

    layer: str
    path: str
    name: str
    stamp: tuple[int, int, int, int, int]


class Project(Record):
    """The workspace (a real path), where the caller stands in it, and the files that count.

    ``lock`` is that of the project's Coopfile, if there is one.
    """

    root: str
    directory: str
    places: tuple[Place, ...]
    lock: Place | None = None

    @property
    def lock_path(self) -> str | None:
        """Where the lock is, or would be; None without a Coopfile of the project's."""
        project = next((place for place in self.places if place.layer == "project"), None)
        return None if project is None else project.path + _LOCK

    @property
    def inputs(self) -> tuple[str, ...]:
        """The paths that no sandbox may change or make: what the next plan is made of."""
        paths = [os.path.realpath(place.path) for place in self.places]
        for place in self.places:
            if place.layer == "project":
                directory, name = os.path.split(place.path)
                real = os.path.realpath(directory)
                paths += [f"{real}/{name}{suffix}" for suffix in (_LOCAL, _LOCK)]
        return tuple(dict.fromkeys(paths))


class Directories(Record):
    """Where coop keeps what is its own, by the XDG base directory specification."""

    config: str
    cache: str
    state: str
    data: str

    @property
    def rootfs(self) -> str:
        """The store of root file systems."""
        return self.data + "/rootfs"


def directories(environment: Mapping[str, str]) -> Directories:
    """Return coop's own directories; relative values of the variables do not count."""
    home = home_directory(environment)
    places = []
    for variable, default in (
        ("XDG_CONFIG_HOME", ".config"),
        ("XDG_CACHE_HOME", ".cache"),
        ("XDG_STATE_HOME", ".local/state"),
        ("XDG_DATA_HOME", ".local/share"),
    ):
        base = environment.get(variable, "")
        places.append((base if base.startswith("/") else f"{home}/{default}") + "/coop")
    return Directories(*places)


def approvals(environment: Mapping[str, str]) -> str:
    """Return the directory of the recorded approvals."""
    return directories(environment).state + "/approvals"


def home_directory(environment: Mapping[str, str]) -> str:
    """Return the caller's home: $HOME if absolute, else what the account says."""
    home = environment.get("HOME", "")
    if home.startswith("/"):
        return os.path.normpath(home)
    if sys.platform == "win32":
        return os.path.expanduser("~")
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/"


def real_home(environment: Mapping[str, str]) -> str:
    """Return the caller's home, free of links."""
    return os.path.realpath(home_directory(environment))


def find(directory: str, file: str | None, environment: Mapping[str, str]) -> Project:
    """Find the project that a directory belongs to: the nearest Coopfile above it.

    The search ends below the home directory. Without a Coopfile the directory itself
    is the workspace, under the built-in defaults and the user's own file. A ``file``
    named by the caller counts for the directory as it is.
    """
    start = _real_directory(directory)
    places = []
    own = f"{directories(environment).config}/{NAME}"
    place = _place("user", own, _shown(own, environment))
    if place:
        places.append(place)
    root = start
    if file is not None:
        place = _place("project", os.path.join(start, file), file)
        if place is None:
            raise CoopError(f"{file} does not exist", "name an existing Coopfile with -f, or leave it out")
        places.append(place)
        places += _local(place)
        _check_own_directories(start, environment)
        return Project(start, start, tuple(places), _lock(place))
    home = real_home(environment)
    current, lock = start, None
    while True:
        place = _place("project", f"{current}/{NAME}", NAME)
        if place is not None and (not places or place.stamp != places[0].stamp):
            _check_owner(place, current)
            root = current
            places.append(place)
            for local in _local(place):
                _check_owner(local, current)
                places.append(local)
            lock = _lock(place)
            if lock is not None:
                _check_owner(lock, current)
            break
        parent = os.path.dirname(current)
        if parent in (current, home, "/"):
            break
        current = parent
    _check_own_directories(root, environment)
    return Project(root, start, tuple(places), lock)


def _check_own_directories(root: str, environment: Mapping[str, str]) -> None:
    """Refuse settings and approvals that the repository, or a sandboxed command, may have written.

    A workspace that holds the whole home may be looked at; nothing is ever run in it.
    """
    above = root.rstrip("/") + "/"
    if f"{real_home(environment)}/".startswith(above):
        return
    own = directories(environment)
    for variable, directory in (
        ("XDG_CONFIG_HOME", own.config),
        ("XDG_STATE_HOME", own.state),
        ("XDG_DATA_HOME", own.data),
    ):
        if os.path.realpath(directory).startswith(above):
            raise CoopError(
                f"{directory} lies in the workspace, where what it holds may not be yours",
                f"set {variable} to a directory outside {root}",
            )


def _real_directory(directory: str) -> str:
    try:
        real = os.path.realpath(directory)
    except FileNotFoundError:
        raise CoopError("the current directory does not exist any more", "cd into one that does") from None
    if not os.path.isdir(real):
        raise CoopError(f"{directory} is not a directory")
    return real


def _shown(path: str, environment: Mapping[str, str]) -> str:
    home = home_directory(environment)
    return "~" + path[len(home) :] if path.startswith(home + "/") else path


def _place(layer: str, path: str, name: str) -> Place | None:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CoopError(f"{name}: {error.strerror}") from None
    if is_placeholder(status):
        return None  # ours: it keeps a running sandbox from making one
    if not stat.S_ISREG(status.st_mode):
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise CoopError(f"{path} is {kind}, not a Coopfile", "rename it, or name the Coopfile with -f")
    stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return Place(layer, path, name, stamp)


def _local(project: Place) -> list[Place]:
    place = _place("local", project.path + _LOCAL, project.name + _LOCAL)
    return [place] if place else []


def _lock(project: Place) -> Place | None:
    return _place("lock", project.path + _LOCK, project.name + _LOCK)


def _check_owner(place: Place, directory: str) -> None:
    """Refuse a Coopfile that somebody else put above the caller's directory, or a link to it."""
    if sys.platform == "win32":  # it does not tell owners so, and nothing is run there
        return
    owners = {os.lstat(place.path).st_uid, os.stat(place.path).st_uid} - {os.geteuid(), 0}
    for owner in owners:
        raise CoopError(
            f"{place.path} belongs to user {owner}, not to you",
            f"if you trust it, name it: coop -C {directory} -f {NAME} …",
        )


def read_bounded(place: Place) -> bytes:
    """Read a file of at most ``LARGEST`` bytes, the one that was found and no other."""
    from coopfile.system import READING

    try:
        descriptor = os.open(place.path, READING)
    except OSError as error:
        raise CoopError(f"{place.name}: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != place.stamp[:2]:
            raise CoopError(f"{place.name} was replaced while coop was reading it", "run the command again")
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise CoopError(
            f"{place.name} has {status.st_size} bytes; a Coopfile has at most {LARGEST}",
            "is it the file you mean?",
        )
    return data
