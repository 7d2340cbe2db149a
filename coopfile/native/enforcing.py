"""Which limit is enforced by what on this machine, and what is not enforced at all."""

from __future__ import annotations

import os

from coopfile.native import cgroups, hierarchies, syscalls
from coopfile.native.limits import Enforcement
from coopfile.plan.launch import Weakening

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.plan.model import Limits

_REMEDY = "run under a delegated cgroup, for example: systemd-run --user --scope -p Delegate=yes coop run …"


def enforcement(limits: Limits) -> Enforcement:
    """Find the strongest means for each limit: control groups, then resource limits."""
    wanted = tuple(name for name in cgroups.CONTROLLERS if name != "cpu" or limits.cpus is not None)
    found, missing = hierarchies.find(wanted=wanted)
    # Beside groups of systemd's, where coop makes its own, systemd takes the controller of processors away
    # as soon as no unit needs it, and limits go with it. Memory and processes it counts for every unit.
    if (missing or "cpu" in wanted) and hierarchies.unified_only() and _systemd_is_there():
        # One owner for all of them: a process is in one v2 group.
        return Enforcement((), wanted, (), tuple((name, "systemd scope") for name in wanted), ())
    how = {name: f"cgroup v{item.version}" for item in found for name in item.controllers}
    rlimits = []
    weakenings = []
    for reason in missing:
        if reason.controller == "memory":
            how["memory"] = "rlimit"
            rlimits.append((syscalls.RLIMIT_DATA, limits.memory))
            text = "held for each process's private memory, not for the sandbox as a whole"
            weakenings.append(Weakening("limits.memory", f"{text}: {reason.why}", _REMEDY))
        elif reason.controller == "pids" and os.geteuid() != 0:
            how["pids"] = "rlimit"
            rlimits.append((syscalls.RLIMIT_NPROC, limits.pids + 1))
        elif reason.controller == "pids":
            # The kernel never holds root to RLIMIT_NPROC: kernel/fork.c, copy_process.
            how["pids"] = "nothing"
            weakenings.append(Weakening("limits.pids", f"not enforced for root: {reason.why}", _REMEDY))
        else:
            how["cpu"] = "nothing"
            weakenings.append(Weakening("limits.cpus", f"not enforced: {reason.why}", _REMEDY))
    return Enforcement(found, (), tuple(rlimits), tuple(how.items()), tuple(weakenings))


def _systemd_is_there() -> bool:
    from coopfile.native import systemd

    return systemd.available()
