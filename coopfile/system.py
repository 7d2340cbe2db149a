"""Which system this is. On others than Linux coop compiles, checks and renders plans, and runs nothing."""

from __future__ import annotations

import os
import sys

LINUX = "linux"
LOOKING = "coop does not know how to look at machines without Linux yet"
DESCRIBING = "describe this one for coop render with --facts FILE: docs/backends.md, Other machines"

# How open(2) is asked for a file that is there: nobody inherits it, and no writer of a pipe is waited for.
# Windows has neither flag, and takes a file for text without a third one.
READING = os.O_RDONLY
for _name in ("O_CLOEXEC", "O_NONBLOCK", "O_BINARY"):
    READING |= getattr(os, _name, 0)

_SYSTEMS = {"darwin": "darwin", "win32": "windows"}


def is_own(status: os.stat_result) -> bool:
    """Tell whether a file or directory is this user's, and nobody else can write to it.

    On Windows, where nothing is run, it is the user's profile that others cannot write to.
    """
    return sys.platform == "win32" or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)


def system() -> str:
    """Return linux, darwin or windows; others as Python calls them."""
    return _SYSTEMS.get(sys.platform, sys.platform)
