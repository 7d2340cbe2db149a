r"""Paths of Windows hosts, which containers see as ``/c/src`` for ``C:\src``.

Plans, facts and containers hold the inner form only, so nothing else has to know of
drives; what an engine mounts is given back in the host's own form.
"""

from __future__ import annotations

import re

from coopfile.errors import CoopError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.render.container import Container

# MSYS2 and Git for Windows rewrite arguments that look like paths of their own.
MSYS = (("MSYS_NO_PATHCONV", "1"), ("MSYS2_ARG_CONV_EXCL", "*"))

_DRIVE = re.compile(r"([A-Za-z]):[\\/](.*)", re.DOTALL)
_INNER = re.compile(r"/([a-z])(/.*)?", re.DOTALL)
_RESERVED = frozenset('<>:"|?*')


def inner(path: str) -> str:
    r"""Return ``/c/src`` for ``C:\src`` or ``C:/src``; other letters keep their case.

    Raises CoopError for what is not a whole path on a drive, or what Windows would
    take for another: it drops dots and blanks at the end of a name.
    """
    if path.startswith(("\\\\", "//")):
        raise CoopError(
            f"{path!r} is on the network (UNC) or a device, which container engines do not mount",
            "copy it to a drive, or give the share a letter",
        )
    match = _DRIVE.fullmatch(path)
    if match is None:
        raise CoopError(
            f"{path!r} is not a whole path of Windows", r"such a path begins with a drive: C:\src"
        )
    names = match[2].replace("\\", "/").rstrip("/").split("/") if match[2].strip("\\/") else []
    for name in names:
        if not name or name.endswith((".", " ")) or not _RESERVED.isdisjoint(name):
            raise CoopError(f"{path!r}: {name!r} is no name of a file of Windows")
    return "/".join(["", match[1].lower(), *names])


def outer(path: str) -> str:
    r"""Return ``C:\src`` for ``/c/src``: what ``inner`` took. Raises CoopError for other paths."""
    match = _INNER.fullmatch(path)
    if match is None:
        raise CoopError(f"{path!r} is not below a drive, such as /c")
    return f"{match[1].upper()}:" + (match[2] or "/").replace("/", "\\")


def outer_sources(container: Container) -> Container:
    """Return the container with the sources of its mounts as Windows has them."""
    return container.replace(
        mounts=tuple(mount.replace(source=outer(mount.source)) for mount in container.mounts),
        kept=tuple(outer(path) for path in container.kept),
    )
