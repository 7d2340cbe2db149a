"""`coop log`: calls and what was blocked, in the order in which they were, and some of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import coopfile
from coopfile import audit
from coopfile.cli.main import main
from coopfile.find import directories
from coopfile.plan.sessions import log_path, session_id


@pytest.fixture
def logged(project: Path) -> Path:
    """Return a project in which things were called and blocked."""
    log = audit.Audit(audit.path(str(project), os.environ), {})
    for number, (user, tool, command, decision) in enumerate(
        (
            ("alice", "bash", "make\n\x1b[2Jtest", "confirmed"),
            ("bob", "bash", "id", "denied"),
            (None, "read_file", "file", "allowed"),
        )
    ):
        descriptor = log.open()
        log.write(
            descriptor,
            time=f"2026-01-01T00:00:0{number * 2}Z",
            identity="signal:x",
            user=user,
            trust="inner" if user else None,
            tool=tool,
            command=command,
            decision=decision,
            result="status 0",
            duration=0.5,
            backend="sandbox",
        )
        os.close(descriptor)
    place = Path(log_path(directories(os.environ).state, session_id(str(project), None)))
    place.parent.mkdir(parents=True, exist_ok=True)
    entry = {
        "time": "2026-01-01T00:00:01Z",
        "kind": "network",
        "host": "x.org",
        "port": 443,
        "text": "x.org was blocked",
    }
    place.write_text(json.dumps(entry) + "\n")
    return project


ALICE = r"2026-01-01T00:00:00Z  alice (inner): bash make\n\x1b[2Jtest: status 0, 0.5 s"
BLOCKED = "2026-01-01T00:00:01Z  x.org was blocked"
BOB = "2026-01-01T00:00:02Z  bob (inner): bash id: denied"
NOBODY = "2026-01-01T00:00:04Z  signal:x: read_file file: status 0, 0.5 s"


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ((), [ALICE, BLOCKED, BOB, NOBODY]),
        (("--last", "1"), [NOBODY]),
        (("--last", "0"), ["nothing was called or blocked"]),
        (("--denied",), [BLOCKED, BOB]),
        (("--host", "X.*"), [BLOCKED]),
        (("--host", "y.org"), ["nothing was blocked"]),
        (("--port", "443"), [BLOCKED]),
        (("--port", "80"), ["nothing was blocked"]),
        (("--since", "1m"), ["nothing was called or blocked"]),
        (("--user", "bob"), [BOB]),
        (("--user", "signal:x"), [ALICE, BOB, NOBODY]),
        (("--tool", "bash"), [ALICE, BOB]),
        (("--tool", "bash", "--denied"), [BOB]),
        (("--session", "default"), [BLOCKED]),
        (("--session", "other"), ["nothing was blocked"]),
    ],
)
def test_what_is_listed(
    logged: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], lines: list[str]
) -> None:
    """Filters hold; a terminal is shown nothing that it would act on."""
    assert main(["log", *options]) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_json(logged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All fields, as they are."""
    assert main(["log", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["kind"] for entry in found] == ["call", "network", "call", "call"]
    assert found[0]["command"] == "make\n\x1b[2Jtest" and set(found[0]) == set(audit.FIELDS)


def test_a_call_is_found(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a program has called is what is listed."""
    fake = coopfile.FakeBackend(lambda call: coopfile.Answer(status=3))
    with coopfile.ToolExecutor(backend=fake, overrides={"tools.confirm": "never"}) as executor:
        executor.execute("bash", {"command": "make"})
    assert main(["log"]) == 0
    assert ": bash make: status 3" in capsys.readouterr().out
