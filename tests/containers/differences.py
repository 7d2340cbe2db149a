"""Where a back end differs from native, and why: every row is a weakening that `coop status` lists.

The table is of what may differ. Newer engines and other kernels differ less.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.containers.backends import BACKENDS, DOCKER_ROOT, NATIVE, NATIVE_ROOT
from tests.containers.networks import INTERNET, PROXIED, REFUSED

DOCKERS = ("docker", DOCKER_ROOT, "docker-remapped", "docker-rootless")
GVISOR = "docker+runsc"
PODMANS = ("podman", "podman-rootless")
ENGINES = tuple(name for name in BACKENDS if name not in (NATIVE, NATIVE_ROOT))
ROOT_INSIDE = (DOCKER_ROOT, "docker-rootless", *PODMANS)
NO_CGROUPS = ("docker-rootless", "podman-rootless")


class Difference(NamedTuple):
    """One probe's other verdict, a regular expression, on some back ends.

    ``weakening`` is the key that `coop status` lists there for it, given ``coopfile``:
    ``sandbox.backend`` is for what every container of an engine has beside the plan.
    """

    probe: str
    backends: tuple[str, ...]
    verdict: str
    why: str
    weakening: str = "sandbox.backend"
    coopfile: str = ""


_FILTER = "engines have filters of system calls of their own (SECURITY.md)"
_NOT_GVISORS = "gVisor's kernel is not the host's: what is let through there reaches nothing of the host"
_TEXT = "engines hand everything on as JSON; what that cannot hold is refused with a message"

_ROWS = (
    # Who the command is.
    Difference("identity", ("docker", GVISOR, "docker-remapped"), "me", "ids are shared", "session.user"),
    Difference(
        "user me",
        ("docker-rootless",),
        "0 0 /root .*, theirs",
        "only root can be had",
        "session.user",
        'session.user = "me"',
    ),
    Difference(
        "user me",
        ("podman-rootless",),
        "125: .*keep-id requires additional UIDs.*, not theirs",
        "refused to an account without subordinate ids",
    ),
    # Limits.
    Difference("limit of memory", NO_CGROUPS, "not held: 0 700", "no control group", "limits.memory"),
    Difference("limit of processes", NO_CGROUPS, "not held", "no control group", "limits.pids"),
    Difference("limit of processes", (GVISOR,), "not held", "its kernel does not count", "limits.pids"),
    Difference("limit of scratch space together", ENGINES, "each for itself", "one tmpfs each", "limits.tmp"),
    Difference("writing outside", ROOT_INSIDE, "/dev: done", "root owns the tmpfs at /dev", "limits.tmp"),
    Difference("out of memory is told", NO_CGROUPS, "not told", "there is no limit", "limits.memory"),
    Difference("out of memory is told", ("podman",), "not told", "Podman 4 does not tell on cgroups v1"),
    # System calls.
    Difference("namespaces", PODMANS, "done", _FILTER, "seccomp"),
    Difference("dangerous calls", PODMANS, "(, |(keyctl|io_uring_setup): let through)+", _FILTER, "seccomp"),
    Difference("dangerous calls", DOCKERS, "io_uring_setup: let through", _FILTER),
    Difference("dangerous calls", (GVISOR,), "(, |[a-z_]+: let through)+", _NOT_GVISORS),
    Difference("namespaces", (GVISOR,), "done", _NOT_GVISORS),
    Difference("system call filter", (GVISOR,), "not filtered", _NOT_GVISORS),
    Difference("making devices", (GVISOR,), "/tmp/device: made, and cannot be opened", _NOT_GVISORS),
    Difference("set id files", ENGINES, "done", f"{_FILTER}; inside, set-id programs give nothing"),
    # Of the machine and of the engine.
    Difference("masked proc", (DOCKER_ROOT,), "shows: kallsyms .*", "runc masks a list of its own", "proc"),
    Difference("masked proc", DOCKERS, "shows: kallsyms", "everybody may read it, and it holds no addresses"),
    Difference("sys directory", ENGINES, "read-only", "every container has it; it is information only"),
    Difference("root directory", ENGINES, "also: (.dockerenv )?sys", "the engine's own"),
    Difference("etc directory", ENGINES, "also: mtab( resolv.conf)?", "the engine's own"),
    Difference(
        "devices", ENGINES, "also: (core |mqueue|fuse|net| x| )+", "the container's own; x is a probe's"
    ),
    Difference(
        "variables", ENGINES, "also: HOSTNAME( container)?", "the engine's own; no value of the host's"
    ),
    Difference("scratch is empty", PODMANS, "/run: podman-init", "the engine's own"),
    Difference(
        "first process", ENGINES, "(trace: done, )?environ: read, maps: read", "it has no other rights"
    ),
    Difference("ending the first process", (GVISOR,), "137", "the command ends its own sandbox"),
    Difference("loopback version 6", DOCKERS, "OSError: .*", "Docker gives IPv6 to no network of its own"),
    Difference("name of the terminal", (GVISOR,), "none", "gVisor names no terminal inside"),
    Difference(
        "network host", (GVISOR, "docker-rootless"), "out of reach", "the tests' own have another host"
    ),
    *(
        Difference(what, ENGINES, REFUSED, "their networks reach the LAN, and coop has no rules there")
        for what in INTERNET
    ),
    *(Difference(what, (GVISOR,), "refused", "it has a network of its own inside") for what in PROXIED),
    Difference(
        "published port",
        (GVISOR,),
        "ConnectionRefusedError",
        "it has a network of its own inside",
        "network.publish",
        'network.publish = ["3000"]',
    ),
    Difference("programs", (GVISOR,), "ls -l: fail", "gVisor of 2022 refuses a flag of statx that ls uses"),
    Difference("umask", ENGINES, "0022", "modes of new files are no key of a plan"),
    Difference("value that is not text", ENGINES, "refused", _TEXT),
    Difference("argument that is not text", ENGINES, "refused", _TEXT),
)


def explained(probe: str, backend: str, verdict: str) -> Difference | None:
    """Return what explains that a probe has another verdict than native's; None if nothing does."""
    for row in _ROWS:
        if row.probe == probe and backend in row.backends and re.fullmatch(row.verdict, verdict, re.DOTALL):
            return row
    return None
