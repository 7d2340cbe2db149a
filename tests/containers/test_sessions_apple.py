"""The life of a session on Apple's ``container``, as far as that goes without a Mac.

The command line is a stand-in that checks every argv by what Apple's takes, and runs real processes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import sessionlab
from tests.containers import standin
from tests.sandboxes import CHECKOUT, Project, Workshop, kill, wait_gone, wait_until
from tests.sessionlab import Caller, Refused, Sessions

_CHOICE = """
from coopfile.engines.choose import Choice
from coopfile.render.facts import Engine
from coopfile.session import container
container.choose = lambda *_, **__: Choice("apple", "vm", Engine("apple", {program!r}, version="1.2.2"))
"""


class AppleSessions(Sessions):
    """Sessions on the stand-in."""

    def __init__(self, project: Project, library: Path) -> None:
        self.engine = project.actor.directory("engine")
        program = self.engine / "container"
        copy = project.actor.directory("checker")
        for name in ("tests/unit/render/apple/checker.py", "tests/containers/standin.py"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, copy / name)
        python = project.actor.coop[0]
        script = f'#!/bin/sh\nexec {python} -I {copy}/tests/containers/standin.py {self.engine} {copy} "$@"\n'
        program.write_text(script)
        program.chmod(0o755)
        project.actor.own(program)
        self._choice = _CHOICE.format(program=str(program))
        project.environment["COOP_SANDBOX_BACKEND"] = "apple"
        project.environment["COOP_BASE_IMAGE"] = "docker.io/library/debian:bookworm"
        project.environment["COOP_WORKSPACE_PATH"] = "host"
        super().__init__(project, library)
        self.watch_workspace()

    def caller(self, cwd: Path | None = None, wrap: Sequence[str] = (), **how: Any) -> Caller:
        """Start a program that finds the stand-in where others would find an engine."""
        driver = sessionlab._DRIVER
        try:
            sessionlab._DRIVER = driver.replace("import coopfile\n", f"import coopfile\n{self._choice}", 1)
            return super().caller(cwd, wrap, **how)
        finally:
            sessionlab._DRIVER = driver

    def calls(self) -> list[list[str]]:
        """Return every argv of the stand-in, of which none was refused."""
        found = [json.loads(line) for line in (self.engine / "log").read_text().splitlines()]
        assert [item for item in found if item["refused"]] == []
        return [item["argv"] for item in found]

    def containers(self) -> list[str]:
        """Return the names of the containers that there are."""
        return sorted(path.stem for path in self.engine.glob("*.json"))

    def _left(self) -> list[object]:
        return [*super()._left(), *(("container", name) for name in self.containers())]


@pytest.fixture
def sessions(workshop: Workshop) -> Iterator[AppleSessions]:
    """Yield what drives sessions on the stand-in."""
    project = Project(workshop.actor("user"))
    made = AppleSessions(project, workshop.library)
    yield made
    made.close()
    project.close()


def test_life(sessions: AppleSessions) -> None:
    """It starts once, is joined, runs commands and ends, and Apple's command line takes every argv of it."""
    first = sessions.caller()
    found = first.open()
    assert found["fresh"] is True
    identifier = Path(found["directory"]).name
    assert sessions.containers() == [f"coop-{identifier}"]
    second = sessions.caller()
    assert second.open()["fresh"] is False
    done = second.shell("pwd; echo $COOP_SESSION $X; exit 7", environment={"X": "a b", "HTTP_PROXY": "x"})
    assert (done.status, done.out) == (7, f"{sessions.project.directory}\n{identifier} a b\n"), done
    assert second.run("nowhere").status == 127
    first.shell("sleep 1000 >/dev/null 2>&1 &")
    assert second.usage()[0] == 1
    assert second.run("sleep", "1000", timeout=1.0).timed_out
    assert second.usage()[0] == 1
    number = second.begin("sh", "-c", "stty size; sleep 1000", terminal=(33, 77), streams=())
    assert "33 77" in second.do("terminal", number=number, feed="", until="77")
    second.do("signal", number=number, signal=15)
    assert second.wait(number).signal == 15
    second.stop()
    assert sessions.left() == []
    verbs = {argv[0] for argv in sessions.calls()}
    assert verbs == {"image", "list", "create", "start", "exec", "delete"}


def test_all_of_a_command_ends_with_its_time(sessions: AppleSessions) -> None:
    """Also what forks away and is deaf to TERM."""
    caller = sessions.opened()
    away = "(env -i setsid sh -c 'trap \"\" TERM; sleep 1000; :' &)"
    script = f"trap '' TERM; setsid sleep 1000 & {away}; sleep 1000"
    assert caller.shell(script, timeout=2.0).timed_out
    assert caller.usage()[0] == 0
    sessions.calls()


def test_a_keeper_that_is_killed(sessions: AppleSessions) -> None:
    """The container ends with it; what is left of it goes at the next use."""
    caller = sessions.opened()
    processes = sessions.processes()
    kill(sessions.first())
    assert wait_gone(processes)
    with pytest.raises(Refused, match="does not run"):
        caller.run("true")
    assert caller.open()["fresh"] is True
    assert len(sessions.containers()) == 1
    caller.stop()
    assert sessions.left() == []
    sessions.calls()


def test_a_container_that_is_removed(sessions: AppleSessions) -> None:
    """It is noticed, and the session starts anew; another's of that name is left alone."""
    caller = sessions.opened()
    (name,) = sessions.containers()
    program = str(sessions.engine / "container")
    assert sessions.project.actor.run(program, "delete", "--force", name).status == 0
    assert wait_until(lambda: sessions.left() == [])
    stranger: dict[str, Any] = {"process": [], "environment": {}, "directory": "/", "labels": {}, "pid": None}
    (sessions.engine / f"{name}.json").write_text(json.dumps(stranger))
    assert caller.open()["fresh"] is True
    assert caller.run("true").status == 0
    caller.stop()
    assert sessions.containers() == [name]


def test_the_stand_in_refuses_what_apple_would(sessions: AppleSessions, tmp_path: Path) -> None:
    """An argv that the command line does not take fails, and is told."""
    assert standin.main(tmp_path, str(CHECKOUT), ["create", "--pids-limit", "5", "debian"]) == 64
    assert "unknown option" in (tmp_path / "log").read_text()
    assert sessions.containers() == []
