"""A root file system of layers: what differs from a sandbox on the host's own tools."""

from __future__ import annotations

import os

from coopfile.errors import CoopError
from coopfile.native import sources, syscalls
from coopfile.native.layout import NAMES, devices
from coopfile.native.operations import Operation, Root, Scratch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.native.operations import Tree
    from coopfile.plan.bind import Launch

_LARGEST = 1 << 20  # bytes of an account file
_LARGEST_RESOLV_CONF = 65536


def on_layers(
    launch: Launch, layers: tuple[str, ...]
) -> tuple[Root, list[Operation], list[tuple[str, bool]]]:
    """Return the root, the operations and the Landlock rules of a sandbox on layers."""
    scratch = (("/tmp", 0o1777), ("/dev", 0o755), ("/dev/shm", 0o1777))
    operations: list[Operation] = [Scratch(launch.limits.tmp, scratch), *devices()]
    operations.append(Account(launch.user, launch.uid, launch.gid, launch.home))
    operations += [Replace(path, text) for path, text in NAMES.items()]
    if launch.network == "host":
        with open("/etc/resolv.conf", encoding="utf-8", errors="replace") as file:
            operations.append(Replace("/etc/resolv.conf", file.read(_LARGEST_RESOLV_CONF)))
    # Rights to / are rights to all below it; what is read-only there is so by its mount.
    return OverlayRoot(layers), operations, [("/", True)]


class OverlayRoot(Root):
    """A root of read-only layers, the highest first, under one that is thrown away.

    What is written goes to the tmpfs that ``Scratch`` makes. ``layers`` are real paths.
    Sources: Documentation/filesystems/overlayfs.rst of the kernel.
    """

    layers: tuple[str, ...]

    def describe(self) -> str:
        return f"overlay    / ({' '.join(self.layers)}, under a tmpfs)"

    def prepare(self, tree: Tree) -> None:
        for path in self.layers:
            tree.layers.append(sources.open_real(path))

    def mount(self, tree: Tree, stage: str) -> None:
        upper, work = f"{tree.aside}/upper", f"{tree.aside}/work"
        os.mkdir(upper, 0o755)
        os.mkdir(work)
        self._check(upper)
        # By descriptor: a path may hold the characters that divide options and layers.
        lower = ":".join(f"/proc/self/fd/{layer}" for layer in tree.layers)
        options = f"userxattr,xino=off,lowerdir={lower},upperdir={upper},workdir={work}"
        flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
        syscalls.mount("overlay", stage, "overlay", flags, options)
        for layer in tree.layers:
            os.close(layer)

    def _check(self, upper: str) -> None:
        """Refuse a kernel that would lose what replaces a directory of a layer."""
        try:
            os.setxattr(upper, "user.coop", b"1")
            os.removexattr(upper, "user.coop")
        except OSError:
            raise CoopError(
                "this kernel's tmpfs keeps no attributes, which a root file system of layers needs",
                "Linux 6.6 or newer",
            ) from None

    def execute(self, tree: Tree) -> None:
        """Leave it writable: it is the sandbox's own."""


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
                with open(f"./etc/{name}", encoding="utf-8", errors="surrogateescape") as file:
                    lines = file.read(_LARGEST).splitlines()
            except FileNotFoundError:
                lines = []
            known = [other.split(":") for other in lines]
            if any(fields[2:3] == [str(number)] for fields in known):
                continue
            kept = [other for other, fields in zip(lines, known, strict=True) if fields[0] != self.user]
            replace(f"./etc/{name}", "\n".join([line, *kept, ""]).encode("utf-8", "surrogateescape"))


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
