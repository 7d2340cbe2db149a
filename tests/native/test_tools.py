"""Tools in real sandboxes: what a session hides and protects, its file tools hide and protect."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.sandboxes import Project
from tests.toollab import Tools, log, tools

__all__ = ["tools"]

pytestmark = pytest.mark.native

USERS = "".join(
    f'[[users]]\nname = "{name}"\ntrust = "{name}"\nmatch = ["signal:{name}"]\n'
    for name in ("owner", "full", "inner", "familiar")
)


def own(project: Project, text: str) -> None:
    """Write the actor's own file, which needs no approval."""
    project.write(f"{project.home}/.config/coop/Coopfile", text)


def lines(text: str) -> list[tuple[bool, bool, str]]:
    """Return (error, denied, text) of each call that was told."""
    found = []
    for line in text.splitlines():
        error, denied, told = line.split(" ", 2)
        found.append((error == "1", denied == "1", json.loads(told)))
    return found


def test_files_and_commands_see_the_same(project: Project, tools: Tools) -> None:
    """What a tool writes a command reads, and the other way round, with the owner of what sandboxes make."""
    project.write("script", "old", 0o750)
    result = tools("""
tell("write_file", path="new/file", content="one\\ntwo\\n")
tell("bash", command="cat new/file; echo three >> new/file; pwd")
tell("read_file", path="/workspace/new/file", offset=2)
tell("edit_file", path="script", old_text="old", new_text="edited")
""")
    assert lines(result.out) == [
        (False, False, "made new/file, 8 bytes"),
        (False, False, "one\ntwo\n/workspace"),
        (False, False, "two\nthree\n[lines 2 to 3 of 3]"),
        (False, False, "edited script at line 1"),
    ]
    status = (project.directory / "script").stat()
    assert (oct(status.st_mode & 0o7777), status.st_uid) == ("0o750", project.actor.uid)
    assert (project.directory / "new/file").stat().st_uid == project.actor.uid


GUARDS = """
[workspace]
protect = ["release.sh", "missing.sh", "locked"]
[files]
hide = ["**/.env*", "secrets", "link"]
"""


def test_guards_hold_for_file_tools(project: Project, tools: Tools) -> None:
    """Hidden files are not read nor protected ones written, by any name, and the host has changed nowhere."""
    project.coopfile(GUARDS)
    project.write(".env", "SECRET")
    project.write("deep/down/.env.local", "SECRET")
    project.write("secrets/key", "SECRET")
    project.write("real", "SECRET")
    project.link("link", "real")
    project.link("way", "secrets/key")
    project.link("hook", ".git/hooks/pre-commit")
    project.write("release.sh", "good")
    project.write("locked/in", "good")
    project.write(".git/config", "good")
    project.write(".git/HEAD", "ref: refs/heads/main")
    before = project.tree()
    hidden = (
        ".env",
        "deep/down/.env.local",
        "secrets/key",
        "real",
        "link",
        "way",
        "/workspace/secrets/../.env",
    )
    protected = (
        *("release.sh", "missing.sh", "locked/in", "locked/new", "locked/a/b", "Coopfile", "Coopfile.lock"),
        *(".git/config", ".git/hooks/pre-commit", "hook", ".vscode/tasks.json", ".mcp.json", ".envrc"),
        *("Coopfile.local", ".git/hooks", ".claude/settings.json"),
    )
    result = tools(f"""
for path in {hidden!r}:
    tell("read_file", path=path)
    tell("write_file", path=path, content="evil")
    tell("edit_file", path=path, old_text="SECRET", new_text="evil")
for path in {protected!r}:
    tell("write_file", path=path, content="evil")
    tell("edit_file", path=path, old_text="good", new_text="evil")
""")
    told = lines(result.out)
    assert all(error for error, _, _ in told), [text for error, _, text in told if not error]
    assert "SECRET" not in result.out
    assert project.tree() == before
    texts = [text for _, _, text in told]
    assert texts[0].startswith('.env may not be read (files.hide): "**/.env*" hides it')
    assert any(text.startswith("release.sh may not be written (workspace.protect)") for text in texts)


@pytest.mark.parametrize("who", ["full", "inner", "familiar"])
def test_guards_for_everybody(project: Project, tools: Tools, who: str) -> None:
    """Whoever is sandboxed reads what is not hidden, with or without commands, and nothing else."""
    project.coopfile(GUARDS)
    own(project, USERS)
    project.write(".env", "SECRET")
    project.write("file", "text")
    result = tools(f"""
tell("read_file", "signal:{who}", path="file")
tell("read_file", "signal:{who}", path=".env")
tell("read_file", "signal:{who}", path="../.bashrc")
tell("write_file", "signal:{who}", path="written", content="x")
tell("bash", "signal:{who}", command="true")
""")
    told = lines(result.out)
    less = who == "familiar"
    assert told[0] == (False, False, "text")
    assert [error for error, _, _ in told[1:]] == [True, True, less, less]
    assert [denied for _, denied, _ in told[3:]] == [less, less]
    assert (project.directory / "written").exists() is not less


def test_a_failed_command_is_told_the_rules(project: Project, tools: Tools) -> None:
    """What a command complains of is told with its rule, as a file tool tells it, and nothing else is."""
    project.coopfile(GUARDS)
    project.write("release.sh", "release")
    project.mkdir(".git/hooks")
    project.write("locked-away", "x", 0o000)
    result = tools("""
tell("bash", command="touch release.sh")
tell("bash", command="cd /workspace; echo x > .git/hooks/pre-commit")
tell("bash", command="mv /workspace/release.sh elsewhere")
tell("bash", command="python3 -c 'open(\\"release.sh\\", \\"w\\")'")
tell("bash", command="touch /usr/here")
tell("bash", command="cat no-such; echo 'other: Permission denied' >&2; false")
tell("bash", command="touch release.sh; true")
""")
    told = [text for _, _, text in lines(result.out)]
    for text in told[:4]:
        (note,) = (line for line in text.splitlines() if line.startswith("[denied: "))
        assert " may not be written (workspace.protect): " in note, text
    assert "[denied: /usr/here may not be written (" in told[4], told[4]
    assert "[denied: " not in told[5] + told[6], told


def test_the_owner_is_not_sandboxed(project: Project, tools: Tools) -> None:
    """The owner's commands are the host's; file tools keep to the workspace all the same."""
    project.coopfile(GUARDS)
    own(project, USERS)
    project.write(".env", "mine")
    project.write("../beside", "not the workspace's")
    result = tools("""
tell("bash", "signal:owner", command="pwd; cat .env")
tell("read_file", "signal:owner", path=".env")
tell("read_file", "signal:owner", path="../beside")
tell("write_file", "signal:owner", path=".git/hooks/x", content="mine")
""")
    assert lines(result.out)[:2] == [
        (False, False, f"{project.directory}\nmine"),
        (False, False, "mine"),
    ]
    assert [error for error, _, _ in lines(result.out)] == [False, False, True, False]
    assert "leads out of the workspace" in result.out


def test_modes_count_for_root_too(project: Project, tools: Tools) -> None:
    """What a sandbox may not read for its mode or owner, a tool does not read for it."""
    if project.actor.name != "root":
        pytest.skip("only root could")
    path = project.write("private", "SECRET", 0o600)
    os.chown(path, 12345, 12345)
    result = tools("""
tell("bash", command="cat private")
tell("read_file", path="private")
tell("edit_file", path="private", old_text="SECRET", new_text="x")
""")
    assert [error for error, _, _ in lines(result.out)] == [True] * 3
    assert ("SECRET" not in result.out, path.read_text()) == (True, "SECRET")


def test_a_ceiling_on_isolation(project: Project, tools: Tools) -> None:
    """It is about what runs, and does not keep files from being read where nothing does."""
    own(project, '[ceiling]\nsandbox.backend = ["docker"]\n')
    project.write("file", "text")
    result = tools("""
executor = coopfile.ToolExecutor(overrides={"sandbox.backend": ["docker"]})
tell("read_file", path="file")
""")
    assert lines(result.out) == [(False, False, "text")]


def test_a_view_where_commands_run_elsewhere(project: Project, tools: Tools) -> None:
    """File tools of a plan whose commands are not for the native back end see the workspace by its rules."""
    project.coopfile(GUARDS)
    project.write(".env", "SECRET")
    project.write("release.sh", "good")
    result = tools("""
executor = coopfile.ToolExecutor(overrides={"sandbox.backend": ["docker"], "base.image": "debian"})
tell("write_file", path="file", content="text")
tell("read_file", path="file")
tell("read_file", path=".env")
tell("write_file", path="release.sh", content="evil")
""")
    assert [error for error, _, _ in lines(result.out)] == [False, False, True, True]
    assert (project.directory / "release.sh").read_text() == "good"


def test_the_log(project: Project, tools: Tools) -> None:
    """Every call is in it, with no value of the host's environment, and nobody else may read it."""
    own(project, USERS + '[env]\nTOKEN = { host = "MY_TOKEN" }\n')
    tools(
        """
tell("bash", "signal:inner", command="echo $TOKEN s3cr3t-value")
tell("bash", "signal:familiar", command="echo s3cr3t-value")
tell("write_file", "signal:inner", path="file", content="what is in files is not written down")
""",
        MY_TOKEN="s3cr3t-value",
    )
    entries = [json.loads(line) for line in log(project)]
    assert [(entry["user"], entry["trust"], entry["tool"], entry["decision"]) for entry in entries] == [
        ("inner", "inner", "bash", "allowed"),
        ("familiar", "familiar", "bash", "denied"),
        ("inner", "inner", "write_file", "allowed"),
    ]
    assert entries[0]["command"] == "echo $TOKEN <TOKEN>" and entries[0]["result"] == "status 0"
    assert "s3cr3t" not in "".join(log(project)) and "written down" not in "".join(log(project))
    place = Path(project.home, ".local/state/coop/audit")
    assert {oct(path.stat().st_mode & 0o777) for path in (place, *place.iterdir())} == {"0o700", "0o600"}
