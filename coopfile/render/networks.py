"""What a plan's network comes to in containers: who makes it, what serves it, and what cannot be had.

Pure.
"""

from __future__ import annotations

from coopfile.errors import CoopError
from coopfile.plan.launch import Weakening
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.plan.launch import Mount
    from coopfile.plan.model import Plan
    from coopfile.render.facts import Engine

# OCI runtimes whose containers have the kernel's own networks: others have one of their own inside, whose
# loopback is not the namespace's.
_ON_THE_KERNEL = ("crun", "io.containerd.runc.v2", "runc", "youki")


class Neighbour(Record):
    """A container of coop's own that makes a network for another, and sockets in it for coop's processes.

    ``image`` is that of the host's tools, which are among the ``mounts``; ``runtime`` is None for the
    engine's default. ``lowest`` is the first port that anybody is to listen on, None for the kernel's.
    """

    engine: Engine
    name: str
    labels: tuple[tuple[str, str], ...]
    image: str
    argv: tuple[str, ...]
    user: str
    identities: str | None
    mounts: tuple[Mount, ...]
    runtime: str | None
    memory: int | None
    lowest: int | None


def is_served(plan: Plan, engine: Engine, runtime: str | None) -> bool:
    """Tell whether the plan takes something of coop's in the container's network, and that can be there."""
    mode = plan.network.mode
    wanted = mode == "proxy" or (mode == "none" and bool(plan.network.publish))
    return wanted and _has_kernels_network(engine, runtime)


def _has_kernels_network(engine: Engine, runtime: str | None) -> bool:
    return engine.name != "apple" and (runtime or engine.default_runtime) in _ON_THE_KERNEL


def refuse_network(plan: Plan, engine: Engine, runtime: str | None, *, held: bool = True) -> None:
    """Raise CoopError where the plan's proxy cannot be in the container's network.

    ``held`` says that coop runs the container, and the proxy with it.
    """
    if plan.network.mode != "proxy":
        return
    if not _has_kernels_network(engine, runtime):
        raise CoopError(
            f'network.mode = "proxy": {runtime or engine.default_runtime} has a network of its own inside, '
            "in which coop's proxy cannot listen",
            'sandbox.runtime = "runc", the native back end, or network.mode = "none"',
        )
    if not held:
        raise CoopError(
            'network.mode = "proxy": the proxy is a process of coop\'s, which nothing that is pasted starts',
            'coop run does, on this engine too; or network.mode = "none"',
        )


def shown_interfaces(identities: str | None) -> tuple[Weakening, ...]:
    """Return what shows of the host where the kernel lets nobody mount a /sys for a network joined."""
    if identities != "keep-id":
        return ()
    text = "names and addresses of this machine's network interfaces show in /sys"
    return (Weakening("network.mode", text, 'session.user = "root", or the native back end'),)


def unpublished(plan: Plan) -> tuple[Weakening, ...]:
    """Return which ports are not offered: no engine publishes those of a sandbox without a network."""
    if plan.network.mode != "none" or not plan.network.publish:
        return ()
    ports = ", ".join(str(port) for port in plan.network.publish)
    remedy = "coop run on docker or podman with runc or crun, or the native back end"
    return (Weakening("network.publish", f"{ports}: not offered on the host", remedy),)


def wider_network(plan: Plan, engine: Engine) -> list[Weakening]:
    """Return how an engine's own network gives more than the plan's ``veth``.

    What would keep a container from the LAN are rules in its network, which the engine makes and coop does
    not enter: that would take root's rights.
    """
    if plan.network.mode != "veth":
        return []
    text = f"{engine.name}'s own network also reaches this machine, its neighbours and metadata services"
    others = 'network.mode = "none"'
    if _has_kernels_network(engine, plan.sandbox.runtime or engine.runtime):
        others = f'the native back end; or network.mode = "proxy" with a list of hosts, or {others}'
    return [Weakening("network.mode", text, others)]
