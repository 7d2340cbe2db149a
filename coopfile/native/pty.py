"""A terminal of the sandbox's own, made inside: pty(7), ioctl_tty(2).

Landlock and the filter of system calls permit all of it, so what calls this is locked in
already. A terminal belongs to the sandbox's instance of devpts: the caller's, and those of
other sandboxes, cannot be named in it.
"""

from __future__ import annotations

import fcntl
import os

from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from coopfile.native.terminal import Saved

# asm-generic/ioctls.h, which x86-64 and aarch64 share; Python's own numbers lack some of them.
TCGETS, TCSETS = 0x5401, 0x5402
TIOCGWINSZ, TIOCSWINSZ = 0x5413, 0x5414
_TIOCGPTN, _TIOCSPTLCK = 0x80045430, 0x40045431
SETTINGS = 36  # bytes of the kernel's struct termios: four flag words, the line discipline, 19 characters

_DIRECTORY = "/dev/pts"
_IUTF8 = 0o40000  # IUTF8: erasing takes a whole character. It is in the first word, c_iflag.


class Wanted(Record):
    """A terminal that a run's command is to have.

    ``channel`` is the descriptor of a socket that takes our end of it. ``streams`` are those of the
    command that it replaces. ``settings`` are as ``open_pair`` takes them. ``callers`` is the state of
    the caller's terminal, which the caller may be killed before putting back.
    """

    channel: int
    streams: tuple[int, ...]
    rows: int
    columns: int
    settings: bytes
    callers: Saved


def open_pair(rows: int, columns: int, settings: bytes = b"") -> tuple[int, str]:
    """Make a terminal of this size; return our end, which does not block, and the path of the command's.

    ``settings`` is a struct termios, such as the caller's terminal has; without, they are those of a
    new terminal, for UTF-8. Raises OSError.
    """
    # What is there may be of a command's making where the root can be written: O_NONBLOCK keeps a FIFO
    # from holding us, and nothing but a terminal answers the requests.
    master = os.open(f"{_DIRECTORY}/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(master, _TIOCSPTLCK, bytes(4))
        number = int.from_bytes(fcntl.ioctl(master, _TIOCGPTN, bytes(4)), "little")
        if len(settings) != SETTINGS:
            own = fcntl.ioctl(master, TCGETS, bytes(SETTINGS))
            flags = int.from_bytes(own[:4], "little") | _IUTF8
            settings = flags.to_bytes(4, "little") + own[4:]
        # Asked of our end, these change the other: tty_mode_ioctl, tiocswinsz.
        fcntl.ioctl(master, TCSETS, settings)
        sizes = (min(max(size, 0), 0xFFFF).to_bytes(2, "little") for size in (rows, columns, 0, 0))
        fcntl.ioctl(master, TIOCSWINSZ, b"".join(sizes))
    except BaseException:
        os.close(master)
        raise
    return master, f"{_DIRECTORY}/{number}"


def actions(slave: str, streams: Sequence[int] = (0, 1, 2)) -> list[tuple[Any, ...]]:
    """Return the actions of posix_spawn, with ``setsid``, that make a terminal the command's.

    It becomes its controlling terminal and these of its streams; the others stay as they are.
    """
    first, *others = streams
    # The leader of a session gets the first terminal that it opens without O_NOCTTY: open(2).
    return [
        (os.POSIX_SPAWN_OPEN, first, slave, os.O_RDWR, 0),
        *((os.POSIX_SPAWN_DUP2, first, stream) for stream in others),
    ]
