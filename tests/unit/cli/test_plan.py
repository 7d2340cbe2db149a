"""The views of ``coop plan``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coopfile.cli.main import main
from coopfile.language.settings import BUILT_IN_PROTECT

TEXT = """coop = 1
files.hide = ["**/.env*"]
[network]
mode = "host"
[env]
EDITOR = "vi"
TOKEN = { host = "MY_TOKEN" }
[[users]]
name = "bob"
trust = "inner"
match = ["signal:1"]
override.limits.memory = "64m"
"""


@pytest.fixture(autouse=True)
def _coopfile(project: Path) -> None:
    (project / "Coopfile").write_text(TEXT)


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """Run a successful ``coop plan`` and return what it printed."""
    assert main(["plan", *argv]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_readable(capsys: pytest.CaptureFixture[str]) -> None:
    """Without options the plan is for people."""
    text = printed(capsys)
    assert "host" in text
    assert "TOKEN" in text
    assert "**/.env*" in text


def test_json_is_canonical(capsys: pytest.CaptureFixture[str]) -> None:
    """--json prints the same bytes each time, and they are the plan."""
    text = printed(capsys, "--json")
    assert text == printed(capsys, "--json")
    assert json.loads(text)["network"]["mode"] == "host"


def test_digest(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    """--digest changes with what the file says, not with how it says it."""
    digest = printed(capsys, "--digest")
    assert digest.startswith("sha256:")
    assert json.loads(printed(capsys, "--digest", "--json")) == {"digest": digest.strip()}
    (project / "Coopfile").write_text("# a comment\n" + TEXT)
    assert printed(capsys, "--digest") == digest
    (project / "Coopfile").write_text(TEXT.replace("host", "none", 1))
    assert printed(capsys, "--digest") != digest


def test_explain_names_lines(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    """Each value says where it comes from: the file and line, the option, or that it is built in."""
    (project / "Coopfile.local").write_text('limits.pids = 99\nfiles.hide = ["local"]\n')
    lines = [line.split() for line in printed(capsys, "--explain", "--set", "limits.tmp=9m").splitlines()]
    assert ["network.mode", '"host"', "Coopfile:4"] in lines
    assert ["env.EDITOR", '"vi"', "Coopfile:6"] in lines
    assert ["files.hide", '"**/.env*"', "Coopfile:2"] in lines
    assert ["files.hide", '"local"', "Coopfile.local:2"] in lines
    assert ["limits.pids", "99", "Coopfile.local:1"] in lines
    assert ["limits.tmp", '"9m"', "--set", "limits.tmp"] in lines
    assert ["limits.memory", '"2g"', "built", "in"] in lines


def test_explain_folds_the_built_in_lists(capsys: pytest.CaptureFixture[str]) -> None:
    """The built-in list of protected paths takes one line, and one per path with -v."""
    short, long = printed(capsys, "--explain"), printed(capsys, "--explain", "-v")
    assert short.count("workspace.protect") == 1
    assert long.count("workspace.protect") == len(BUILT_IN_PROTECT)


def test_explain_shows_an_override(capsys: pytest.CaptureFixture[str]) -> None:
    """A user's override shows like any layer, with its line."""
    lines = [line.split() for line in printed(capsys, "--explain", "--as", "signal:1").splitlines()]
    assert ["limits.memory", '"64m"', "Coopfile:12"] in lines


def test_explain_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """--explain --json carries layer, source and line for programs."""
    rows = json.loads(printed(capsys, "--explain", "--json"))
    mode = next(row for row in rows if row["key"] == "network.mode")
    assert mode == {
        "key": "network.mode",
        "value": "host",
        "layer": "project",
        "source": "Coopfile",
        "line": 4,
    }


def test_diff_against_a_coopfile(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    """--diff says what widens and narrows from the other file to this one, per item."""
    (project / "other").mkdir()
    (project / "other" / "Coopfile").write_text('files.hide = ["b"]\nlimits.memory = "8g"\n')
    text = printed(capsys, "--diff", "other/Coopfile").replace('"', "")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "widens network.mode: none → host" in lines
    assert "narrows limits.memory: 8g → 2g" in lines
    assert "widens files.hide: - b" in lines
    assert "narrows files.hide: + **/.env*" in lines


def test_diff_knows_the_home(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read-only under another spelling of its path, and may be written now, widens."""
    monkeypatch.setenv("HOME", "/home/me")
    (project / "old").write_text('files = { write = ["~/a"], read = ["/home/me/a/s"] }\n')
    (project / "Coopfile").write_text('files = { write = ["~/a", "~/a/s"], read = ["/home/me/a/s"] }\n')
    assert main(["plan", "--diff", "old"]) == 0
    assert capsys.readouterr().out == "widens  files.write: + ~/a/s\n"


def test_diff_against_a_plan(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    """--diff takes the JSON of an earlier plan; against itself there is nothing to say."""
    (project / "plan.json").write_text(printed(capsys, "--json"))
    assert printed(capsys, "--diff", "plan.json") == "no differences\n"
    assert printed(capsys, "--diff", "plan.json", "-q") == ""
    (change,) = json.loads(printed(capsys, "--diff", "plan.json", "--json", "--set", "limits.pids=600"))
    assert change == {"key": "limits.pids", "kind": "widens", "old": 512, "new": 600, "item": False}


@pytest.mark.parametrize("text", ["{}", '{"network": 1}', "{", '{"a": ' + "[" * 100_000])
def test_diff_against_nonsense(text: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is no plan is a message that names it."""
    (project / "plan.json").write_text(text)
    assert main(["plan", "--diff", "plan.json"]) == 125
    assert "plan.json" in capsys.readouterr().err


def test_diff_against_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not there is a message."""
    assert main(["plan", "--diff", "missing"]) == 125
    assert "missing" in capsys.readouterr().err


def test_operations(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    """--operations lists what the native runner will do, the workspace among it."""
    assert "/workspace" in printed(capsys, "--operations")


def test_one_view_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Two views at once are wrong usage."""
    with pytest.raises(SystemExit) as stop:
        main(["plan", "--digest", "--explain"])
    assert stop.value.code == 2


def test_texts_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    """Nothing that a Coopfile says reaches the terminal as an escape sequence, in any view."""
    (project / "Coopfile").write_text('env.A = "caf\\u00e9 \\u2028"\nfiles.hide = ["a\\u200bb"]\n')
    for view in ((), ("--explain",), ("--diff", "Coopfile", "--set", "env.A=b")):
        assert main(["plan", *view]) in (0, 125)
        shown = capsys.readouterr()
        assert all(line.isprintable() for line in (shown.out + shown.err).splitlines())
