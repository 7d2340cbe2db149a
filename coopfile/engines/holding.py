"""What a process beside a container does to itself and the host: it holds places, and dumps no core."""

from __future__ import annotations

import os
import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from coopfile.native.placeholders import Placeholders

    Hold = tuple[str, tuple[str, ...]]


def hold(placeholders: Placeholders, holds: Iterable[Hold]) -> None:
    """Hold the places of protected paths that do not exist, on the host."""
    for source, paths in holds:
        root = os.open(source, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            placeholders.reserve(root, paths)
        finally:
            os.close(root)


def limit_core() -> None:
    """Have containers dump no core, where an engine hands on the limits of its command line.

    1, not 0: a pipe in the host's core_pattern would be started with 0 too, core(5).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    most = 1 if hard == resource.RLIM_INFINITY else min(hard, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))
