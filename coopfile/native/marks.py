"""What tells placeholders from what is the user's: on the path of every command, so it imports nothing."""

from __future__ import annotations

import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

MODE = stat.S_ISVTX | 0o555
FILE_MODE = stat.S_ISVTX | 0o444


def is_placeholder(status: os.stat_result) -> bool:
    """Tell a placeholder from a directory of the user's by its mode."""
    return stat.S_ISDIR(status.st_mode) and is_marked(status)


def is_marked(status: os.stat_result) -> bool:
    """Tell whether a mode, of a directory or a file, is a placeholder's."""
    return bool(status.st_mode & stat.S_ISVTX) and not status.st_mode & 0o222
