"""A root file system of layers: what differs from a sandbox on the host's own tools."""

from __future__ import annotations

from coopfile.native.layout import NAMES, devices
from coopfile.native.operations import Operation, Root, Scratch
from coopfile.native.overlay import Account, OverlayRoot, Replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.plan.launch import Launch

_LARGEST_RESOLV_CONF = 65536
RESOLV_CONF = "/etc/resolv.conf"
# What every sandbox has of its own, whatever a layer says.
OWN_FILES = (*NAMES, RESOLV_CONF)


def on_layers(
    launch: Launch, layers: tuple[str, ...]
) -> tuple[Root, list[Operation], list[tuple[str, bool]]]:
    """Return the root, the operations and the Landlock rules of a sandbox on layers."""
    scratch = (("/tmp", 0o1777), ("/dev", 0o755), ("/dev/shm", 0o1777))
    operations: list[Operation] = [Scratch(launch.limits.tmp, scratch), *devices()]
    operations.append(Account(launch.user, launch.uid, launch.gid, launch.home))
    operations += names(launch)
    return OverlayRoot(layers), operations, list(EVERYTHING)


# Rights to / are rights to all below it; what is read-only there is so by its mount.
EVERYTHING = (("/", True),)


def names(launch: Launch) -> list[Operation]:
    """Return what replaces the image's own names of hosts."""
    operations: list[Operation] = [Replace(path, text) for path, text in NAMES.items()]
    if launch.network == "host":
        with open(RESOLV_CONF, encoding="utf-8", errors="replace") as file:
            operations.append(Replace(RESOLV_CONF, file.read(_LARGEST_RESOLV_CONF)))
    elif launch.network == "veth":
        from coopfile.native import dns

        operations.append(Replace(RESOLV_CONF, dns.resolv_conf()))
    return operations
