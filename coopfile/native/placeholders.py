"""What holds the place of protected paths that do not exist yet.

A mount needs something to be mounted on, so a missing protected path gets an empty
directory on the host for as long as a sandbox uses it. It is a directory because git
does not see empty ones; its mode (sticky, nobody may write) marks it as ours. Every
user of a placeholder holds a shared lock on it, and the last one out removes it: no
journal, and what a SIGKILL of everything leaves behind is adopted and removed by the
next run in the same workspace.

``.git/commondir`` would move git's configuration elsewhere, and git fails where it is
a directory. Its placeholder is a file that says what git assumes without one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time

from coopfile.errors import CoopError
from coopfile.native.marks import FILE_MODE, MODE, is_marked, is_placeholder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_CONTENTS: dict[tuple[str, ...], bytes] = {(".git", "commondir"): b".\n"}
# Directory, name, content, descriptor that has the lock, and (device, inode).
Held = tuple[int, str, "bytes | None", int, "tuple[int, int]"]
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES = 1000
_PAUSE = 0.002  # seconds between two of them


def _owned(directory: int) -> bool:
    """Tell whether the caller could change a directory's mode, as the sandbox then can."""
    return os.fstat(directory).st_uid == os.geteuid()


def _make(parent: int, name: str, content: bytes | None) -> None:
    if content is None:
        os.mkdir(name, MODE, dir_fd=parent)
        return
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    descriptor = os.open(name, flags, FILE_MODE, dir_fd=parent)
    os.write(descriptor, content)
    os.close(descriptor)


def _remove(parent: int, name: str, content: bytes | None) -> None:
    if content is None:
        os.rmdir(name, dir_fd=parent)
    else:
        os.unlink(name, dir_fd=parent)


class Placeholders:
    """The placeholders that one sandbox uses, held until ``release``."""

    def __init__(self) -> None:
        self._directories: list[int] = []
        self._held: list[Held] = []

    def reserve(self, root: int, paths: Iterable[str]) -> None:
        """Make sure that each relative path, or a first part of it, exists below ``root``.

        Nothing is made where the sandbox cannot make anything either: on a read-only
        file system, or in a directory of someone else's that the caller may not write.
        """
        directories: dict[str, int | None] = {"": os.dup(root)}
        mask = os.umask(0)
        try:
            for path in paths:
                self._reserve(directories, path.split("/"))
        finally:
            os.umask(mask)
            self._directories += [item for item in directories.values() if item is not None]

    def _reserve(self, directories: dict[str, int | None], parts: list[str]) -> None:
        """Walk to where a path ends or is missing. None in ``directories`` marks an end met before."""
        walked = ""
        for number, name in enumerate(parts):
            content = _CONTENTS.get(tuple(parts[number - 1 : number + 1])) if number else None
            parent, walked = directories[walked], f"{walked}/{name}" if walked else name
            if parent is None:
                return
            if walked in directories:
                continue
            directories[walked] = None
            try:
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode) and not is_marked(status):
                    directories[walked] = os.open(name, _DIRECTORY, dir_fd=parent)
                    continue
            except FileNotFoundError:
                self._hold(parent, name, content, there=False)
                return
            except NotADirectoryError:
                return  # it has just been replaced; protecting what is there is the caller's next step
            except PermissionError:
                if not _owned(parent):
                    return
                raise CoopError(
                    f"the directory of the protected path {walked} cannot be searched",
                    "make it searchable for you: chmod u+rwx",
                ) from None
            if is_placeholder(status) or (content is not None and is_marked(status)):
                self._hold(parent, name, content, there=True)
            return

    def _hold(self, parent: int, name: str, content: bytes | None, *, there: bool) -> None:
        """Create one placeholder, or adopt what is ``there``, and keep a shared lock on it."""
        for _ in range(_TRIES):
            adopts, there = there, False  # what is there was looked at just now, once
            made = False
            try:
                if not adopts:
                    _make(parent, name, content)
                    made = True
            except FileExistsError:
                pass
            except OSError as error:
                if error.errno == errno.EROFS or (error.errno == errno.EACCES and not _owned(parent)):
                    return
                raise CoopError(
                    f"cannot hold the place of the protected path {name}: {error.strerror}",
                    "coop keeps an empty directory there meanwhile: make its parent writable for you",
                ) from None
            try:
                descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
            except FileNotFoundError:
                continue  # another sandbox, the last one out, has just removed it
            except OSError:
                return  # replaced by something real; protecting that is the caller's next step
            if not made and not adopts and not is_marked(os.fstat(descriptor)):
                os.close(descriptor)
                return
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                # The last one out is just removing it, and may have to wait for a processor.
                os.close(descriptor)
                time.sleep(_PAUSE)
                continue
            status = os.fstat(descriptor)
            if status.st_nlink and is_marked(status):
                self._held.append((parent, name, content, descriptor, (status.st_dev, status.st_ino)))
                return
            os.close(descriptor)
            if made and status.st_nlink:
                _remove(parent, name, content)
                raise CoopError(
                    f"cannot hold the place of the protected path {name}: its file system keeps no modes",
                    "keep the workspace on a file system of Linux",
                )
        raise CoopError(f"the placeholder of the protected path {name} is locked by another program")

    def release(self) -> None:
        """Remove the placeholders that nobody else uses."""
        for parent, name, content, descriptor, identity in self._held:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
                if (status.st_dev, status.st_ino) == identity:
                    _remove(parent, name, content)
            except OSError:
                pass  # in use by another sandbox, which will remove it, or no longer ours
            os.close(descriptor)
        for descriptor in self._directories:
            os.close(descriptor)
        self._held.clear()
        self._directories.clear()

    def hand_over(self) -> tuple[tuple[Held, ...], list[int]]:
        """Leave the placeholders to another process: what tells of each, and descriptors to send there.

        In ``Held`` a descriptor is a position in the list. The caller closes them.
        """
        sent = [*self._directories, *(item[3] for item in self._held)]
        places = {descriptor: place for place, descriptor in enumerate(sent)}
        told = tuple((places[item[0]], *item[1:3], places[item[3]], item[4]) for item in self._held)
        self._held.clear()
        self._directories.clear()
        return told, sent

    def take_over(self, told: Iterable[Held], received: list[int]) -> None:
        """Make one's own what another process has handed over; the descriptors are this process's."""
        known = [(received[item[0]], *item[1:3], received[item[3]], item[4]) for item in told]
        locks = {item[3] for item in known}
        self._held += known
        self._directories += [descriptor for descriptor in received if descriptor not in locks]

    def forget(self) -> None:
        """Leave the placeholders to a forked process that holds the same locks."""
        for descriptor in (*self._directories, *(held[3] for held in self._held)):
            os.close(descriptor)
        self._held.clear()
        self._directories.clear()
