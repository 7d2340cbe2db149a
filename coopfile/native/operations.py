"""The operations that make a sandbox's file tree, as data.

Each says what it does (``describe``), opens its source while the host's tree is
still there (``prepare``), and acts on the new root (``execute``). ``layout`` puts
them in order; ``tree.build`` runs them in one loop.
"""

from __future__ import annotations

import os
import stat

from coopfile.errors import CoopError
from coopfile.native import kept, namespaces, sources, syscalls
from coopfile.native.guards import Guards
from coopfile.plan.launch import inside
from coopfile.record import Record

_ROOTED = syscalls.RESOLVE_IN_ROOT | syscalls.RESOLVE_NO_MAGICLINKS
# What hides, by "is a directory", while the tree is built.
MASKS = {True: ".hidden-directory", False: ".hidden-file"}
_RESTRICTED = syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV


class Tree:
    """The file tree under construction: the new root, what is ours in it, what hangs in it.

    ``aside`` is a directory of the old root, which goes away with it. ``kept`` are those
    of ``mounted`` that hold what earlier runs left. With ``keeps_upper``, ``upper`` is a descriptor
    of the directory that takes what is written to a root of layers.
    """

    def __init__(self) -> None:
        self.root = -1
        self.aside = ""
        self.keeps_upper = False
        self.upper: int | None = None
        self.layers: list[int] = []
        self.own_devices: set[int] = set()
        self.prepared: dict[str, int] = {}
        self.mounted: dict[str, int] = {}
        self.kept: set[str] = set()
        self.guards = Guards()

    def adopt_root(self, descriptor: int) -> None:
        """Take the new root's file system; directories may be made in it."""
        self.root = descriptor
        self.own_devices.add(os.fstat(descriptor).st_dev)

    def parent_of(self, path: str) -> tuple[int, str]:
        """Return a descriptor of a path's directory, made if need be, and the last name."""
        parent, _, name = path.strip("/").rpartition("/")
        return (self.directory(parent) if parent else os.dup(self.root)), name

    def directory(self, path: str) -> int:
        """Open a directory of the new tree, making what is missing on our own file systems only."""
        flags = syscalls.O_PATH | os.O_DIRECTORY
        found = syscalls.openat2_if_there(self.root, path, flags, _ROOTED)
        return self._new_directory(path) if found is None else found

    def _new_directory(self, path: str) -> int:
        parent, name = self.parent_of(path)
        try:
            self._check_ours(parent, path)
            os.mkdir(name, 0o755, dir_fd=parent)
            return os.open(
                name, syscalls.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent
            )
        finally:
            os.close(parent)

    def mount_point(self, path: str, *, directory: bool) -> int:
        """Open the place that a mount goes to, made if need be."""
        found = syscalls.openat2_if_there(self.root, path, syscalls.O_PATH, _ROOTED)
        if found is not None:
            return found
        if directory:
            return self._new_directory(path)
        parent, name = self.parent_of(path)
        try:
            self._check_ours(parent, path)
            made = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444, dir_fd=parent)
            os.close(made)
            return os.open(name, syscalls.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        finally:
            os.close(parent)

    def attach(self, tree: int, path: str) -> None:
        """Mount a detached tree at a path of the new root."""
        is_directory = stat.S_ISDIR(os.fstat(tree).st_mode)
        holder = max((other for other in self.mounted if inside(path, other)), key=len, default="")
        try:
            if holder in self.kept:
                target = kept.open_place(
                    self.mounted[holder], path[len(holder) + 1 :], directory=is_directory
                )
            else:
                target = self.mount_point(path, directory=is_directory)
        except OSError as error:
            raise CoopError(
                f"nothing can be mounted at {path}: {error.strerror}",
                "is there something else in the image, or a link that leads nowhere?",
            ) from None
        if stat.S_ISDIR(os.fstat(target).st_mode) != is_directory:
            kind = "a file" if is_directory else "a directory"
            raise CoopError(f"{path} is {kind} inside the sandbox, and what has to be mounted there is not")
        syscalls.move_mount(tree, target)
        os.close(target)
        self.mounted[path] = tree

    def mask(self, directory: bool) -> int:
        """Return a detached read-only mount of something empty that nobody may open."""
        return syscalls.open_tree(self.root, MASKS[directory], _RESTRICTED | syscalls.MOUNT_ATTR_RDONLY)

    def _check_ours(self, parent: int, path: str) -> None:
        if os.fstat(parent).st_dev not in self.own_devices:
            raise CoopError(
                f"/{path.strip('/')} does not exist inside the sandbox, and making it would change the host",
                "create it on the host first, or name a path outside the workspace and the writable files",
            )


class Operation(Record):
    """One step; subclasses act in ``prepare`` (host's tree) and ``execute`` (new tree)."""

    def describe(self) -> str:
        """Return the step as one line for people."""
        raise NotImplementedError

    def prepare(self, tree: Tree) -> None:
        """Open what the step needs of the host."""

    def cover(self, tree: Tree) -> None:
        """Cover a place of the host's tree, when everything that is needed of it is open."""

    def execute(self, tree: Tree) -> None:
        """Act on the new tree."""
        raise NotImplementedError


class Root(Operation):
    """The root file system: mounted before everything else, and finished (``execute``) after it."""

    @property
    def below(self) -> tuple[str, ...]:
        """Real paths of the layers below what is written, the highest first."""
        return ()

    def needs_disk(self) -> bool:
        """Tell whether what is written has to be on disk, with this kernel."""
        return False

    def mount(self, tree: Tree, stage: str) -> None:
        """Mount it at a place of the host's tree."""
        raise NotImplementedError


class EmptyRoot(Root):
    """A root that holds what the other operations put into it, and is read-only in the end."""

    def describe(self) -> str:
        return "tmpfs      / (read-only)"

    def mount(self, tree: Tree, stage: str) -> None:
        options = "mode=0755,size=4m,nr_inodes=4096"
        syscalls.mount("tmpfs", stage, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)

    def execute(self, tree: Tree) -> None:
        syscalls.mount_setattr(tree.root, syscalls.MOUNT_ATTR_RDONLY, recursive=False)


class Directory(Operation):
    """An empty directory of the root file system; its parent is there."""

    path: str

    def describe(self) -> str:
        return f"directory  {self.path}"

    def execute(self, tree: Tree) -> None:
        os.mkdir("." + self.path, 0o755)


class Symlink(Operation):
    """A symbolic link of the root file system."""

    path: str
    target: str

    def describe(self) -> str:
        return f"symlink    {self.path} -> {self.target}"

    def execute(self, tree: Tree) -> None:
        os.symlink(self.target, "." + self.path)


class Write(Operation):
    """A small file of the sandbox's own."""

    path: str
    content: str

    def describe(self) -> str:
        return f"write      {self.path} ({len(self.content.encode())} bytes)"

    def execute(self, tree: Tree) -> None:
        descriptor = os.open("." + self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444)
        os.write(descriptor, self.content.encode())
        os.close(descriptor)


class Tool(Operation):
    """A path of the host that every sandbox has, read-only, in a directory of the root file system.

    The host's tools and devices are root's, so nobody can be changing them meanwhile. Read-only
    is, for a device, about its node: root inside owns the host's and could change its mode.
    """

    source: str
    target: str
    directory: bool = False
    device: bool = False

    def describe(self) -> str:
        to = "" if self.source == self.target else f" -> {self.target}"
        return f"bind       {self.source}{to} ({'device' if self.device else 'read-only'})"

    def prepare(self, tree: Tree) -> None:
        attributes = syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NOSUID
        attributes |= syscalls.MOUNT_ATTR_NOEXEC if self.device else syscalls.MOUNT_ATTR_NODEV
        tree.prepared[self.target] = syscalls.open_tree(syscalls.AT_FDCWD, self.source, attributes)

    def execute(self, tree: Tree) -> None:
        copy = tree.prepared.pop(self.target)
        place = "." + self.target
        if self.directory:
            os.mkdir(place, 0o755)
        else:
            os.mknod(place, 0o444)
        syscalls.move_mount(copy, syscalls.AT_FDCWD, place)
        os.close(copy)


class Bind(Operation):
    """A path that the plan gives. ``source`` is a real path; a host without it has no such mount."""

    source: str
    target: str
    write: bool

    def describe(self) -> str:
        to = "" if self.source == self.target else f" -> {self.target}"
        return f"bind       {self.source}{to} ({'read-write' if self.write else 'read-only'})"

    def prepare(self, tree: Tree) -> None:
        source = sources.open_source(self.source, write=self.write)
        if source is None:
            return
        attributes = _RESTRICTED | (0 if self.write else syscalls.MOUNT_ATTR_RDONLY)
        tree.prepared[self.target] = syscalls.open_tree(source, attributes=attributes)
        os.close(source)

    def execute(self, tree: Tree) -> None:
        copy = tree.prepared.pop(self.target, None)
        if copy is not None:
            tree.attach(copy, self.target)


class Keep(Operation):
    """A directory of coop's own, which outlives the run. ``source`` is a real path.

    Without it, where it could not be made, the sandbox has what it would have had otherwise.
    """

    source: str
    target: str

    def describe(self) -> str:
        return f"keep       {self.source} -> {self.target} (read-write)"

    def prepare(self, tree: Tree) -> None:
        try:
            source = kept.opened(self.source)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return
        tree.prepared[self.target] = syscalls.open_tree(source, attributes=_RESTRICTED)
        os.close(source)

    def execute(self, tree: Tree) -> None:
        copy = tree.prepared.pop(self.target, None)
        if copy is not None:
            tree.attach(copy, self.target)
            tree.kept.add(self.target)


class Scratch(Operation):
    """One tmpfs of ``size`` bytes behind every path that is writable and thrown away."""

    size: int
    places: tuple[tuple[str, int], ...]

    def describe(self) -> str:
        return f"tmpfs      {' '.join(path for path, _ in self.places)} ({self.size} bytes in all)"

    def cover(self, tree: Tree) -> None:
        base = tree.aside  # needs no unmounting, for which the kernel would wait: namespace_unlock
        options = f"mode=0755,size={self.size},nr_inodes={max(self.size // 4096, 1024)}"
        syscalls.mount("tmpfs", base, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
        tree.own_devices.add(os.stat(base).st_dev)
        for number, (path, mode) in enumerate(self.places):
            part = f"{base}/{number}"
            os.mkdir(part)
            os.chmod(part, mode)
            tree.prepared[path] = syscalls.open_tree(syscalls.AT_FDCWD, part)

    def execute(self, tree: Tree) -> None:
        for path, _ in self.places:
            copy = tree.prepared.pop(path)
            _make_directory(path)
            syscalls.move_mount(copy, syscalls.AT_FDCWD, "." + path)
            os.close(copy)


def _make_directory(path: str) -> None:
    """Make a directory of the new root, with those above it, unless it is there."""
    try:
        os.mkdir("." + path)
    except FileExistsError:
        pass
    except FileNotFoundError:
        os.makedirs("." + path)


class Proc(Operation):
    """The processes of this PID namespace, read-only, without what tells about the machine."""

    masked: tuple[str, ...]

    def describe(self) -> str:
        return f"proc       /proc (read-only; masked: {' '.join(self.masked)})"

    def cover(self, tree: Tree) -> None:
        if "/proc" not in tree.prepared:
            tree.prepared["/proc"] = namespaces.processes()

    def execute(self, tree: Tree) -> None:
        proc = tree.prepared.pop("/proc")
        tree.attach(proc, "/proc")
        for name in self.masked:
            place = f"/proc/{name}"
            try:
                mask = MASKS[stat.S_ISDIR(os.stat("." + place).st_mode)]
            except FileNotFoundError:
                continue
            syscalls.mount(f"./{mask}", "." + place, None, syscalls.MS_BIND)
        syscalls.mount_setattr(proc, _RESTRICTED | syscalls.MOUNT_ATTR_RDONLY)  # and all that is on it


class Devpts(Operation):
    """Pseudo-terminals of the sandbox's own."""

    def describe(self) -> str:
        return "devpts     /dev/pts"

    def execute(self, tree: Tree) -> None:
        os.mkdir("./dev/pts")
        flags = syscalls.MS_NOSUID | syscalls.MS_NOEXEC
        syscalls.mount("devpts", "./dev/pts", "devpts", flags, "newinstance,ptmxmode=0666,mode=0600")


class Protect(Operation):
    """A path below a writable mount that stays as it is: read-only, not movable, not creatable."""

    mount: str
    path: str

    def describe(self) -> str:
        return f"protect    {self.mount}/{self.path}"

    def execute(self, tree: Tree) -> None:
        if self.mount in tree.mounted:
            tree.guards.protect(tree.mounted[self.mount], self.path)


class Pin(Operation):
    """A mount inside another: what is on the way to it is not movable."""

    mount: str
    path: str

    def describe(self) -> str:
        return f"pin        {self.mount}/{self.path}"

    def execute(self, tree: Tree) -> None:
        if self.mount in tree.mounted:
            tree.guards.pin(tree.mounted[self.mount], self.path)


class Hide(Operation):
    """A path below a mount whose content nobody sees."""

    mount: str
    path: str

    def describe(self) -> str:
        return f"hide       {self.mount}/{self.path}"

    def execute(self, tree: Tree) -> None:
        if self.mount in tree.mounted:
            tree.guards.hide(tree.mounted[self.mount], self.path, tree.mask)
