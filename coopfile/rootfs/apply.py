"""One archive after the other, applied to a directory.

What layers say is taken as docker and podman take it (the OCI image specification's
layer.md): an entry replaces what was at its path unless both are directories; a
whiteout removes what lower layers have, never what its own layer has, wherever it
stands in the archive. A parent that is a link is followed as if the directory were
the root of the file system.

Never made, and counted instead: devices (a sandbox has a /dev of its own, and overlayfs
takes a character device 0:0 for a whiteout) and extended attributes that mean something
to the kernel (overlayfs obeys trusted.overlay.* and user.overlay.*).
"""

from __future__ import annotations

import errno
import os

from coopfile.rootfs import tar
from coopfile.rootfs.damage import DamagedError, shown
from coopfile.rootfs.inside import Inside, Metadata, join

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from coopfile.rootfs.layers import Limits
    from coopfile.rootfs.owners import Owners

_WHITEOUT = b".wh."
_OPAQUE = b".wh..wh..opq"
_AUFS = b".wh..wh."  # what the aufs driver kept for itself
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_IMPLICIT = 0o755
# What a file system says that has no attributes, or no room for one of this size.
_UNKEPT = (errno.EOPNOTSUPP, errno.EPERM, errno.ENOSPC, errno.E2BIG, errno.ERANGE)


class Image:
    """The directory while layers are applied to it."""

    def __init__(self, root: str, owners: Owners, limits: Limits) -> None:
        self.counts = {"entries": 0, "devices": 0, "attributes": 0, "owners": 0, "set_ids": 0}
        self.current = b""
        """The name of the entry being unpacked, for messages."""
        self.changing_owner = ""
        self._owners = owners
        self._limits = limits
        self._layer = 0
        self._inside = Inside(root, Metadata(_IMPLICIT, 0, 0, 0, (), 0), limits)
        self._written: set[bytes] = set()  # real paths of this layer, with every directory above
        self._noted = 0  # bytes of them
        self._hidden: set[bytes] = set()  # real paths of directories that hold this layer's files only
        self._masked = self._inside.masked | 0o7000  # bits that open(2) would not set
        self._apply_kind = {
            tar.FILE: self._file,
            tar.HARD_LINK: self._hard_link,
            tar.SYMBOLIC_LINK: self._symbolic_link,
            tar.DIRECTORY: self._directory,
            tar.FIFO: self._fifo,
            tar.CHARACTER: self._device,
            tar.BLOCK: self._device,
        }

    def close(self) -> None:
        """Close the directory."""
        self._inside.close()

    def apply(self, layer: int, chunks: Iterator[bytes]) -> None:
        """Unpack one archive over what is there."""
        self._layer = layer
        self.current = b""
        self._written = set()
        self._inside.keep(-self._noted)
        self._noted = 0
        self._hidden = set()
        reader = self._reader = tar.Reader(chunks, self._limits)
        while True:
            entry = reader.next()
            if entry is None:
                break
            self._entry(entry)
        for _ in chunks:  # the digest is also that of what follows the archive
            pass
        self.counts["entries"] += reader.entries
        if self.counts["entries"] > self._limits.entries:
            raise DamagedError(f"the image has more than {self._limits.entries} entries")

    def _entry(self, entry: tar.Entry) -> None:
        self.current = entry.name
        path = _clean(entry.name)
        if path.count(b"/") >= self._limits.depth:
            raise DamagedError(f"{shown(path)} is more than {self._limits.depth} directories deep")
        directory, _, name = path.rpartition(b"/")
        if _WHITEOUT in path and self._whiteout(directory, name):
            return
        if not path:
            if entry.kind != tar.DIRECTORY:
                raise DamagedError("its root is no directory")
            self._inside.directories[b""] = self._metadata(entry)
            return
        real = self._inside.resolve(directory, self._implicit(entry.mtime))
        assert real is not None
        path = join(real, name)
        if self._layer:
            self._note(path)
        self._apply_kind[entry.kind](entry, real, name, path)

    def _note(self, path: bytes) -> None:
        """Remember that a path is this layer's, and that every directory above it is in use."""
        written = self._written
        while path and path not in written:
            written.add(path)
            self._noted += len(path)
            self._inside.keep(len(path))
            path = path.rpartition(b"/")[0]

    # Entries

    def _file(self, entry: tar.Entry, directory: bytes, name: bytes, path: bytes) -> None:
        mode = self._mode(entry)
        first = 0o600 if entry.xattrs else mode & 0o777  # only who may write can set attributes
        try:
            descriptor = os.open(name, _NEW, first, dir_fd=self._inside.descriptor(directory))
        except FileExistsError:
            self._inside.remove(path)
            descriptor = os.open(name, _NEW, first, dir_fd=self._inside.descriptor(directory))
        try:
            if entry.sparse is None:
                self._copy(descriptor, entry.stored)
            else:
                for offset, length in entry.sparse:
                    os.lseek(descriptor, offset, os.SEEK_SET)
                    self._copy(descriptor, length)
                os.ftruncate(descriptor, entry.size)
            self._give(entry.uid, entry.gid, descriptor)
            if entry.xattrs:
                self._set_xattrs(descriptor, entry.xattrs)
            if mode & self._masked or mode != first:
                os.fchmod(descriptor, mode)
            os.utime(descriptor, ns=(entry.mtime, entry.mtime))
        finally:
            os.close(descriptor)

    def _copy(self, descriptor: int, left: int) -> None:
        read = self._reader.read
        while left:
            piece = read(left)
            written = os.write(descriptor, piece)
            left -= len(piece)
            while written < len(piece):
                piece = piece[written:]
                written = os.write(descriptor, piece)

    def _directory(self, entry: tar.Entry, directory: bytes, name: bytes, path: bytes) -> None:
        if path in self._inside.directories:
            self._inside.directories[path] = self._metadata(entry)
            return
        try:
            self._inside.make(directory, name, self._metadata(entry))
        except FileExistsError:
            self._inside.remove(path)
            self._inside.make(directory, name, self._metadata(entry))

    def _symbolic_link(self, entry: tar.Entry, directory: bytes, name: bytes, path: bytes) -> None:
        if not entry.link:
            raise DamagedError(f"{shown(path)} is a link to nothing")
        try:
            os.symlink(entry.link, name, dir_fd=self._inside.descriptor(directory))
        except FileExistsError:
            self._inside.remove(path)
            os.symlink(entry.link, name, dir_fd=self._inside.descriptor(directory))
        self._finish_special(entry, self._inside.descriptor(directory), name)

    def _hard_link(self, entry: tar.Entry, directory: bytes, name: bytes, path: bytes) -> None:
        there, _, source = _clean(entry.link).rpartition(b"/")
        real = self._inside.resolve(there, None)
        target = join(real, source) if real is not None else None
        if target is None or not source:
            raise DamagedError(f"{shown(path)} is a hard link to {shown(entry.link)}, which is not there")
        if target == path:
            return
        try:
            self._link(real or b"", source, directory, name)
        except FileExistsError:
            self._inside.remove(path)
            try:
                self._link(real or b"", source, directory, name)
            except FileNotFoundError:
                raise DamagedError(f"{shown(path)} replaces what it is a hard link to") from None
        except FileNotFoundError:
            raise DamagedError(
                f"{shown(path)} is a hard link to {shown(entry.link)}, which is not there"
            ) from None
        except PermissionError:
            if target in self._inside.directories:
                raise DamagedError(f"{shown(path)} is a hard link to a directory") from None
            raise

    def _link(self, from_directory: bytes, source: bytes, directory: bytes, name: bytes) -> None:
        source_place, place = self._inside.descriptor(from_directory), self._inside.descriptor(directory)
        os.link(source, name, src_dir_fd=source_place, dst_dir_fd=place, follow_symlinks=False)

    def _fifo(self, entry: tar.Entry, directory: bytes, name: bytes, path: bytes) -> None:
        try:
            os.mkfifo(name, 0o600, dir_fd=self._inside.descriptor(directory))
        except FileExistsError:
            self._inside.remove(path)
            os.mkfifo(name, 0o600, dir_fd=self._inside.descriptor(directory))
        self._finish_special(entry, self._inside.descriptor(directory), name)
        self._inside.chmod(directory, name, self._mode(entry))

    def _device(self, entry: tar.Entry, directory: bytes, name: bytes, path: bytes) -> None:
        self._inside.remove(path)
        self.counts["devices"] += 1

    def _finish_special(self, entry: tar.Entry, place: int, name: bytes) -> None:
        """Set what a link or a FIFO has besides its mode."""
        self.counts["attributes"] += len(entry.xattrs)
        self._give(entry.uid, entry.gid, name, place)
        os.utime(name, ns=(entry.mtime, entry.mtime), dir_fd=place, follow_symlinks=False)

    # Whiteouts

    def _whiteout(self, directory: bytes, name: bytes) -> bool:
        """Act on a name that is not a file's; tell whether this is one."""
        parts = directory.split(b"/") if directory else []
        if (name.startswith(_AUFS) and name != _OPAQUE) or any(part.startswith(_AUFS) for part in parts):
            return True
        if any(part.startswith(_WHITEOUT) for part in parts):
            raise DamagedError(f"{shown(join(directory, name))} is in a directory whose name is a whiteout's")
        if not name.startswith(_WHITEOUT):
            return False
        hidden = name[len(_WHITEOUT) :]
        if hidden in (b"", b".", b".."):
            raise DamagedError(f"{shown(join(directory, name))} is a whiteout of nothing")
        real = self._inside.resolve(directory, None) if self._layer else None
        if real is None:
            return True
        if name == _OPAQUE:
            self._hide_below(real)
        else:
            self._hide(join(real, hidden))
        return True

    def _hide(self, path: bytes) -> None:
        """Remove what lower layers have at a path, and leave what this one has."""
        if path not in self._written:
            self._inside.remove(path)
            return
        metadata = self._inside.directories.get(path)
        if metadata is None:
            return
        if metadata.layer != self._layer:
            # It was made again by what is below it, as if the whiteout had come first.
            self._inside.directories[path] = self._implicit(metadata.mtime)
        self._hide_below(path)

    def _hide_below(self, path: bytes) -> None:
        if path not in self._hidden:  # once is enough, and a hostile layer might ask for it a million times
            self._hidden.add(path)
            for child in self._inside.names(path):
                self._hide(join(path, child))

    # Metadata

    def _metadata(self, entry: tar.Entry) -> Metadata:
        if entry.xattrs:
            self._inside.keep(sum(len(name) + len(value) for name, value in entry.xattrs))
        return Metadata(entry.mode, entry.uid, entry.gid, entry.mtime, entry.xattrs, self._layer)

    def _implicit(self, mtime: int) -> Metadata:
        return Metadata(_IMPLICIT, 0, 0, mtime, (), self._layer)

    def _mode(self, entry: tar.Entry) -> int:
        mode = self._owners.mode(entry.mode)
        self.counts["set_ids"] += mode != entry.mode
        return mode

    def _give(self, uid: int, gid: int, path: int | bytes, place: int | None = None) -> None:
        """Give a file to its owner, if that is done here."""
        if self._owners.kept:
            self.changing_owner = f"{uid}:{gid}"
            os.chown(path, uid, gid, dir_fd=place, follow_symlinks=place is None)
            self.changing_owner = ""
        elif uid or gid:
            self.counts["owners"] += 1

    def _set_xattrs(self, descriptor: int, xattrs: tuple[tuple[bytes, bytes], ...]) -> None:
        for name, value in xattrs:
            try:
                if self._owners.attribute(name):
                    os.setxattr(descriptor, name, value)
                    continue
            except OSError as error:
                if error.errno not in _UNKEPT:
                    raise
            self.counts["attributes"] += 1

    def finish(self) -> None:
        """Give directories their modes, owners and times, the deepest first."""
        for path, metadata in sorted(self._inside.directories.items(), reverse=True):
            self.current = path
            descriptor = self._inside.opened(path)
            try:
                self._give(metadata.uid, metadata.gid, descriptor)
                if metadata.xattrs:
                    self._set_xattrs(descriptor, metadata.xattrs)
                os.fchmod(descriptor, metadata.mode)
                os.utime(descriptor, ns=(metadata.mtime, metadata.mtime))
            finally:
                os.close(descriptor)


def _clean(name: bytes) -> bytes:
    """Return a name from an archive as a relative path without dots; raises DamagedError if it leads out."""
    path = name[2:] if name[:2] == b"./" else name
    path = path[:-1] if path[-1:] == b"/" else path
    if path and b"//" not in path and b"/." not in path and path[0] not in b"/.":
        return path
    parts: list[bytes] = []
    for part in name.split(b"/"):
        if part == b"..":
            if not parts:
                raise DamagedError(f"{shown(name)} leads out of the image")
            parts.pop()
        elif part not in (b"", b"."):
            parts.append(part)
    return b"/".join(parts)
