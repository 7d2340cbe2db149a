"""The store of stages: content-addressed directories, complete or not there at all.

::

    DIRECTORY/stages/KEY/fs          the stage's own layer, never written again
    DIRECTORY/stages/KEY/stage.json  what it is and what it stands on
    DIRECTORY/building/…             stages under way, locked by who builds them
    DIRECTORY/roots/HASH.json        which stages a project uses
    DIRECTORY/locks/KEY              held by who builds a stage, so that another waits

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

from coopfile.errors import CoopError
from coopfile.native import syscalls
from coopfile.record import Record
from coopfile.rootfs.tree import remove_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

_META = "stage.json"
_FS = "fs"


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


class Freed(Record):
    """What a collection removed, or would remove: stages, and their bytes."""

    stages: tuple[Stage, ...]
    size: int


def key(kind: str, parent: str | None, inputs: object) -> str:
    """Return a stage's key: 32 hex digits over its kind, its parent's key and its inputs (JSON)."""
    text = json.dumps([1, kind, parent, inputs], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


class Store:
    """A store below a directory, which is made when it is needed."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def stage(self, wanted: str) -> Stage | None:
        """Return a stage if it is complete."""
        return _read(f"{self.directory}/stages/{wanted}", wanted)

    def stages(self) -> tuple[Stage, ...]:
        """Return every complete stage, the oldest first."""
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
        with self._alone(wanted, tell):
            found = self.stage(wanted)
            if found is None:
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
                meta = {
                    "kind": kind,
                    "parent": parent,
                    "created": int(time.time()),
                    "size": disk_usage(f"{aside}/{_FS}"),
                    "about": about,
                }
                with open(f"{aside}/{_META}", "x", encoding="utf-8") as file:
                    json.dump(meta, file, sort_keys=True)
                _sync(aside)
                os.rename(aside, f"{self.directory}/stages/{wanted}")
                _sync(self.directory)
        except OSError as error:
            remove_tree(aside)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise CoopError(
                    f"there is no room left in {self.directory}", "coop clean frees what nothing uses"
                ) from None
            raise CoopError(f"{error.filename or self.directory}: {error.strerror}") from None
        except BaseException:
            remove_tree(aside)
            raise
        built = self.stage(wanted)
        if built is None:
            raise CoopError(f"{self.directory}/stages/{wanted} has just been made and is not complete")
        return built

    @contextlib.contextmanager
    def using(self, *keys: str) -> Iterator[tuple[Stage, ...]]:
        """Keep stages from being collected meanwhile; raises CoopError when one is not there."""
        with contextlib.ExitStack() as held:
            yield tuple(held.enter_context(self._using(wanted)) for wanted in keys)

    @contextlib.contextmanager
    def _using(self, wanted: str) -> Iterator[Stage]:
        path = f"{self.directory}/stages/{wanted}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise _missing(wanted) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            stage = self.stage(wanted)
            if stage is None or not os.path.samestat(os.fstat(descriptor), os.stat(path)):
                raise _missing(wanted)
            yield stage
        finally:
            os.close(descriptor)

    def use(self, project: str, keys: tuple[str, ...]) -> None:
        """Record which stages a project uses, in place of what it used before."""
        self._make_directories()
        path = f"{self.directory}/roots/{hashlib.sha256(os.fsencode(project)).hexdigest()[:32]}.json"
        partial = f"{path}.{secrets.token_hex(4)}"
        with open(partial, "x", encoding="utf-8") as file:
            json.dump({"project": os.fsencode(project).hex(), "stages": list(keys)}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)

    def collect(self, *, dry_run: bool = False) -> Freed:
        """Remove every stage that no project uses, or only tell which; those in use now stay.

        A project counts while its directory exists.
        """
        wanted = self._reachable()
        removed = []
        for stage in self.stages():
            if stage.key not in wanted and (dry_run or self._remove(stage)):
                removed.append(stage)
        if not dry_run:
            self._sweep()
        return Freed(tuple(removed), sum(stage.size for stage in removed))

    def _reachable(self) -> set[str]:
        """Return the keys that projects name, and those of all that they stand on."""
        pending: list[str] = []
        for name in _names(f"{self.directory}/roots"):
            path = f"{self.directory}/roots/{name}"
            try:
                with open(path, encoding="utf-8") as file:
                    root = json.load(file)
                project = os.fsdecode(bytes.fromhex(root["project"]))
                keys = [str(item) for item in root["stages"]]
            except (OSError, ValueError, KeyError, TypeError):
                continue  # half written, or gone
            if os.path.isdir(project):
                pending += keys
        found: set[str] = set()
        while pending:
            current = pending.pop()
            stage = self.stage(current)
            if current not in found and stage is not None:
                found.add(current)
                pending += [stage.parent] if stage.parent else []
        return found

    def _remove(self, stage: Stage) -> bool:
        """Take a stage out and remove it, unless somebody uses it."""
        path = f"{self.directory}/stages/{stage.key}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            aside = f"{self.directory}/building/{stage.key}.{secrets.token_hex(4)}"
            os.rename(path, aside)
            remove_tree(aside)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

    @contextlib.contextmanager
    def _alone(self, wanted: str, tell: Callable[[str], None]) -> Iterator[None]:
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

    def _make_directories(self) -> None:
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            for name in ("stages", "building", "roots", "locks"):
                os.makedirs(f"{self.directory}/{name}", mode=0o755, exist_ok=True)
        except OSError as error:
            raise CoopError(f"{self.directory} cannot be made: {error.strerror}") from None


def disk_usage(path: str) -> int:
    """Return the bytes that a tree takes on disk; hard links count once."""
    total = 0
    seen: set[tuple[int, int]] = set()
    pending = [path]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if status.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                    if (status.st_dev, status.st_ino) in seen:
                        continue
                    seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return total


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


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def _locked_directory(path: str) -> Iterator[None]:
    """Make a directory and hold it, so that no sweep takes it away; it may be renamed meanwhile."""
    while True:
        os.makedirs(path, 0o755, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # A sweep may have come between, and taken it for left behind.
            if os.path.isdir(path) and os.path.samestat(os.fstat(descriptor), os.stat(path)):
                yield
                return
        finally:
            os.close(descriptor)


def _sync(path: str) -> None:
    """Have everything of a file system on disk before what is renamed says that it is."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        syscalls.syncfs(descriptor)
    finally:
        os.close(descriptor)


def _missing(wanted: str) -> CoopError:
    return CoopError(f"the stage {wanted} of the root file system is not there", "coop init")
