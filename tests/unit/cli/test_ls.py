"""What `coop ls` prints of sessions."""

from __future__ import annotations

import pytest

from coopfile.cli import ls
from coopfile.cli.ls import DAMAGED, RUNNING, STOPPED, UNREACHABLE, Row
from coopfile.session.model import Usage
from coopfile.session.store import Known, State

STATE = State("app-1", "work", "/home/me/app", None, "native", "sha256:0", "{}", 1000, 2000, 60000)
KNOWN = Known("/data/sessions/app-1", STATE, STATE.root)
LOST = Known("/data/sessions/app-2", None, None)


def table(*rows: Row, everywhere: bool = False, color: bool = False) -> list[str]:
    """Return the lines of some sessions, at a fixed time."""
    return list(ls._table(list(rows), everywhere, color, 2000 + 90))


def test_table() -> None:
    """Columns line up, and what is not known is a hyphen."""
    rows = (Row(KNOWN, RUNNING, Usage(3, 5_000_000), False), Row(LOST, DAMAGED, problem="it is bad"))
    assert table(*rows) == [
        "NAME   STATE    AGE  BACKEND  PROCESSES  MEMORY",
        "work   running  1m   native   3          5.0 MB",
        "app-2  damaged  -    -        -          -       (it is bad)",
    ]


def test_projects() -> None:
    """With --all each session's project is shown."""
    assert table(Row(KNOWN, STOPPED), everywhere=True)[1].split()[-1] == "/home/me/app"


@pytest.mark.parametrize(
    ("status", "changed", "shown"),
    [(RUNNING, True, True), (RUNNING, None, False), (RUNNING, False, False), (STOPPED, True, False)],
)
def test_changed_plans(status: str, changed: bool | None, shown: bool) -> None:
    """That a plan has changed matters for what runs; a stopped session starts under the new one."""
    assert table(Row(KNOWN, status, changed=changed))[1].endswith("plan: changed") is shown


def test_memory_that_is_not_known() -> None:
    """A back end that does not tell the memory is no error."""
    assert table(Row(KNOWN, RUNNING, Usage(1, None)))[1].split() == [
        "work",
        "running",
        "1m",
        "native",
        "1",
        "-",
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (7200, "2h"), (90000, "1d")],
)
def test_ages(seconds: float, shown: str) -> None:
    """An age has one unit; after the clock was set back it is nothing."""
    assert ls._age(seconds) == shown


def test_data() -> None:
    """JSON has the same names for every session, whatever is known of it."""
    running, lost = ls._data(Row(KNOWN, RUNNING, Usage(2, 7), True)), ls._data(Row(LOST, UNREACHABLE))
    assert set(running) == set(lost)
    assert (running["name"], running["id"], running["ttl"], running["plan_changed"]) == (
        "work",
        "app-1",
        60.0,
        True,
    )
    assert (lost["name"], lost["id"], lost["state"], lost["problem"]) == (None, "app-2", "unreachable", None)


def test_escapes_are_shown() -> None:
    """A path of a project cannot steer the terminal."""
    known = Known("/data/sessions/app-1", STATE.replace(root="/a\x1b[31m"), "/a\x1b[31m")
    assert "\x1b" not in table(Row(known, STOPPED), everywhere=True)[1]
    assert "\x1b[32m" in table(Row(known, RUNNING), color=True)[1]
