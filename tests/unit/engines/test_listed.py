"""Which containers are coop's, as engines list them, and which of those nobody looks after."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from coopfile.engines import guard
from coopfile.engines.call import EngineError
from coopfile.engines.guard import Listed, listed, sweep, this_owner
from coopfile.render.facts import Engine

Install = Callable[..., dict[str, str]]
ONE, TWO = "1" * 64, "2" * 64
SHORT = {ONE: "first", TWO: "second"}  # what Apple has for ids
ENGINES = ("docker", "podman", "apple")


def program(lines: str) -> str:
    """Return a command line that prints some lines for a list, and notes what else it is called with."""
    noted = 'echo "$*" >> "$HOME/called"'
    return (
        f"#!/bin/sh\nif [ $1 != ps ] && [ $1 != list ]; then {noted}; exit; fi\ncat <<'END'\n{lines}\nEND\n"
    )


def lines(name: str, *items: tuple[str, str, str, str]) -> str:
    """Return what an engine prints of containers: id, owner, session and state of each."""
    if name != "apple":
        return "\n".join(
            f"{one} {json.dumps(two)} {json.dumps(three)} {state}" for one, two, three, state in items
        )
    found = []
    for one, two, three, state in items:
        labels = {"coop.managed": "true", "coop.owner": two, **({"coop.session": three} if three else {})}
        found.append({"configuration": {"id": SHORT[one], "labels": labels}, "status": {"state": state}})
    return json.dumps([*found, {"configuration": {"id": "x", "labels": None}, "status": "running"}])


def engine(install: Install, name: str, text: str) -> tuple[Engine, dict[str, str]]:
    """Return an engine that prints a text, and the environment for it."""
    environment = install(**{name: program(text)})
    return Engine(name, f"{environment['PATH']}/{name}"), environment


def dead() -> str:
    """Return the label of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return f"{this_owner().replace(pid=str(process.pid), started='1').label}.token"


@pytest.mark.parametrize("name", ENGINES)
def test_what_is_listed(install: Install, name: str) -> None:
    """Ids, our labels, and whether each runs; what makes no sense is none of ours."""
    items = ((ONE, "o.w.n.e.r", "s-1", "running"), (TWO, "", "", "exited" if name != "apple" else "stopped"))
    found, environment = engine(install, name, lines(name, *items))
    one, two = (SHORT[ONE], SHORT[TWO]) if name == "apple" else (ONE, TWO)
    expected = (Listed(one, "o.w.n.e.r", "s-1", True), Listed(two, "", "", False))
    assert listed(found, environment, 10.0, "coop.managed", "true") == expected
    if name != "apple":
        for text in ("", "x", f"{ONE}", f'{ONE} "a"', f'{ONE} "a" "b', "-f  running"):
            other, environment = engine(install, name, text)
            assert listed(other, environment, 10.0, "coop.managed", "true") == ()


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"configuration": 1}]', "null"])
def test_what_apple_says_otherwise(install: Install, text: str) -> None:
    """Another shape of JSON is an error: not knowing is not the same as there being none."""
    found, environment = engine(install, "apple", text)
    with pytest.raises(EngineError, match="cannot be listed"):
        listed(found, environment, 10.0, "coop.managed", "true")


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("dry_run", [True, False])
def test_what_is_swept(install: Install, tmp_path: Path, name: str, dry_run: bool) -> None:
    """Only what a dead owner's label is on; nothing when it is only to be told."""
    items = ((ONE, dead(), "s-1", "running"), (TWO, f"{this_owner().label}.t", "s-2", "running"))
    found, environment = engine(install, name, lines(name, *items))
    assert [item.session for item in sweep(found, environment, dry_run=dry_run)] == ["s-1"]
    called = (tmp_path / "called").read_text() if (tmp_path / "called").exists() else ""
    one, two = (SHORT[ONE], SHORT[TWO]) if name == "apple" else (ONE, TWO)
    assert (one in called) == (not dry_run) and two not in called


def test_the_label_of_another_process() -> None:
    """A container may belong to a process that has yet to make it."""
    process = subprocess.Popen(["sleep", "100"])
    try:
        label = guard.owner_label("token", process.pid)
        assert label.split(".")[4] == str(process.pid)
        assert not guard.abandoned(label, running=True)
    finally:
        process.kill()
        process.wait()
    assert guard.abandoned(label, running=True)
