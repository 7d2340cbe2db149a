"""Which back end enforces a plan on this machine, and what was wrong with the others."""

from __future__ import annotations

from coopfile.engines.detect import ISOLATION, NAMES, NAMESPACE, USERSPACE_KERNEL, Found, detect, isolation
from coopfile.errors import CoopError, NotAllowedError
from coopfile.native.suitable import refusal
from coopfile.record import Record
from coopfile.render.container import refuse
from coopfile.render.facts import Engine
from coopfile.render.networks import refuse_network, wider_network
from coopfile.system import DESCRIBING, LINUX, LOOKING, system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coopfile.plan.model import Plan

NATIVE, HOST = "native", "host"
# What `auto` stands for, in order: design section 6.
_AUTO = {
    LINUX: (NATIVE, "docker", "podman"),
    "darwin": ("apple", "docker", "podman", "seatbelt"),
}
_AUTO_ELSEWHERE = ("docker", "podman")
_TITLES = {NAMESPACE: "namespaces", USERSPACE_KERNEL: "userspace kernel", "vm": "virtual machine"}
_RUNTIME_TITLES = {"runsc": "gVisor", "krun": "libkrun"}


class Choice(Record):
    """What enforces the plan: native, an engine (with the runtime to ask for), or nothing at all (host)."""

    name: str
    isolation: str = NAMESPACE
    engine: Engine | None = None

    @property
    def title(self) -> str:
        """The back end and its isolation for people, such as ``docker + gVisor (userspace kernel)``."""
        if self.name == HOST:
            return "host (not isolated)"
        runtime = self.engine.runtime if self.engine else None
        with_runtime = f" + {_RUNTIME_TITLES.get(runtime, runtime)}" if runtime else ""
        return f"{self.name}{with_runtime} ({_TITLES[self.isolation]})"


class Tried(Record):
    """A back end that the plan would take: what it is, or why it will not do."""

    name: str
    choice: Choice | None
    why: str = ""
    remedy: str | None = None


class NoBackendError(NotAllowedError):
    """Nothing on this machine can enforce the plan; ``tried`` says why not."""

    def __init__(self, tried: Sequence[Tried]) -> None:
        self.tried = tuple(tried)
        lines = "".join(f"\n  {item.name}: {item.why}" for item in tried)
        remedies = dict.fromkeys(item.remedy for item in tried if item.remedy)
        super().__init__(f"no back end can enforce this plan here:{lines}", "; or ".join(remedies) or None)


def known() -> tuple[str, ...]:
    """Return the names of every back end that this system may have."""
    return _AUTO.get(system(), _AUTO_ELSEWHERE)


def wanted(plan: Plan) -> tuple[str, ...]:
    """Return the names of the back ends that the plan takes, in its order, with ``auto`` spelt out."""
    names: list[str] = []
    for name in plan.sandbox.backend:
        names += known() if name == "auto" else (name,)
    return tuple(dict.fromkeys(names))


def falls_back(plan: Plan) -> bool:
    """Tell whether commands run on the host, with nothing around them, where no back end will do."""
    return plan.falls_back_to_host and system() == LINUX


def choose(
    plan: Plan, environment: Mapping[str, str], *, without: Mapping[str, CoopError] | None = None
) -> Choice:
    """Return the first back end that is there and gives what the plan asks for.

    ``without`` holds back ends that turned out not to work, and why. Raises NoBackendError,
    unless the plan falls back to the host.
    """
    tried = []
    for item in look(plan, wanted(plan), environment, without=without):
        if item.choice is not None:
            return item.choice
        tried.append(item)
    if falls_back(plan):
        return Choice(HOST, isolation="none")
    raise NoBackendError(tried)


def look(
    plan: Plan,
    names: Sequence[str],
    environment: Mapping[str, str],
    *,
    without: Mapping[str, CoopError] | None = None,
) -> tuple[Tried, ...]:
    """Look at the named back ends, whether or not the plan takes them; ``without`` is that of ``choose``."""
    # What no engine of that name will do with the plan need not be asked whether it is there.
    refused = {name: item for name in names if name in NAMES and (item := _refused(plan, name))}
    asked = [name for name in names if name in NAMES and name not in refused]
    found = {item.name: item for item in detect(environment, asked)} if asked else {}
    tried: list[Tried] = []
    for name in names:
        if name in refused:
            tried.append(refused[name])
        elif without and name in without:
            tried.append(Tried(name, None, without[name].message, without[name].remedy))
        elif name == NATIVE:
            tried.append(_native(plan))
        elif name in found:
            tried += _engine(plan, found[name])
        else:
            tried.append(Tried(name, None, "it is for macOS, and rendered only: coop render " + name))
    return tuple(tried)


def _native(plan: Plan) -> Tried:
    if system() != LINUX:
        return Tried(NATIVE, None, "it needs Linux")
    error = refusal(plan)
    if error is not None:
        return Tried(NATIVE, None, error.message, error.remedy)
    return Tried(NATIVE, Choice(NATIVE))


def _refused(plan: Plan, name: str) -> Tried | None:
    """Return why an engine cannot have the plan, whatever it is like on this machine."""
    if system() != LINUX:
        return Tried(name, None, LOOKING, DESCRIBING)
    engine = Engine(name, name)
    try:
        refuse(plan, LINUX, engine)
    except CoopError as error:
        return Tried(name, None, error.message, error.remedy)
    for hole in wider_network(plan, engine):
        return Tried(name, None, f"{hole.key}: {hole.text}", hole.remedy)
    return None


def _engine(plan: Plan, found: Found) -> list[Tried]:
    """Return what an engine can offer: with the plan's runtime, or with each that would do."""
    engine = found.engine
    if engine is None:
        return [Tried(found.name, None, found.why, found.remedy)]
    if plan.sandbox.runtime is not None:
        return [_runtime(plan, engine, plan.sandbox.runtime)]
    offers = [_runtime(plan, engine, None)]
    if "runsc" in engine.runtimes and engine.default_runtime != "runsc" and _prefers_runsc(plan, offers[0]):
        offers.insert(0, _runtime(plan, engine, "runsc"))
    return offers


def _prefers_runsc(plan: Plan, plain: Tried) -> bool:
    """Tell whether gVisor is to be asked for: where it is registered, or where nothing else will do.

    Podman has it when a program of that name is there, which says little of whether it works.
    """
    return plain.choice is None or (plain.name == "docker" and "auto" in plan.sandbox.backend)


def _runtime(plan: Plan, engine: Engine, runtime: str | None) -> Tried:
    if runtime is not None and runtime not in engine.runtimes:
        known = ", ".join(engine.runtimes)
        why = f"sandbox.runtime = {runtime}: {engine.name} has {known}"
        return Tried(engine.name, None, why, f"register {runtime} with {engine.name}")
    level = isolation(runtime or engine.default_runtime)
    if ISOLATION.index(level) < ISOLATION.index(plan.sandbox.min_isolation):
        why = (
            f"min_isolation = {plan.sandbox.min_isolation}: {runtime or engine.default_runtime} gives {level}"
        )
        return Tried(engine.name, None, why, "install gVisor (runsc) and register it with the engine")
    try:
        refuse_network(plan, engine, runtime)
    except CoopError as error:
        return Tried(engine.name, None, error.message, error.remedy)
    return Tried(engine.name, Choice(engine.name, level, engine.replace(runtime=runtime)))
