"""A command that failed is shown where it was written, whichever file and however it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from coopfile.cli.stagefailure import explain, tail
from coopfile.cli.written import place
from coopfile.compiling import Compiled, Request, compile_project
from coopfile.rootfs.build import StageError

COOPFILE = """
base.image = "debian"
setup.run = ["a", 'b "c"',
  '''
d
e''', "f"]
packages = { apt = [
  "git",
], pip = ["x"] }
agent.install = "install me"
network.publish = ["9000", '80:1', "8000"]
[[users]]
name = "alice"
trust = "owner"
match = ["terminal:alice"]
[users.override]
setup.run = ["mine"]
agent.install = "other"
"""


def compiled(project: Path, **options: object) -> Compiled:
    """Compile the project above."""
    (project / "Coopfile").write_text(COOPFILE)
    return compile_project(Request(str(project), locked=False).replace(**options))


@pytest.mark.parametrize(
    ("key", "number", "line", "column", "length"),
    [
        ("setup.run", 0, 3, 14, 3),
        ("setup.run", 1, 3, 19, 7),
        ("setup.run", 2, 4, 3, 10),
        ("setup.run", 3, 6, 7, 3),
        ("packages.apt", 0, 7, 14, 3),
        ("packages.pip", 0, 9, 4, 3),
        ("agent.install", 0, 10, 7, 7),
        ("network.publish", 0, 11, 36, 6),
        ("network.publish", 1, 11, 28, 6),
        ("network.publish", 2, 11, 20, 6),
    ],
)
def test_in_the_coopfile(project: Path, key: str, number: int, line: int, column: int, length: int) -> None:
    """Each command of a list has its own place; packages and the agent have that of their key."""
    position, text = place(compiled(project), key, number)
    assert (position.source, position.line, position.column, position.length) == (
        "Coopfile",
        line,
        column,
        length,
    )
    assert text == COOPFILE.split("\n")[line - 1]


def test_in_a_users_override(project: Path) -> None:
    """What the matched user's override adds is found there, not at the key of the same name above."""
    found = compiled(project, identity="terminal:alice")
    assert found.settings.value("setup.run")[-1] == "mine"
    assert str(place(found, "setup.run", 4)[0]) == "Coopfile:17:14"
    assert str(place(found, "setup.run", 0)[0]) == "Coopfile:3:14"
    assert str(place(found, "agent.install", 0)[0]) == "Coopfile:18:7"


def test_in_other_layers(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local file is named with its line; a variable and an option have none."""
    (project / "Coopfile.local").write_text('\n[setup]\nrun = [ "local" ]\n')
    monkeypatch.setenv("COOP_SETUP_RUN", '["variable"]')
    found = compiled(project, assignments=("setup.run=['option']",))
    assert found.settings.value("setup.run")[4:] == ("local", "variable", "option")
    assert str(place(found, "setup.run", 4)[0]) == "Coopfile.local:3:9"
    assert str(place(found, "setup.run", 5)[0]) == "COOP_SETUP_RUN"
    assert str(place(found, "setup.run", 6)[0]) == "--set setup.run"


def test_the_error(project: Path) -> None:
    """It says which command it was and how it ended, and keeps the end of what it printed."""
    said = b"".join(b"line %d\n" % number for number in range(100)) + b"\n\x1b[31mlast"
    error = StageError("setup.run", 1, "b", 3, said)
    explained = explain(error, compiled(project), "do this")
    assert explained.message.split("\n") == [
        "Coopfile:3:19: error: setup.run: command 2 failed with status 3",
        """ 3 | setup.run = ["a", 'b "c"',""",
        "   |                   ^^^^^^^",
        "   = help: do this",
    ]
    assert explained.said[-2:] == ("line 99", "last") and len(explained.said) == 20


def test_tail() -> None:
    """A command that said nothing has no lines, and one line may be long."""
    assert tail(b"") == () and tail(b"\n \n") == ()
    assert tail(b"x" * 70_000) == ("x" * 70_000,)
