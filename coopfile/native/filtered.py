"""Whether the filter of system calls lets one pass, for ``coop why``: as ``explain`` answers for the rest."""

from __future__ import annotations

from coopfile.errors import CoopError, UsageError
from coopfile.language.suggest import nearest
from coopfile.native import seccomp
from coopfile.plan.explain import BUILT_IN, Verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.plan.model import Plan

_CORE = "it passes; but a limit on core dumps stays as it is, so that no handler of the host's gets one"
_MODE = "it passes, unless it would make a set-id file: then it is answered with EPERM"
# What depends on arguments.
_SOME = {
    "clone": "it passes, unless it would make namespaces: then it is answered with EPERM",
    "ioctl": "it passes, but for requests that put input into a terminal or re-drive it (TIOCSTI, …)",
    "socket": "it passes for AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK; for others it is EAFNOSUPPORT",
    "socketpair": "it passes for AF_UNIX and its like; other families are answered with EAFNOSUPPORT",
    "prlimit64": _CORE,
    "setrlimit": _CORE,
    **dict.fromkeys((*seccomp.MODES, *seccomp.OPEN), _MODE),
}
_REMEDY = "nothing in a Coopfile changes that; another back end has another filter (sandbox.backend)"


def explain_call(plan: Plan, name: str) -> Verdict:
    """Say whether a system call, by its name, passes the native back end's filter.

    Raises UsageError for what is no name of one, CoopError where the plan takes other back ends only.
    """
    if not {"auto", "native"} & set(plan.sandbox.backend):
        engines = ", ".join(plan.sandbox.backend)
        raise CoopError(
            f"coop's filter of system calls is the native back end's; with {engines} it is the engine's own",
            'coop why --set sandbox.backend=native syscall … answers for "native"',
        )
    if not (name.isascii() and name.replace("_", "").isalnum() and name == name.lower()):
        raise UsageError(f"not the name of a system call: {name!r}", "such as ptrace: syscalls(2)")
    if name in seccomp.DENIED:
        return Verdict(False, BUILT_IN, "it is answered with EPERM: sandboxes were broken by it", _REMEDY)
    if name in seccomp.ABSENT:
        return Verdict(False, BUILT_IN, "it is answered with ENOSYS, as by a kernel without it", _REMEDY)
    if name in _SOME:
        return Verdict(True, BUILT_IN, _SOME[name])
    near = nearest(name, (*seccomp.DENIED, *seccomp.ABSENT), cutoff=0.85)
    reason = "no list of coop's names it: it does what the kernel lets an ordinary user do"
    return Verdict(True, BUILT_IN, f"{reason} ({near} is denied)" if near else reason)
