"""Asking before a command: what is shown, which answers count, and where nobody can be asked."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

import coopfile
from coopfile import audit

ARGUMENTS = {"command": "echo"}


@pytest.fixture
def fake() -> coopfile.FakeBackend:
    """Return sessions in which `echo` is answered."""
    made = coopfile.FakeBackend()
    made.answer("echo", stdout="done")
    return made


Ask = Callable[[coopfile.Confirmation], object]


def decided(project: Path) -> list[str]:
    """Return how calls were decided."""
    return [entry["decision"] for entry in audit.read(audit.path(str(project), os.environ))]


@pytest.mark.parametrize(
    ("answer", "runs", "again"),
    [
        ("yes", True, True),
        (True, True, True),
        ("always", True, False),
        ("no", False, True),
        (False, False, True),
        (None, False, True),
        ("", False, True),
        ("YES", False, True),
        (1, False, True),
        ("maybe", False, True),
        ("by the client", False, True),
        ("client", False, True),
    ],
)
def test_answers(project: Path, fake: coopfile.FakeBackend, answer: object, runs: bool, again: bool) -> None:
    """A clear yes runs the command, once or always in this conversation; all else is a no."""
    asked: list[coopfile.Confirmation] = []

    def ask(confirmation: coopfile.Confirmation) -> object:
        asked.append(confirmation)
        return answer

    with coopfile.ToolExecutor(backend=fake, confirm=ask) as executor:
        results = [executor.execute("bash", ARGUMENTS) for _ in range(2)]
        assert [result.error for result in results] == [not runs] * 2
        assert len(asked) == (2 if again else 1)
        executor.execute("bash", ARGUMENTS, key="another conversation")
        assert len(asked) == (3 if again else 2)
    assert len(fake.calls) == (3 if runs else 0)
    assert decided(project)[0] == ("confirmed" if runs else "declined")
    if not runs:
        assert results[0].denied and "said no" in results[0].text


@pytest.mark.parametrize("how", ["own file", "environment", "override"])
def test_nobody_is_asked(
    project: Path, fake: coopfile.FakeBackend, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tools.confirm` is "never" by the reader's own file, the environment, or the program."""
    if how == "own file":
        place = project.parent / "settings/coop/Coopfile"
        place.parent.mkdir(parents=True)
        place.write_text('tools.confirm = "never"')
        monkeypatch.setenv("XDG_CONFIG_HOME", str(project.parent / "settings"))
    if how == "environment":
        monkeypatch.setenv("COOP_TOOLS_CONFIRM", "never")
    overrides = {"tools.confirm": "never"} if how == "override" else None
    with coopfile.ToolExecutor(backend=fake, overrides=overrides) as executor:
        assert executor.execute("bash", ARGUMENTS).text == "done"
    assert decided(project) == ["allowed"]


def test_a_project_does_not_decide_that(project: Path, fake: coopfile.FakeBackend) -> None:
    """A Coopfile that says that nobody is asked needs approval."""
    (project / "Coopfile").write_text('tools.confirm = "never"')
    with coopfile.ToolExecutor(backend=fake) as executor, pytest.raises(coopfile.CoopError, match="confirm"):
        executor.execute("bash", ARGUMENTS)


def test_without_a_terminal(
    project: Path, fake: coopfile.FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is refused, and the result says what would have it run; files need no confirmation."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    (project / "file").write_text("text")
    with coopfile.ToolExecutor(backend=fake) as executor:
        result = executor.execute("bash", ARGUMENTS)
        assert result.denied and "no terminal" in result.text and "COOP_TOOLS_CONFIRM=never" in result.text
        assert executor.execute("read_file", {"path": "file"}).text == "text"
    assert (fake.calls, decided(project)) == ([], ["refused", "allowed"])


def test_what_is_shown(project: Path, fake: coopfile.FakeBackend) -> None:
    """All of the command, with what a terminal would act on made visible; where, and what it may."""
    asked: list[coopfile.Confirmation] = []

    def ask(confirmation: coopfile.Confirmation) -> object:
        asked.append(confirmation)
        return "no"

    command = "echo \x1b[2K\x1b[1A harmless\r\u202e\nrm -rf " + "x" * 500
    overrides = {"network.mode": "proxy", "network.allow": ["pypi.org"]}
    with coopfile.ToolExecutor(backend=fake, confirm=ask, overrides=overrides) as executor:
        executor.execute("bash", {"command": command})
        executor.execute("bash", {"command": command}, "terminal:default")
    assert asked[0].command == command
    assert asked[0].text.split("\n") == [
        "a command is to run:",
        r"    echo \x1b[2K\x1b[1A harmless\r\u202e",
        f"    rm -rf {'x' * 500}",
        "  in /workspace",
        "  sandboxed; it may write: the workspace (24 protected paths aside)",
        "  network: only pypi.org",
        "  limits: 2g of memory, 512 processes",
    ]
    assert f"  in {project}\n  NOT sandboxed" in asked[1].text
    assert all(character.isprintable() or character == "\n" for character in asked[0].text)


PROGRAM = """
import coopfile
fake = coopfile.FakeBackend(lambda call: coopfile.Answer())
with coopfile.ToolExecutor(backend=fake) as executor:
    for number in range(3):
        result = executor.execute("bash", {"command": f"echo {number}"})
        print("RESULT", number, result.error)
"""


@pytest.mark.parametrize(
    ("typed", "results"),
    [
        (("n", "", "y"), ("True", "True", "False")),
        (("yes", "a", None), ("False", "False", "False")),
        (("x", "yeah", "Y"), ("True", "True", "False")),
    ],
)
def test_on_a_terminal(
    project: Path, monkeypatch: pytest.MonkeyPatch, typed: tuple[str | None, ...], results: tuple[str, ...]
) -> None:
    """Yes, no and always are asked for; Enter is a no."""
    monkeypatch.setenv("PYTHONPATH", str(Path(coopfile.__file__).parent.parent))
    child = pexpect.spawn(sys.executable, ["-c", PROGRAM], encoding="utf-8", timeout=60, cwd=str(project))
    try:
        for number, (text, result) in enumerate(zip(typed, results, strict=True)):
            if text is not None:
                child.expect_exact("[a]lways in this session: ")
                assert f"echo {number}" in str(child.before)
                child.sendline(text)
            child.expect_exact(f"RESULT {number} {result}")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)
