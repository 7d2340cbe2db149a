"""Where a path of the host really leads, on every system.

A sandboxed program can plant links in what it may write. So no link inside a
writable directory is ever followed: it would let the program choose what the next
run mounts (CVE-2021-30465, CVE-2024-42472).
"""

from __future__ import annotations

import os

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
