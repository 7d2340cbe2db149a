"""Whole directory trees: removing one whatever its modes say, and telling whether one has changed."""

from __future__ import annotations

import errno
import hashlib
import os
import stat

from coopfile.native import syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_PATH = os.O_PATH | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SAME_MOUNT = syscalls.RESOLVE_NO_SYMLINKS | 0x08 | 0x01  # BENEATH, NO_XDEV
_DEEP = 64  # directories open at once
_TRIES = 10  # at a directory that somebody else changes
_CHANGED = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)


def remove_tree(path: str) -> None:
    """Remove a file or a directory with everything in it; nothing happens if it is not there.

    Directories that the caller owns are opened up first, whatever their modes are.
    Links are not followed and other mounts not entered, even if somebody changes the
    tree meanwhile. Raises the first OSError, after removing what can be removed.
    """
    above, name = os.path.split(os.path.abspath(path))
    if not name:
        raise ValueError("the root directory is not to be removed")
    directory = os.open(above, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _Removal(directory, name).run()
    finally:
        os.close(directory)


class _Removal:
    """One tree being removed. Its top directory takes in what is too deep, so that few are open at once."""

    def __init__(self, above: int, name: str) -> None:
        self._above = above
        self._name = name
        self._top = -1
        self._moved = 0
        self._failure: OSError | None = None

    def run(self) -> None:
        try:
            os.unlink(self._name, dir_fd=self._above)
            return
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError) as error:
            try:
                self._top = _opened(self._above, self._name)
            except NotADirectoryError:
                raise error from None
        try:
            tries = 0
            while tries < _TRIES:
                self._failure, moved = None, self._moved
                self._empty(self._top, 1)
                tries += moved == self._moved  # what was too deep is now at the top
                try:
                    os.rmdir(self._name, dir_fd=self._above)
                    return
                except FileNotFoundError:
                    return
                except OSError as error:
                    self._failure = self._failure or error
                    if self._failure.errno not in _CHANGED:
                        break
        finally:
            os.close(self._top)
        assert self._failure is not None
        raise self._failure

    def _empty(self, directory: int, depth: int) -> None:
        """Remove what is in an open directory, as far as that is possible."""
        with os.scandir(directory) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, is_directory in found:
            try:
                if is_directory:
                    self._remove_directory(directory, name, depth)
                else:
                    os.unlink(name, dir_fd=directory)
            except FileNotFoundError:
                pass
            except OSError as error:
                if self._failure is None:
                    self._failure = error

    def _remove_directory(self, parent: int, name: str, depth: int) -> None:
        try:
            os.rmdir(name, dir_fd=parent)  # an empty one need not be opened
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        descriptor = _opened(parent, name)
        try:
            if depth >= _DEEP:
                self._lift(parent, name)
                return
            self._empty(descriptor, depth + 1)
        finally:
            os.close(descriptor)
        os.rmdir(name, dir_fd=parent)

    def _lift(self, parent: int, name: str) -> None:
        """Move a directory to the top, where the next round finds it."""
        while True:
            self._moved += 1
            try:
                os.rename(name, f".coop-removal-{self._moved}", src_dir_fd=parent, dst_dir_fd=self._top)
                return
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise


def _opened(parent: int, name: str) -> int:
    """Open a directory for reading and writing, after changing its mode if need be."""
    place = syscalls.openat2(parent, name, _PATH | os.O_DIRECTORY, _SAME_MOUNT)
    try:
        if os.fstat(place).st_uid == os.geteuid() and os.fstat(place).st_mode & 0o700 != 0o700:
            # The kernel takes no mode through O_PATH; this link is the same file and no other.
            os.chmod(f"/proc/self/fd/{place}", 0o700)
        return os.open(".", _READ, dir_fd=place)
    finally:
        os.close(place)


def fingerprint(root: str, *, times: bool = True) -> str:
    """Return a digest of everything in a tree, in hexadecimal.

    That is, for the root and for every path below it: name, type, mode, owner, size,
    content or target, device number, extended attributes, which paths are one file,
    and with ``times`` when it was modified. Raises OSError for what cannot be read.
    """
    digest = hashlib.sha256()
    first: dict[tuple[int, int], int] = {}
    for number, (path, parent, name) in enumerate(_walk(root)):
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        same = first.setdefault((status.st_dev, status.st_ino), number)
        fields = [status.st_mode, status.st_uid, status.st_gid, same, status.st_rdev]
        fields += [status.st_mtime_ns] if times else []
        fields += [status.st_size] if not stat.S_ISDIR(status.st_mode) else []
        digest.update(b"%d:%b %b\n" % (len(path), path, " ".join(map(str, fields)).encode()))
        if same == number:
            for content in _contents(parent, name, status.st_mode):
                digest.update(b"%d:" % len(content))
                digest.update(content)
    return digest.hexdigest()


def _walk(root: str) -> Iterator[tuple[bytes, int | None, bytes]]:
    """Yield every path below the root, in order, with a descriptor and a name to reach it by."""
    yield b"", None, os.fsencode(root)
    for directory, names, files, descriptor in os.fwalk(os.fsencode(root), onerror=_refuse):
        names.sort()
        below = os.path.relpath(directory, os.fsencode(root))
        for name in sorted([*names, *files]):
            yield os.path.join(below, name), descriptor, name


def _refuse(error: OSError) -> None:
    raise error


def _contents(parent: int | None, name: bytes, mode: int) -> Iterator[bytes]:
    """Yield what is in a file, as parts, and its extended attributes."""
    if stat.S_ISLNK(mode):
        yield os.readlink(name, dir_fd=parent)
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        for attribute in sorted(os.listxattr(descriptor)):
            yield attribute.encode(errors="surrogateescape")
            yield os.getxattr(descriptor, attribute)
        while stat.S_ISREG(mode):
            content = os.read(descriptor, 1 << 20)
            yield content
            if not content:
                break
    finally:
        os.close(descriptor)
