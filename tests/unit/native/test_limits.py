"""Which means is taken for which limit, on made-up machines."""

from __future__ import annotations

import pytest

from coopfile.native import enforcing, hierarchies, systemd
from coopfile.native.cgroups import Hierarchy
from coopfile.native.hierarchies import Reason
from coopfile.plan.model import Limits

LIMITS = Limits(memory=64 << 20, cpus=None, pids=10, tmp=1 << 20, timeout=1000, output=1024)


def how(
    monkeypatch: pytest.MonkeyPatch,
    *,
    version: int = 2,
    manager: bool = True,
    missing: tuple[str, ...] = (),
    cpus: int | None = None,
) -> dict[str, str]:
    """Return what enforces each limit where there are groups, but for some controllers."""

    def find(wanted: tuple[str, ...]) -> tuple[tuple[Hierarchy, ...], tuple[Reason, ...]]:
        usable = tuple(name for name in wanted if name not in missing)
        reasons = tuple(Reason(name, "not here") for name in wanted if name in missing)
        return ((Hierarchy("/sys/fs/cgroup/x", version, usable),) if usable else ()), reasons

    monkeypatch.setattr(hierarchies, "find", find)
    monkeypatch.setattr(hierarchies, "unified_only", lambda: version == 2)
    monkeypatch.setattr(systemd, "available", lambda: manager)
    found = enforcing.enforcement(LIMITS.replace(cpus=cpus))
    assert bool(found.scoped) is ("systemd scope" in dict(found.how).values())
    assert not (found.scoped and found.hierarchies)
    return dict(found.how)


def test_groups_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where groups can be made they are, beside systemd's and in version 1, too."""
    assert how(monkeypatch) == {"memory": "cgroup v2", "pids": "cgroup v2"}
    assert how(monkeypatch, version=1, cpus=500) == dict.fromkeys(("memory", "pids", "cpu"), "cgroup v1")


def test_processors_beside_groups_of_systemds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors are limited by a scope where there is a manager, which would take the controller away."""
    scoped = dict.fromkeys(("memory", "pids", "cpu"), "systemd scope")
    assert how(monkeypatch, cpus=500) == scoped
    own = dict.fromkeys(("memory", "pids", "cpu"), "cgroup v2")
    assert how(monkeypatch, cpus=500, manager=False) == own


def test_controllers_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One controller that is missing has a manager asked for all; without a manager it is missing."""
    assert how(monkeypatch, missing=("memory",)) == dict.fromkeys(("memory", "pids"), "systemd scope")
    assert how(monkeypatch, missing=("memory",), manager=False) == {"memory": "rlimit", "pids": "cgroup v2"}
