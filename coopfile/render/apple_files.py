"""A container's mounts in the terms of Apple's command line: shares, masks, and read-only paths.

Directories of the host are shared with the virtual machine, each once, and then mounted
in the order of how deep their targets are. For a single file its directory is shared,
and a mount of that directory itself is then left out (apple/containerization,
FileMount.swift, ``holdingDirectoryTags``). So what is guarded below a mount is not
mounted: it is masked or made read-only where it is, after all mounts.
"""

from __future__ import annotations

import unicodedata

from coopfile.errors import CoopError
from coopfile.plan.launch import Weakening, inside
from coopfile.record import Record
from coopfile.render.apple_text import ends_alone, fits_field, unspeakable
from coopfile.render.facts import DIRECTORY, FILE, PLACEHOLDER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopfile.plan.launch import Mount
    from coopfile.render.facts import Facts


class Shares(Record):
    """What of the host is mounted, and which paths of the sandbox are guarded after that.

    ``held`` are those of ``kept`` that a writable mount shows.
    """

    mounts: tuple[Mount, ...]
    masked: tuple[str, ...]
    kept: tuple[str, ...]
    held: tuple[str, ...]


def shares(mounts: Sequence[Mount], facts: Facts) -> Shares:
    """Tell a container's mounts apart. Raises CoopError for those that the runtime would mix up.

    Where one path of the host is mounted twice at one target, read-only counts.
    """
    shown: list[Mount] = []
    masked, kept, held = {}, {}, {}
    masks = {facts.mask(kind) for kind in (DIRECTORY, FILE)} if facts.masks else set()
    for mount in mounts:
        around = _around(mount, mounts)
        if mount.source in masks:
            masked[mount.target] = True
        elif mount.write or around is None or _path_in(around, mount.target) != mount.source:
            shown.append(mount)
        else:
            kept[mount.target] = True
            if around.write:
                held[mount.target] = True
    _check(shown, facts)
    return Shares(tuple(shown), tuple(masked), tuple(kept), tuple(held))


def options(found: Shares, facts: Facts) -> list[str]:
    """Return the options for shares and guards. Raises CoopError for a path that none can express."""
    argv = []
    for mount in found.mounts:
        argv += _bind(mount, facts)
    for path in found.masked:
        argv += ["--masked-path", _guarded(path)]
    for path in found.kept:
        argv += ["--read-only-path", _guarded(path)]
    return argv


def weakened(found: Shares, facts: Facts) -> list[Weakening]:
    """Return what of the host the guest's kernel alone keeps from the sandbox."""
    weakenings = []
    for write, key in ((False, "files.read"), (True, "files.write")):
        shared = {_shared(mount, facts) for mount in found.mounts if mount.write == write}
        directories = sorted(directory for directory, single in shared if single)
        if directories:
            text = (
                f"the virtual machine is given all of {', '.join(directories)}; "
                "that only single files of it are seen is up to its kernel"
            )
            weakenings.append(Weakening(key, text, "give a directory that has nothing else in it"))
    return weakenings


def reached(found: Shares) -> list[Weakening]:
    """Return which guards another spelling goes around.

    The guest's kernel tells names apart that are one to the host's file system.
    """
    holes = []
    for key, paths in (("files.hide", found.masked), ("workspace.protect", found.held)):
        if paths:
            text = f"where the host ignores case, as macOS does, another spelling reaches {', '.join(paths)}"
            holes.append(Weakening(key, text, "keep the project on a case-sensitive volume"))
    return holes


def _around(mount: Mount, mounts: Sequence[Mount]) -> Mount | None:
    """Return the innermost mount above a mount's target."""
    above = [other for other in mounts if other.target != mount.target and inside(mount.target, other.target)]
    return max(above, key=lambda other: len(other.target), default=None)


def _path_in(mount: Mount, target: str) -> str:
    """Return the host's path of what a mount shows at a path of the sandbox."""
    return mount.source.rstrip("/") + target[len(mount.target.rstrip("/")) :]


def _shared(mount: Mount, facts: Facts) -> tuple[str, bool]:
    """Return the directory that is shared for a mount, and whether only for a single file."""
    if _is_directory(mount.source, facts):
        return mount.source, False
    return mount.source.rpartition("/")[0] or "/", True


def _is_directory(path: str, facts: Facts) -> bool:
    host = facts.host
    if path == facts.real_path(host.workspace) or (host.data and inside(path, host.data)):
        return True
    return facts.kinds.get(path) in (DIRECTORY, PLACEHOLDER)


def _check(mounts: Sequence[Mount], facts: Facts) -> None:
    """Refuse one directory that would have to be shared in two ways."""
    known: dict[str, tuple[bool, bool]] = {}
    for mount in mounts:
        directory, single = _shared(mount, facts)
        write, whole = known.setdefault(directory, (mount.write, not single))
        if whole == single:
            raise CoopError(
                f"{directory} and a single file in it cannot both be given with Apple's container",
                "give the directory alone, or move the file",
            )
        if write != mount.write:
            raise CoopError(
                f"{mount.source}: Apple's container gives {directory} either read-only or writable, not both",
                "give both read-only, or move one to another directory",
            )


def _bind(mount: Mount, facts: Facts) -> list[str]:
    """Return the option that mounts a path of the host; which form depends on what the path holds."""
    paths = (mount.source, mount.target)
    if all(":" not in path and ends_alone(path) for path in paths):
        return ["--volume", ":".join(paths) + ("" if mount.write else ":ro")]
    # Directories only, and nothing in it can be quoted.
    if _is_directory(mount.source, facts) and all(fits_field(path) for path in paths):
        read_only = "" if mount.write else ",readonly"
        return ["--mount", f"type=bind,source={mount.source},target={mount.target}{read_only}"]
    raise unspeakable(mount.source)


def _guarded(path: str) -> str:
    # Blanks of CharacterSet.whitespaces are cut off at the ends: category Zs, and tabs.
    if unicodedata.category(path[-1]) == "Zs" or path[-1] == "\t":
        raise CoopError(
            f"Apple's container cannot guard {path!a}, which ends with a blank", "give it another name"
        )
    return path
