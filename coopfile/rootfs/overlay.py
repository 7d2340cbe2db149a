"""What the upper layers of an overlay change in those below, read from their directories, without a mount.

The format is the kernel's, mounted with ``userxattr``: what is added or changed is there in full, what is
deleted is a whiteout (a character device 0:0), and a directory in the place of another is opaque. Without
privileges the kernel makes neither redirects nor files without their data. Source:
Documentation/filesystems/overlayfs.rst.

A command may write what is in the highest layer, and may do so meanwhile. So nothing is ever named by
more than a descriptor and one name, or by a path below a root that the kernel keeps from leading out
(openat2); what vanishes meanwhile is as if it had never been there, and nothing that could make a reader
wait is opened. Memory is bounded by the names in the directories on one path.
"""

from __future__ import annotations

import errno
import os
import stat

from coopfile.errors import CoopError
from coopfile.native import syscalls
from coopfile.native.upper import stamp
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coopfile.native.upper import Stamp

ADDED, CHANGED, DELETED = "added", "changed", "deleted"
DEEPEST = 256  # names that a path may have, as in an image
_LONGEST = 4000  # bytes of a path: the kernel takes 4095

_BELOW = syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS | 0x08 | 0x01  # BENEATH, NO_XDEV
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OPAQUE = "user.overlay.opaque"
_OWN = ("user.overlay.", "trusted.overlay.")
_PIECE = 1 << 20
_VANISHED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.ESTALE)
_TYPES = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
}


class Change(Record):
    """One difference.

    ``type`` is file, directory, link, pipe, socket or device; of what is deleted, what it was. ``was`` is the
    type before, where another stands there now. ``size`` and ``before`` are bytes of a file; ``before`` is
    the sum of all files below a directory that is gone. Modes are permission bits, and None on the side
    where there is nothing.
    """

    kind: str
    path: str
    type: str
    size: int | None = None
    before: int | None = None
    was: str | None = None
    mode: int | None = None
    mode_before: int | None = None


class Item(Record):
    """One thing that was seen in upper layers, valid until the next one is asked for.

    ``change`` is None for a directory that only leads to others, and for a file that was only touched.
    ``place`` is a descriptor of the directory that it is in and ``name`` its name there; of a directory
    ``place`` is its own and there is no name. ``layer`` is its number among the upper ones, from 0, the
    highest. ``below`` is the same for what was there before. ``enters`` tells that what follows until
    the next directory is in this one, ``deep`` that there are more directories in it than are looked into.
    """

    path: str
    change: Change | None
    layer: int = 0
    place: int = -1
    name: str = ""
    below: tuple[int, str] | None = None
    enters: bool = False
    deep: bool = False


class _Side(Record):
    """Something in a stack of layers.

    ``layers`` are the numbers of those that it is in: for a directory all whose directories are merged.
    ``place`` is a descriptor of what it is in, in the highest of them. ``covers`` tells that what is in
    further layers does not show through.
    """

    layers: tuple[int, ...] = ()
    status: os.stat_result | None = None
    place: int = -1
    covers: bool = False

    @property
    def is_directory(self) -> bool:
        return self.status is not None and stat.S_ISDIR(self.status.st_mode)


class _Frame(Record):
    """A directory to be looked into: in which layers of each side it is, and if the lower are covered."""

    path: str
    upper: tuple[int, ...]
    lower: tuple[int, ...]
    covered: bool
    change: Change | None


_NOTHING = _Side()


def compare(
    upper: Sequence[int], lower: Sequence[int], made: Mapping[str, Stamp] | None = None
) -> Iterator[Item]:
    """Yield what layers change in others, each stack given by descriptors, the highest first.

    A directory comes before what is in it, and what is in it in order: first all but directories, then
    each of those. ``made`` is what counts as unchanged in the highest layer (``native.upper``). Raises
    CoopError and OSError.
    """
    pending = [_Frame("", tuple(range(len(upper))), tuple(range(len(lower))), False, None)]
    while pending:
        frame = pending.pop()
        above = _opened(upper, frame.upper, frame.path)
        below = _opened(lower, frame.lower, frame.path)
        try:
            if not above:
                continue  # vanished
            layer, place = above[0]
            yield Item(frame.path or "/", frame.change, layer, place, enters=True)
            inner: list[_Frame] = []
            for name in _names(above, below if frame.covered else ()):
                yield from _one(frame, above, below, name, made or {}, inner, lower)
            pending += reversed(inner)
        finally:
            for _, descriptor in (*above, *below):
                os.close(descriptor)


def is_whiteout(status: os.stat_result) -> bool:
    """Tell whether this is what overlayfs leaves in the place of something deleted."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def open_file(place: int, name: str) -> int | None:
    """Open a regular file without waiting for anything; None if it is none any more."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=place)
    except OSError as error:
        if error.errno in (*_VANISHED, errno.ENXIO):
            return None
        raise CoopError(f"{name} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return descriptor


def attributes(descriptor: int) -> dict[str, bytes]:
    """Return the extended attributes that are the user's, not overlayfs's."""
    try:
        names = [
            name
            for name in os.listxattr(descriptor)
            if name.startswith("user.") and not name.startswith(_OWN)
        ]
        return {name: os.getxattr(descriptor, name) for name in sorted(names)}
    except OSError:
        return {}  # a file system without them, or one is removed meanwhile


def extents(descriptor: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of every part of a file that is no hole: lseek(2), SEEK_DATA."""
    end = 0
    size = os.fstat(descriptor).st_size
    while end < size:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return  # nothing but a hole, or it was cut meanwhile
        yield start, end


def _one(
    frame: _Frame,
    above: Sequence[tuple[int, int]],
    below: Sequence[tuple[int, int]],
    name: str,
    made: Mapping[str, Stamp],
    inner: list[_Frame],
    lower: Sequence[int],
) -> Iterator[Item]:
    """Yield what there is to say of one name, and add to ``inner`` the directory that it is."""
    path = f"{frame.path}/{name}"
    new, old = _look(above, name), _look(below, name)
    gone = None if old.status is None else (old.place, name)
    if new.status is None:
        if old.status is not None and (new.covers or frame.covered):
            kind = _type(old.status)
            size = _size(old.status) if not old.is_directory else _total(lower, old.layers, path)
            yield Item(
                path, Change(DELETED, path, kind, before=size, mode_before=_mode(old.status)), below=gone
            )
        return
    try:
        own = new.layers[0] == 0 and path in made and made[path] == stamp(new.place, name, new.status)
        change = None if own else _change(path, name, new, old, lower)
    except OSError as error:
        if error.errno in (*_VANISHED, errno.EINVAL):  # replaced by something else, such as a link
            return
        raise
    if not new.is_directory:
        touched = old.status is not None and old.status.st_mtime_ns != new.status.st_mtime_ns
        if change is not None or (touched and not own):
            yield Item(path, change, new.layers[0], new.place, name, gone)
        return
    if len(path.encode(errors="surrogateescape")) > _LONGEST or path.count("/") > DEEPEST:
        yield Item(path, change, new.layers[0], new.place, name, gone, deep=True)
        return
    below_it = old.layers if old.is_directory else ()
    inner.append(_Frame(path, new.layers, below_it, new.covers or frame.covered, change))


def _change(path: str, name: str, new: _Side, old: _Side, lower: Sequence[int]) -> Change | None:
    assert new.status is not None
    kind, size, mode = _type(new.status), _size(new.status), _mode(new.status)
    if old.status is None:
        return Change(ADDED, path, kind, size, mode=mode)
    was = _type(old.status)
    before = _size(old.status)
    if was != kind:
        if old.is_directory:
            before = _total(lower, old.layers, path)
        return Change(CHANGED, path, kind, size, before, was, mode, _mode(old.status))
    if mode == _mode(old.status) and _same(name, new, old):
        return None
    return Change(CHANGED, path, kind, size, before, None, mode, _mode(old.status))


def _same(name: str, new: _Side, old: _Side) -> bool:
    """Tell whether two things of one type and mode are the same, but for their times."""
    assert new.status is not None and old.status is not None
    mode = new.status.st_mode
    if stat.S_ISLNK(mode):
        return os.readlink(name, dir_fd=new.place) == os.readlink(name, dir_fd=old.place)
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return True
    if stat.S_ISREG(mode) and new.status.st_size != old.status.st_size:
        return False
    opened = []
    try:
        for side in (new, old):
            found = open_file(side.place, name) if stat.S_ISREG(mode) else _child(side.place, name)
            if found is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            opened.append(found)
        if attributes(opened[0]) != attributes(opened[1]):
            return False
        return stat.S_ISDIR(mode) or _same_content(*opened)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _same_content(one: int, other: int) -> bool:
    """Compare two files, and only those parts of them where one has data."""
    for this, that in ((one, other), (other, one)):
        for start, end in extents(this):
            while start < end:
                piece = os.pread(this, min(_PIECE, end - start), start)
                if not piece:
                    return False  # it was cut meanwhile
                if piece != os.pread(that, len(piece), start):
                    return False
                start += len(piece)
    return True


def _names(above: Sequence[tuple[int, int]], below: Sequence[tuple[int, int]]) -> list[str]:
    return sorted({name for _, descriptor in (*above, *below) for name in os.listdir(descriptor)})


def _look(opened: Sequence[tuple[int, int]], name: str) -> _Side:
    """Return what a name is in some directories, the highest first, that are merged."""
    layers: tuple[int, ...] = ()
    first, place = None, -1
    for layer, descriptor in opened:
        try:
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:
            continue
        is_directory = stat.S_ISDIR(status.st_mode)
        if is_whiteout(status) or (layers and not is_directory):
            return _Side(layers, first, place, True)
        if not layers:
            first, place = status, descriptor
        layers += (layer,)
        if not is_directory or _is_opaque(descriptor, name):
            return _Side(layers, first, place, True)
    return _Side(layers, first, place, False) if layers else _NOTHING


def _is_opaque(directory: int, name: str) -> bool:
    descriptor = _child(directory, name)
    if descriptor is None:
        return False
    try:
        return os.getxattr(descriptor, _OPAQUE) == b"y"
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _child(directory: int, name: str) -> int | None:
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except OSError as error:
        if error.errno in _VANISHED:
            return None
        raise CoopError(f"the directory {name} cannot be read: {error.strerror}") from None


def _opened(roots: Sequence[int], layers: Sequence[int], path: str) -> list[tuple[int, int]]:
    """Open a directory in each layer that has it, by its path."""
    found: list[tuple[int, int]] = []
    try:
        for layer in layers:
            try:
                descriptor = syscalls.openat2(roots[layer], path[1:] or ".", _DIRECTORY, _BELOW)
            except OSError as error:
                if error.errno in _VANISHED:
                    continue
                raise CoopError(f"{path or '/'} cannot be read: {error.strerror}") from None
            found.append((layer, descriptor))
    except BaseException:
        for _, descriptor in found:
            os.close(descriptor)
        raise
    return found


def _total(roots: Sequence[int], layers: Sequence[int], path: str) -> int:
    """Return the bytes of all files below a directory of some layers that are merged."""
    total = 0
    pending = [(path, tuple(layers))]
    while pending:
        path, inner = pending.pop()
        opened = _opened(roots, inner, path)
        try:
            for name in _names(opened, ()):
                side = _look(opened, name)
                if side.is_directory:
                    pending.append((f"{path}/{name}", side.layers))
                elif side.status is not None:
                    total += _size(side.status) or 0
        finally:
            for _, descriptor in opened:
                os.close(descriptor)
    return total


def _type(status: os.stat_result) -> str:
    return _TYPES.get(stat.S_IFMT(status.st_mode), "device")


def _size(status: os.stat_result) -> int | None:
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _mode(status: os.stat_result) -> int | None:
    return None if stat.S_ISLNK(status.st_mode) else stat.S_IMODE(status.st_mode)
