"""Opening paths of the host as mount sources, whoever may be changing them meanwhile: ``links`` says why."""

from __future__ import annotations

import errno
import os
import stat

from coopfile.errors import CoopError
from coopfile.native import syscalls


def open_real(path: str) -> int:
    """Return an O_PATH descriptor of a path that has no links in it; ELOOP if it has one now."""
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
