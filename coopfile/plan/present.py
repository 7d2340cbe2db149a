"""A plan for people: what the sandbox may have, in one screen or two."""

from __future__ import annotations

from coopfile.language.diagnostics import visible
from coopfile.language.settings import BUILT_IN_PROTECT
from coopfile.plan.compare import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from coopfile.plan.model import Plan

    # A label, and its values, each of which gets a line of its own.
    Row = tuple[str, Iterable[object]]

# The widest of the labels below; names of variables may be wider.
_LABELS = 16

_MODES = {
    "none": "none: its own loopback only",
    "proxy": "proxy: the hosts below, and no others",
    "veth": "veth: the internet, but not this machine nor its neighbours",
    "host": "host: the host's network, all of it",
}
_USERS = {"root": "root inside, you outside; no capability", "me": "you, inside and outside; no capability"}


def readable(plan: Plan) -> str:
    """Return the plan as sections of aligned rows, without a newline at the end.

    Literal values of variables are shown, as they are in the plan; values of the
    host's variables are not known here. Everything is safe to print.
    """
    sections = [
        ("tools", _tools(plan)),
        ("files", _files(plan)),
        ("network", _network(plan)),
        ("environment", _environment(plan)),
        ("session", _session(plan)),
        ("limits", _limits(plan)),
        ("enforcement", _enforcement(plan)),
        ("access", _access(plan)),
    ]
    lines = []
    for title, rows in sections:
        shown = [line for label, values in rows for line in _aligned(label, values)]
        lines += [title, *shown] if shown else []
    return "\n".join(lines)


def _aligned(label: str, values: Iterable[object]) -> Iterator[str]:
    for number, value in enumerate(values):
        yield f"  {'' if number else visible(label):<{_LABELS}}  {visible(str(value))}"


def _tools(plan: Plan) -> Iterator[Row]:
    image = plan.base.image
    yield "base", [image if image else "the host's own tools, read-only"]
    for manager in plan.packages._fields:
        packages = getattr(plan.packages, manager)
        yield f"{manager} packages", [", ".join(packages)] if packages else ()
    yield "set-up", plan.setup.run
    if image:
        yield "build network", [plan.setup.network]
    yield "agent", [plan.agent.install] if plan.agent.install else ()
    command = plan.agent.command
    yield "command", [show("agent.command", command) if command else "a shell"]


def _files(plan: Plan) -> Iterator[Row]:
    path = plan.workspace.path
    yield "workspace", [f"{'at its path on the host' if path == 'host' else path}, read and write"]
    own = [path for path in plan.workspace.protect if path not in BUILT_IN_PROTECT]
    built_in = len(plan.workspace.protect) - len(own)
    yield "protected", [*own, f"{built_in} built-in paths, which the host runs or reads as configuration"]
    yield "hidden", plan.files.hide
    yield "read only", plan.files.read
    yield "read and write", plan.files.write


def _network(plan: Plan) -> Iterator[Row]:
    mode, allow = plan.network.mode, plan.network.allow
    yield "mode", [_MODES[mode]]
    if mode == "proxy":
        yield "hosts", allow or ["none at all"]
    elif allow:
        yield "hosts", [f"{len(allow)} listed, which count in proxy mode only"]
    yield "published", plan.network.publish


def _environment(plan: Plan) -> Iterator[Row]:
    for variable in plan.env:
        literal = variable.host is None
        yield (
            variable.name,
            [variable.value if literal else f"the host's {variable.host}, where there is one"],
        )


def _session(plan: Plan) -> Iterator[Row]:
    yield "user", [_USERS[plan.session.user]]
    yield "kept in the home", plan.session.persist
    yield "shared caches", [", ".join(plan.session.caches)] if plan.session.caches else ()
    yield (
        "installed tools",
        [{"never": "not kept", "ask": "kept after asking", "auto": "kept"}[plan.session.commit]],
    )


def _limits(plan: Plan) -> Iterator[Row]:
    limits = plan.limits
    yield "memory", [show("limits.memory", limits.memory)]
    yield "processors", ["all" if limits.cpus is None else show("limits.cpus", limits.cpus)]
    yield "processes", [limits.pids]
    yield "scratch space", [show("limits.tmp", limits.tmp)]
    yield (
        "a tool call",
        [f"{show('limits.timeout', limits.timeout)}, {show('limits.output', limits.output)} of output"],
    )


def _enforcement(plan: Plan) -> Iterator[Row]:
    sandbox = plan.sandbox
    yield "back end", [" or ".join(sandbox.backend)]
    yield "isolation", [f"at least {sandbox.min_isolation}"]
    if plan.falls_back_to_host:
        yield "otherwise", ["run on the host, without a sandbox"]
    if sandbox.profile != "restrictive":
        yield "Seatbelt profile", [sandbox.profile]
    if sandbox.runtime is not None:
        yield "OCI runtime", [sandbox.runtime]
    if not sandbox.enabled:
        yield "tool calls", ["not sandboxed"]
    if plan.tools.confirm == "never":
        yield "confirmation", ["never asked for"]


def _access(plan: Plan) -> Iterator[Row]:
    access = plan.access
    if access is None:
        return
    yield "user", [access.user or "unknown"]
    yield "trust", [f"{access.trust}, in {'a group' if access.place == 'group' else 'direct conversation'}"]
    yield "tools", [", ".join(access.tools) or "none"]
    yield "memory stores", [", ".join(access.stores) or "none"]
    yield "tool calls", ["in the sandbox" if access.sandboxed and plan.sandbox.enabled else "on the host"]
