"""A transient scope from systemd, where it owns the control groups and delegates none here.

That is an ordinary login on most machines: the session's own scope belongs to root, but
the user's manager makes another on request and moves a process into it
(org.freedesktop.systemd1(5), StartTransientUnit). The request goes through busctl, from
a helper that the monitor forks while it is still outside every new namespace.
"""

from __future__ import annotations

import os
import time

from coopfile.errors import CoopError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from coopfile.plan.model import Limits

_BUSCTL = ("/usr/bin/busctl", "/bin/busctl")
_TIMEOUT = 5.0  # seconds for the call, and again for the move
_PRIVATE = "/run/systemd/private"
_SYSTEM_BUS = "/run/dbus/system_bus_socket"
_OOM_POLICY = "OOMPolicy"


def available() -> bool:
    """Tell whether a manager that would take a request is there, and the bus that leads to it, by sockets."""
    places = (_PRIVATE, _SYSTEM_BUS) if os.geteuid() == 0 else (f"{_runtime()}/bus",)
    return _program() is not None and all(map(os.path.exists, places))


def _program() -> str | None:
    return next((path for path in _BUSCTL if os.access(path, os.X_OK)), None)


def _runtime() -> str:
    return os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"


def request(pid: int, limits: Limits, *, stays: bool = True) -> list[str]:
    """Return busctl's arguments that put a process under its limits.

    The unit goes away by itself with its last process. With ``stays`` it is not stopped when the kernel
    kills one for want of memory, as it would be by default: systemd.scope(5), of version 253.
    """
    properties = ["PIDs", "au", "1", str(pid), "CollectMode", "s", "inactive-or-failed"]
    properties += ["Description", "s", "coop sandbox", "MemoryMax", "t", str(limits.memory)]
    # PID 1 is coop's own.
    properties += ["MemorySwapMax", "t", "0", "TasksMax", "t", str(limits.pids + 1)]
    count = 6
    if stays:
        properties += [_OOM_POLICY, "s", "continue"]
        count += 1
    if limits.cpus is not None:
        properties += ["CPUQuotaPerSecUSec", "t", str(limits.cpus * 1000)]
        count += 1
    method = ["ssa(sv)a(sa(sv))", unit(pid), "fail", str(count)]
    return [*_manager("StartTransientUnit"), *method, *properties, "0"]


def _manager(method: str) -> list[str]:
    """Return busctl's arguments up to a method of the manager's."""
    where = "--system" if os.geteuid() == 0 else "--user"
    manager = ["org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"]
    return ["busctl", where, f"--timeout={_TIMEOUT:g}", "--quiet", "call", *manager, method]


def unit(pid: int) -> str:
    """Return the name of the scope for a sandbox's PID 1."""
    return f"coop-{pid}.scope"


class Scope:
    """A helper that waits for a process's number and asks for its scope."""

    def __init__(self, limits: Limits) -> None:
        read_pid, self._tell = os.pipe()
        self._answer, write_answer = os.pipe()
        self._helper = os.fork()
        if self._helper == 0:
            os.close(self._tell)
            os.close(self._answer)
            _help(read_pid, write_answer, limits)
        os.close(read_pid)
        os.close(write_answer)

    def admit(self, pid: int) -> str:
        """Have a process moved into its scope; return the scope's group below the v2 mount."""
        os.write(self._tell, str(pid).encode())
        answer = os.read(self._answer, 4096).decode("utf-8", "replace")
        self.close()
        kind, _, text = answer.partition(" ")
        if kind != "ok":
            raise CoopError(
                f"systemd did not set the limits: {text or 'no answer'}",
                "see: journalctl --user -e; or run under a delegated cgroup (systemd-run --user --scope …)",
            )
        return text

    def close(self) -> None:
        """End the helper, used or not."""
        if self._helper:
            os.close(self._tell)
            os.close(self._answer)
            os.waitpid(self._helper, 0)
            self._helper = 0


def _help(read_pid: int, write_answer: int, limits: Limits) -> NoReturn:
    try:
        told = os.read(read_pid, 32)
        if told:
            os.write(write_answer, _ask(int(told), limits).encode()[:4000])
    finally:
        os._exit(0)


def _ask(pid: int, limits: Limits) -> str:
    """Make the call and wait for the move; return ``ok GROUP`` or ``failed WHY``."""
    program = _program()
    if program is None:
        return "failed busctl is gone"
    said = _call(program, request(pid, limits))
    if _OOM_POLICY in said:  # an older systemd, which does not know the property, nor stops scopes
        said = _call(program, request(pid, limits, stays=False))
    if said:
        return f"failed {said}"
    deadline = time.monotonic() + _TIMEOUT
    while time.monotonic() < deadline and not _has_ended(pid):
        group = _group(pid)
        if group.endswith("/" + unit(pid)):
            return f"ok {group}"
        time.sleep(0.001)
    # The kernel moves no process that is ending, and a scope that was always empty stays.
    _call(program, [*_manager("StopUnit"), "ss", unit(pid), "fail"])
    return "failed the process was not moved in time"


def _has_ended(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] in (b"Z", b"X")
    except OSError:
        return True


def _call(program: str, arguments: list[str]) -> str:
    """Run busctl; return what it says if it fails."""
    errors, write_errors = os.pipe()
    null = os.open("/dev/null", os.O_RDWR)
    environment = {"XDG_RUNTIME_DIR": _runtime(), "LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    streams = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, null, 1)]
    caller = os.posix_spawn(
        program,
        arguments,
        environment,
        file_actions=[*streams, (os.POSIX_SPAWN_DUP2, write_errors, 2)],
        setsigmask=[],
    )
    os.close(write_errors)
    os.close(null)
    said = os.read(errors, 2000).decode("utf-8", "replace").strip()
    os.close(errors)
    _, status = os.waitpid(caller, 0)
    if not status:
        return ""
    return said.splitlines()[-1] if said else "busctl failed"


def _group(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            return next((line[3:].strip() for line in file if line.startswith("0::")), "")
    except OSError:
        return ""
