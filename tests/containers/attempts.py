"""What probes that run in a sandbox are written with: trying a thing, and saying in a word how it went.

Where kernels differ in *how* they refuse, the word is ``denied`` or ``absent``.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable, Iterable
from typing import Any

FACTS: Any = {}
PROBES: dict[str, Callable[[], str]] = {}
PATIENCE = 20  # seconds that one probe may take

# ETXTBSY: a program that runs. EINVAL: a user that the sandbox does not have. EISDIR: gVisor's of a mount.
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV}
_DENIED |= {errno.ETXTBSY, errno.EINVAL, errno.EISDIR}
_ABSENT = {errno.ENOENT, errno.ENOTDIR}
LIBC = ctypes.CDLL(None, use_errno=True)


def probe(function: Callable[[], str]) -> Callable[[], str]:
    """Add a function to the probes, under its name with spaces."""
    PROBES[function.__name__.replace("_", " ")] = function
    return function


def tried(call: Callable[..., Any], *arguments: Any) -> str:
    """Return ``done``, or in one word why it was not."""
    try:
        call(*arguments)
    except OSError as error:
        return word(error.errno)
    return "done"


def word(number: int | None) -> str:
    """Return what an error number comes to."""
    if number in _DENIED:
        return "denied"
    return "absent" if number in _ABSENT else errno.errorcode.get(number or 0, str(number))


def each(outcomes: Iterable[tuple[str, str]], usual: str) -> str:
    """Return ``usual`` when everything came to that, else what came to something else."""
    odd = [f"{name}: {outcome}" for name, outcome in outcomes if outcome != usual]
    return ", ".join(odd) or usual


def read(path: str) -> bytes:
    """Return what is in a file."""
    with open(path, "rb") as file:
        return file.read(1 << 20)


def write(path: str) -> None:
    """Add to a file, or make it."""
    with open(path, "ab") as file:
        file.write(b"written by the sandbox\n")


def make(path: str) -> None:
    """Make an empty file, which must not be there."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def replace(path: str) -> None:
    """Put another file in the place of a path."""
    make("replacement")
    try:
        os.rename("replacement", path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink("replacement")


def moved(path: str) -> None:
    """Rename a path."""
    os.rename(path, f"{path}-moved")


def linked(path: str) -> None:
    """Give a file a second name, and take it away again."""
    os.link(path, "second-name")
    os.unlink("second-name")


def attempts(path: str, *calls: Callable[[str], Any], usual: str = "denied") -> str:
    """Try calls on a path; return the usual outcome, or those that came to another."""
    return each(((call.__name__, tried(call, path)) for call in calls), usual)


def chmodded(path: str) -> None:
    """Give everybody every right to a path."""
    os.chmod(path, 0o777)


def below(path: str) -> None:
    """Make a file below a path."""
    make(f"{path}/x")


def filled(path: str) -> None:
    """Make a directory with a file in it."""
    os.makedirs(path)
    below(path)


def pointed(path: str) -> None:
    """Make a symbolic link."""
    os.symlink("plain.txt", path)


def instead(path: str) -> None:
    """Make a file in the place of an empty directory."""
    os.rmdir(path)
    write(path)


def opened_to_write(path: str) -> None:
    """Open a file to write to it."""
    os.close(os.open(path, os.O_WRONLY))


def refused(call: Callable[..., Any], *arguments: Any) -> bool:
    """Tell whether a call fails."""
    return tried(call, *arguments) != "done"
