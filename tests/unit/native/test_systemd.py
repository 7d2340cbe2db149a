"""The request for a transient scope; a machine with systemd shows the rest."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from coopfile.errors import CoopError
from coopfile.native import systemd
from coopfile.plan.model import Limits

LIMITS = Limits(memory=64 << 20, cpus=1500, pids=10, tmp=1 << 20, timeout=1000, output=1024)


def properties(limits: Limits) -> dict[str, tuple[str, ...]]:
    """Return name → (type, values…) of the call's properties, checking their number and the tail."""
    words = systemd.request(4711, limits)
    start = words.index("ssa(sv)a(sa(sv))")
    assert words[start + 1 : start + 3] == ["coop-4711.scope", "fail"]
    count, rest = int(words[start + 3]), words[start + 4 :]
    found = {}
    for _ in range(count):
        name, kind = rest[:2]
        size = 4 if kind == "au" else 3
        found[name] = tuple(rest[1:size])
        rest = rest[size:]
    assert rest == ["0"]
    return found


def test_request_has_every_limit() -> None:
    """The call names the process and its limits in systemd's units: bytes, tasks, microseconds a second."""
    assert properties(LIMITS) == {
        "PIDs": ("au", "1", "4711"),
        "CollectMode": ("s", "inactive-or-failed"),
        "Description": ("s", "coop sandbox"),
        "MemoryMax": ("t", str(64 << 20)),
        "MemorySwapMax": ("t", "0"),
        "TasksMax": ("t", "11"),
        "OOMPolicy": ("s", "continue"),
        "CPUQuotaPerSecUSec": ("t", "1500000"),
    }


def test_request_without_processors() -> None:
    """Without limits.cpus nothing is said of processors, and the count is right."""
    assert "CPUQuotaPerSecUSec" not in properties(LIMITS.replace(cpus=None))


@pytest.mark.parametrize(
    ("uid", "sockets", "expected"),
    [
        (0, ("systemd/private", "dbus/system_bus_socket"), True),
        (0, ("systemd/private",), False),  # without dbus, which a small machine does without
        (0, ("dbus/system_bus_socket",), False),
        (1000, ("user/1000/bus",), True),
        (1000, ("systemd/private", "dbus/system_bus_socket"), False),
    ],
)
def test_managers_that_can_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, sockets: tuple[str, ...], expected: bool
) -> None:
    """Who takes requests is there when it and the bus that leads to it are: root's, or the user's own."""
    for name in sockets:
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setenv("XDG_RUNTIME_DIR", f"{tmp_path}/user/{uid}")
    monkeypatch.setattr(systemd, "_BUSCTL", ("/bin/true",))
    monkeypatch.setattr(systemd, "_PRIVATE", f"{tmp_path}/systemd/private")
    monkeypatch.setattr(systemd, "_SYSTEM_BUS", f"{tmp_path}/dbus/system_bus_socket")
    assert systemd.available() is expected


def test_a_helper_that_is_not_needed_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing an unused scope leaves no process and no descriptor behind."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = set(os.listdir("/proc/self/fd")), children.read_text()
    scope = systemd.Scope(LIMITS)
    scope.close()
    assert (set(os.listdir("/proc/self/fd")), children.read_text()) == before


def test_a_manager_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the call fails the limits are not set, and that is said."""
    monkeypatch.setattr(systemd, "_BUSCTL", ("/bin/false",))
    scope = systemd.Scope(LIMITS)
    with pytest.raises(CoopError, match="systemd did not set the limits"):
        scope.admit(os.getpid())


@pytest.mark.parametrize(
    ("complaint", "calls"),
    [("Cannot set property OOMPolicy, or unknown property.", 2), ("Access denied", 1)],
)
def test_an_older_manager_is_asked_for_what_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint: str, calls: int
) -> None:
    """Where OOMPolicy is not known the call is made again without it; any other failure stays one."""
    program, log = tmp_path / "busctl", tmp_path / "log"
    program.write_text(
        f'#!/bin/sh\necho "$*" >>{log}\n'
        f'case "$*" in *OOMPolicy*) echo "Call failed: {complaint}" >&2; exit 1 ;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(systemd, "_BUSCTL", (str(program),))
    monkeypatch.setattr(systemd, "_TIMEOUT", 0.1)
    scope = systemd.Scope(LIMITS)
    with pytest.raises(CoopError) as caught:
        scope.admit(os.getpid())
    told = log.read_text().splitlines()
    assert "StopUnit" not in told[0] and ("StopUnit" in told[-1]) is (calls == 2)
    told = [line for line in told if "StopUnit" not in line]
    assert len(told) == calls
    assert "OOMPolicy s continue" in told[0]
    assert "OOMPolicy" not in told[-1] or calls == 1
    # The made-up manager moves nobody, and is asked to stop the scope then.
    assert ("not moved in time" if calls == 2 else complaint) in caught.value.message


def test_a_process_that_has_ended_leaves_no_scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel moves no process that is ending: its scope is stopped, without waiting for the move."""
    program, log = tmp_path / "busctl", tmp_path / "log"
    program.write_text(f'#!/bin/sh\necho "$*" >>{log}\n')
    program.chmod(0o755)
    monkeypatch.setattr(systemd, "_BUSCTL", (str(program),))
    ended = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
    began = time.monotonic()
    scope = systemd.Scope(LIMITS)
    with pytest.raises(CoopError, match="systemd did not set the limits"):
        scope.admit(ended)
    os.waitpid(ended, 0)
    assert time.monotonic() - began < systemd._TIMEOUT
    start, stop = log.read_text().splitlines()
    assert "StartTransientUnit" in start
    assert stop.endswith(f"StopUnit ss coop-{ended}.scope fail")
