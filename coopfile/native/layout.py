"""Launch to operations: what the sandbox's file tree is made of, in order.

The host is looked at (which of these paths exist, where links lead) but not touched.
"""

from __future__ import annotations

import os
import stat

from coopfile.errors import CoopError
from coopfile.native import kept
from coopfile.native.links import resolve
from coopfile.native.operations import (
    Bind,
    Devpts,
    Directory,
    EmptyRoot,
    Hide,
    Keep,
    Operation,
    Pin,
    Proc,
    Protect,
    Root,
    Scratch,
    Symlink,
    Tool,
    Write,
)
from coopfile.native.tree import Layout
from coopfile.plan.bind import fences, guarded
from coopfile.plan.hosttools import DEVICES, ETC, PROC_MASKED, SCRATCH, TOOLS
from coopfile.plan.launch import inside, parents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopfile.plan.launch import Fence, Launch, Mount

DEVICE_LINKS = (
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/ptmx", "pts/ptmx"),
)

NAMES = {"/etc/hostname": "coop\n", "/etc/hosts": "127.0.0.1\tlocalhost coop\n::1\tlocalhost\n"}

# Not to be mounted over: what the sandbox is made of.
_TAKEN = ("/proc", "/dev", "/sys", "/run")


def layout(
    launch: Launch,
    inputs: tuple[str, ...] = (),
    private: tuple[str, ...] = (),
    layers: tuple[str, ...] = (),
) -> Layout:
    """Lay out the sandbox on the host's own tools, or on a root file system of ``layers``.

    ``inputs`` are real paths of what the plan was made of, which no sandbox may change;
    ``private`` are real paths of coop's own state, which none may see; ``layers`` are real
    paths, the highest first.
    """
    if layers:
        from coopfile.native.layered import on_layers

        root, operations, landlock = on_layers(launch, layers)
    else:
        root, operations, landlock = _on_host_tools(launch)
    operations += kernels_own()

    mounts, skipped = present(launch)
    fenced = fences(launch, mounts, hidden(launch), inputs, private)
    around = _around(launch, mounts, fenced, inputs)
    for mount in sorted((*mounts, *launch.kept), key=lambda mount: mount.target.count("/")):
        if mount in launch.kept:
            operations.append(Keep(mount.source, mount.target))
        else:
            operations += (*around.pop(mount.target, ()), Bind(mount.source, mount.target, mount.write))
    # Hidden before protected: a guard that is there already is not replaced, and hiding says more.
    guards: list[Operation] = [Hide(fence.mount.target, path) for fence in fenced for path in fence.hide]
    # What is a mount of its own is read-only already, and may hold others that are not.
    own = {mount.target for mount in mounts}
    for fence in fenced:
        target = fence.mount.target
        guards += [(Pin if f"{target}/{path}" in own else Protect)(target, path) for path in fence.protect]
    held = tuple((fence.mount.source, fence.hold) for fence in fenced if fence.hold)
    landlock += [(mount.target, mount.write) for mount in mounts]
    return Layout(
        root,
        tuple(operations),
        tuple(guards),
        held,
        tuple(landlock),
        tuple(mount.source for mount in (*mounts, *launch.kept) if mount.write),
        (*guarded(fenced), *(place.real for place in kept.places(launch.kept, mounts))),
        launch.skipped + skipped,
    )


def _around(
    launch: Launch, mounts: Sequence[Mount], fenced: Sequence[Fence], inputs: Sequence[str]
) -> dict[str, list[Operation]]:
    """Return the guards that come before a mount, by its target: protecting a path protects all mounts in it.

    What the plan gives to be written in such a place it gives all the same, but in what no plan may give.
    """
    if len(mounts) < 2:
        return {}
    never = {*(f"{launch.host.workspace}/{path}" for path in launch.protect), *inputs}
    own = {mount.target for mount in mounts}
    found: dict[str, list[Operation]] = {}
    for mount in mounts:
        for fence in fenced if mount.write else ():
            target = fence.mount.target
            for path in fence.protect:
                place = f"{target}/{path}"
                if place in own or f"{fence.mount.source}/{path}" in never or not inside(mount.target, place):
                    continue
                hide = [Hide(target, other) for other in fence.hide if inside(other, path)]
                found.setdefault(mount.target, []).extend([*hide, Protect(target, path)])
    return found


def kernels_own() -> list[Operation]:
    """Return what every sandbox sees of the kernel; /proc, whose links lead anywhere, comes last."""
    return [Devpts(), Proc(tuple(name for name in PROC_MASKED if os.access(f"/proc/{name}", os.R_OK)))]


def _on_host_tools(launch: Launch) -> tuple[Root, list[Operation], list[tuple[str, bool]]]:
    operations = tools(launch)
    landlock = [
        (operation.target, False)
        for operation in operations
        if isinstance(operation, Tool) and not inside(operation.target, "/etc")
    ]
    scratch = (*((path, 0o1777) for path in SCRATCH), (launch.home, 0o700))
    above = dict.fromkeys(parent for path, _ in scratch for parent in parents(path))
    operations += map(Directory, above)
    operations += devices()
    operations.append(Scratch(launch.limits.tmp, scratch))
    landlock += [("/etc", False), ("/proc", False)]
    landlock += [(path, True) for path in ("/dev", *SCRATCH, launch.home)]
    return EmptyRoot(), operations, landlock


def tools(launch: Launch) -> list[Operation]:
    """Return what shows the host's own tools: programs, libraries, and of /etc what they need."""
    operations = [operation for tool in TOOLS for operation in _host_tool(tool)]
    return operations + _etc(launch)


def _host_tool(path: str) -> list[Operation]:
    try:
        return [Symlink(path, os.readlink(path))]
    except FileNotFoundError:
        return []
    except OSError:  # not a link
        tool = Tool(path, path, directory=True)
        parent = os.path.dirname(path)
        return [tool] if parent == "/" else [Directory(parent), tool]


def _etc(launch: Launch) -> list[Operation]:
    operations: list[Operation] = [Directory("/etc")]
    made = {"/etc"}
    for name in ETC:
        path = f"/etc/{name}"
        try:
            real, mode = path, os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                real = os.path.realpath(path)
                mode = os.lstat(real).st_mode
        except OSError:
            continue
        for parent in parents(path):
            if parent not in made:
                made.add(parent)
                operations.append(Directory(parent))
        linked = real != path and inside(real, "/usr")
        operations.append(Symlink(path, real) if linked else Tool(real, path, stat.S_ISDIR(mode)))
    user, uid, gid = launch.user, launch.uid, launch.gid
    accounts = {"root": "root:x:0:0:root:/root:/bin/sh"}
    groups = {"root": "root:x:0:"}
    accounts[user] = f"{user}:x:{uid}:{gid}:{user}:{launch.home}:{launch.host.shell}"
    groups[user] = f"{user}:x:{gid}:"
    operations += [
        Write("/etc/passwd", "\n".join([*accounts.values(), "nobody:x:65534:65534:nobody:/:/bin/false", ""])),
        Write("/etc/group", "\n".join([*groups.values(), "nogroup:x:65534:", ""])),
        *(Write(path, text) for path, text in NAMES.items()),
        Write("/etc/host.conf", "multi on\n"),  # or localhost would have one address only: host.conf(5)
        Write("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    ]
    if launch.network == "host":
        real = os.path.realpath("/etc/resolv.conf")
        if os.path.exists(real):
            operations.append(Tool(real, "/etc/resolv.conf"))
    elif launch.network == "veth":
        from coopfile.native import dns

        operations.append(Write(dns.RESOLV_CONF, dns.resolv_conf()))
    return operations


def devices() -> list[Operation]:
    """Return what every sandbox has in /dev, which is there."""
    operations: list[Operation] = [Tool(f"/dev/{name}", f"/dev/{name}", device=True) for name in DEVICES]
    operations += [Symlink(path, target) for path, target in DEVICE_LINKS]
    return operations


def present(launch: Launch) -> tuple[list[Mount], tuple[str, ...]]:
    """Return the launch's mounts with real sources, less those that the host does not have."""
    writable: list[str] = []
    mounts: list[Mount] = []
    skipped = []
    # Writable first: links inside them must not decide what the others are.
    for mount in sorted(launch.mounts, key=lambda mount: not mount.write):
        if any(inside(mount.target, taken) for taken in _TAKEN) or mount.target == "/":
            raise CoopError(f"{mount.source} cannot be mounted at {mount.target}: the sandbox has its own")
        source = resolve(mount.source, writable)
        if not os.path.lexists(source):
            skipped.append(f"{mount.source}: not on this host")
            continue
        if mount.write:
            writable.append(source)
        mounts.append(mount.replace(source=source))
    for mount in launch.mounts if len(writable) > 1 else ():
        resolve(mount.source, writable)  # again, now that all are known: one may hold another's links
    return mounts, tuple(skipped)


def hidden(launch: Launch) -> list[str]:
    """Return the real paths in the workspace that the launch's globs hide now."""
    if not launch.hide:
        return []
    from coopfile.native.hidden import expand

    return [f"{launch.host.workspace}/{path}" for path in expand(launch.host.workspace, launch.hide)]
