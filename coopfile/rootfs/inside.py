"""A tree that is being made: its directories, and paths in it that cannot leave it.

Only this process writes the tree, so its directories are known without asking the
kernel. Still every one is opened below the root's own descriptor in a way that follows
no link (openat2), and nothing is ever named by more than a directory's descriptor and
one name: if what is known were wrong, a path would fail, not lead outside.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from coopfile.native import syscalls
from coopfile.rootfs.damage import DamagedError, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.rootfs.layers import Limits

_RESOLVE = syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS | 0x08 | 0x01  # BENEATH, NO_XDEV
_OPEN = 64  # directories kept open
_LINKS = 40  # as many as the kernel follows
_STEPS = 2048  # names on the way, those in the links included


class Metadata(NamedTuple):
    """What a directory gets when everything in it is done. ``layer`` is the one that said so, from 0."""

    mode: int
    uid: int
    gid: int
    mtime: int
    xattrs: tuple[tuple[bytes, bytes], ...]
    layer: int


class Inside:
    """The tree below ``root``, a new directory. Paths are bytes, relative to it; b"" is itself.

    A *real* path is one without links: every name but its last is a directory.
    """

    def __init__(self, root: str, metadata: Metadata, limits: Limits) -> None:
        self.directories = {b"": metadata}
        """Every directory there is, by its real path."""
        self.masked = _masked()
        self._limits = limits
        self._kept = 0
        self._root = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._open: dict[bytes, int] = {}

    def keep(self, count: int) -> None:
        """Count bytes that stay in memory, fewer than none when they do no more. Raises DamagedError."""
        self._kept += count
        if self._kept > self._limits.memory:
            most = self._limits.memory
            raise DamagedError(f"its paths and its directories' attributes have more than {most} bytes")

    def close(self) -> None:
        """Close every descriptor."""
        self._forget_all()
        os.close(self._root)

    def descriptor(self, path: bytes) -> int:
        """Return a descriptor (O_PATH) of a directory by its real path, for use before a few dozen others."""
        if not path:
            return self._root
        found = self._open.pop(path, -1)
        if found < 0:
            while len(self._open) >= _OPEN:
                os.close(self._open.pop(next(iter(self._open))))
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
            found = syscalls.openat2(self._root, os.fsdecode(path), flags, _RESOLVE)
        self._open[path] = found
        return found

    def resolve(self, path: bytes, new: Metadata | None) -> bytes | None:
        """Return the real path of a directory, following links as if the tree were the root directory.

        What is missing is made if ``new`` is given; otherwise None means that there is
        no such directory. Raises DamagedError if there is something else.
        """
        if path in self.directories:
            return path
        real, links, steps = b"", 0, 0
        names = path.split(b"/")[::-1]
        while names:
            name = names.pop()
            steps += 1
            if steps > _STEPS or links > _LINKS:
                raise DamagedError(f"{shown(path)} leads through too many links")
            if name in (b"", b"."):
                continue
            if name == b"..":
                real = real.rpartition(b"/")[0]
                continue
            below = join(real, name)
            if below in self.directories:
                real = below
                continue
            try:
                target = os.readlink(name, dir_fd=self.descriptor(real))
            except FileNotFoundError:
                if new is None:
                    return None
                self.make(real, name, new)
                real = below
                continue
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                if new is None:
                    return None
                raise DamagedError(f"{shown(below)} is to hold files and is no directory") from None
            links += 1
            if target.startswith(b"/"):
                real = b""
            names += target.split(b"/")[::-1]
        return real

    def make(self, directory: bytes, name: bytes, metadata: Metadata) -> None:
        """Make a directory that is not there, in one given by its real path."""
        path = join(directory, name)
        if path.count(b"/") >= self._limits.depth:
            raise DamagedError(f"{shown(path)} is more than {self._limits.depth} directories deep")
        if len(self.directories) > self._limits.entries:
            raise DamagedError(f"it has more than {self._limits.entries} directories")
        self.keep(len(path))
        os.mkdir(name, 0o700, dir_fd=self.descriptor(directory))
        if self.masked & 0o700:
            self.chmod(directory, name, 0o700)
        self.directories[path] = metadata

    def chmod(self, directory: bytes, name: bytes, mode: int) -> None:
        """Change the mode of what may not be opened, or not without an effect; it must not be a link."""
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=self.descriptor(directory))
        try:
            os.chmod(f"/proc/self/fd/{descriptor}", mode)  # which the kernel refuses for links
        finally:
            os.close(descriptor)

    def remove(self, path: bytes) -> None:
        """Remove what is at a real path, with everything below it; it may be missing."""
        directory, _, name = path.rpartition(b"/")
        if path in self.directories:
            for child in self.names(path):
                self.remove(join(path, child))
            self._forget(path)
            os.rmdir(name, dir_fd=self.descriptor(directory))
            del self.directories[path]
        else:
            try:
                os.unlink(name, dir_fd=self.descriptor(directory))
            except FileNotFoundError:
                pass

    def names(self, path: bytes) -> list[bytes]:
        """Return the names in a directory."""
        descriptor = self.opened(path)
        try:
            return [os.fsencode(name) for name in os.listdir(descriptor)]
        finally:
            os.close(descriptor)

    def opened(self, path: bytes) -> int:
        """Return a new descriptor of a directory, for the caller to read, change and close."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        return os.open(".", flags, dir_fd=self.descriptor(path))

    def _forget(self, path: bytes) -> None:
        descriptor = self._open.pop(path, -1)
        if descriptor >= 0:
            os.close(descriptor)

    def _forget_all(self) -> None:
        for path in list(self._open):
            self._forget(path)


def join(directory: bytes, name: bytes) -> bytes:
    """Return the path of a name in a directory."""
    return directory + b"/" + name if directory else name


def _masked() -> int:
    """Return the bits of a mode that this process's umask takes away, or may."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass
    return 0o777
