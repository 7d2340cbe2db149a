"""The command line on other systems than Linux: what only renders works, the rest says what it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import coopfile
from coopfile.cli import main, parsing
from tests import mac, windows

LIBRARY = str(Path(coopfile.__file__).parent.parent)
COOPFILE = """coop = 1
[base]
image = "localhost:1/none"
[network]
mode = "host"
"""
LOOKING = "coop does not know how to look at machines without Linux yet"
FACTS = {"system": "darwin", "host": {"home": "/Users/you", "workspace": "/Users/you/shop"}}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project whose plan wants something, with its facts in a file."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "Coopfile").write_text(COOPFILE)
    (project / "tools.toml").write_text("coop = 1\n")
    (project / "facts.json").write_text(json.dumps(FACTS))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("DATA", "STATE", "CACHE", "CONFIG"):
        monkeypatch.delenv(f"XDG_{name}_HOME", raising=False)
    return project


def coop(system: ModuleType, project: Path, *words: str) -> tuple[int, str]:
    """Run a verb as on a system; return its status and all that it said, which is no traceback."""
    assert system.__file__ is not None
    argv = [sys.executable, "-I", "-c", Path(system.__file__).read_text(), LIBRARY, *words]
    done = subprocess.run(
        argv, cwd=project, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    said = done.stdout + done.stderr
    assert "Traceback" not in said and "bug in coop" not in said, said
    return done.returncode, said


@pytest.mark.parametrize("system", [mac, windows])
def test_what_only_renders(system: ModuleType, project: Path) -> None:
    """The whole way from a Coopfile to what is pasted, with approval; but this machine is not looked at."""
    facts = ("--facts", "facts.json")
    status, said = coop(system, project, "render", "docker", *facts, "--", "make")
    assert status == 125 and "coop allow" in said
    for words, expected, text in (
        (("allow",), 0, "approved"),
        (("allow", "--list"), 0, "project"),
        (("plan",), 0, "localhost:1/none"),
        (("why", "read", "/etc/passwd"), 1, "the image's, not the host's"),
        (("render", "docker", *facts, "--", "make"), 0, "docker run"),
        (("render", "seatbelt", *facts, "-f", "tools.toml", "--", "make"), 0, "sandbox-exec"),
        (("render", "dockerfile"), 0, "FROM "),
        (("render", "docker"), 125, LOOKING),
        (("schema",), 0, "$schema"),
        (("completion", "bash"), 0, "_coop()"),
        (("init",), 125, "on Linux alone"),
        (("init", "--force"), 0, "wrote"),
        (("--help",), 0, "what runs something needs Linux"),
        (("--version",), 0, "coop "),
    ):
        found, said = coop(system, project, *words)
        assert found == expected and text in said, (words, found, said)


@pytest.mark.parametrize("system", [mac, windows])
def test_what_looks_for_back_ends(system: ModuleType, project: Path) -> None:
    """`coop status` and `coop check` say that there is none, also for a plan that falls back to the host."""
    with (project / "Coopfile").open("a") as file:
        file.write('[sandbox]\nfallback = "host"\n')
    status, said = coop(system, project, "status", "--json")
    data = json.loads(said)
    assert (status, data["backend"], data["usable"], data["sessions"]) == (1, None, False, [])
    assert LOOKING in [item["why"] for item in data["backends"]]
    for verb in ("status", "check"):
        status, said = coop(system, project, verb)
        assert status == 1 and LOOKING in said and "docs/backends.md" in said, said


def test_what_macs_have_and_windows_has_not(project: Path) -> None:
    """Where `coop proxy` runs, what it has blocked can be read; and registries are asked there."""
    assert coop(mac, project, "log") == (0, "nothing was called or blocked\n")
    assert coop(mac, project, "allow")[0] == 0
    status, said = coop(mac, project, "lock")
    assert status == 125 and "localhost:1 refuses connections" in said, said
    for verb in ("lock", "log", "proxy"):
        status, said = coop(windows, project, verb)
        assert status == 125 and f"coop {verb} needs Linux or macOS" in said


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_what_needs_linux(
    system: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every other verb is refused before anything of it is imported, whatever it is asked."""
    monkeypatch.setattr(sys, "platform", system)
    refused = [verb for verb in parsing.VERBS if verb not in parsing.verbs_here()]
    assert {"run", "shell", "exec", "rebuild", "clean", "mcp"} < set(refused)
    for verb in refused:
        monkeypatch.setitem(sys.modules, f"coopfile.cli.{verb}", None)
        for words in ([verb], ["-C", "/", verb, "--nonsense"], ["sandbox", verb]):
            if words[0] == "sandbox" and verb not in ("reset", "clean"):
                continue
            assert main.main(words) == 125
            said = capsys.readouterr().err
            assert f"coop {verb} needs Linux" in said and "docs/backends.md" in said


def test_sessions_need_linux(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python, too, what cannot be is told; a fake back end serves tests everywhere."""
    monkeypatch.setattr(sys, "platform", "darwin")
    plan = coopfile.compile(project / "tools.toml")
    with coopfile.Session(plan, directory=project) as session:
        with pytest.raises(coopfile.CoopError, match="sessions need Linux") as raised:
            session.exec(["true"])
        assert raised.value.remedy is not None and "FakeBackend" in raised.value.remedy
    fake = coopfile.FakeBackend()
    fake.answer(["true"])
    with coopfile.Session(plan, directory=project, backend=fake) as session:
        assert session.exec(["true"]).ok


NAMES = """
import coopfile
for name in coopfile.__all__:
    try:
        getattr(coopfile, name)
    except ImportError as error:
        print(error)
    else:
        print(f"{name} is there")
"""


@pytest.mark.parametrize("system", [mac, windows])
def test_what_the_library_has(system: ModuleType, project: Path) -> None:
    """What compiles is there on every system; what runs something says that it needs Linux."""
    _, said = coop(system, project, "python", NAMES)
    there = {line.split()[0] for line in said.splitlines() if line.endswith(" is there")}
    refused = set(said.splitlines()) - {f"{name} is there" for name in there}
    assert there >= {"compile", "CoopError", "FakeBackend", "Plan"} and "ToolExecutor" not in there
    assert refused == {f"coopfile.{name} needs Linux" for name in set(coopfile.__all__) - there}
