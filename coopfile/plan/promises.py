"""What of a plan no back end does yet, apart from what it refuses."""

from __future__ import annotations

from coopfile.plan.bind import Weakening
from coopfile.plan.sessions import CACHES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.plan.model import Plan


def unkept(plan: Plan) -> tuple[Weakening, ...]:
    """Return what the plan asks for and no run gives."""
    session = plan.session
    found = []
    without = [name for name in session.caches if name not in CACHES]
    if without:
        text = f"{', '.join(without)}: nothing to share, for a run installs no packages of the system"
        found.append(Weakening("session.caches", text, "packages: what is built has caches of its own"))
    if session.commit != "never":
        found.append(Weakening("session.commit", "there is no root file system to commit"))
    if plan.network.publish:
        ports = ", ".join(str(port) for port in plan.network.publish)
        found.append(Weakening("network.publish", f"{ports}: not offered on the host"))
    return tuple(found)
