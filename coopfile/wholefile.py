"""Files that are read, and replaced, as a whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from coopfile.system import READING


def read(path: str, most: int) -> bytes | None:
    """Return what a file holds, of at most ``most`` bytes; None if there is none. Waits for no pipe's writer.

    Raises OSError, for what is not a file, or is larger, too.
    """
    try:
        descriptor = os.open(path, READING)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a file", path)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most} bytes", path)
    return data


def write(path: str, content: bytes, mode: int | None = None, *, durable: bool = True) -> None:
    """Put ``content`` on disk beside a path, then in its place; a link there is replaced itself.

    ``mode`` is exact; without one it is what the umask leaves. What is not ``durable`` may be damaged
    after the machine has lost its power, though not by the end of any process. Raises OSError, and then
    what was there is as it was. What a killed writer has left beside the path goes with
    the next write.
    """
    _sweep(path)
    partial = f"{path}.{os.getpid()}.tmp"
    with open(partial, "xb") as file:
        try:
            if mode is not None and hasattr(os, "fchmod"):  # Windows has no modes
                os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise


def _sweep(path: str) -> None:
    """Remove what writers of a path that are gone have left."""
    directory, name = os.path.split(path)
    for found in os.listdir(directory or "."):
        pid = found.removeprefix(f"{name}.").removesuffix(".tmp")
        if found == f"{name}.{pid}.tmp" and pid.isdigit() and not _is_writing(pid):
            with contextlib.suppress(OSError):  # a directory, or another writer has removed it
                os.unlink(os.path.join(directory, found))


def _is_writing(pid: str) -> bool:
    """Tell whether a process may be another writer; one that had this process's id is gone.

    Where there is no such directory of processes, each may be.
    """
    return pid != str(os.getpid()) and (os.path.exists(f"/proc/{pid}") or not os.path.exists("/proc/self"))
