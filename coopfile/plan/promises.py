"""What of a plan no back end does yet, apart from what it refuses."""

from __future__ import annotations

from coopfile.plan.launch import Weakening
from coopfile.plan.sessions import CACHES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.plan.model import Plan


def thrown_away(plan: Plan) -> tuple[Weakening, ...]:
    """Return what a run gives less of than a session does."""
    if plan.session.commit == "never" or plan.base.image is None:
        return ()
    text = "a run of its own throws away what it changes of the root file system"
    return (Weakening("session.commit", text, "coop run --session NAME: what a session changes can be kept"),)


def unkept(plan: Plan) -> tuple[Weakening, ...]:
    """Return what the plan asks for and neither a run nor a session gives."""
    session = plan.session
    found = []
    without = [name for name in session.caches if name not in CACHES]
    if without:
        text = f"{', '.join(without)}: nothing to share, for a run installs no packages of the system"
        found.append(Weakening("session.caches", text, "packages: what is built has caches of its own"))
    if session.commit != "never" and plan.base.image is None:
        text = "nothing can be committed: the host's own tools are read-only"
        found.append(Weakening("session.commit", text, "base.image: a root file system that can be changed"))
    if plan.network.publish and plan.network.mode == "host":
        ports = ", ".join(str(port) for port in plan.network.publish)
        text = f"{ports}: not mapped; what listens does so on the host itself"
        found.append(Weakening("network.publish", text))
    return tuple(found)
