"""What the native runner will do, in order, in words."""

from __future__ import annotations

from coopfile.native import landlock, seccomp, syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from coopfile.native.prepared import Prepared


def operations(prepared: Prepared) -> Iterator[str]:
    """Yield one line per step from the first namespace to the command."""
    launch = prepared.launch
    names = ["user", "pid", "mount", "uts", "ipc", "cgroup"]
    if launch.network != "host":
        names.append("net")
    yield f"namespaces {' '.join(names)}"
    yield f"id map     uid {launch.uid} -> {launch.host.uid}, gid {launch.gid} -> {launch.host.gid}"
    yield prepared.layout.root.describe()
    yield "pivot_root"
    yield "unmount    the host's tree"
    for operation in prepared.layout.operations:
        yield operation.describe()
    for directory, paths in prepared.layout.held:
        yield f"hold       {directory}: {' '.join(paths)} (an empty directory in place of what is missing)"
    for guard in prepared.layout.guards:
        yield guard.describe()
    yield "hostname   coop"
    if launch.network != "host":
        yield "loopback   up"
    if prepared.means:
        yield f"connect    {', else '.join(means.title for means in prepared.means)}"
        yield "filter     the host, its networks, and what is local, private or metadata (in nf_tables)"
    yield "keyring    new and empty"
    yield f"directory  {launch.directory}"
    for name in sorted(launch.environment):
        yield f"variable   {name}"
    for controller, how in prepared.enforcement.how:
        yield f"limit      {controller} ({how})"
    yield "drop       every capability"
    yield "no_new_privs"
    if prepared.landlock_abi:
        rights = bin(landlock.handled_rights(prepared.landlock_abi)).count("1")
        places = len(prepared.layout.landlock)
        yield f"landlock   ABI {prepared.landlock_abi}: {rights} rights, denied but on {places} paths"
    denied = len(seccomp.DENIED) + len(seccomp.ABSENT)
    yield f"seccomp    {denied} calls, {len(seccomp.DENIED_IOCTLS)} ioctls, other ABIs ({syscalls.MACHINE})"
    yield f"execute    {' '.join(launch.argv)}"
