"""The three streams that a command is given."""

from __future__ import annotations

import fcntl
import os
import stat

from coopfile.errors import CoopError
from coopfile.plan.hosttools import DEVICES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def ensure() -> None:
    """Open what the caller closed of the three streams, so that no pipe of ours takes its number."""
    try:
        while (descriptor := os.open("/dev/null", os.O_RDWR)) <= 2:
            os.set_inheritable(descriptor, True)
    except OSError as error:
        raise CoopError(f"cannot open /dev/null: {error.strerror}") from None
    os.close(descriptor)


def refuse_directories() -> None:
    """Refuse a directory as a stream: through it the command would have the host's tree, past every mount."""
    for descriptor in (0, 1, 2):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise CoopError(
                f"descriptor {descriptor} is open on a directory, which would lead out of the sandbox",
                "give the command a file, a pipe or a terminal",
            )


def let_go(streams: Iterable[int]) -> None:
    """Put /dev/null in the place of some streams."""
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for stream in streams:
        os.dup2(null, stream)
    os.close(null)


def take_own_devices() -> None:
    """Open streams on /dev/null and its like again, here: root inside could change the mode of the host's."""
    devices = {os.stat(f"/dev/{name}").st_rdev: name for name in DEVICES if name != "tty"}
    for stream in (0, 1, 2):
        name = devices.get(os.fstat(stream).st_rdev)
        if name is not None:
            flags = fcntl.fcntl(stream, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK)
            own = os.open(f"/dev/{name}", flags | os.O_NOCTTY)
            os.dup2(own, stream)
            os.close(own)
