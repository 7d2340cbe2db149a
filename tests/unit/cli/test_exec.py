"""What `coop exec` makes of its options."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from coopfile.cli import attached
from coopfile.cli.attached import dressed
from coopfile.cli.exec import below, check_name, execute, pairs
from coopfile.cli.options import ExecOptions
from coopfile.errors import UsageError
from coopfile.find import Project
from coopfile.plan.sessions import log_path
from coopfile.proxy.denials import Denials, open_log
from coopfile.session.model import Command, Ended


@pytest.mark.parametrize(
    ("stands", "inside", "expected"),
    [
        ("/w", None, None),
        ("/w/a/b", None, "a/b"),
        ("/w", "a", "a"),
        ("/w/a", "b/c", "a/b/c"),
        ("/w/a", "..", "a/.."),
        ("/w/a", "/tmp", "/tmp"),
    ],
)
def test_where_a_command_starts(stands: str, inside: str | None, expected: str | None) -> None:
    """It is where the caller stands in the workspace, a path from there, or a path of the sandbox."""
    assert below(Project("/w", stands, ()), inside) == expected


def test_variables() -> None:
    """A value is all that comes after the first =, be it nothing."""
    assert pairs(("A=b=c", "B=")) == (("A", "b=c"), ("B", ""))


@pytest.mark.parametrize("text", ["A", "", "=b"])
def test_what_is_no_variable(text: str) -> None:
    """What has no name or no value is refused, with an example."""
    with pytest.raises(UsageError, match="not NAME=VALUE"):
        pairs((text,))


@pytest.mark.parametrize("name", ["", ".", "-x", "a/b", "a b", "é", "x" * 65, "a\n"])
def test_what_is_no_name(name: str) -> None:
    """A name that no session can have is wrong usage, and the rule is told."""
    with pytest.raises(UsageError) as refused:
        check_name(name)
    assert "64" in str(refused.value.remedy)


def test_a_command_is_needed() -> None:
    """Without a command there is a hint at `coop shell`."""
    with pytest.raises(UsageError) as refused:
        execute(ExecOptions(name="work"))
    assert "coop shell" in str(refused.value.remedy)


def test_only_a_terminal_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command on the caller's terminal knows which that is, unless the plan or --env says otherwise."""
    for name, value in {"TERM": "screen", "LANG": "C", "NO_COLOR": "1", "SECRET": "x"}.items():
        monkeypatch.setenv(name, value)
    plain = Command(("true",), (("LANG", "de"),))
    assert dressed(plain, ()) == plain
    shown = dict(dressed(plain.replace(terminal=(24, 80)), ("NO_COLOR",)).environment)
    assert shown["TERM"] == "screen" and shown["LANG"] == "de"
    assert "NO_COLOR" not in shown and "SECRET" not in shown


class Over:
    """A command that has ended already."""

    terminal: int | None = None

    def fileno(self) -> int:
        """Return what can be read: a file's end."""
        return self._file

    def __init__(self) -> None:
        self._file = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)

    def wait(self) -> Ended:
        """Return how it has ended."""
        return Ended(0)

    def signal(self, number: int) -> None:
        """Reach nobody."""

    def close(self) -> None:
        """Let go."""
        os.close(self._file)

    def forked(self) -> None:
        """Have nothing in common with anybody."""


def test_what_was_blocked_before_this_process_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A command that is begun while the rest is imported may be over by then: what it met is told too."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    log = open_log(log_path(f"{tmp_path}/coop", "session"))
    notes = os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
    began = time.time()
    Denials(notes, log).add("host.example.org", 80, "host.example.org:80 is blocked")
    os.close(log)
    os.close(notes)
    time.sleep(0.01)
    asked = Command(("true",), (), None, None)
    assert attached.run(lambda command, streams: Over(), asked, "/sessions/session", began) == 0
    assert "host.example.org:80 is blocked" in capfd.readouterr().err
    assert attached.run(lambda command, streams: Over(), asked, "/sessions/session") == 0
    assert capfd.readouterr().err == ""
