"""A root file system of layers: what differs from a sandbox on the host's own tools."""

from __future__ import annotations

import errno
import os

from coopfile.errors import CoopError
from coopfile.native import sources, syscalls
from coopfile.native.layout import NAMES, devices
from coopfile.native.operations import Operation, Root, Scratch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.native.operations import Tree
    from coopfile.plan.launch import Launch

_LARGEST = 1 << 20  # bytes of an account file
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


class OverlayRoot(Root):
    """A root of read-only layers, the highest first, under one that takes what is written.

    Without ``upper`` that is on the tmpfs that ``Scratch`` makes, and thrown away. ``work`` is
    overlayfs's own directory on the file system of ``upper``. ``places`` are directories that are
    there in any case, below all layers: what is mounted on them leaves nothing in ``upper``. All
    paths but these are real ones of the host. Sources: Documentation/filesystems/overlayfs.rst.
    """

    layers: tuple[str, ...]
    upper: str = ""
    work: str = ""
    places: tuple[str, ...] = ()

    @property
    def below(self) -> tuple[str, ...]:
        return self.layers

    def describe(self) -> str:
        return f"overlay    / ({' '.join(self.layers)}, under {self.upper or 'a tmpfs'})"

    def needs_disk(self) -> bool:
        """Tell whether ``upper`` has to be given: tmpfs keeps users' attributes from Linux 6.6 on."""
        major, minor, _ = os.uname().release.split(".", 2)
        return not self.upper and (int(major), int(minor)) < (6, 6)

    def prepare(self, tree: Tree) -> None:
        paths = (*self.layers, self.upper, self.work) if self.upper else self.layers
        tree.layers += [sources.open_real(path) for path in paths]

    def mount(self, tree: Tree, stage: str) -> None:
        # By descriptor: a path may hold the characters that divide options and layers.
        lower = [f"/proc/self/fd/{layer}" for layer in tree.layers]
        if self.upper:
            work, upper = lower.pop(), lower.pop()
            remedy = "keep coop's data on a file system that does: ext4, xfs, btrfs"
        else:
            upper, work = f"{tree.aside}/upper", f"{tree.aside}/work"
            os.mkdir(upper, 0o755)
            os.mkdir(work)
            remedy = "a kernel that is built with CONFIG_TMPFS_XATTR"
        _check_attributes(upper, self.upper or "this kernel's tmpfs", remedy)
        if self.places:
            lower.append(f"{tree.aside}/places")
            for place in self.places:
                os.makedirs(lower[-1] + place, exist_ok=True)
        if tree.keeps_upper:
            tree.upper = os.open(upper, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        options = f"userxattr,xino=off,lowerdir={':'.join(lower)},upperdir={upper},workdir={work}"
        flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
        try:
            syscalls.mount("overlay", stage, "overlay", flags, options)
        except OSError as error:
            raise _explain(error) from None
        for layer in tree.layers:
            os.close(layer)

    def execute(self, tree: Tree) -> None:
        """Leave it writable: it is the sandbox's own."""


def _check_attributes(upper: str, name: str, remedy: str) -> None:
    """Refuse a file system that would lose what replaces a directory of a layer."""
    try:
        os.setxattr(upper, "user.coop", b"1")
        os.removexattr(upper, "user.coop")
    except OSError:
        raise CoopError(
            f"{name} keeps no attributes, which a root file system of layers needs", remedy
        ) from None


def _explain(error: OSError) -> CoopError:
    """Return why a root file system of layers cannot be mounted here."""
    if error.errno == errno.ENODEV:
        return CoopError("this kernel has no overlay file system", "as root: modprobe overlay")
    if error.errno == errno.EPERM:
        return CoopError(
            "this kernel mounts no overlay file system in a user namespace",
            'Linux 5.11 or newer, or a container engine: sandbox.backend = "podman"',
        )
    return CoopError(
        f"overlayfs does not take the directories of this root file system: {error.strerror}",
        "keep coop's data on a file system that can be an upper layer: ext4, xfs or btrfs; no overlay or NFS",
    )


class Account(Operation):
    """A line for the sandbox's user in the image's own account files, and its home."""

    user: str
    uid: int
    gid: int
    home: str

    def describe(self) -> str:
        return f"account    {self.user} ({self.uid}:{self.gid}, {self.home})"

    def execute(self, tree: Tree) -> None:
        os.makedirs("." + self.home, mode=0o700, exist_ok=True)
        os.makedirs("./etc", exist_ok=True)
        for name, number, line in (
            ("passwd", self.uid, f"{self.user}:x:{self.uid}:{self.gid}:{self.user}:{self.home}:/bin/sh"),
            ("group", self.gid, f"{self.user}:x:{self.gid}:"),
        ):
            try:
                with open(
                    f"./etc/{name}", encoding="utf-8", errors="surrogateescape", opener=_without_waiting
                ) as file:
                    lines = file.read(_LARGEST).splitlines()
            except FileNotFoundError:
                lines = []
            known = [other.split(":") for other in lines]
            if any(fields[2:3] == [str(number)] for fields in known):
                continue
            kept = [other for other, fields in zip(lines, known, strict=True) if fields[0] != self.user]
            replace(f"./etc/{name}", "\n".join([line, *kept, ""]).encode("utf-8", "surrogateescape"))


def _without_waiting(path: str, flags: int) -> int:
    """Open a file for ``open``; nobody will ever write to a pipe of an image."""
    return os.open(path, flags | os.O_NONBLOCK)


class Replace(Operation):
    """A file of the image's, replaced in the sandbox by one of its own."""

    path: str
    content: str

    def describe(self) -> str:
        return f"write      {self.path} ({len(self.content.encode())} bytes)"

    def execute(self, tree: Tree) -> None:
        os.makedirs("." + os.path.dirname(self.path), exist_ok=True)
        replace("." + self.path, self.content.encode())


def replace(path: str, content: bytes) -> None:
    """Put a new file in a path's place, whatever was there but a directory."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    os.write(descriptor, content)
    os.close(descriptor)
