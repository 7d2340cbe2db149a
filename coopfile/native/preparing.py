"""From a launch to what the runner takes: laid out for this machine, with what of its plan is weaker here."""

from __future__ import annotations

from coopfile.errors import CoopError
from coopfile.native import landlock, namespaces
from coopfile.native.enforcing import enforcement
from coopfile.native.layout import layout
from coopfile.native.prepared import Prepared
from coopfile.plan.launch import Weakening

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.native.network import Means
    from coopfile.native.tree import Layout
    from coopfile.plan.launch import Launch


def prepare(
    launch: Launch,
    inputs: tuple[str, ...] = (),
    private: tuple[str, ...] = (),
    layers: tuple[str, ...] = (),
) -> Prepared:
    """Look at the host and refuse what it cannot do; nothing is changed.

    ``inputs``, ``private`` and ``layers`` are as ``layout`` takes them.
    """
    return prepare_layout(launch, layout(launch, inputs, private, layers))


def prepare_layout(launch: Launch, laid_out: Layout, *, building: bool = False) -> Prepared:
    """Look at the host like ``prepare``, for what is laid out already."""
    namespaces.check_machine()
    means: tuple[Means, ...] = ()
    if launch.network == "veth":
        means = internet("setup.network" if building else "network.mode", laid_out.writable)
    elif launch.network == "proxy":
        from coopfile.plan.reach import VARIABLES

        launch = launch.replace(environment={**VARIABLES, **launch.environment})
    enforced = enforcement(launch.limits)
    abi = landlock.abi()
    weakenings = [*enforced.weakenings]
    if laid_out.root.needs_disk():
        text = "not held for the root file system: what is written there is on disk until the end"
        weakenings.append(Weakening("limits.tmp", text, "Linux 6.6 or newer"))
    if not abi:
        weakenings.append(
            Weakening(
                "landlock",
                "this kernel has no Landlock: files are fenced by mounts alone",
                "boot with landlock in lsm= (Linux 5.13 and newer)",
            )
        )
    elif abi < 6 and launch.network == "host":
        text = "abstract sockets of the host are within reach: Landlock fences them from ABI 6 (Linux 6.12)"
        weakenings.append(Weakening("network.mode", text, 'network.mode = "none" cuts them off'))
    return Prepared(launch, laid_out, enforced, abi, tuple(weakenings), building, means)


def internet(key: str, writable: tuple[str, ...] = ()) -> tuple[Means, ...]:
    """Return what may connect a sandbox whose plan says ``veth`` at ``key``; ``writable``: ``network.find``.

    Raises CoopError when there is nothing.
    """
    from coopfile.native import network

    try:
        return network.find(writable)
    except CoopError as error:
        instead = f'{key} = "host", which reaches all that this machine does'
        remedy = f"{error.remedy}; or {instead}" if error.remedy else instead
        raise CoopError(f'{key} = "veth": {error.message}', remedy) from None
