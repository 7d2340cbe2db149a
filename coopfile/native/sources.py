"""Opening paths of the host as mount sources, whoever may be changing them meanwhile.

A sandboxed program can plant links in what it may write. So no link inside a
writable directory is ever followed: it would let the program choose what the next
run mounts (CVE-2021-30465, CVE-2024-42472).
"""

from __future__ import annotations

import errno
import os
import stat

from coopfile.errors import CoopError
from coopfile.plan.launch import inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_LINKS = 40  # as the kernel's own limit, path_resolution(7)


def resolve(path: str, writable: Sequence[str]) -> str:
    """Return a path's real path, refusing links that lie inside a writable root.

    ``writable`` holds real paths. The last components need not exist.
    """
    current, pending, links = "", [part for part in reversed(path.split("/")) if part], 0
    while pending:
        name = pending.pop()
        if name == ".":
            continue
        if name == "..":
            current = current[: current.rfind("/")] if current else ""
            continue
        candidate = f"{current}/{name}"
        try:
            target = os.readlink(candidate)
        except OSError:
            current = candidate
            continue
        for root in writable:
            if inside(candidate, root):
                raise CoopError(
                    f"{candidate} is a symbolic link inside a directory that the sandbox can write",
                    "name the path it leads to instead; coop does not follow such links",
                )
        links += 1
        if links > _MOST_LINKS:
            raise CoopError(f"{path} goes through more than {_MOST_LINKS} symbolic links")
        if target.startswith("/"):
            current = ""
        pending.extend(part for part in reversed(target.split("/")) if part)
    return current or "/"


def open_real(path: str) -> int:
    """Return an O_PATH descriptor of a path that has no links in it; ELOOP if it has one now."""
    from coopfile.native import syscalls  # what is left of this module serves every system

    resolve_flags = syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS
    return syscalls.openat2(syscalls.AT_FDCWD, path, syscalls.O_PATH, resolve_flags)


def open_source(path: str, *, write: bool) -> int | None:
    """Open a real path as a mount source; None when this host has no such path.

    Sockets are refused read-only, since a read-only mount does not stop connect();
    devices are refused always.
    """
    try:
        descriptor = open_real(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        if error.errno == errno.ELOOP:
            raise CoopError(f"{path} was replaced by a symbolic link while the sandbox started") from None
        raise CoopError(
            f"cannot open {path}: {os.strerror(error.errno or 0)}",
            "the sandbox can have no file that you cannot open yourself without privileges",
        ) from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISSOCK(mode) and not write:
        raise CoopError(
            f"files.read: {path} is a socket, which a read-only mount cannot keep from being used",
            "name it in files.write if the sandbox may talk to what listens there",
        )
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        raise CoopError(f"{path} is neither a file nor a directory", "a sandbox is given no devices or pipes")
    return descriptor
