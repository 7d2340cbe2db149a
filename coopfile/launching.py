"""From a plan and a project to what a back end takes, for a run and for a session alike.

The caller's ``environment`` is a parameter everywhere: a session's is not always this process's.
On the path of a cached run.
"""

from __future__ import annotations

import os
import sys
import time

from coopfile.errors import NotAllowedError
from coopfile.find import directories, real_home
from coopfile.plan.bind import bind
from coopfile.plan.launch import PATH, Host, Weakening, expand
from coopfile.plan.sessions import DEFAULT
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopfile.engines.making import Place
    from coopfile.find import Project
    from coopfile.native.prepared import Prepared
    from coopfile.plan.launch import Launch
    from coopfile.plan.model import Plan

_RUNNABLE = "owner, full and inner users"
_UNUSED = Weakening(
    "session.commit",
    "what sessions have committed is not there: it stands on another root file system than the plan has now",
    "coop reset drops it; it is there again when base, packages, setup and agent are as they were",
)


class Bound(Record):
    """A launch, and what laying it out natively needs besides: ``layout.layout`` says what.

    ``held`` are descriptors that keep the layers from being removed. ``weakenings`` are those of the
    root file system.
    """

    launch: Launch
    inputs: tuple[str, ...]
    private: tuple[str, ...]
    layers: tuple[str, ...] = ()
    held: tuple[int, ...] = ()
    weakenings: tuple[Weakening, ...] = ()


def check_access(plan: Plan) -> None:
    """Refuse a user whose trust does not let them run commands (design section 11)."""
    if plan.access is None:
        return
    from coopfile.access.trust import may_run_commands

    if not may_run_commands(plan.access):
        who = plan.access.user or "an unknown user"
        raise NotAllowedError(
            f"{who} has trust {plan.access.trust}, which may not run commands",
            f"{_RUNNABLE} may; trust is set in [[users]], and lowered by --place group",
        )


def prefers_native(plan: Plan) -> bool:
    """Tell whether the native back end comes first, and may do what the plan says."""
    from coopfile.native.suitable import refusal

    return plan.sandbox.backend[0] in ("auto", "native") and sys.platform == "linux" and refusal(plan) is None


def native_is_impossible() -> bool:
    """Tell whether this machine lacks something that the native back end cannot do without."""
    from coopfile.native.probe import lacking

    return lacking() is not None


def prepare(
    plan: Plan,
    project: Project,
    environment: Mapping[str, str],
    command: tuple[str, ...],
    session: str = DEFAULT,
) -> Prepared:
    """Bind a plan to this machine and lay it out for the native back end.

    What keeps its layers stays open in this process.
    """
    from coopfile.native import preparing

    found = bound(plan, project, environment, command, session)
    prepared = preparing.prepare(found.launch, found.inputs, found.private, found.layers)
    weakenings = found.weakenings
    if plan.session.commit != "never":
        from coopfile.plan.promises import thrown_away

        weakenings += thrown_away(plan)
    return prepared.replace(weakenings=(*prepared.weakenings, *weakenings)) if weakenings else prepared


def bound(
    plan: Plan,
    project: Project,
    environment: Mapping[str, str],
    command: tuple[str, ...],
    session: str = DEFAULT,
) -> Bound:
    """Bind a plan to this machine for the native back end; the caller closes what is ``held``."""
    inputs, private = guarded(project, environment)
    launch = bind(plan, this_host(project, environment, session), command)
    if plan.base.image is None:
        return Bound(launch, inputs, private)
    from coopfile.rootfs import base

    found = base.find(plan, directories(environment).rootfs, project.root)
    variables = {"PATH": PATH, **dict(found.environment), **launch.environment}
    unused = (_UNUSED,) if found.unused else ()
    return Bound(launch.replace(environment=variables), inputs, private, found.layers, found.held, unused)


def place(plan: Plan, project: Project, environment: Mapping[str, str], session: str = DEFAULT) -> Place:
    """Return where a project's plan is run on a container engine."""
    from coopfile.engines.making import Place

    inputs, private = guarded(project, environment)
    host = this_host(project, environment, session)
    own = directories(environment)
    return Place(host, outside(plan, project, environment), inputs, private, own.state)


def outside(plan: Plan, project: Project, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment of what coop itself runs and asks, out of reach of what a sandbox can write.

    Raises CoopError.
    """
    from coopfile.engines.call import own_environment

    home = real_home(environment)
    writable = [project.root, *(os.path.realpath(expand(path, home)) for path in plan.files.write)]
    return own_environment(environment, writable)


def guarded(project: Project, environment: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return real paths of what the plan was made of, and of coop's own state."""
    own = directories(environment)
    private = tuple(os.path.realpath(path) for path in (own.cache, own.state, own.data))
    return (*project.inputs, os.path.realpath(own.config)), private


def this_host(project: Project, environment: Mapping[str, str], session: str = DEFAULT) -> Host:
    """Return the facts of this machine that a launch depends on."""
    return Host(
        uid=os.geteuid(),
        gid=os.getegid(),
        user=environment.get("USER") or "user",
        home=real_home(environment),
        workspace=project.root,
        directory=project.directory,
        environment=environment,
        shell="/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh",
        started=int(time.time()),
        data=os.path.realpath(directories(environment).data),
        session=session,
    )


def log(plan: Plan, project: Project, environment: Mapping[str, str], session: str = DEFAULT) -> str:
    """Return the file for what the proxy blocks."""
    from coopfile.plan.sessions import log_path, session_id

    return log_path(directories(environment).state, session_id(project.root, plan.access, session))
