"""What a session has changed, made into a stage on top of the project's.

What a command wrote is as untrusted as an image, and is made as harmless (``owners.SINGLE``): nothing is
set-id, there are no devices, and of extended attributes only those of users. The stage holds what
``compare`` tells and nothing else, so whatever the upper directory is made of, it is written anew here: as
files, directories, links, pipes and whiteouts, below one descriptor, with no link followed.

A project has one such stage at most. When a session that runs on one is committed, both are made into one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import ExitStack

from coopfile.errors import CoopError
from coopfile.native import syscalls
from coopfile.native.layered import OWN_FILES
from coopfile.native.owner import as_owner
from coopfile.record import Record
from coopfile.rootfs import committed, overlay
from coopfile.rootfs.chain import chain
from coopfile.rootfs.committed import KIND, Committed
from coopfile.rootfs.hold import hold
from coopfile.rootfs.overlay import ADDED, CHANGED, DELETED, Item
from coopfile.rootfs.owners import SINGLE
from coopfile.rootfs.store import failure, key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coopfile.native.upper import Upper
    from coopfile.plan.model import Plan
    from coopfile.rootfs.store import Stage, Store

_MOST = 2_000_000  # things in a layer, as in an image
_PIECE = 1 << 20
_FS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_INSIDE = syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS | 0x08 | 0x01  # BENEATH, NO_XDEV
_READABLE = stat.S_IRUSR | stat.S_IXUSR
_TOLD = 10  # things that were left out


class Outcome(Record):
    """What was committed, or that there was nothing (no ``stage``).

    ``counts`` are those of what the session has added, changed and deleted. ``left`` are paths of what is
    not kept: sockets, and what every sandbox has of its own; of the first few.
    """

    stage: Stage | None
    counts: tuple[int, int, int]
    left: tuple[str, ...] = ()


class _Base(Record):
    """The stages that a session runs on: those of a plan, the lowest first, and the committed one."""

    keys: tuple[str, ...]
    committed: str | None


def commit(
    store: Store, plan: Plan, project: str, upper: Upper, origin: str, *, replace: bool = False
) -> Outcome:
    """Make what a session has changed a stage that the project's runs have from now on.

    ``project`` is the real path of the workspace. ``origin`` tells one life of a session from all others:
    what it committed before is replaced. What others have committed since it was started is not, and what
    they have reset does not come back, but for ``replace``. Whoever calls this has stopped the session's
    processes. Raises CoopError; then nothing has changed.
    """
    try:
        return _commit(store, plan, project, upper, origin, replace)
    except OSError as error:
        raise failure(error, store.directory) from None


def _commit(store: Store, plan: Plan, project: str, upper: Upper, origin: str, replace: bool) -> Outcome:
    base = _base(store, upper)
    with ExitStack() as opened:
        lower = _opened(store, upper, base, opened)
        _check_current(store, plan, project, base)
        _check_free(committed.read(store.directory, project, plan.access), base, origin, replace)
        place = opened.enter_context(store.scratch())
        os.mkdir(f"{place}/stage")
        os.mkdir(f"{place}/stage/fs", 0o755)
        written = _write(f"{place}/stage/fs", upper, lower, base)
        if not any(written.counts):
            return Outcome(None, written.counts, written.left)
        parent = base.keys[-1]
        wanted = key(KIND, parent, {"content": written.digest})
        about = {"session": origin, "counts": list(written.counts)}
        store.made(f"{place}/stage", KIND, parent, about)
        with store.changing():
            known = committed.read(store.directory, project, plan.access)
            _check_free(known, base, origin, replace)
            stage = store.adopt(f"{place}/stage", wanted)
            committed.write(
                store.directory, project, plan.access, {**known, parent: Committed(wanted, origin)}
            )
    return Outcome(stage, written.counts, written.left)


def reset(store: Store, plan: Plan, project: str) -> tuple[Stage, ...]:
    """Drop all that is committed for a project and who asks; return the stages that there were."""
    if not os.path.isdir(store.directory):
        return ()
    with store.changing():
        dropped = committed.forget(store.directory, project, plan.access)
    found = (store.stage(item.stage) for item in dropped.values())
    return tuple(stage for stage in found if stage is not None)


def open_layers(store: Store, upper: Upper, opened: ExitStack) -> list[int]:
    """Open and hold the layers that a session runs on, the highest first. Raises CoopError."""
    return _opened(store, upper, _base(store, upper), opened)


def _base(store: Store, upper: Upper) -> _Base:
    """Tell which stages are below an upper directory. What PID 1 says is not believed further than that."""
    stages = f"{os.path.realpath(store.directory)}/stages"
    keys = []
    for layer in reversed(upper.layers):
        above, _, name = layer.removesuffix("/fs").rpartition("/")
        if above != stages or not layer.endswith("/fs") or name.strip("0123456789abcdef"):
            raise CoopError(
                f"the session runs on {layer}, which is not in {stages}", "is XDG_DATA_HOME another one now?"
            )
        keys.append(name)
    top = store.stage(keys[-1]) if keys else None
    if top is None:
        raise CoopError(
            "the stages that the session runs on are no longer there", "start it again: coop stop"
        )
    if top.kind == KIND:
        return _Base(tuple(keys[:-1]), top.key)
    return _Base(tuple(keys), None)


def _opened(store: Store, upper: Upper, base: _Base, opened: ExitStack) -> list[int]:
    found = []
    for layer in upper.layers:
        held = hold(os.path.dirname(layer))
        if held is None:
            raise CoopError(f"{layer} is no longer there", "start the session again: coop stop")
        opened.callback(os.close, held)
        found.append(os.open("fs", _FS, dir_fd=held))
        opened.callback(os.close, found[-1])
    return found


def _check_current(store: Store, plan: Plan, project: str, base: _Base) -> None:
    """Refuse what would not count: the project's runs have another base by now."""
    if chain(plan, store.root(project))[-1].key != base.keys[-1]:
        raise CoopError(
            "the project's root file system was built anew since the session was started, and what is "
            "committed stands on what it was before",
            "coop stop ends the session; the next one runs on what there is now",
        )


def _check_free(known: dict[str, Committed], base: _Base, origin: str, replace: bool) -> None:
    """Refuse to drop what another session has committed, or to bring back what was reset."""
    there = known.get(base.keys[-1])
    same = (None if there is None else there.stage) == base.committed
    if same or replace or (there is not None and there.origin == origin):
        return
    what = "what the session stands on was reset" if there is None else "another session has committed"
    raise CoopError(
        f"{what} since this one was started",
        "coop commit --replace puts what this session has in the place of it",
    )


class _Written(Record):
    """A layer that was written: a digest of all that is in it, and as ``Outcome`` has it."""

    digest: str
    counts: tuple[int, int, int]
    left: tuple[str, ...]


def _write(directory: str, upper: Upper, lower: Sequence[int], base: _Base) -> _Written:
    """Write a layer that has what an upper directory, and the committed layer below it, change in others."""

    def produce() -> Iterator[tuple[object, ...]]:
        counts = {ADDED: 0, CHANGED: 0, DELETED: 0}
        for item in overlay.compare([upper.descriptor], lower, upper.made):
            if item.change is not None and item.path not in OWN_FILES:
                counts[item.change.kind] += 1
        found = tuple(counts.values())
        if not any(found):
            yield "", found, ()
            return
        above = 1 if base.committed is not None else 0
        root = os.open(directory, _FS)
        writer = _Writer(root, base.committed or "")
        for item in overlay.compare([upper.descriptor, *lower[:above]], lower[above:], upper.made):
            writer.take(item)
        yield writer.finish(), found, tuple(writer.left)

    written = None
    for digest, counts, left in as_owner(produce):
        written = _Written(digest, counts, left)
    assert written is not None
    return written


class _Directory(Record):
    """A directory on the way to what is being written, as it is to be."""

    path: str
    mode: int
    mtime: int
    attributes: dict[str, bytes]


class _Writer:
    """Writes one layer. ``committed`` is the key of the committed one, whose files are linked, not copied."""

    def __init__(self, root: int, committed: str) -> None:
        self.left: list[str] = []
        self._root = root
        self._committed = committed
        self._digest = hashlib.sha256()
        self._way = [_Directory("", 0o755, 0, {})]
        self._made = 1  # how many of them there are
        self._place = os.dup(root)  # of the last one that there is
        self._known: dict[tuple[int, int, int], str] = {}
        self._count = 0

    def take(self, item: Item) -> None:
        """Write one thing; things come as ``compare`` yields them."""
        if item.deep:
            raise CoopError(
                f"{item.path[:60]}… holds more than {overlay.DEEPEST} directories in each other",
                "remove it, and commit again",
            )
        if item.enters:
            self._enter(item)
            return
        if item.path in OWN_FILES:
            self._leave_out(item)
            return
        if item.change is not None and item.change.kind == DELETED:
            self._record("deleted", item.path)
            os.mknod(self._name(item.path), stat.S_IFCHR, 0, dir_fd=self._directory())
            return
        try:
            status = os.stat(item.name, dir_fd=item.place, follow_symlinks=False)
        except FileNotFoundError:
            return
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFREG:
            self._file(item)
        elif kind == stat.S_IFLNK:
            target = os.readlink(item.name, dir_fd=item.place)
            self._record("link", item.path, target, status.st_mtime_ns)
            os.symlink(target, self._name(item.path), dir_fd=self._directory())
            self._set_time(item, status)
        elif kind == stat.S_IFIFO:
            self._record("pipe", item.path, status.st_mode, status.st_mtime_ns)
            os.mkfifo(self._name(item.path), 0o600, dir_fd=self._directory())
            os.chmod(
                self._name(item.path), SINGLE.mode(stat.S_IMODE(status.st_mode)), dir_fd=self._directory()
            )
            self._set_time(item, status)
        else:
            self._leave_out(item)

    def finish(self) -> str:
        """Give the last directories their modes; return the digest of all, in hexadecimal."""
        self._go_up("")
        os.close(self._place)
        return self._digest.hexdigest()

    def _leave_out(self, item: Item) -> None:
        if item.change is not None and len(self.left) < _TOLD:
            self.left.append(item.path)

    # Directories

    def _enter(self, item: Item) -> None:
        path = "" if item.path == "/" else item.path
        if not path:
            return
        self._go_up(path.rpartition("/")[0])
        status = os.fstat(item.place)
        mode = stat.S_IMODE(status.st_mode) | _READABLE
        self._way.append(_Directory(path, mode, status.st_mtime_ns, overlay.attributes(item.place)))
        if item.change is not None:
            self._directory()

    def _go_up(self, path: str) -> None:
        """Leave the directories that are not on the way to a path; what is done gets its mode and time."""
        while (
            self._way[-1].path
            and self._way[-1].path != path
            and not path.startswith(self._way[-1].path + "/")
        ):
            left = self._way.pop()
            if self._made <= len(self._way):
                continue
            self._made -= 1
            above = self._open(self._way[-1].path)
            os.fchmod(self._place, left.mode)
            os.utime(self._place, ns=(left.mtime, left.mtime))
            os.close(self._place)
            self._place = above

    def _directory(self) -> int:
        """Return a descriptor of the directory that the writer is in, made if need be."""
        while self._made < len(self._way):
            directory = self._way[self._made]
            self._record("directory", directory.path, directory.mode, sorted(directory.attributes.items()))
            name = self._name(directory.path)
            os.mkdir(name, 0o700, dir_fd=self._place)
            below = os.open(
                name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._place
            )
            os.close(self._place)
            self._place = below
            self._made += 1
            _set_attributes(below, directory.attributes)
        return self._place

    def _open(self, path: str) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        return syscalls.openat2(self._root, path[1:] or ".", flags, _INSIDE)

    # What is in them

    def _file(self, item: Item) -> None:
        source = overlay.open_file(item.place, item.name)
        if source is None:
            return
        try:
            status = os.fstat(source)
            if item.layer and self._link_committed(item):
                return
            identity = (item.layer, status.st_dev, status.st_ino)
            known = self._known.get(identity) if status.st_nlink > 1 else None
            if known is not None:
                self._record("same", item.path, known)
                os.link(known[1:], self._name(item.path), src_dir_fd=self._root, dst_dir_fd=self._directory())
                return
            self._known.update({identity: item.path} if status.st_nlink > 1 else {})
            self._copy(item, source, status)
        finally:
            os.close(source)

    def _link_committed(self, item: Item) -> bool:
        """Have a file of the committed layer in this one, too: nobody ever writes to either."""
        try:
            os.link(
                item.name,
                self._name(item.path),
                src_dir_fd=item.place,
                dst_dir_fd=self._directory(),
                follow_symlinks=False,
            )
        except OSError as error:
            if error.errno in (errno.EMLINK, errno.EPERM, errno.EXDEV):
                return False
            raise
        self._record("committed", item.path, self._committed)
        return True

    def _copy(self, item: Item, source: int, status: os.stat_result) -> None:
        mode = SINGLE.mode(stat.S_IMODE(status.st_mode))
        attributes = overlay.attributes(source)
        self._record("file", item.path, mode, status.st_size, status.st_mtime_ns, sorted(attributes.items()))
        descriptor = os.open(self._name(item.path), _NEW, 0o600, dir_fd=self._directory())
        try:
            for start, end in overlay.extents(source):
                self._digest.update(b"%d-%d:" % (start, end))
                while start < end and (piece := os.pread(source, min(_PIECE, end - start), start)):
                    self._digest.update(piece)
                    written = os.pwrite(descriptor, piece, start)
                    start += (
                        written if written == len(piece) else self._rest(descriptor, piece, start, written)
                    )
            os.ftruncate(descriptor, status.st_size)
            _set_attributes(descriptor, attributes)
            os.fchmod(descriptor, mode)
            os.utime(descriptor, ns=(status.st_mtime_ns, status.st_mtime_ns))
        finally:
            os.close(descriptor)

    @staticmethod
    def _rest(descriptor: int, piece: bytes, start: int, written: int) -> int:
        while written < len(piece):
            written += os.pwrite(descriptor, piece[written:], start + written)
        return written

    def _set_time(self, item: Item, status: os.stat_result) -> None:
        times = (status.st_mtime_ns, status.st_mtime_ns)
        os.utime(self._name(item.path), ns=times, dir_fd=self._directory(), follow_symlinks=False)

    @staticmethod
    def _name(path: str) -> str:
        return path.rpartition("/")[2]

    def _record(self, *fields: object) -> None:
        """Have something in the digest, and count it."""
        self._count += 1
        if self._count > _MOST:
            raise CoopError(
                f"the session has changed more than {_MOST} files", "a layer has no room for them"
            )
        self._digest.update(ascii(fields).encode() + b"\n")


def _set_attributes(descriptor: int, attributes: dict[str, bytes]) -> None:
    for name, value in attributes.items():
        try:
            os.setxattr(descriptor, name, value)
        except OSError as error:
            # A file system without them, or without room for one of this size.
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSPC, errno.E2BIG, errno.ERANGE):
                raise
