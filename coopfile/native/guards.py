"""Protecting and hiding single paths below a mount, against whoever can write there.

Every directory on the way to a guarded path becomes a mount point too, since only a
mount point cannot be renamed or removed (EBUSY): otherwise the sandbox would move
``.git`` away and make another. Links on the way are refused, for the sandbox could
replace them, and the kernel mounts nothing on a link itself.
"""

from __future__ import annotations

import errno
import os
import stat

from coopfile.errors import CoopError
from coopfile.native import syscalls
from coopfile.native.marks import is_placeholder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_DONE = -1
_RESTRICTED = syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV


class Guards:
    """The guarded paths of one tree; what was walked before is not walked again."""

    def __init__(self) -> None:
        self._walked: dict[tuple[int, str], int] = {}

    def protect(self, root: int, path: str) -> None:
        """Make a path below the mount ``root`` read-only and immovable.

        A path that does not exist and whose directory the caller cannot write needs
        no guard: its place was not held for the same reason.
        """
        found = self._walk(root, path)
        if found is not None:
            self._cover(found, read_only=True)

    def pin(self, root: int, path: str) -> None:
        """Make the directories on the way to a path below the mount ``root`` immovable."""
        found = self._walk(root, path)
        if found is not None:
            os.close(found)

    def hide(self, root: int, path: str, mask: Callable[[bool], int]) -> None:
        """Put ``mask(is_directory)`` over a path below the mount ``root``, if it exists."""
        found = self._walk(root, path)
        if found is None:
            return
        cover = mask(stat.S_ISDIR(os.fstat(found).st_mode))
        syscalls.move_mount(cover, found)
        os.close(cover)
        os.close(found)

    def _walk(self, root: int, path: str) -> int | None:
        """Pin every directory on the way and return a descriptor of what is at the end.

        None: there is nothing, or what is there was guarded already. A file where a
        directory was expected (``.git`` of a linked worktree), or a placeholder, is
        itself the end.
        """
        current, walked = root, ""
        parts = path.split("/")
        for number, name in enumerate(parts):
            walked = f"{walked}/{name}" if walked else name
            known = self._walked.get((root, walked))
            if known == _DONE:
                return None
            last = number == len(parts) - 1
            if known is not None and not last:
                current = known
                continue
            try:
                found = syscalls.openat2(
                    current, name, syscalls.O_PATH | os.O_NOFOLLOW, syscalls.RESOLVE_NO_SYMLINKS
                )
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EACCES):
                    return None
                raise
            status = os.fstat(found)
            if stat.S_ISLNK(status.st_mode):
                raise CoopError(
                    f"{walked} is a symbolic link, and what it stands for cannot be guarded",
                    "replace the link by what it leads to: the sandbox could point it elsewhere",
                )
            if last or not stat.S_ISDIR(status.st_mode) or is_placeholder(status):
                self._walked[root, walked] = _DONE
                return found
            current = self._walked[root, walked] = self._cover(found, read_only=False)
        return None

    def _cover(self, place: int, *, read_only: bool) -> int:
        """Mount a path on itself and return the new mount's descriptor; closes ``place``."""
        attributes = _RESTRICTED | (syscalls.MOUNT_ATTR_RDONLY if read_only else 0)
        copy = syscalls.open_tree(place, attributes=attributes)
        syscalls.move_mount(copy, place)
        os.close(place)
        return copy
