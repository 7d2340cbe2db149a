"""By what limits are enforced, and what to tell when a sandbox runs into them."""

from __future__ import annotations

from coopfile.errors import CoopError
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.native.cgroups import Hierarchy
    from coopfile.plan.launch import Weakening

KEYS = {"memory": "limits.memory", "pids": "limits.pids", "cpu": "limits.cpus"}


class Enforcement(Record):
    """How the limits of one plan are enforced here.

    ``how`` maps a controller to ``cgroup v2``, ``cgroup v1``, ``systemd scope``,
    ``rlimit`` or ``nothing``; ``scoped`` are the controllers that systemd is asked for;
    ``rlimits`` are (resource, value) pairs for the command.
    """

    hierarchies: tuple[Hierarchy, ...]
    scoped: tuple[str, ...]
    rlimits: tuple[tuple[int, int], ...]
    how: tuple[tuple[str, str], ...]
    weakenings: tuple[Weakening, ...]

    def check(self, applied: set[str]) -> None:
        """Fail when a control group that was promised could not be made after all."""
        for controller, how in self.how:
            if how.startswith(("cgroup", "systemd")) and controller not in applied:
                raise CoopError(f"{KEYS[controller]}: setting the limit in a control group ({how}) failed")


def reached(keys: tuple[str, ...], memory: int, pids: int) -> list[str]:
    """Return what to tell a person about limits that the sandbox ran into, and which these were."""
    texts = {
        "limits.memory": f"the command ran out of memory: limits.memory is {memory} bytes",
        "limits.pids": f"the command could not start more processes: limits.pids is {pids}",
    }
    return [texts[key] for key in keys]
