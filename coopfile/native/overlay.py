"""The operations of a root file system of layers: what only it takes."""

from __future__ import annotations

import errno
import os

from coopfile.errors import CoopError
from coopfile.native import sources, syscalls
from coopfile.native.operations import Operation, Root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.native.operations import Tree

_LARGEST = 1 << 20  # bytes of an account file


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
        user = self.user.encode()
        for path, number, line in (
            (
                "./etc/passwd",
                self.uid,
                f"{self.user}:x:{self.uid}:{self.gid}:{self.user}:{self.home}:/bin/sh",
            ),
            ("./etc/group", self.gid, f"{self.user}:x:{self.gid}:"),
        ):
            try:
                lines = _lines(path)
            except FileNotFoundError:
                lines = []
            known = [other.split(b":") for other in lines]
            if any(fields[2:3] == [b"%d" % number] for fields in known):
                continue
            kept = [other for other, fields in zip(lines, known, strict=True) if fields[0] != user]
            replace(path, b"\n".join([line.encode(), *kept, b""]))


def _lines(path: str) -> list[bytes]:
    """Return the lines of an account file; nobody will ever write to a pipe of an image."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, min(os.fstat(descriptor).st_size, _LARGEST)).splitlines()
    finally:
        os.close(descriptor)


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
