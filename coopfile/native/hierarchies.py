"""Where this process may make control groups, and why not elsewhere."""

from __future__ import annotations

import os

from coopfile.native.cgroups import CONTROLLERS, Hierarchy, mounted, read
from coopfile.record import Record


class Reason(Record):
    """Why a controller cannot be used here."""

    controller: str
    why: str


def find(
    own: str | None = None, mounts: str | None = None, wanted: tuple[str, ...] = CONTROLLERS
) -> tuple[tuple[Hierarchy, ...], tuple[Reason, ...]]:
    """Return where groups can be made for the controllers wanted, and why not for the others.

    ``own`` and ``mounts`` are the texts of /proc/self/cgroup and /proc/self/mountinfo.
    """
    places = mounted(read("/proc/self/mountinfo") if mounts is None else mounts)
    found: dict[tuple[str, int], list[str]] = {}
    reasons: dict[str, str] = {}
    for line in (read("/proc/self/cgroup") if own is None else own).splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if not names:
            _find_unified(places, path, wanted, found, reasons)
        for name in names.split(","):
            if name in wanted and name in places:
                directory = _below(places[name], path)
                if directory and os.access(directory, os.W_OK):
                    found.setdefault((directory, 1), []).append(name)
                else:
                    reasons[name] = f"{directory or path} (cgroup v1) is not writable for you"
    used = {name for names in found.values() for name in names}
    missing = [
        Reason(name, reasons.get(name, "no cgroup hierarchy on this machine has this controller"))
        for name in wanted
        if name not in used
    ]
    hierarchies = [Hierarchy(path, version, tuple(names)) for (path, version), names in found.items()]
    return tuple(hierarchies), tuple(missing)


def _find_unified(
    places: dict[str, tuple[str, str]],
    path: str,
    wanted: tuple[str, ...],
    found: dict[tuple[str, int], list[str]],
    reasons: dict[str, str],
) -> None:
    """Look for a v2 group beside our own: one with processes in it cannot have limited children."""
    own = _below(places["unified"], path) if "unified" in places else None
    if own is None:
        return
    parent = own if path == "/" else os.path.dirname(own)
    enabled = read(f"{parent}/cgroup.subtree_control").split()
    writable = os.access(parent, os.W_OK) and os.access(f"{parent}/cgroup.procs", os.W_OK)
    for name in read(f"{own}/cgroup.controllers").split():
        if name not in wanted:
            continue
        if name not in enabled:
            reasons[name] = f"{parent}/cgroup.subtree_control does not enable it"
        elif not writable:
            reasons[name] = f"{parent} (cgroup v2) is not delegated to you"
        else:
            found.setdefault((parent, 2), []).append(name)


def _below(place: tuple[str, str], path: str) -> str | None:
    """Return where a group of /proc/self/cgroup is mounted; None when it is outside the mount."""
    mount_point, root = place
    if root != "/":
        if path != root and not path.startswith(root + "/"):
            return None
        path = path[len(root) :]
    return (mount_point + path).rstrip("/")


def unified_only(mounts: str | None = None) -> bool:
    """Tell whether this machine has cgroup v2 and no v1 controllers."""
    places = mounted(read("/proc/self/mountinfo") if mounts is None else mounts)
    return "unified" in places and not places.keys() & set(CONTROLLERS)
