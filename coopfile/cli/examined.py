"""What ``coop status`` sees on Linux: each back end with the plan tried on it, and what coop keeps."""

from __future__ import annotations

import os

from coopfile.cli import output, stages
from coopfile.cli.status import Backend
from coopfile.engines.choose import NATIVE, Tried, look
from coopfile.engines.making import Place
from coopfile.engines.making import preview as prepare_container
from coopfile.errors import CoopError
from coopfile.find import Project, directories
from coopfile.launching import place, prepare
from coopfile.native.limits import KEYS
from coopfile.native.network import UnusableError
from coopfile.native.probe import internet, probe
from coopfile.plan.model import Plan
from coopfile.plan.promises import unkept
from coopfile.plan.sessions import session_id
from coopfile.record import Record
from coopfile.session import store, sweep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopfile.cli.stages import Holdings, RootFileSystem


class Kept(Record):
    """What coop keeps for a project: a root file system, sessions by name and whether they run, and where."""

    root: RootFileSystem | None
    store: Holdings
    sessions: tuple[tuple[str, bool], ...]
    place: str

    def data(self) -> dict[str, object]:
        """Return it as JSON-able data."""
        sessions = [{"name": name, "running": runs} for name, runs in self.sessions]
        return {**stages.data(self.root, self.store), "sessions": sessions}

    def lines(self, color: bool) -> list[str]:
        """Return it for people."""
        own = directories(os.environ)
        sessions = [f"{name} ({'running' if runs else 'stopped'})" for name, runs in self.sessions]
        return [
            *stages.lines(self.root, self.store, color),
            *([f"sessions  {', '.join(sessions)}: coop ls tells more"] if sessions else []),
            f"kept   {output.safe(self.place)}, of any size: coop rm removes it",
            f"state  {output.safe(own.state)}, cache {output.safe(own.cache)}",
        ]


def backends(plan: Plan, project: Project, names: Sequence[str], taken: Sequence[str]) -> list[Backend]:
    """Return the named back ends; the plan takes those in ``taken``."""
    where = place(plan, project, os.environ)
    return [
        _examine(tried, tried.name in taken, plan, project, where)
        for tried in look(plan, names, where.environment)
    ]


def kept(plan: Plan, project: Project, taken: Sequence[str]) -> Kept:
    """Return what is kept for a project."""
    own = directories(os.environ)
    root = stages.root_file_system(plan, project, own.rootfs) if NATIVE in taken else None
    data = os.path.realpath(own.data)
    sessions = sorted(
        (known.state.name, sweep.runs(known.directory, known.state))
        for known in store.known(data)
        if known.state is not None and known.root == project.root
    )
    directory = f"{own.data}/sessions/{session_id(project.root, plan.access)}"
    return Kept(root, stages.holdings(own.rootfs), tuple(sessions), directory)


def _examine(tried: Tried, taken: bool, plan: Plan, project: Project, where: Place) -> Backend:
    """Try the plan on a back end, without running anything."""
    backend = Backend(tried.name, taken, tried.choice, tried.why, tried.remedy)
    try:
        if tried.name == NATIVE:
            return _native(backend, plan, project)
        if tried.choice is None or tried.choice.engine is None:
            return backend
        made = prepare_container(plan, tried.choice.engine, where, ("true",))
    except CoopError as error:
        return backend.replace(choice=None, why=error.message, remedy=error.remedy)
    limits = tuple(
        (KEYS[name], "the engine's control group" if value is not None else "nothing")
        for name, value in (("memory", made.memory), ("pids", made.pids), ("cpu", made.cpus))
        if name != "cpu" or plan.limits.cpus is not None
    )
    return backend.replace(limits=limits, weakenings=made.weakenings, skipped=made.skipped)


def _native(backend: Backend, plan: Plan, project: Project) -> Backend:
    """Add what the machine can do, which says more than whether the plan fits."""
    backend = backend.replace(abilities=probe())
    if backend.choice is None:
        return backend
    try:
        prepared = prepare(plan, project, os.environ, ("true",))
    except UnusableError as error:
        return backend.replace(choice=None, why=f"network.mode: {error.message}", remedy=error.remedy)
    connected = internet(prepared.layout.writable, needed=plan.network.mode == "veth")
    backend = backend.replace(
        abilities=(*backend.abilities, connected),
        limits=tuple((KEYS[name], how) for name, how in prepared.enforcement.how),
        weakenings=(*prepared.weakenings, *unkept(plan)),
        skipped=prepared.layout.skipped,
    )
    lacking = next((item for item in backend.abilities if item.needed and not item.present), None)
    if lacking is not None:
        return backend.replace(choice=None, why=f"{lacking.name}: {lacking.detail}", remedy=lacking.remedy)
    return backend
