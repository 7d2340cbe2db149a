"""``coop init`` writes a starter that fits the project, and never harms what is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import tomli

from coopfile.cli import init
from coopfile.cli.main import main
from coopfile.compiling import Request, compile_project
from coopfile.errors import CoopError
from coopfile.plan.compare import compare, widening

PROJECTS = {
    "python": ("pyproject.toml", 'path = "host"'),
    "node": ("package.json", "# 4g suits large builds"),
    "rust": ("Cargo.toml", 'CARGO_NET_OFFLINE = "true"'),
    "go": ("go.mod", 'GOPROXY = "off"'),
    "plain": ("notes.txt", "# Made for any project"),
}


@pytest.mark.parametrize("kind", PROJECTS)
def test_starter_fits_and_passes_check(kind: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file names its evidence, has what that kind of project needs, is clean and widens nothing."""
    evidence, line = PROJECTS[kind]
    (project / evidence).touch()
    assert main(["init"]) == 0
    text = (project / "Coopfile").read_text()
    assert text.startswith("#:schema https://")
    assert line in text
    assert (evidence in text) == (kind != "plain")
    capsys.readouterr()
    assert main(["check"]) == 0
    assert capsys.readouterr().out == "no problems found\n"
    empty = compile_project(Request(str(project.parent))).plan
    assert widening(compare(empty, compile_project(Request(str(project))).plan)) == ()


def test_several_kinds_at_once(project: Path) -> None:
    """A project of two languages gets what both need."""
    (project / "package.json").touch()
    (project / "setup.py").touch()
    found = init.look(str(project), str(project))
    assert [kind.title for kind in found.kinds] == ["Python", "Node"]
    document = tomli.loads(init.render(found))
    assert document["workspace"]["path"] == "host"
    assert "4g suits" in init.render(found)


def test_tools_of_the_home_are_suggested_but_not_given(tmp_path: Path, project: Path) -> None:
    """Toolchains below the home appear as commented lines, which compile once uncommented."""
    (project / "Cargo.toml").touch()
    for name in (".cargo/bin", ".cargo/registry", ".rustup"):
        (tmp_path / name).mkdir(parents=True)
    text = init.render(init.look(str(project), str(tmp_path)))
    assert '# read = ["~/.cargo/bin", "~/.rustup"]\n' in text
    assert '# write = ["~/.cargo/registry"]\n' in text
    assert '# PATH = "/root/.cargo/bin:' in text
    assert tomli.loads(text)["files"] == {"hide": ["**/.env*"]}
    uncommented = text.replace("# read =", "read =").replace("# write =", "write =")
    (project / "Coopfile").write_text(uncommented.replace("# PATH =", "PATH ="))
    assert main(["check", "-q"]) == 0


def test_a_virtual_environment_is_protected(project: Path) -> None:
    """Only a virtual environment that exists is named."""
    (project / "pyproject.toml").touch()
    assert "protect" not in tomli.loads(init.render(init.look(str(project), "/nonexistent")))["workspace"]
    (project / ".venv").mkdir()
    text = init.render(init.look(str(project), "/nonexistent"))
    assert tomli.loads(text)["workspace"]["protect"] == [".venv"]


def test_refuses_to_overwrite(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A Coopfile that is there stays as it is, until --force."""
    (project / "Coopfile").write_text("coop = 1\n")
    assert main(["init"]) == 125
    assert "--force" in capsys.readouterr().err
    assert (project / "Coopfile").read_text() == "coop = 1\n"
    assert main(["init", "--force"]) == 0
    assert (project / "Coopfile").read_text().startswith("#:schema")
    assert os.listdir(project) == ["Coopfile"]


def test_refuses_a_dangling_link_and_force_replaces_the_link_itself(tmp_path: Path) -> None:
    """A link to a file that does not exist is not written through."""
    outside = tmp_path / "outside"
    target = tmp_path / "Coopfile"
    target.symlink_to(outside)
    with pytest.raises(CoopError, match="is there already"):
        init.write(str(target), "coop = 1\n", force=False)
    init.write(str(target), "coop = 1\n", force=True)
    assert not target.is_symlink()
    assert not outside.exists()


def test_print_writes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--print shows the file only."""
    assert main(["init", "--print"]) == 0
    assert tomli.loads(capsys.readouterr().out)["coop"] == 1
    assert os.listdir(project) == []


def test_a_directory_that_is_not_there(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong -C is a message, not a traceback."""
    assert main(["init", "-C", "missing"]) == 125
    assert "is not a directory" in capsys.readouterr().err
