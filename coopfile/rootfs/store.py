"""The store of stages: content-addressed directories, complete or not there at all.

::

    DIRECTORY/stages/KEY/fs          the stage's own layer, never written again
    DIRECTORY/stages/KEY/stage.json  what it is and what it stands on
    DIRECTORY/building/…             stages under way, locked by who builds them
    DIRECTORY/roots/HASH.json        which stages a project uses
    DIRECTORY/committed/ID.json      what sessions have added to them (``committed``)
    DIRECTORY/caches/HASH/NAME       what a package manager has downloaded for a project
    DIRECTORY/found/HASH             what a run has found in here (``base``)
    DIRECTORY/locks/KEY              held by who builds a stage, so that another waits
    DIRECTORY/locks/roots            held by who collects, and by who records what a project uses

A stage is built aside, synced to disk and renamed into place. Locks are flock(2)'s: the
kernel drops them with their holder, so a crash leaves nothing locked, and what it left
in ``building`` is removed by the next build.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import secrets
import time

from coopfile import wholefile
from coopfile.errors import CoopError
from coopfile.record import Record
from coopfile.rootfs import committed
from coopfile.rootfs.disk import sync, syncing
from coopfile.rootfs.tree import remove_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

_META = "stage.json"
_FS = "fs"
_ROOTS = "roots"  # the lock of what projects use
_NOT_YOURS = "it has to be yours (was coop started with sudo?); XDG_DATA_HOME puts it elsewhere"
_SUFFIX = ".json"  # of the records of that; beside them may be one that is not whole


class Stage(Record):
    """A complete stage. ``fs`` is its layer on disk, ``parent`` the key of what it stands on.

    ``size`` is in bytes, ``created`` in seconds since the epoch; ``about`` is what its
    builder wants to know of it later, as JSON.
    """

    key: str
    kind: str
    parent: str | None
    fs: str
    size: int
    created: int
    about: Mapping[str, Any]


class Root(Record):
    """What a project uses: keys of stages, the lowest first.

    ``generations`` are, by kind, in the keys of stages that are this project's alone.
    """

    stages: tuple[str, ...]
    generations: Mapping[str, str]


class Freed(Record):
    """What a collection removed, or would remove: stages, all bytes, and those of them of downloads."""

    stages: tuple[Stage, ...]
    size: int
    downloads: int


def key(kind: str, parent: str | None, inputs: object) -> str:
    """Return a stage's key: 32 hex digits over its kind, its parent's key and its inputs (JSON)."""
    text = json.dumps([1, kind, parent, inputs], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def project_id(project: str) -> str:
    """Return a project's name in the store: 32 hex digits over the real path of its workspace."""
    return hashlib.sha256(os.fsencode(project)).hexdigest()[:32]


class Store:
    """A store below a directory, which is made when it is needed."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def stage(self, wanted: str) -> Stage | None:
        """Return a stage if it is complete."""
        return _read(f"{self.directory}/stages/{wanted}", wanted)

    def stages(self) -> tuple[Stage, ...]:
        """Return every complete stage, the oldest first."""
        with self._explained():
            found = [self.stage(name) for name in _names(f"{self.directory}/stages")]
        return tuple(sorted((item for item in found if item), key=lambda item: (item.created, item.key)))

    def build(
        self,
        wanted: str,
        kind: str,
        parent: str | None,
        make: Callable[[str], Mapping[str, Any]],
        tell: Callable[[str], None] = lambda _: None,
    ) -> Stage:
        """Return a stage, built if it is not there; one process builds while others wait.

        ``make`` gets an empty directory for the layer and returns ``Stage.about``. When it
        raises, nothing of its work stays. ``tell`` hears of waiting.
        """
        found = self.stage(wanted)
        if found is not None:
            return found
        self._make_directories()
        with self._explained(), self._alone(wanted, tell):
            found = self.stage(wanted)
            if found is None:
                self._take_out(f"stages/{wanted}")  # what is left of one that somebody has damaged
                self._sweep()
                found = self._build(wanted, kind, parent, make)
            return found

    def _build(
        self, wanted: str, kind: str, parent: str | None, make: Callable[[str], Mapping[str, Any]]
    ) -> Stage:
        aside = f"{self.directory}/building/{wanted}.{secrets.token_hex(4)}"
        try:
            with _locked_directory(aside):
                os.mkdir(f"{aside}/{_FS}", 0o755)
                about = make(f"{aside}/{_FS}")
                _seal(aside, kind, parent, about)
                return self._install(aside, wanted)
        except BaseException:
            remove_tree(aside)
            raise

    def _install(self, aside: str, wanted: str) -> Stage:
        os.rename(aside, f"{self.directory}/stages/{wanted}")
        sync(self.directory)
        built = self.stage(wanted)
        if built is None:
            raise CoopError(f"{self.directory}/stages/{wanted} has just been made and is not complete")
        return built

    def made(self, place: str, kind: str, parent: str | None, about: Mapping[str, Any]) -> None:
        """Have a stage complete and on disk, for ``adopt``, that was made in ``fs`` below a place aside."""
        with self._explained():
            _seal(place, kind, parent, about)

    def adopt(self, place: str, wanted: str) -> Stage:
        """Return a stage, from its place aside if it is not there already. Only inside ``changing``."""
        found = self.stage(wanted)
        if found is not None:
            return found
        self._take_out(f"stages/{wanted}")  # what is left of one that somebody has damaged
        return self._install(place, wanted)

    def root_path(self, project: str) -> str:
        """Return the path of the record of what a project uses."""
        return f"{self.directory}/roots/{project_id(project)}{_SUFFIX}"

    def root(self, project: str) -> Root | None:
        """Return what a project uses, if that was recorded."""
        found = _read_root(self.root_path(project))
        return None if found is None else found[1]

    @contextlib.contextmanager
    def scratch(self) -> Iterator[str]:
        """Make an empty directory for as long as it is used; what killed runs left of theirs goes first."""
        self._make_directories()
        with self._explained():
            self._sweep()
        path = f"{self.directory}/building/run.{secrets.token_hex(8)}"
        with _locked_directory(path):
            try:
                yield path
            finally:
                remove_tree(path)

    def use(self, project: str, keys: tuple[str, ...], generations: Mapping[str, str] | None = None) -> None:
        """Record which stages a project uses, in place of what it used before.

        Whoever calls this holds them, so that no collection under way takes them for unused.
        """
        root = {
            "project": os.fsencode(project).hex(),
            "stages": list(keys),
            "generations": dict(generations or {}),
        }
        with self.changing():
            wholefile.write(self.root_path(project), json.dumps(root).encode())

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Be the only one who records what projects use; nothing is collected meanwhile."""
        self._make_directories()
        with self._explained(), self._alone(_ROOTS):
            yield

    def collect(self, *, dry_run: bool = False, caches: bool = False) -> Freed:
        """Remove the stages and downloads of no project, or only tell which; those in use now stay.

        A project counts while its directory exists. With ``caches`` the downloads of all go.
        """
        if not os.path.isdir(self.directory):
            return Freed((), 0, 0)
        self._make_directories()
        removed, downloads = [], 0
        with self._explained(), self._alone(_ROOTS):
            roots = self._roots()
            wanted = self._reachable(roots)
            for stage in self.stages():
                if stage.key not in wanted and (dry_run or self._take_out(f"stages/{stage.key}")):
                    removed.append(stage)
            for name in () if dry_run else _names(f"{self.directory}/stages"):
                if self.stage(name) is None:
                    self._take_out(f"stages/{name}")
            for name in _names(f"{self.directory}/caches"):
                if caches or name not in roots:
                    found = disk_usage(f"{self.directory}/caches/{name}")
                    downloads += found if dry_run or self._take_out(f"caches/{name}") else 0
        if not dry_run:
            with self._explained():
                self._sweep()
        return Freed(tuple(removed), sum(stage.size for stage in removed) + downloads, downloads)

    def _roots(self) -> dict[str, Root]:
        """Return what the projects use that there are, by their names in the store."""
        roots = {}
        for name in _names(f"{self.directory}/roots"):
            found = _read_root(f"{self.directory}/roots/{name}") if name.endswith(_SUFFIX) else None
            if found is not None and os.path.isdir(found[0]):
                roots[project_id(found[0])] = found[1]
        return roots

    def _reachable(self, roots: Mapping[str, Root]) -> set[str]:
        """Return the keys that projects name, and those of all that they stand on."""
        pending = [key for root in roots.values() for key in root.stages]
        pending += committed.stages(self.directory)
        reached: set[str] = set()
        while pending:
            current = pending.pop()
            stage = self.stage(current)
            if current not in reached and stage is not None:
                reached.add(current)
                pending += [stage.parent] if stage.parent else []
        return reached

    def _take_out(self, name: str) -> bool:
        """Put a directory where the next sweep removes it, unless somebody uses it."""
        path = f"{self.directory}/{name}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return False
            os.rename(path, f"{self.directory}/building/{os.path.basename(name)}.{secrets.token_hex(4)}")
        except (BlockingIOError, FileNotFoundError):
            return False
        finally:
            os.close(descriptor)
        return True

    @contextlib.contextmanager
    def _alone(self, wanted: str, tell: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        path = f"{self.directory}/locks/{wanted}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                tell("another coop builds this; waiting for it")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _sweep(self) -> None:
        """Remove what builds left that nobody holds any more."""
        for name in _names(f"{self.directory}/building"):
            path = f"{self.directory}/building/{name}"
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_tree(path)
                finally:
                    os.close(descriptor)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise failure(error, self.directory) from None

    def _make_directories(self) -> None:
        """Make what is missing; nobody else is to get in, to what may be set-id while it is built."""
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            owner = os.stat(self.directory).st_uid
            if owner != os.geteuid():
                raise CoopError(f"{self.directory} belongs to user {owner}, not to you", _NOT_YOURS)
            os.chmod(self.directory, 0o700)
            for name in ("stages", "building", "roots", "committed", "locks"):
                os.makedirs(f"{self.directory}/{name}", mode=0o755, exist_ok=True)
        except OSError as error:
            raise CoopError(f"{self.directory} cannot be made: {error.strerror}", _NOT_YOURS) from None


def failure(error: OSError, directory: str) -> CoopError:
    """Return the error for a store that cannot be read or written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CoopError(f"there is no room left in {directory}", "coop clean frees what nothing uses")
    remedy = _NOT_YOURS if isinstance(error, PermissionError) else None
    return CoopError(f"{error.filename or directory}: {error.strerror}", remedy)


def disk_usage(path: str) -> int:
    """Return the bytes that a tree takes on disk, but for what the caller cannot get to.

    That is what is in directories closed to them or too deep for a path, and what vanishes
    meanwhile. Hard links count once.
    """
    total = 0
    seen: set[tuple[int, int]] = set()
    pending = [path]
    while pending:
        try:
            entries = os.scandir(pending.pop())
        except OSError:
            continue
        with entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if status.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                    if (status.st_dev, status.st_ino) in seen:
                        continue
                    seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return total


def _seal(place: str, kind: str, parent: str | None, about: Mapping[str, Any]) -> None:
    """Say beside a layer what it is, and have all of it on disk."""
    with syncing(place):
        size = disk_usage(f"{place}/{_FS}")
    meta = {
        "kind": kind,
        "parent": parent,
        "created": int(time.time()),
        "size": size,
        "about": about,
    }
    with open(f"{place}/{_META}", "x", encoding="utf-8") as file:
        json.dump(meta, file, sort_keys=True)
    sync(place)


def _read(path: str, name: str) -> Stage | None:
    try:
        with open(f"{path}/{_META}", encoding="utf-8") as file:
            meta = json.load(file)
        return Stage(
            key=name,
            kind=str(meta["kind"]),
            parent=meta["parent"],
            fs=f"{path}/{_FS}",
            size=int(meta["size"]),
            created=int(meta["created"]),
            about=dict(meta["about"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read_root(path: str) -> tuple[str, Root] | None:
    """Return a project and what it uses; None for what is half written or gone."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        project = os.fsdecode(bytes.fromhex(data["project"]))
        generations = {str(kind): str(value) for kind, value in dict(data.get("generations", {})).items()}
        return project, Root(tuple(str(item) for item in data["stages"]), generations)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []


@contextlib.contextmanager
def _locked_directory(path: str) -> Iterator[None]:
    """Make a directory and hold it, so that no sweep takes it away; it may be renamed meanwhile."""
    while True:
        os.makedirs(path, 0o755, exist_ok=True)
        # A sweep may come between at any moment until it is locked, and take it for left behind.
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.isdir(path) and os.path.samestat(os.fstat(descriptor), os.stat(path)):
                yield
                return
        finally:
            os.close(descriptor)
