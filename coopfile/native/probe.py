"""What this machine can enforce, found out by trying it in a child that ends at once."""

from __future__ import annotations

import os

from coopfile.errors import CoopError
from coopfile.native import landlock, namespaces, report, seccomp, syscalls
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
        _tried("/proc", _mount_processes, "the sandbox has its own"),
        _landlock(),
        _tried("seccomp", _filter, f"{len(seccomp.DENIED) + len(seccomp.ABSENT)} calls denied"),
    )


def lacking() -> Ability | None:
    """Return the first ability that this machine lacks and sandboxes cannot do without, None if none is."""
    return next((ability for ability in probe() if ability.needed and not ability.present), None)


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


def _mount_processes() -> None:
    _enter_all()
    # Such a mount is of a PID namespace that its maker is in, which children alone are.
    message = _report_of(lambda _: os.close(namespaces.processes()))
    if message is not None:
        raise CoopError(message.text, message.remedy)


def _filter() -> None:
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.set_seccomp_filter(seccomp.build(syscalls.MACHINE))


def internet(writable: Sequence[str], *, needed: bool) -> Ability:
    """Connect a sandbox for a moment, and say by what. ``writable`` is as in ``network.find``."""
    message = _report_of(lambda send: _connect(writable, send))
    connected = message is not None and message.kind == report.NOTE
    detail, remedy = (message.text, message.remedy) if message else ("a process was killed", None)
    return Ability("internet", connected, detail, remedy, needed)


def _connect(writable: Sequence[str], send: int) -> None:
    from coopfile.native import network

    link = network.start(network.find(writable), writable, send)
    _enter_all()
    link.announce()
    report.send(send, report.Message(report.NOTE, link.accept()))


def _tried(name: str, attempt: Callable[[], None], detail: str) -> Ability:
    message = _report_of(lambda _: attempt())
    if message:
        return Ability(name, False, message.text, message.remedy)
    return Ability(name, True, detail)


def _report_of(attempt: Callable[[int], None]) -> report.Message | None:
    """Run something in a child; return the first message, if any, that it wrote to a descriptor."""
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            attempt(send)
        except BaseException as error:
            report.send_error(send, error)
        finally:
            os._exit(0)
    os.close(send)
    messages = list(report.receive(receive))
    os.close(receive)
    os.waitpid(pid, 0)
    return messages[0] if messages else None
