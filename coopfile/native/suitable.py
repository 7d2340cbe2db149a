"""Whether the native back end can have a plan, whatever this machine is like."""

from __future__ import annotations

from coopfile.errors import CoopError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.plan.model import Plan


def refusal(plan: Plan) -> CoopError | None:
    """Return what of a plan it does not do, and what would help; None when it does all."""
    sandbox = plan.sandbox
    if sandbox.runtime is not None:
        return CoopError(
            f"sandbox.runtime = {sandbox.runtime}: it has no OCI runtimes", "install Docker or Podman"
        )
    if sandbox.min_isolation != "namespace":
        return CoopError(
            f"min_isolation = {sandbox.min_isolation}: it isolates with namespaces",
            "Docker or Podman with a runtime that gives it: runsc, or for vm kata or krun",
        )
    return None
