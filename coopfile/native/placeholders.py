"""Empty directories that hold the place of protected paths that do not exist yet.

A mount needs something to be mounted on, so a missing protected path gets an empty
directory on the host for as long as a sandbox uses it. It is a directory because git
does not see empty ones; its mode (sticky, nobody may write) marks it as ours. Every
user of a placeholder holds a shared lock on it, and the last one out removes it: no
journal, and what a SIGKILL of everything leaves behind is adopted and removed by the
next run in the same workspace.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from coopfile.errors import CoopError
from coopfile.native import syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MODE = stat.S_ISVTX | 0o555
_TRIES = 100


def is_placeholder(status: os.stat_result) -> bool:
    """Tell a placeholder from a directory of the user's by its mode."""
    mode = status.st_mode
    return stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX) and not mode & 0o222


def _owned(directory: int) -> bool:
    """Tell whether the caller could change a directory's mode, as the sandbox then can."""
    return os.fstat(directory).st_uid == os.geteuid()


class Placeholders:
    """The placeholders that one sandbox uses, held until ``release``."""

    def __init__(self) -> None:
        self._held: list[tuple[int, str, int]] = []

    def reserve(self, root: int, paths: Iterable[str]) -> None:
        """Make sure that each relative path, or a first part of it, exists below ``root``.

        Nothing is made where the sandbox cannot make anything either: on a read-only
        file system, or in a directory of someone else's that the caller may not write.
        """
        directories: dict[str, int | None] = {"": root}
        mask = os.umask(0)
        try:
            for path in paths:
                self._reserve(directories, path.split("/"))
        finally:
            os.umask(mask)
            for walked, descriptor in directories.items():
                if walked and descriptor is not None:
                    os.close(descriptor)

    def _reserve(self, directories: dict[str, int | None], parts: list[str]) -> None:
        """Walk to where a path ends or is missing. None in ``directories`` marks an end met before."""
        walked = ""
        for name in parts:
            parent, walked = directories[walked], f"{walked}/{name}" if walked else name
            if parent is None:
                return
            if walked in directories:
                continue
            directories[walked] = None
            try:
                descriptor = syscalls.openat2(
                    parent, name, syscalls.O_PATH | os.O_NOFOLLOW, syscalls.RESOLVE_NO_SYMLINKS
                )
            except FileNotFoundError:
                self._hold(parent, name)
                return
            status = os.fstat(descriptor)
            if is_placeholder(status):
                os.close(descriptor)
                self._hold(parent, name)
                return
            if not stat.S_ISDIR(status.st_mode):
                os.close(descriptor)
                return
            directories[walked] = descriptor

    def _hold(self, parent: int, name: str) -> None:
        """Create or adopt one placeholder and keep a shared lock on it."""
        for _ in range(_TRIES):
            made = False
            try:
                os.mkdir(name, MODE, dir_fd=parent)
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
                descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
            except FileNotFoundError:
                continue  # another sandbox, the last one out, has just removed it
            except OSError:
                return  # replaced by something real; protecting that is the caller's next step
            if not is_placeholder(os.fstat(descriptor)):
                os.close(descriptor)
                if not made:
                    return
                os.rmdir(name, dir_fd=parent)
                raise CoopError(
                    f"cannot hold the place of the protected path {name}: its file system keeps no modes",
                    "keep the workspace on a file system of Linux",
                )
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            if os.fstat(descriptor).st_nlink:
                self._held.append((os.dup(parent), name, descriptor))
                return
            os.close(descriptor)
        raise CoopError(f"the placeholder of the protected path {name} is locked by another program")

    def release(self) -> None:
        """Remove the placeholders that nobody else uses."""
        for parent, name, descriptor in self._held:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(
                    os.fstat(descriptor), os.stat(name, dir_fd=parent, follow_symlinks=False)
                ):
                    os.rmdir(name, dir_fd=parent)
            except OSError:
                pass  # in use by another sandbox, which will remove it, or no longer ours
            os.close(descriptor)
            os.close(parent)
        self._held.clear()
