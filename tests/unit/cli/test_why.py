"""``coop why`` names the rule and the line, and says by its status whether it is allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coopfile.cli.main import main


def test_denied_with_its_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the Coopfile denies is denied by its line, with what would change that; the status is 1."""
    (project / "Coopfile").write_text('[files]\nhide = ["secret"]\n')
    assert main(["why", "read", "secret"]) == 1
    out = capsys.readouterr().out
    assert out.startswith('denied (files.hide, Coopfile:2): "secret" hides it\n')
    assert "to change that: " in out


def test_allowed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is allowed gives 0 and says why; --json has the same."""
    assert main(["why", "write", "src/x"]) == 0
    assert capsys.readouterr().out.startswith("allowed (workspace.path")
    assert main(["why", "--json", "env", "HOME"]) == 0
    assert json.loads(capsys.readouterr().out)["allowed"] is True


def test_nonsense(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A target that makes no sense is wrong usage."""
    assert main(["why", "connect", "host:99999"]) == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "status", "says"),
    [
        ("ptrace", 1, "answered with EPERM"),
        ("io_uring_setup", 1, "answered with ENOSYS"),
        ("getpid", 0, "no list of coop's names it"),
        ("clock_gettime", 0, "clock_settime is denied"),
        ("socket", 0, "AF_UNIX"),
        ("clone", 0, "namespaces"),
        ("Ptrace!", 2, ""),
    ],
)
def test_system_calls(
    project: Path, capsys: pytest.CaptureFixture[str], call: str, status: int, says: str
) -> None:
    """The filter's answer, and that nothing in a Coopfile changes it."""
    assert main(["why", "syscall", call]) == status
    assert says in capsys.readouterr().out


def test_system_calls_elsewhere(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of an engine's filter nothing is claimed."""
    assert main(["why", "--set", "sandbox.backend=docker", "syscall", "ptrace"]) == 125
    assert "the engine's own" in capsys.readouterr().err
