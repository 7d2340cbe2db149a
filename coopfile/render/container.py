"""Plan and facts to one container: what every engine is told, before it becomes an engine's argv.

Pure. A promise of the plan that the engine cannot keep is refused, a hole, or a listed
weakening: see ``Container``.
"""

from __future__ import annotations

from coopfile.errors import CoopError
from coopfile.language.items import LocalImage
from coopfile.plan.bind import bind, fences
from coopfile.plan.canonical import digest
from coopfile.plan.hosttools import SCRATCH
from coopfile.plan.launch import Mount, Weakening, inside, parents
from coopfile.plan.promises import thrown_away, unkept
from coopfile.plan.reach import VARIABLES
from coopfile.plan.sessions import slug
from coopfile.record import Record
from coopfile.render.facts import DIRECTORY, LINK
from coopfile.render.images import on_engine, reference
from coopfile.render.networks import is_served, refuse_network, shown_interfaces, unpublished, wider_network

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from coopfile.language.items import PublishedPort
    from coopfile.plan.launch import Fence, Host, Launch
    from coopfile.plan.model import Plan
    from coopfile.render.facts import Engine, Facts

LABEL_MANAGED = "coop.managed"
LABEL_OWNER = "coop.owner"
LABEL_PLAN = "coop.plan"
LABEL_SESSION = "coop.session"
HOSTNAME = "coop"
STOP_GRACE = 5  # seconds between asking to end and ending

# What is mounted by the engine itself; /dev/shm has an option of its own.
_TAKEN = ("/proc", "/dev", "/sys")
_SHM = "/dev/shm"


class Scratch(Record):
    """A tmpfs: writable, empty at the start, gone at the end. ``size`` is in bytes."""

    target: str
    size: int
    mode: int
    uid: int
    gid: int


class Container(Record):
    """One container of one engine.

    ``user`` is ``uid:gid`` inside. ``identities`` is the engine's user namespace mode:
    None for its default, ``keep-id`` or ``host``. ``environment`` holds literal values;
    ``inherited`` are (variable, the host's variable). ``mounts`` are in the order in
    which they have to be made; ``kept`` are those of their sources that outlive the
    container, and that coop makes. ``cpus`` is in thousandths. ``holes`` are what gives the
    sandbox more than the plan: they may be shown to people, but nothing with holes may
    be run. ``skipped`` says which of the plan's paths and variables this host does not have.
    ``writable`` is for a root file system whose changes are to be committed.
    ``served`` says that coop listens in its network, or leads connections into it, and ``joined`` is then
    the container whose network it shares: see ``Neighbour``.
    """

    engine: Engine
    name: str
    labels: tuple[tuple[str, str], ...]
    image: str
    argv: tuple[str, ...]
    directory: str
    user: str
    identities: str | None
    environment: tuple[tuple[str, str], ...]
    inherited: tuple[tuple[str, str], ...]
    mounts: tuple[Mount, ...]
    kept: tuple[str, ...]
    scratch: tuple[Scratch, ...]
    shm: int
    network: str
    publish: tuple[PublishedPort, ...]
    memory: int | None
    swap: bool
    cpus: int | None
    pids: int | None
    runtime: str | None
    terminal: bool
    holes: tuple[Weakening, ...]
    weakenings: tuple[Weakening, ...]
    skipped: tuple[str, ...]
    writable: bool = False
    served: bool = False
    joined: str = ""


class Request(Record):
    """What is asked for beside the plan.

    ``token`` makes the name unique; ``owner`` is the value of the label that tells
    whose container it is; ``terminal`` asks for a TTY. ``held`` says that whoever runs
    it holds the places of protected paths that do not exist, where they could be made.
    ``session`` is the id of the session that the container is, which names it instead of the token.
    Such a one also starts what ``Container.served`` takes.
    """

    argv: tuple[str, ...] = ()
    token: str = "run"
    owner: str | None = None
    terminal: bool = False
    held: bool = False
    session: str = ""


def container(plan: Plan, facts: Facts, request: Request) -> Container:
    """Return the container that a plan comes to with the engine of the facts.

    Raises CoopError for what the engine would have to give the sandbox beyond the plan.
    """
    engine = facts.engine
    assert engine is not None
    refuse(plan, facts.system, engine)
    launch, identities, weakened = identify(plan, facts.host, engine, request.argv, system=facts.system)
    if plan.network.mode == "proxy":
        launch = launch.replace(environment={**VARIABLES, **launch.environment})
    if not launch.argv[0]:
        raise CoopError("the name of the program is empty")
    mounts, skipped = _mounts(launch, facts)
    fenced = fences(launch, mounts, facts.hidden, facts.inputs, facts.private)
    missing: list[str] = []
    targets = [mount.target for mount in mounts]
    guards = [guard for fence in fenced for guard in _guards(fence, targets, facts, missing)]
    own = facts.tools if plan.base.image is None else ()
    tools = [Mount(entry.content, entry.path, False) for entry in own if entry.kind == "bind"]
    accounts = (
        [Mount(f"{facts.accounts}/{name}", f"/etc/{name}", False) for name in ("passwd", "group")]
        if facts.accounts
        else []
    )
    shown = [*tools, *accounts, *mounts, *launch.kept, *guards]
    within = _mounted_within(shown, facts.mounted)
    runtime = plan.sandbox.runtime or engine.runtime
    refuse_network(plan, engine, runtime, held=request.held)
    served = request.held and is_served(plan, engine, runtime)
    limits = _held(engine, runtime)
    writable = bool(request.session) and plan.session.commit != "never" and plan.base.image is not None
    if writable:
        _refuse_uncommitted(engine, runtime)
    return Container(
        engine=engine,
        name=f"coop-{request.session}" if request.session else _name(facts.host.workspace, request.token),
        labels=_labels(plan, request),
        image=reference(plan, facts.tools),
        argv=launch.argv,
        directory=launch.directory,
        user=f"{launch.uid}:{launch.gid}",
        identities=identities,
        environment=_literals(launch),
        inherited=launch.inherited,
        mounts=(*tools, *accounts, *_outermost_first([*mounts, *launch.kept, *guards, *within])),
        kept=tuple(mount.source for mount in launch.kept),
        scratch=_scratch(launch, [*mounts, *launch.kept]),
        shm=plan.limits.tmp,
        network=plan.network.mode,
        publish=plan.network.publish if plan.network.mode == "veth" else (),
        memory=plan.limits.memory if "memory" in limits else None,
        swap="swap" in limits,
        cpus=plan.limits.cpus if "cpu" in limits else None,
        pids=plan.limits.pids if "pids" in limits else None,
        runtime=runtime,
        terminal=request.terminal,
        holes=(*wider_network(plan, engine), *_unheld(() if request.held else missing)),
        weakenings=(
            *weakened,
            *_limits(plan, engine, limits, runtime),
            *_unfiltered(engine, runtime),
            *_own_view(engine),
            *_unmasked(engine, runtime, launch.uid),
            *(item for item in unkept(plan) if not (writable and item.key == "session.commit")),
            *(() if request.session else thrown_away(plan)),
            *(shown_interfaces(identities) if served else unpublished(plan)),
            *(_uncounted() if writable else ()),
        ),
        skipped=(*launch.skipped, *skipped),
        writable=writable,
        served=served,
    )


def _refuse_uncommitted(engine: Engine, runtime: str | None) -> None:
    """Refuse to keep changes of a root file system where the engine does not see them."""
    if _is_gvisor(engine, runtime):
        raise CoopError(
            "session.commit: gVisor keeps what is written to itself, and a commit would save nothing of it",
            'session.commit = "never", or another sandbox.runtime',
        )


def _uncounted() -> tuple[Weakening, ...]:
    text = "not held for the rest of the root file system, which can be written so that it can be committed"
    return (Weakening("limits.tmp", text, 'session.commit = "never"'),)


def refuse(plan: Plan, system: str, engine: Engine) -> None:
    """Raise CoopError for what an engine on a system cannot do, or only by giving more than the plan."""
    if plan.network.mode == "proxy" and (engine.name == "apple" or system != "linux"):
        raise CoopError(
            'network.mode = "proxy" cannot be had: the containers are in a machine of their own, in whose '
            "networks coop's proxy cannot listen",
            'use "none"',
        )
    if plan.base.image is None and system != "linux":
        raise CoopError(
            f"base.image is not set, and the tools of a {system} host do not run in a container",
            'name an image, such as base.image = "debian:bookworm-slim"',
        )
    if isinstance(plan.base.image, LocalImage) and engine.name == "apple":
        raise CoopError(
            f"base.image: {plan.base.image} is in a file, which is not given to Apple's container yet",
            "push the image to a registry and name it there, or use another back end",
        )
    on_engine(plan)  # which an image in a file has to be locked for
    if plan.network.mode == "host" and engine.name == "apple":
        raise CoopError(
            'network.mode = "host" cannot be had: each of Apple\'s containers is a machine of its own',
            'use "none", or another back end',
        )


def identify(
    plan: Plan, host: Host, engine: Engine, argv: tuple[str, ...] = (), *, system: str = "linux"
) -> tuple[Launch, str | None, list[Weakening]]:
    """Return the launch as who the caller can be inside, the engine's id mapping, and what that weakens.

    Files that the sandbox makes have to be the caller's: on a rootful engine ids are
    the same inside and outside, on a rootless one root inside is the caller. Where
    ``system`` is not linux the engine is a virtual machine, whose view of the host's
    files gives them to the caller whoever is inside.
    """
    if system == "linux":
        user, mapping, weakened = _identity(plan.session.user, host.uid, engine)
    else:
        user, mapping, weakened = plan.session.user, None, []
    return bind(plan.replace(session=plan.session.replace(user=user)), host, argv), mapping, weakened


def _identity(wanted: str, caller: int, engine: Engine) -> tuple[str, str | None, list[Weakening]]:
    """Return root or me, the user namespace mode, and what of the plan's session.user that weakens."""
    if engine.rootless:
        if wanted == "root" or engine.name == "podman":
            return wanted, "keep-id" if wanted == "me" else None, []
        text = "rootless Docker can make you root inside, and nobody else"
        return "root", None, [Weakening("session.user", text, "podman, or the native back end")]
    mapping = "host" if engine.remapped else None
    if wanted == "root" and caller != 0:
        text = (
            f"inside, you are user {caller} as outside: this {engine.name} is run by root, and shares its ids"
        )
        return "me", mapping, [Weakening("session.user", text, f"a rootless {engine.name}")]
    return wanted, mapping, []


def _mounts(launch: Launch, facts: Facts) -> tuple[list[Mount], list[str]]:
    """Return the launch's mounts with real sources, less those that the host does not have.

    Of two at one place the read-only one counts: engines refuse a second.
    """
    workspace = launch.mounts[0]
    found, skipped = {workspace.target: workspace.replace(source=facts.real_path(workspace.source))}, []
    for mount in launch.mounts[1:]:
        if any(inside(mount.target, taken) for taken in _TAKEN) or mount.target == "/":
            raise CoopError(f"{mount.source} cannot be mounted at {mount.target}: the sandbox has its own")
        source = facts.real_path(mount.source)
        if source not in facts.kinds:
            skipped.append(f"{mount.source}: not on this host")
        elif mount.target not in found or not mount.write:
            found[mount.target] = mount.replace(source=source)
    return list(found.values()), skipped


def _mounted_within(mounts: Sequence[Mount], places: Sequence[str]) -> Iterator[Mount]:
    """Yield mounts for file systems below read-only mounts: most engines would leave those writable."""
    targets = {mount.target for mount in mounts}
    for mount in mounts:
        for place in () if mount.write else places:
            target = mount.target.rstrip("/") + place[len(mount.source.rstrip("/")) :]
            # What is mounted in between, or there, covers it.
            if (
                place != mount.source
                and inside(place, mount.source)
                and _around(target, targets) == mount.target
            ):
                yield Mount(place, target, False)


def _around(path: str, targets: Iterable[str]) -> str:
    """Return the innermost of the targets that hold a path, of which there is one."""
    return max((target for target in targets if inside(path, target)), key=len)


_PIN, _PROTECT, _HIDE = "pin", "protect", "hide"


def _guards(fence: Fence, targets: Sequence[str], facts: Facts, missing: list[str]) -> Iterator[Mount]:
    """Yield the mounts that guard paths below another.

    Every directory on the way is mounted on itself: renaming it, to put another in its
    place, then fails with EBUSY. What is hidden is not looked into for more. ``targets``
    are those of all mounts: one below this one is guarded by its own fence, and a pin
    over it could make it writable.
    """
    places: dict[str, str] = {}
    root = fence.mount.source.rstrip("/")
    prefix = fence.mount.target.rstrip("/") + "/"
    mounted = {target[len(prefix) :] for target in targets if target.startswith(prefix)}
    for guard, paths in ((_HIDE, fence.hide), (_PROTECT, fence.protect)):
        for path in paths:
            _place(places, path, guard, root, mounted, facts, missing)
    for path, guard in places.items():
        source, target = f"{root}/{path}", f"{fence.mount.target}/{path}"
        if guard == _HIDE:
            yield Mount(facts.mask(facts.kinds[source]), target, False)
        elif guard == _PROTECT:
            yield Mount(source, target, False)
        elif not any(places.get(above) == _PROTECT for above in _above(path)):
            # Below what is protected a pin is not needed, and would be writable.
            yield Mount(source, target, fence.mount.write)


def _place(
    places: dict[str, str],
    path: str,
    guard: str,
    root: str,
    mounted: set[str],
    facts: Facts,
    missing: list[str],
) -> None:
    """Note a guard at the end of a path, or where it ends sooner, and pins on the way there."""
    parts = path.split("/")
    for number in range(1, len(parts) + 1):
        walked = "/".join(parts[:number])
        if walked in mounted:
            return
        kind = facts.kinds.get(f"{root}/{walked}")
        if kind is None:
            missing.append(f"{root}/{path}")
            return
        if kind == LINK:
            raise CoopError(
                f"{root}/{walked} is a symbolic link, and what it stands for cannot be guarded",
                "replace the link by what it leads to: the sandbox could point it elsewhere",
            )
        known = places.get(walked)
        if known == _HIDE or (known == _PROTECT and guard == _PROTECT):
            return
        if number == len(parts) or kind != DIRECTORY:
            places[walked] = guard
            return
        places.setdefault(walked, _PIN)


def _above(path: str) -> Iterator[str]:
    """Yield the relative paths of the directories that hold a relative path."""
    while "/" in path:
        path = path[: path.rindex("/")]
        yield path


def _outermost_first(mounts: Sequence[Mount]) -> list[Mount]:
    """Return mounts so that none covers another: what pins a directory must not hide what lies below."""
    return sorted(mounts, key=lambda mount: mount.target.count("/"))


def _unheld(missing: Sequence[str]) -> list[Weakening]:
    if not missing:
        return []
    text = f"{len(missing)} protected paths do not exist and can be made: {', '.join(sorted(missing))}"
    return [Weakening("workspace.protect", text, "`coop run` holds their place meanwhile")]


def _held(engine: Engine, runtime: str | None) -> tuple[str, ...]:
    """Return which limits are handed to the engine.

    gVisor does not hold ``pids``: the engine would count the threads of its kernel
    instead, of which a few dozen are too few for it to start.
    """
    gvisor = _is_gvisor(engine, runtime)
    return tuple(limit for limit in engine.limits if limit != "pids" or not gvisor)


def _is_gvisor(engine: Engine, runtime: str | None) -> bool:
    return engine.name != "apple" and "runsc" in (runtime or engine.default_runtime)


def _limits(plan: Plan, engine: Engine, limits: Sequence[str], runtime: str | None) -> list[Weakening]:
    """Return which limits the engine does not hold."""
    why = f"this {engine.name} has no control group for it"
    remedy = "a machine with delegated control groups of version 2"
    found = []
    if "memory" not in limits:
        found.append(Weakening("limits.memory", f"not enforced: {why}", remedy))
    elif "swap" not in limits:
        found.append(Weakening("limits.memory", "as much again may be swapped: the kernel does not count it"))
    if plan.limits.cpus is not None and "cpu" not in limits:
        found.append(Weakening("limits.cpus", f"not enforced: {why}", remedy))
    if _is_gvisor(engine, runtime):
        text = "not enforced: gVisor does not count its processes"
        found.append(Weakening("limits.pids", text, "limits.memory bounds them: a process takes memory"))
    elif "pids" not in limits:
        found.append(Weakening("limits.pids", f"not enforced: {why}", remedy))
    text = "held for each of /tmp, /var/tmp, /run, /dev/shm and the home, not for all together, nor for /dev"
    found.append(Weakening("limits.tmp", text, "limits.memory bounds them all: they are in memory"))
    return found


def _unfiltered(engine: Engine, runtime: str | None) -> list[Weakening]:
    if engine.name == "apple" or _is_gvisor(engine, runtime):
        return []  # a kernel of its own
    if engine.seccomp:
        if engine.name != "podman":
            return []
        text = "podman's filter of system calls lets user namespaces and key rings through"
        return [Weakening("seccomp", text, "docker, gVisor, or the native back end")]
    text = f"this {engine.name} filters no system calls: its kernel, or its configuration, has no seccomp"
    return [Weakening("seccomp", text, "a kernel with CONFIG_SECCOMP_FILTER")]


def _unmasked(engine: Engine, runtime: str | None, uid: int) -> list[Weakening]:
    """Return what of /proc shows: root's own files count where root inside is root outside."""
    mapped = engine.rootless or engine.remapped
    if uid != 0 or engine.name != "docker" or mapped or _is_gvisor(engine, runtime):
        return []
    text = "files of root's that tell about this machine's memory can be read, such as slabinfo"
    return [Weakening("proc", text, "run coop as an ordinary user, or podman or the native back end")]


def _own_view(engine: Engine) -> list[Weakening]:
    """Return what every container of an engine has beside the plan, none of which is of the host."""
    if engine.name == "apple":
        return []
    text = (
        "beside the plan there are the engine's own /sys, names in /dev and /etc, variables such as "
        "HOSTNAME, and system calls that the native back end denies: docs/backends.md"
    )
    return [Weakening("sandbox.backend", text, "the native back end")]


def _literals(launch: Launch) -> tuple[tuple[str, str], ...]:
    inherited = dict(launch.inherited)
    return tuple(sorted((name, value) for name, value in launch.environment.items() if name not in inherited))


def _scratch(launch: Launch, mounts: Sequence[Mount]) -> tuple[Scratch, ...]:
    size = launch.limits.tmp
    shared = [Scratch(path, size, 0o1777, 0, 0) for path in SCRATCH if path != _SHM]
    own = [launch.home]
    if launch.uid != 0:
        own += _on_the_way(launch.home, [mount.target for mount in mounts])
    return (*shared, *(Scratch(path, size, 0o700, launch.uid, launch.gid) for path in own))


def _on_the_way(home: str, targets: Sequence[str]) -> list[str]:
    """Return the directories between the home and what is mounted in it: engines would make them root's."""
    found = [
        path
        for target in targets
        for path in parents(target)
        if path != home and inside(path, home) and not any(inside(path, other) for other in targets)
    ]
    return list(dict.fromkeys(found))


def _name(workspace: str, token: str) -> str:
    """Return ``coop-<project>-<token>``: at most 63 characters that every engine takes."""
    return f"coop-{slug(workspace)}-{token}"


def _labels(plan: Plan, request: Request) -> tuple[tuple[str, str], ...]:
    labels = [(LABEL_MANAGED, "true"), (LABEL_PLAN, digest(plan))]
    if request.owner is not None:
        labels.append((LABEL_OWNER, request.owner))
    if request.session:
        labels.append((LABEL_SESSION, request.session))
    return tuple(labels)
