"""Plan and host facts to launch: the one place where this machine enters."""

from __future__ import annotations

from coopfile.errors import CoopError
from coopfile.plan import sessions
from coopfile.plan.hosttools import HOME_PROTECT, passed
from coopfile.plan.launch import PATH, Fence, Launch, Mount, expand, inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopfile.plan.launch import Host
    from coopfile.plan.model import Plan


def bind(plan: Plan, host: Host, argv: tuple[str, ...], *, timeout: int | None = None) -> Launch:
    """Return the launch of a command, or of the agent's, or of a shell, under a plan."""
    root = plan.session.user == "root"
    user = "root" if root else _account_name(host.user)
    home = "/root" if root else f"/home/{user}"
    workspace = host.workspace if plan.workspace.path == "host" else plan.workspace.path
    _check_workspace(host)
    mounts = [Mount(host.workspace, workspace, True)]
    for paths, write in ((plan.files.read, False), (plan.files.write, True)):
        for path in paths:
            mounts.append(Mount(expand(path, host.home), expand(path, home), write))

    below = host.directory[len(host.workspace) :] if inside(host.directory, host.workspace) else ""
    directory = workspace + below
    kept, left_out = _kept(plan, host, home, mounts)
    environment, skipped = _environment(plan, host, home, user, workspace, directory)
    return Launch(
        argv=argv or plan.agent.command or (environment["SHELL"],),
        environment=environment,
        directory=directory,
        uid=0 if root else host.uid,
        gid=0 if root else host.gid,
        user=user,
        home=home,
        host=host,
        mounts=tuple(mounts),
        protect=plan.workspace.protect,
        hide=plan.files.hide,
        network=plan.network.mode,
        limits=plan.limits,
        inherited=tuple(
            (variable.name, variable.host)
            for variable in plan.env
            if variable.host is not None and variable.host in host.environment
        ),
        kept=kept,
        skipped=(*skipped, *left_out),
        allow=plan.network.allow,
        publish=plan.network.publish if plan.network.mode != "host" else (),
    )


def fences(
    launch: Launch,
    mounts: Sequence[Mount],
    hidden: Sequence[str],
    inputs: Sequence[str] = (),
    private: Sequence[str] = (),
) -> tuple[Fence, ...]:
    """Apply every guard through every mount that holds its path: a mount may hold the workspace.

    ``mounts`` have real sources; ``hidden``, ``inputs`` (what the plan was made of) and
    ``private`` (coop's own state) are real paths of the host.
    """
    workspace, home = launch.host.workspace, launch.host.home
    unseen = (*hidden, *private)
    protected = [f"{workspace}/{path}" for path in launch.protect]
    protected += [path for path in inputs if path not in protected]
    for mount in mounts:
        for path in protected if mount.write else ():
            if inside(mount.source, path):
                raise CoopError(
                    f"files.write: {mount.source} is protected in every sandbox",
                    "it can be given read-only, with files.read",
                )
        for path in unseen:
            if inside(mount.source, path):
                raise CoopError(f"{mount.source} is hidden from every sandbox")
    protected += [f"{home}/{path}" for path in HOME_PROTECT]
    found = []
    # What is given read-only stays so through a writable mount that holds it.
    protected += [mount.source for mount in mounts if not mount.write and mount.source not in protected]
    for mount in mounts:
        hide = _below(mount, unseen)
        protect = _below(mount, protected) if mount.write else ()
        hold = protect + _below(mount, private) if mount.write else ()
        found.append(Fence(mount, hide, protect, hold))
    return tuple(found)


def guarded(found: Sequence[Fence]) -> tuple[str, ...]:
    """Return the real paths of the host that fences guard."""
    return tuple(
        f"{fence.mount.source.rstrip('/')}/{path}"
        for fence in found
        for path in (*fence.hide, *fence.protect)
    )


def _below(mount: Mount, paths: Sequence[str]) -> tuple[str, ...]:
    prefix = mount.source.rstrip("/") + "/"
    return tuple(path[len(prefix) :] for path in paths if path.startswith(prefix))


def _kept(
    plan: Plan, host: Host, home: str, mounts: Sequence[Mount]
) -> tuple[tuple[Mount, ...], tuple[str, ...]]:
    """Return the mounts of what outlives the run, and what of it has its place taken.

    What the plan gives by name comes first, then ``session.persist``, then caches.
    """
    found: list[Mount] = []
    left_out = []
    persisted = [f"{home}/{path}" for path in plan.session.persist]
    for item in sessions.kept(plan, host.workspace, host.session) if host.data else ():
        target = f"{home}/{item.path}"
        around = [mount for mount in mounts if inside(target, mount.target)]
        if around:
            given = "the workspace" if around[0] is mounts[0] else around[0].target
            left_out.append(f"{item.key}: {item.item}: {target} is in {given}, which is given from the host")
        elif item.key == "session.persist" or not any(inside(target, path) for path in persisted):
            found.append(Mount(f"{host.data}/{item.place}", target, True))
    return tuple(found), tuple(left_out)


def _account_name(name: str) -> str:
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    return name if plain.isalnum() and plain.isascii() and name[0] not in "-." else "user"


def _check_workspace(host: Host) -> None:
    if inside(host.home, host.workspace):
        raise CoopError(
            f"the workspace would be {host.workspace}, which holds your whole home directory",
            "put the Coopfile in a project's own directory, or name that directory with -C",
        )


def _environment(
    plan: Plan, host: Host, home: str, user: str, workspace: str, directory: str
) -> tuple[dict[str, str], tuple[str, ...]]:
    environment = passed(host.environment)
    # What a root file system of its own has is not known here: its PATH is its own, and a shell is sh.
    own = plan.base.image is not None
    if not own:
        environment["PATH"] = PATH
    environment.update(
        HOME=home,
        USER=user,
        LOGNAME=user,
        SHELL="/bin/sh" if own else host.shell,
        PWD=directory,
        COOP_SESSION=sessions.session_id(host.workspace, plan.access, host.session),
        COOP_WORKSPACE=workspace,
        COOP_CREATED=str(host.started),
        # root can give files to nobody here, having no capability and mostly one id alone. tar would try
        # with what others have packed, and fail.
        TAR_OPTIONS="--no-same-owner",
    )
    if host.data:
        environment.update(sessions.variables(plan.session.caches, home))
    skipped = []
    for variable in plan.env:
        value = variable.value if variable.host is None else host.environment.get(variable.host)
        if value is None:
            skipped.append(f"env.{variable.name}: the host has no variable {variable.host}")
        else:
            environment[variable.name] = value
    return environment, tuple(skipped)
