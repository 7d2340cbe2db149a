"""Whose container one is, and when its owner is surely dead."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.engines.guard import Owner, abandoned, owner_label, this_owner

HERE = this_owner()


def label(**changes: str) -> str:
    """Return the label of an owner that differs from this process in some fields."""
    return f"{HERE.replace(**changes).label}.token"


def dead() -> dict[str, str]:
    """Return the pid and the start of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return {"pid": str(process.pid), "started": "1"}


def test_a_label_names_the_process() -> None:
    """It has seven parts, all of which this system tells."""
    assert owner_label("abc") == f"{HERE.label}.abc"
    assert HERE.pid == str(os.getpid())
    assert HERE.uid == str(os.getuid())
    assert "" not in (HERE.boot, HERE.namespace, HERE.started)


def test_the_living_are_not_abandoned() -> None:
    """Neither this process nor one whose pid is not one of this machine's."""
    assert not abandoned(label(), running=True)
    assert not abandoned(label(), running=False)


def test_the_dead_are_abandoned() -> None:
    """One that has ended, one whose pid is another process's now, and one that nobody has waited for."""
    assert abandoned(label(**dead()), running=True)
    assert abandoned(label(started="1"), running=False)
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    assert abandoned(label(pid=str(zombie.pid), started="1"), running=True)
    zombie.wait()


@pytest.mark.parametrize(
    "changes",
    [
        {"uid": "4242"},
        {"namespace": "1"},
        {"namespace": ""},
        {"started": ""},
        {"boot": "other", "machine": "x"},
    ],
)
def test_the_dead_of_others_are_left(changes: dict[str, str]) -> None:
    """Another user, another machine, or a container that coop ran in: their pids mean nothing here."""
    assert not abandoned(label(**{**dead(), **changes}), running=False)


@pytest.mark.skipif(not HERE.machine, reason="this system has no /etc/machine-id")
def test_a_machine_that_booted_since_has_none_of_its_old_processes() -> None:
    """But what still runs is of another machine with the same id."""
    assert abandoned(label(boot="other"), running=False)
    assert not abandoned(label(boot="other"), running=True)
    assert not abandoned(label(boot="", pid="1", started="1"), running=False)


@given(st.text(max_size=60) | st.lists(st.text("0123456789.x²-", max_size=8), max_size=9).map(".".join))
def test_what_is_no_label_of_ours_is_left(text: str) -> None:
    """Whatever strangers write, nothing is removed and nothing breaks."""
    assert not abandoned(text, running=False)
    assert not abandoned(text, running=True)


def test_an_owner_has_as_many_parts_as_its_label() -> None:
    """No part has a dot in it."""
    assert len(HERE.label.split(".")) == len(Owner._fields)
