"""What this machine can enforce, found out by trying it in a child that ends at once."""

from __future__ import annotations

import os

from coopfile.native import landlock, namespaces, report, seccomp, syscalls
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_OLDEST = (5, 12)  # mount_setattr(2)


class Ability(Record):
    """One thing that the native back end needs or uses: whether it is there, what, and how to get it."""

    name: str
    present: bool
    detail: str
    remedy: str | None = None
    needed: bool = True


def probe() -> tuple[Ability, ...]:
    """Try every ability and say what came of it."""
    return (
        _kernel(),
        _machine(),
        _tried("user namespaces", _enter_user, "you are the only user mapped; no privileges are needed"),
        _tried("other namespaces", _enter_all, "mount, pid, uts, ipc, cgroup, net"),
        _landlock(),
        _tried("seccomp", _filter, f"{len(seccomp.DENIED) + len(seccomp.ABSENT)} calls denied"),
    )


def _kernel() -> Ability:
    release = os.uname().release
    numbers = release.split("-")[0].split(".")
    version = (int(numbers[0]), int(numbers[1]))
    oldest = ".".join(map(str, _OLDEST))
    return Ability("kernel", version >= _OLDEST, release, f"Linux {oldest} or newer is needed")


def _machine() -> Ability:
    remedy = "the native back end knows x86_64 and aarch64"
    return Ability("processor", syscalls.supported_machine(), syscalls.MACHINE, remedy)


def _landlock() -> Ability:
    abi = landlock.abi()
    if not abi:
        remedy = "boot with landlock in lsm= (Linux 5.13 and newer)"
        return Ability("landlock", False, "not in this kernel", remedy, needed=False)
    missing = [text for since, text in landlock.MISSING if abi < since]
    detail = f"ABI {abi}" + (f"; not fenced: {', '.join(missing)}" if missing else "")
    return Ability("landlock", True, detail, needed=False)


def _enter_user() -> None:
    namespaces.enter_user_namespace(0, 0)


def _enter_all() -> None:
    namespaces.enter_user_namespace(0, 0)
    namespaces.enter_other_namespaces(network=True)
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)


def _filter() -> None:
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.set_seccomp_filter(seccomp.build(syscalls.MACHINE))


def _tried(name: str, attempt: Callable[[], None], detail: str) -> Ability:
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
        except BaseException as error:
            report.send_error(send, error)
        finally:
            os._exit(0)
    os.close(send)
    messages = list(report.receive(receive))
    os.close(receive)
    os.waitpid(pid, 0)
    if messages:
        return Ability(name, False, messages[0].text, messages[0].remedy)
    return Ability(name, True, detail)
