"""Files below one directory, whatever somebody does with names and links in it meanwhile.

The directory is a descriptor. Of a sandbox it is the workspace as its session has it mounted, so what
the session hides and protects the kernel hides and protects here, too. A path is resolved by the
kernel, which lets no link lead out (openat2(2): RESOLVE_BENEATH), to the descriptor of a directory;
from there on nothing is named but single entries of that directory. Nothing is opened for reading
that was not seen to be a file, and nothing is ever opened for writing that somebody else could have
put there: what is written is a new file that takes the old one's place.

Three things that mounts do for a process in their namespace they do not do for one outside, and are
done here: nobody may rename over a mount point (the kernel asks whether it is one in the namespace of
who renames); mounts go from a namespace that ends (``Session.workspace`` holds it); and a sandbox has
no capability to read what modes forbid (``without_capabilities``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence

from coopfile.errors import CoopError
from coopfile.native import syscalls
from coopfile.native.marks import is_placeholder

_BENEATH = 0x08 | syscalls.RESOLVE_NO_MAGICLINKS  # RESOLVE_BENEATH
_PLACE = os.O_PATH | os.O_DIRECTORY
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_TRIES = 100  # of a look-up that something is renamed under
_MOST_LINKS = 40  # the kernel's own limit
_LARGEST = 32 << 20  # bytes of a file that is read as a whole
_PIECE = 1 << 20
_GUARDED = (errno.EACCES, errno.EPERM, errno.EROFS)
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a symbolic link"),
)


class FileError(CoopError):
    """A file cannot be had, or not as was asked. ``guarded`` tells that a rule may say so."""

    def __init__(self, message: str, remedy: str | None = None, *, guarded: bool = False) -> None:
        super().__init__(message, remedy)
        self.guarded = guarded


class Found:
    """The place of a file: a directory that is held open, a name in it, and what it was when looked at."""

    def __init__(self, directory: int, name: str, status: os.stat_result | None) -> None:
        self.directory = directory
        self.name = name
        self.status = status


class Tree:
    """A directory and all below it, by way of a descriptor that stays the caller's.

    ``names`` are absolute paths that people may call the directory by.
    """

    def __init__(self, root: int, names: Sequence[str]) -> None:
        self._root = root
        self._names = tuple(names)

    def relative(self, path: str) -> str:
        """Return a path as one from the directory on. Raises FileError for one that is elsewhere."""
        if not isinstance(path, str) or not path or "\0" in path:
            raise FileError(f"{path!r:.200} is no path")
        if not path.startswith("/"):
            return path
        for name in self._names:
            if path == name or path.startswith(name.rstrip("/") + "/"):
                return path[len(name) :].lstrip("/") or "."
        raise FileError(
            f"{path} is outside of the workspace", "these tools read and write the workspace alone"
        )

    def read(self, path: str, most: int = _LARGEST) -> tuple[bytes, os.stat_result]:
        """Return what a file holds, and its status. Raises FileError for what is larger or no file."""
        descriptor, status = self.open(path)
        return _whole(descriptor, most, path), status

    def open(self, path: str) -> tuple[int, os.stat_result]:
        """Open a file for reading; the caller closes it. Raises FileError."""
        with self._telling(path):
            return _opened(self._place(self.relative(path), path), path)

    @contextlib.contextmanager
    def locate(self, path: str, *, create: bool = False) -> Iterator[Found]:
        """Find the place of a file that is to be written, and hold its directory open.

        Links are followed, so that what they lead to is written. ``create`` makes missing directories.
        """
        with self._telling(path):
            directory, name, status = self._locate(self.relative(path), path, create)
        try:
            yield Found(directory, name, status)
        finally:
            os.close(directory)

    def content(self, found: Found, path: str, most: int = _LARGEST) -> bytes:
        """Return what a file that was found holds. Raises FileError if it is another one now."""
        with self._telling(path):
            flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor, status = _opened(os.open(found.name, flags, dir_fd=found.directory), path)
        data = _whole(descriptor, most, path)
        if found.status is None or _stamp(status) != _stamp(found.status):
            raise FileError(f"{path} was changed by something else meanwhile", "try again")
        return data

    def write(self, found: Found, path: str, data: bytes) -> None:
        """Put a file in its place, whole or not at all, with the mode and the owner of what was there.

        Raises FileError, and then what was there is as it was: for what has changed since it was found, too.
        """
        with self._telling(path):
            _check_no_mount(found)
            _write(found, path, data)

    def _place(self, relative: str, path: str) -> int:
        """Return an O_PATH descriptor of what a path leads to."""
        try:
            return self._open(relative, os.O_PATH)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        # To the kernel each absolute link leads out, also one that names the workspace: as for writing.
        directory, name, _ = self._locate(relative, path, create=False)
        try:
            return os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        finally:
            os.close(directory)

    def _locate(self, relative: str, path: str, create: bool) -> tuple[int, str, os.stat_result | None]:
        for _ in range(_MOST_LINKS):
            above, _, name = relative.rstrip("/").rpartition("/")
            if name in ("", ".", ".."):
                raise FileError(f"{path} is a directory", "name a file in it")
            directory = self._directory(above or ".", create)
            try:
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                return directory, name, None
            except BaseException:
                os.close(directory)
                raise
            if not stat.S_ISLNK(status.st_mode):
                try:
                    _check_kind(path, status)
                except FileError:
                    os.close(directory)
                    raise
                return directory, name, status
            try:
                target = os.readlink(name, dir_fd=directory)
            finally:
                os.close(directory)
            relative = self.relative(target) if target.startswith("/") else f"{above or '.'}/{target}"
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def _directory(self, relative: str, create: bool) -> int:
        try:
            return self._open(relative, _PLACE)
        except FileNotFoundError:
            if not create:
                raise
        parts = [part for part in relative.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        place = self._open(".", _PLACE)
        for end, part in enumerate(parts, 1):
            try:
                try:
                    following = self._open("/".join(parts[:end]), _PLACE)
                except FileNotFoundError:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=place)
                    following = self._open("/".join(parts[:end]), _PLACE)
            finally:
                os.close(place)
            place = following
        return place

    def _open(self, relative: str, flags: int) -> int:
        for _ in range(_TRIES):
            try:
                return syscalls.openat2(self._root, relative, flags, _BENEATH)
            except BlockingIOError:
                pass  # something on the way was renamed, and `..` could have led anywhere
        raise FileError(f"{relative} does not stay where it is", "try again when nothing is renamed there")

    @contextlib.contextmanager
    def _telling(self, path: str) -> Iterator[None]:
        """Turn what the kernel says into words."""
        try:
            yield
        except UnicodeEncodeError:
            raise FileError(f"{path!r:.200} is no path") from None
        except OSError as error:
            raise _told(path, error) from None


@contextlib.contextmanager
def without_capabilities() -> Iterator[None]:
    """Let modes and owners count for this thread as they do for what a sandbox runs as root's.

    Only the effective set is emptied, of this thread alone: capabilities(7). Nothing may be awaited inside.
    """
    inheritable, permitted, effective = syscalls.capability_sets()
    if not effective:
        yield
        return
    syscalls.set_capability_sets(inheritable, permitted, 0)
    try:
        yield
    finally:
        syscalls.set_capability_sets(inheritable, permitted, effective)


def _check_kind(path: str, status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    if is_placeholder(status):
        raise FileError(f"{path} is kept from being made", guarded=True)
    kind = next((words for is_kind, words in _KINDS if is_kind(status.st_mode)), "no file")
    raise FileError(f"{path} is {kind}, not a file")


def _check_no_mount(found: Found) -> None:
    """Refuse to replace what something is mounted on: that would take the mount away, everywhere.

    Nobody in a sandbox can move, make or remove a mount point, so what is seen here stays so.
    """
    if found.status is None:
        return
    place = os.open(found.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=found.directory)
    try:
        if _mount(place) != _mount(found.directory):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    finally:
        os.close(place)


def _mount(descriptor: int) -> bytes:
    """Return the number of the mount that a descriptor is on: proc_pid_fdinfo(5)."""
    for line in syscalls.read_file(f"/proc/self/fdinfo/{descriptor}").splitlines():
        if line.startswith(b"mnt_id:"):
            return line
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def _write(found: Found, path: str, data: bytes) -> None:
    before = found.status
    temporary = f".coop-{secrets.token_hex(8)}"
    descriptor, named = _new(found.directory, temporary)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if before is not None:
            _take_after(descriptor, before, path)
        os.fsync(descriptor)
        if before is None and not named:
            os.link(f"/proc/self/fd/{descriptor}", found.name, dst_dir_fd=found.directory)
            return
        if not named:
            os.link(f"/proc/self/fd/{descriptor}", temporary, dst_dir_fd=found.directory)
            named = True
        _check_unchanged(found, path)
        os.rename(temporary, found.name, src_dir_fd=found.directory, dst_dir_fd=found.directory)
        named = False
    finally:
        os.close(descriptor)
        if named:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=found.directory)


def _new(directory: int, name: str) -> tuple[int, bool]:
    """Make a file without a name, or with one where the file system wants that; tell which."""
    flags = os.O_WRONLY | os.O_CLOEXEC
    try:
        return os.open(".", flags | os.O_TMPFILE, 0o666, dir_fd=directory), False
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT):
            raise
    return os.open(name, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=directory), True


def _take_after(descriptor: int, before: os.stat_result, path: str) -> None:
    """Give a new file the owner and the mode of the old one; what made that set-id goes."""
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        try:
            os.fchown(descriptor, before.st_uid, before.st_gid)
        except PermissionError:
            raise FileError(f"{path} belongs to somebody else, which could not be kept") from None
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode) & 0o777)


def _check_unchanged(found: Found, path: str) -> None:
    try:
        now = os.stat(found.name, dir_fd=found.directory, follow_symlinks=False)
    except FileNotFoundError:
        now = None
    before = found.status
    if (now is None) is not (before is None) or (now is not None and _stamp(now) != _stamp(before)):
        raise FileError(f"{path} was changed by something else meanwhile", "read it again first")


def _stamp(status: os.stat_result | None) -> tuple[int, ...]:
    assert status is not None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode)


def _opened(place: int, path: str) -> tuple[int, os.stat_result]:
    """Open for reading what an O_PATH descriptor stands for, if it is a file, and close that one."""
    try:
        status = os.fstat(place)
        _check_kind(path, status)
        # The same file, for what a name leads to may be another one now. O_NONBLOCK: a lease of
        # somebody's (fcntl(2), F_SETLEASE) would have us wait for them.
        return os.open(f"/proc/self/fd/{place}", _READ), status
    finally:
        os.close(place)


def _whole(descriptor: int, most: int, path: str) -> bytes:
    """Read and close a file. Raises FileError."""
    data = bytearray()
    try:
        while len(data) <= most and (piece := os.read(descriptor, _PIECE)):
            data += piece
    except OSError as error:
        raise _told(path, error) from None
    finally:
        os.close(descriptor)
    if len(data) > most:
        raise FileError(f"{path} is larger than {most} bytes", "programs can work on parts of it")
    return bytes(data)


def _told(path: str, error: OSError) -> FileError:
    if error.errno == errno.EXDEV:
        return FileError(
            f"{path} leads out of the workspace", "these tools read and write the workspace alone"
        )
    if error.errno == errno.EAGAIN:
        return FileError(f"{path} is in use: a program has a lease on it", "try again later")
    if error.errno == errno.EEXIST:
        return FileError(f"{path} was made by something else meanwhile", "read it again first")
    words = (error.strerror or str(error)).lower()
    return FileError(f"{path}: {words}", guarded=error.errno in _GUARDED)
