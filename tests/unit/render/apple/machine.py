"""What comes of a call of Apple's ``container``: the mounts of the virtual machine, and what they show.

Source: apple/containerization 0.40.1, Sources/Containerization/{LinuxContainer,FileMount}.swift.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.unit.render.apple.checker import Call, Show, World, split


def mounted(call: Call, world: World) -> list[Show]:
    """Return what is mounted in the end, later over earlier: what LinuxContainer and vmexec do.

    Sharing is by directory: a single file's is held, and a mount of that directory is left
    out. A share is as writable as the last mount of it. Then come masks and read-only paths.
    """
    shows: list[Show] = [
        *call.values.get("tmpfs", ()),
        *call.values.get("volume", ()),
        *call.values.get("mount", ()),
    ]
    held: dict[str, bool] = {}
    writable: dict[str, bool] = {}
    for show in shows:
        if show.kind != "bind":
            continue
        single = show.source not in world.directories
        directory = show.source.rpartition("/")[0] or "/" if single else show.source
        if single:
            if directory in held:
                continue  # shared once, as the first mount says
            held[directory] = True
        writable[directory] = not show.read_only
    found = []
    for show in shows:
        if show.kind == "bind":
            single = show.source not in world.directories
            directory = show.source.rpartition("/")[0] or "/" if single else show.source
            if not single and directory in held:
                continue
            show = replace(show, read_only=show.read_only or not writable[directory])
        found.append(show)
    found.sort(key=lambda show: len(split(show.target, "/")))
    found += [Show("mask", "", path, True) for path in call.values.get("masked-path", ())]
    found += [Show("keep", "", path, True) for path in call.values.get("read-only-path", ())]
    return found


@dataclass(frozen=True)
class Seen:
    """What a process finds at a path: the host's path or None, and whether it may write there."""

    host: str | None
    write: bool


def seen(call: Call, world: World, path: str) -> Seen:
    """Return what is at a path of the sandbox, unless a name in it is spelled otherwise."""
    result, depth = Seen(None, "read-only" not in call.flags), 0
    for show in mounted(call, world):
        if not (path == show.target or path.startswith(show.target.rstrip("/") + "/")):
            continue
        below = path[len(show.target.rstrip("/")) :]
        if show.kind in ("mask", "keep"):
            under = result.host and result.host[: len(result.host) - len(below)]
            if under not in world.directories and under not in world.files:
                continue  # what is missing is skipped without a message
            if show.kind == "mask":
                return Seen(None, False)
            # A mount of its own further down stays as it is.
            if depth <= len(show.target):
                result = Seen(result.host, False)
        else:
            host = show.source.rstrip("/") + below if show.kind == "bind" else None
            result, depth = Seen(host, not show.read_only), len(show.target)
    return result


def is_mount_point(call: Call, world: World, path: str) -> bool:
    """Tell whether something is mounted at a path, so that it cannot be renamed."""
    return any(show.target == path for show in mounted(call, world))
