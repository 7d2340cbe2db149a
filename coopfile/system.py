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


def system() -> str:
    """Return linux, darwin or windows; others as Python calls them."""
    return _SYSTEMS.get(sys.platform, sys.platform)
