"""Files of an image on disk by their names, in a directory or in a tar archive: never one outside it.

A sandboxed command may be changing them. Where it may write it can make links, so none
is followed, not even on the way to the image: one could lead to an image of the
caller's that the sandbox was never given.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import os
import posixpath
import stat
import tarfile
import tempfile
import zlib
from typing import cast

from coopfile.errors import CoopError
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Protocol

    class Files(Protocol):
        """Some files by their relative names."""

        def open(self, name: str) -> Part:
            """Open a file. Raises CoopError."""

        def read(self, name: str, most: int) -> bytes:
            """Return a file that has no more than ``most`` bytes. Raises CoopError."""

        def close(self) -> None:
            """Let go of them; what is open stays so."""


_MOST_MEMBERS = 20_000
_MOST_HEADER = 8 << 10  # bytes; some versions of tarfile take long for long ones (CVE-2024-6232)
_MOST_HEADERS = 32 << 20
_MOST_UNPACKED = 64 << 30
_PIECE = 1 << 20
_LINKS = 8
# Directories on the way need not be readable.
_PLACE = getattr(os, "O_PATH", os.O_RDONLY)


class Part:
    """An open stretch of a file: ``size`` bytes from ``start``."""

    def __init__(self, file: int, start: int, size: int) -> None:
        self.size = size
        self._file = file
        self._start = start
        self._at = 0

    def read(self, most: int) -> bytes:
        """Return the next bytes, none at the end."""
        piece = os.pread(self._file, min(most, self.size - self._at), self._start + self._at)
        self._at += len(piece)
        return piece

    def digest(self, algorithm: str) -> str:
        """Return the digest of all of it as hexadecimal digits."""
        self._at = 0
        found = hashlib.new(algorithm)
        while piece := self.read(_PIECE):
            found.update(piece)
        return found.hexdigest()

    def close(self) -> None:
        """Close it."""
        os.close(self._file)


class DirectoryFiles:
    """The files of a directory, by its absolute path. No link is followed."""

    def __init__(self, path: str) -> None:
        self._path = path
        os.close(_walk(path, _PLACE | os.O_DIRECTORY, "name the directory of an OCI layout"))

    def open(self, name: str) -> Part:
        """Open a file. Raises CoopError."""
        file = _file(f"{self._path}/{name}", None)
        return Part(file, 0, os.fstat(file).st_size)

    def read(self, name: str, most: int) -> bytes:
        """Return a file that has no more than ``most`` bytes. Raises CoopError."""
        return _all(f"{self._path}/{name}", self.open(name), most)

    def close(self) -> None:
        """Do nothing: no file is held."""


class _Headers:
    """An archive of which only headers are read, and tarfile keeps all that it has read."""

    def __init__(self, file: IO[bytes]) -> None:
        self.seek, self.tell = file.seek, file.tell
        self._file = file
        self._left = _MOST_HEADERS

    def read(self, size: int) -> bytes:
        """Return the next bytes; raises ValueError when they are too many for headers."""
        self._left -= size
        if size > _MOST_HEADER or self._left < 0:
            raise ValueError("its headers are too long")
        return self._file.read(size)


class _Member(Record):
    start: int
    size: int
    link: str = ""


class ArchiveFiles:
    """The members of a tar archive, plain or compressed with gzip, by its absolute path.

    No link on the way to it is followed; those among them are, by name, as old archives
    of docker need it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        file = _file(path, "name what docker save or podman save wrote")
        self._file: IO[bytes] = os.fdopen(file, "rb")
        self._members: dict[str, _Member] = {}
        try:
            if self._file.read(2) == b"\x1f\x8b":
                self._unpack()
            self._index()
        except CoopError:
            self._give_up()
            raise
        except (tarfile.TarError, ValueError, OSError, EOFError, RecursionError) as error:
            self._give_up()
            raise CoopError(
                f"{path} is not a tar archive, or not a whole one: {error}",
                "write it again with docker save or podman save; only gzip may compress it",
            ) from None

    def has(self, name: str) -> bool:
        """Tell whether there is a member of a name."""
        return name in self._members

    def open(self, name: str) -> Part:
        """Open a member. Raises CoopError."""
        at = _plain(name)
        for _ in range(_LINKS):
            member = self._members.get(at)
            if member is None or not member.link:
                break
            at = member.link
        if member is None or member.link:
            raise CoopError(
                f"{self._path} holds no {name!r}", "write it again with docker save or podman save"
            )
        return Part(os.dup(self._file.fileno()), member.start, member.size)

    def read(self, name: str, most: int) -> bytes:
        """Return a member that has no more than ``most`` bytes. Raises CoopError."""
        return _all(f"{name} in {self._path}", self.open(name), most)

    def close(self) -> None:
        """Close the archive; what is open stays so."""
        self._file.close()

    def _give_up(self) -> None:
        with contextlib.suppress(OSError):  # where there was no room for all, there is none for the rest
            self.close()

    def _unpack(self) -> None:
        packed = self._file
        total = 0
        try:
            unpacked = self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it takes the archive's place
            with packed, gzip.open(packed) as stream:
                packed.seek(0)
                while piece := stream.read(_PIECE):
                    total += len(piece)
                    if total > _MOST_UNPACKED:
                        raise CoopError(f"{self._path} unpacks to more than {_MOST_UNPACKED >> 30} GiB", None)
                    unpacked.write(piece)
            unpacked.flush()
        except (OSError, EOFError, zlib.error) as error:
            remedy = None
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.ENOENT):
                remedy = "set TMPDIR to a directory with more room"
            raise CoopError(f"{self._path} cannot be decompressed: {error}", remedy) from None

    def _index(self) -> None:
        end = os.fstat(self._file.fileno()).st_size
        self._file.seek(0)
        with tarfile.open(fileobj=cast("IO[bytes]", _Headers(self._file)), mode="r:") as tar:
            for count, member in enumerate(tar):
                if count >= _MOST_MEMBERS:
                    raise ValueError(f"it has more than {_MOST_MEMBERS} members")
                name = _plain(member.name)
                if member.isreg() and not member.issparse():
                    if member.offset_data + member.size > end:
                        raise ValueError(f"it ends within {name!r}")
                    self._members[name] = _Member(member.offset_data, member.size)
                elif member.issym():
                    target = posixpath.join(posixpath.dirname(name), member.linkname)
                    self._members[name] = _Member(0, 0, _plain(target))
                elif member.islnk():
                    self._members[name] = _Member(0, 0, _plain(member.linkname))


def _plain(name: str) -> str:
    return posixpath.normpath(name).lstrip("/")


def _all(what: str, part: Part, most: int) -> bytes:
    try:
        if part.size > most:
            raise CoopError(f"{what} has more than {most >> 20} MiB", None)
        body = part.read(most)
        while len(body) < part.size and (piece := part.read(most)):
            body += piece
        return body
    finally:
        part.close()


def _file(path: str, remedy: str | None) -> int:
    """Open a regular file by its absolute path. Raises CoopError."""
    file = _walk(path, os.O_RDONLY | os.O_NONBLOCK, remedy)  # a pipe would make open() wait
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise CoopError(f"{path} is not a file", remedy)
    return file


def _walk(path: str, flags: int, remedy: str | None) -> int:
    """Open an absolute path, component by component, through no link. Raises CoopError."""
    parts = [part for part in path.split("/") if part]
    held = os.open("/", _PLACE | os.O_DIRECTORY | os.O_CLOEXEC)
    for count, part in enumerate(parts, 1):
        kind = flags if count == len(parts) else _PLACE | os.O_DIRECTORY
        try:
            below = os.open(part, kind | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=held)
        except OSError as error:
            if _is_link(part, held):
                reason = f"{part} is a symbolic link"
                remedy = "write the path that it leads to: a sandboxed command could have made the link"
            else:
                reason = str(error.strerror)
            raise CoopError(
                f"{path} cannot be read: {reason}", remedy or "is the path right, and the image whole?"
            ) from None
        finally:
            os.close(held)
        held = below
    return held


def _is_link(name: str, directory: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False
