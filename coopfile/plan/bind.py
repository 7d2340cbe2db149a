"""Plan and host facts to launch: the one place where this machine enters."""

from __future__ import annotations

from coopfile.errors import CoopError
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopfile.plan.model import Limits, Plan

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# What passes from the caller's environment without being named: how to talk to the
# terminal and in which language. All else is named in [env] or absent.
PASSED = (
    "COLORTERM",
    "FORCE_COLOR",
    "LANG",
    "LANGUAGE",
    "NO_COLOR",
    "TERM",
    "TZ",
)
PASSED_PREFIX = "LC_"


class Host(Record):
    """The facts of this machine that a launch depends on.

    Paths are absolute and free of links; ``directory`` is where the caller stands;
    ``shell`` is what a bare ``coop run`` starts; ``started`` is the time of the
    launch in seconds since the epoch.
    """

    uid: int
    gid: int
    user: str
    home: str
    workspace: str
    directory: str
    environment: Mapping[str, str]
    shell: str = "/bin/sh"
    started: int = 0


class Weakening(Record):
    """A promise of the plan that is kept in part, or not: what, why, and how to have it kept."""

    key: str
    text: str
    remedy: str | None = None


class Mount(Record):
    """A path of the host at a path of the sandbox. ``target`` may equal ``source``."""

    source: str
    target: str
    write: bool


class Launch(Record):
    """One command in one sandbox on this machine: all that a back end needs.

    ``mounts`` begins with the workspace. ``protect`` and ``hide`` are relative to it.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    uid: int
    gid: int
    user: str
    home: str
    host: Host
    mounts: tuple[Mount, ...]
    protect: tuple[str, ...]
    hide: tuple[str, ...]
    network: str
    limits: Limits
    skipped: tuple[str, ...] = ()


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
        skipped=skipped,
    )


def _account_name(name: str) -> str:
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    return name if plain.isalnum() and plain.isascii() and name[0] not in "-." else "user"


def expand(path: str, home: str) -> str:
    """Return a path of a Coopfile with its ``~`` replaced by a home."""
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def inside(path: str, root: str) -> bool:
    """Tell whether an absolute path is ``root`` or below it, by name."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def _check_workspace(host: Host) -> None:
    if inside(host.home, host.workspace):
        raise CoopError(
            f"the workspace would be {host.workspace}, which holds your whole home directory",
            "put the Coopfile in a project's own directory, or name that directory with -C",
        )


def _environment(
    plan: Plan, host: Host, home: str, user: str, workspace: str, directory: str
) -> tuple[dict[str, str], tuple[str, ...]]:
    environment = {
        name: value
        for name, value in host.environment.items()
        if name in PASSED or name.startswith(PASSED_PREFIX)
    }
    environment.update(
        PATH=PATH,
        HOME=home,
        USER=user,
        LOGNAME=user,
        SHELL=host.shell,
        PWD=directory,
        COOP_WORKSPACE=workspace,
        COOP_CREATED=str(host.started),
    )
    skipped = []
    for variable in plan.env:
        value = variable.value if variable.host is None else host.environment.get(variable.host)
        if value is None:
            skipped.append(f"env.{variable.name}: the host has no variable {variable.host}")
        else:
            environment[variable.name] = value
    return environment, tuple(skipped)
