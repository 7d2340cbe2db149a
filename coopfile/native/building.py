"""Running the commands that a root file system is built with.

The sandbox is that of a run, on an overlay whose upper layer is kept on disk, with
nothing of the project and of the caller. There is one id in it: calls for others, for
devices and for file capabilities are answered with success, without effect.
"""

from __future__ import annotations

import os
import stat

from coopfile.errors import CoopError
from coopfile.native import preparing, runner, syscalls
from coopfile.native.layered import EVERYTHING, OWN_FILES, names
from coopfile.native.layout import devices, kernels_own
from coopfile.native.operations import Bind, Operation, Scratch, Write
from coopfile.native.overlay import OverlayRoot
from coopfile.native.runner import Outcome
from coopfile.native.tree import Layout
from coopfile.plan.launch import PATH, Host, Launch
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopfile.language.items import HostPattern
    from coopfile.native.operations import Tree
    from coopfile.plan.model import Limits

_OWN = "/run/coop"
_ENVIRONMENT = {
    "PATH": PATH,
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "APT_CONFIG": f"{_OWN}/apt.conf",
}
# apt would become another user to download, and makes sure that it has.
_APT_CONF = 'APT::Sandbox::User "root";\n'
# By place inside: name below the step's scratch directory, mode.
_SCRATCH = {"/tmp": ("tmp", 0o1777), "/var/tmp": ("var-tmp", 0o1777), "/run": ("run", 0o755)}
_PLACES = ("/dev", "/etc", "/proc", "/root", *_SCRATCH)

_POLICY = "/usr/sbin/policy-rc.d"
_POLICY_TEXT = "#!/bin/sh\n# coop: no service is started while a root file system is built\nexit 101\n"

_SAME_TREE = syscalls.RESOLVE_NO_SYMLINKS | 0x08  # RESOLVE_BENEATH
_DEEPEST = 500  # directories in each other
_SET_IDS = stat.S_ISUID | stat.S_ISGID
_READABLE = stat.S_IRUSR | stat.S_IXUSR


class Step(Record):
    """One command of a build.

    ``layers`` are real paths, the highest first. ``upper`` (a real path) gets the changes and is
    kept between the steps of a stage; ``work`` is overlayfs's own directory, empty at first, on the
    same file system. Parts of ``scratch``, a real path, are /tmp, /var/tmp and /run. ``caches`` are
    (real path on the host, absolute path inside), writable. ``environment`` goes over what root has
    anywhere and what makes package managers work here. ``allow`` is for the network ``proxy``.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    layers: tuple[str, ...]
    upper: str
    work: str
    scratch: str
    caches: tuple[tuple[str, str], ...]
    network: str
    limits: Limits
    allow: tuple[HostPattern, ...] = ()


def run(step: Step, output: int | None, timeout: float | None = None) -> Outcome:
    """Run one step as root of its sandbox, in ``/``, and return when all of it is gone.

    ``output`` is a descriptor for both of its output streams, and there is no input; None gives it
    the caller's own streams. ``timeout`` is in seconds; at its end the status is ``runner.TIMED_OUT``.
    A signal that asks the caller to end takes effect as soon as everything is gone: SIGINT as
    KeyboardInterrupt. Other threads of the caller must block signals. Raises CoopError for what
    this machine cannot do.
    """
    for name, mode in _SCRATCH.values():
        _make_scratch(f"{step.scratch}/{name}", mode)
    launch = _launch(step)
    prepared = preparing.prepare_layout(launch, _layout(step, launch), building=True)
    outcome = runner.run(prepared, timeout=timeout, output=output)
    if outcome.interrupted is not None:
        os.kill(os.getpid(), outcome.interrupted)
    return outcome


def finish(upper: str) -> None:
    """Take out of a built layer what is coop's own, and the set-id bits of files.

    Afterwards the files that every sandbox has of its own are those of the layers below, and every
    directory can be read by its owner. Raises CoopError for a layer that is too deep.
    """
    os.chmod(upper, stat.S_IMODE(os.lstat(upper).st_mode) | 0o700)
    root = os.open(upper, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for path in OWN_FILES:
            _take_out(root, path)
        _take_out(root, _POLICY, _POLICY_TEXT.encode())
        _strip(root, 0)
    finally:
        os.close(root)


def _make_scratch(path: str, mode: int) -> None:
    try:
        os.mkdir(path)
        os.chmod(path, mode)
    except FileExistsError:
        pass


def _launch(step: Step) -> Launch:
    return Launch(
        argv=step.argv,
        environment={**_ENVIRONMENT, **step.environment},
        directory="/",
        uid=0,
        gid=0,
        user="root",
        home="/root",
        host=Host(os.geteuid(), os.getegid(), "root", "/", "/", "/", {}),
        mounts=(),
        protect=(),
        hide=(),
        network=step.network,
        limits=step.limits,
        allow=step.allow,
    )


def _layout(step: Step, launch: Launch) -> Layout:
    operations: list[Operation] = [
        Bind(f"{step.scratch}/{name}", place, True) for place, (name, _) in _SCRATCH.items()
    ]
    own = (("/dev", 0o755), ("/dev/shm", 0o1777), (_OWN, 0o755))
    operations += [Scratch(step.limits.tmp, own), *devices(), *names(launch)]
    operations += [Write(f"{_OWN}/apt.conf", _APT_CONF), NoServices(), *kernels_own()]
    operations += [Bind(source, target, True) for source, target in step.caches]
    places = (*_PLACES, *(target for _, target in step.caches))
    root = OverlayRoot(step.layers, step.upper, step.work, places)
    return Layout(root, tuple(operations), (), (), EVERYTHING, (), (), ())


class NoServices(Operation):
    """Keep Debian's packages from starting services when they are installed: invoke-rc.d(8)."""

    def describe(self) -> str:
        """Return the step as one line for people."""
        return f"write      {_POLICY} (no service is started)"

    def execute(self, tree: Tree) -> None:
        """Put Debian's answer there, unless the image has one, or is no Debian."""
        if os.path.isfile("./usr/sbin/invoke-rc.d") and not os.path.lexists("." + _POLICY):
            descriptor = os.open("." + _POLICY, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o755)
            os.write(descriptor, _POLICY_TEXT.encode())
            os.close(descriptor)


def _take_out(root: int, path: str, content: bytes | None = None) -> None:
    """Remove a file or a whiteout of a layer, or only a file of a certain content, if it is there.

    What the layer has of links on the way was made by the build, and would lead anywhere.
    """
    directory, _, name = path.strip("/").rpartition("/")
    try:
        parent = syscalls.openat2(root, directory, os.O_RDONLY | os.O_DIRECTORY, _SAME_TREE)
    except OSError:
        return
    try:
        if content is None or _read(parent, name, len(content) + 1) == content:
            os.unlink(name, dir_fd=parent)
    except (FileNotFoundError, IsADirectoryError):
        pass
    finally:
        os.close(parent)


def _read(parent: int, name: str, most: int) -> bytes:
    """Return the beginning of a regular file; nothing of what is something else, or not there."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=parent)
    except OSError:
        return b""
    try:
        return os.read(descriptor, most) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    finally:
        os.close(descriptor)


def _strip(directory: int, depth: int) -> None:
    """Take the set-id bits from every file below an open directory, and let its directories be read."""
    if depth > _DEEPEST:
        raise CoopError(f"the build left directories more than {_DEEPEST} deep in each other")
    with os.scandir(directory) as entries:
        found = [(entry.name, entry.stat(follow_symlinks=False).st_mode) for entry in entries]
    for name, mode in found:
        if stat.S_ISREG(mode) and mode & _SET_IDS:
            _chmod(directory, name, stat.S_IMODE(mode) & ~_SET_IDS)
        elif stat.S_ISDIR(mode):
            if mode & _READABLE != _READABLE:
                _chmod(directory, name, stat.S_IMODE(mode) | _READABLE)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(name, flags, dir_fd=directory)
            try:
                _strip(below, depth + 1)
            finally:
                os.close(below)


def _chmod(directory: int, name: str, mode: int) -> None:
    """Change the mode of what is no link, whatever its mode is now."""
    place = os.open(name, syscalls.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.chmod(f"/proc/self/fd/{place}", mode)  # the kernel takes no mode through O_PATH itself
    finally:
        os.close(place)
