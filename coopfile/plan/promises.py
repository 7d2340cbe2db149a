"""What of a plan no back end does yet, apart from what it refuses."""

from __future__ import annotations

from coopfile.plan.bind import Weakening

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.plan.model import Plan


def unkept(plan: Plan) -> tuple[Weakening, ...]:
    """Return what the plan asks for and a run on the host's own tools does not give."""
    session = plan.session
    found = []
    if session.persist:
        text = f"{', '.join(session.persist)} below the home: thrown away at the end like the rest of it"
        found.append(Weakening("session.persist", text, "keep what has to last in the workspace"))
    if session.caches:
        found.append(Weakening("session.caches", f"{', '.join(session.caches)}: not shared between runs"))
    if session.commit != "never":
        found.append(Weakening("session.commit", "there is no root file system to commit"))
    if plan.network.publish:
        ports = ", ".join(str(port) for port in plan.network.publish)
        found.append(Weakening("network.publish", f"{ports}: not offered on the host"))
    return tuple(found)
