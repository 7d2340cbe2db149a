"""Looking at this machine for what a rendering has to know: the facts of one plan here."""

from __future__ import annotations

import os
import re
import stat

from coopfile.errors import CoopError
from coopfile.native import layout
from coopfile.native.layout import hidden, present
from coopfile.native.marks import is_placeholder
from coopfile.native.operations import Directory, Symlink, Tool, Write
from coopfile.native.sources import open_source
from coopfile.plan.bind import bind, fences
from coopfile.plan.launch import inside
from coopfile.record import Record
from coopfile.render.container import identify
from coopfile.render.facts import DIRECTORY, FILE, LINK, PLACEHOLDER, Entry, Facts
from coopfile.rootfs.tree import remove_tree
from coopfile.system import LINUX, system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from coopfile.native.operations import Operation
    from coopfile.plan.launch import Fence, Host, Launch, Mount
    from coopfile.plan.model import Plan
    from coopfile.render.facts import Engine

_ESCAPED = re.compile(rb"\\([0-7]{3})")
# Written by engines for each container.
_ENGINES_OWN = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf")


class Seen(Record):
    """What of the host's files a plan comes to, looked at once: see ``look``.

    ``mounts`` have real sources, and ``hidden`` are the real paths that its globs match.
    """

    engine: Engine | None
    launch: Launch
    mounts: tuple[Mount, ...]
    hidden: tuple[str, ...]
    inputs: tuple[str, ...]
    private: tuple[str, ...]
    fences: tuple[Fence, ...]


def facts(
    plan: Plan,
    host: Host,
    engine: Engine | None,
    *,
    inputs: Sequence[str] = (),
    private: Sequence[str] = (),
    masks: str = "",
) -> Facts:
    """Return what a rendering of a plan depends on here; nothing is changed.

    ``inputs`` and ``private`` are as ``look`` takes them, ``masks`` as ``facts_of`` does.
    """
    return facts_of(look(plan, host, engine, inputs, private), tools(plan, host, engine), masks)


def launched(plan: Plan, host: Host, engine: Engine | None) -> Launch:
    """Return the launch as who the caller can be in the container: that is whom its accounts have to know."""
    argv = ("true",)
    return identify(plan, host, engine, argv, system=system())[0] if engine else bind(plan, host, argv)


def tools(plan: Plan, host: Host, engine: Engine | None) -> tuple[Entry, ...]:
    """Return the root file system of the host's own tools, for a plan that is run on them."""
    if plan.base.image is not None or system() != LINUX:
        return ()
    return tuple(_entries(launched(plan, host, engine), engine))


def look(
    plan: Plan, host: Host, engine: Engine | None, inputs: Sequence[str] = (), private: Sequence[str] = ()
) -> Seen:
    """Return what a plan mounts and guards; ``inputs`` and ``private`` are those of ``bind.fences``."""
    launch = launched(plan, host, engine)
    mounts, _ = present(launch)
    for mount in mounts:
        descriptor = open_source(mount.source, write=mount.write)  # refuses sockets, devices and pipes
        if descriptor is not None:
            os.close(descriptor)
    unseen = hidden(launch)
    found = fences(launch, mounts, unseen, inputs, private)
    return Seen(engine, launch, tuple(mounts), tuple(unseen), tuple(inputs), tuple(private), found)


def facts_of(seen: Seen, tools: tuple[Entry, ...], masks: str, *, held: bool = False) -> Facts:
    """Return the facts of what was seen, with the kinds that things are of now.

    ``masks`` is the directory that ``make_masks`` made. ``held`` says that the places of
    protected paths are held: one that is missing all the same, where it could be made, is refused.
    """
    host = seen.launch.host
    by_target = {mount.target: mount.source for mount in seen.mounts}
    real = {
        mount.source: by_target[mount.target] for mount in seen.launch.mounts if mount.target in by_target
    }
    kinds = {mount.source: kind(mount.source) or FILE for mount in seen.mounts}
    for fence in seen.fences:
        kinds.update(_kinds(fence, held))
    return Facts(
        host=host,
        system=system(),
        engine=seen.engine,
        kinds=kinds,
        hidden=seen.hidden,
        real={path: leads for path, leads in real.items() if path != leads},
        inputs=seen.inputs,
        private=seen.private,
        mounted=tuple(
            _mounted((*by_target.values(), *(item.content for item in tools if item.kind == "bind")))
        ),
        temporary=tuple(dict.fromkeys(os.path.realpath(path) for path in _temporary(host))),
        tools=tools,
        masks=masks,
    )


def make_masks(state: str) -> str:
    """Make what stands in for hidden files and directories, below coop's own state; return where."""
    directory = f"{state}/masks"
    try:
        os.makedirs(directory, mode=0o755, exist_ok=True)
        for name in (FILE, DIRECTORY):
            path = f"{directory}/{name}"
            if _is_mask(path, name):
                continue
            remove_tree(path)
            if name == FILE:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0))
            else:
                os.mkdir(path, 0)
    except OSError as error:
        raise CoopError(f"{directory} cannot be made: {error.strerror}", "is its file system full?") from None
    return directory


def _is_mask(path: str, name: str) -> bool:
    """Tell whether what is there is ours, empty, and not to be opened by anybody."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    empty = (
        stat.S_ISREG(status.st_mode) and status.st_size == 0
        if name == FILE
        else stat.S_ISDIR(status.st_mode) and status.st_nlink <= 2
    )
    return empty and stat.S_IMODE(status.st_mode) == 0 and status.st_uid == os.geteuid()


def kind(path: str) -> str | None:
    """Return the kind of what is at a path, as ``Facts.kinds`` has it; None if there is nothing."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        _refuse_locked(os.path.dirname(path))
        return None  # somebody else's: the sandbox, which has no more rights, cannot open it either
    if stat.S_ISLNK(status.st_mode):
        return LINK
    if is_placeholder(status):
        return PLACEHOLDER
    return DIRECTORY if stat.S_ISDIR(status.st_mode) else FILE


def _refuse_locked(directory: str) -> None:
    """Refuse a directory of the caller's own that they may not search: the sandbox could open it again."""
    try:
        owner = os.lstat(directory).st_uid
    except PermissionError:
        _refuse_locked(os.path.dirname(directory))
        return
    except OSError:
        return
    if owner == os.geteuid():
        raise CoopError(
            f"{directory} cannot be searched, and what is in it cannot be guarded",
            f"chmod u+rwx {directory}",
        )


def _kinds(fence: Fence, held: bool) -> Iterator[tuple[str, str]]:
    root = fence.mount.source.rstrip("/")
    for path in (*fence.hide, *fence.protect):
        above = walked = root
        for name in path.split("/"):
            above, walked = walked, f"{walked}/{name}"
            found = kind(walked)
            if found is None:
                if held and path in fence.protect and os.access(above, os.W_OK):
                    raise CoopError(f"{walked} vanished while the sandbox started", "run the command again")
                break
            yield walked, found
            if found != DIRECTORY:
                break


def _mounted(roots: Sequence[str]) -> Iterator[str]:
    """Yield where something is mounted below some real paths: proc_pid_mountinfo(5)."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return  # not Linux: the engine is in a machine of its own
    found = {_ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), line.split(b" ")[4]) for line in lines}
    for path in sorted(os.fsdecode(place) for place in found):
        # What is mounted over it all hides others.
        if any(inside(path, root) and path != root for root in roots) and os.path.lexists(path):
            yield path


def _temporary(host: Host) -> Iterator[str]:
    given = host.environment.get("TMPDIR", "")
    if given.startswith("/") and os.path.isdir(given):
        yield given
    yield "/tmp"


def _entries(launch: Launch, engine: Engine | None) -> Iterator[Entry]:
    """Yield the root file system of the host's own tools, as the native runner lays it out."""
    for entry in _translated(layout.tools(launch)):
        if entry.path in _ENGINES_OWN:
            continue
        if entry.path == "/sbin" and entry.kind == "link" and engine is not None and engine.name == "docker":
            # Docker puts its PID 1 at /sbin/docker-init, which must not lead into the host's /usr.
            yield Entry("directory", "/sbin")
            target = os.path.join("/", entry.content)
            for name in sorted(os.listdir(target)):
                yield Entry("link", f"/sbin/{name}", f"{target}/{name}")
            continue
        yield entry


def _translated(operations: Iterable[Operation]) -> Iterator[Entry]:
    for operation in operations:
        if isinstance(operation, Tool):
            yield Entry("bind", operation.target, operation.source)
        elif isinstance(operation, Symlink):
            yield Entry("link", operation.path, operation.target)
        elif isinstance(operation, Directory):
            yield Entry("directory", operation.path)
        elif isinstance(operation, Write):
            yield Entry("file", operation.path, operation.content)
        else:
            raise AssertionError(operation)
