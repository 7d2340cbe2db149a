"""The completion scripts offer what the parsers accept."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

import pytest

from coopfile.cli import completion
from coopfile.cli.parsing import parser


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the bash script for coop's real parsers."""
    path = tmp_path_factory.mktemp("completion") / "coop.bash"
    path.write_text(completion.bash(*completion.describe(parser())))
    return path


def complete(script: Path, *words: str, cwd: Path | None = None) -> list[str]:
    """Ask a plain bash what it offers for the last of the words."""
    program = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _coop; '
    program += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "-euc", program, "bash", str(script), "coop", *words],
        capture_output=True,
        text=True,
        timeout=20,
        cwd=cwd,
        check=False,
    )
    assert done.stderr == ""
    return sorted(done.stdout.split())


def test_bash_offers_the_verbs(script: Path) -> None:
    """The first word is a verb."""
    assert {"run", "plan", "check", "schema", "init", "completion", "status"} <= set(complete(script, ""))
    assert complete(script, "sch") == ["schema"]


def test_bash_offers_a_verbs_options(script: Path) -> None:
    """Options are those of the verb on the line, also after another option with a value."""
    assert complete(script, "schema", "--pl") == ["--place", "--plan"]
    assert "--digest" in complete(script, "plan", "-C", "/tmp", "--d")


def test_bash_offers_choices_after_either_spelling(script: Path) -> None:
    """The values of an option are offered after a space and after ``=``, which bash splits off."""
    assert complete(script, "plan", "--place", "g") == ["group"]
    assert complete(script, "plan", "--place", "=", "g") == ["group"]
    assert complete(script, "plan", "--place", "=") == ["direct", "group"]


def test_bash_offers_words(script: Path) -> None:
    """A verb's positional choices are offered."""
    assert complete(script, "completion", "") == ["bash", "fish", "zsh"]


def test_bash_offers_files_and_directories(script: Path, tmp_path: Path) -> None:
    """``-f`` takes any file, with blanks in its name kept, and ``-C`` directories only."""
    (tmp_path / "some").mkdir()
    (tmp_path / "something.Coopfile").touch()
    assert complete(script, "check", "-f", "some", cwd=tmp_path) == ["some", "something.Coopfile"]
    assert complete(script, "check", "-C", "some", cwd=tmp_path) == ["some"]


def test_bash_offers_commands_after_run(script: Path) -> None:
    """After ``run --`` come programs, then files, and no options of coop."""
    assert "bash" in complete(script, "run", "--", "bas")
    assert complete(script, "run", "--", "ls", "--js") == []


def test_bash_offers_sessions(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a session is named, the project's are offered, and after the name what the verb takes then."""
    coop = tmp_path / "coop"
    coop.write_text('#!/bin/sh\n[ "$*" = "ls -q" ] && printf "work\\nplay\\nwait\\n"\n')
    coop.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for words in (("exec",), ("stop", "play"), ("shell",), ("exec", "-w", "/tmp"), ("run", "--session")):
        assert complete(script, *words, "w") == ["wait", "work"], words
    assert "bash" in complete(script, "exec", "work", "bas")
    assert "bash" in complete(script, "exec", "work", "--", "bas")
    assert complete(script, "exec", "work", "--no") == ["--no-terminal"]
    assert complete(script, "exec", "work", "--", "ls", "--no") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_valid(shell: str, tmp_path: Path) -> None:
    """The script parses in its shell, where that shell is installed."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "script"
    path.write_text(getattr(completion, shell)(*completion.describe(parser())))
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_texts_are_quoted() -> None:
    """A help text with quotes and brackets cannot break out of the zsh and fish scripts."""
    top = argparse.ArgumentParser(prog="coop")
    verb = top.add_subparsers().add_parser("run", help="it's [run]: now")
    verb.add_argument("--odd", metavar="FILE", help="a 'quoted' [word]: 100%%")
    described = completion.describe(top)
    assert r"'--odd=[a '\''quoted'\'' (word), 100%]:file:_files'" in completion.zsh(*described)
    assert r"-d 'a \'quoted\' [word]: 100%'" in completion.fish(*described)
    assert r"-d 'it\'s [run]: now'" in completion.fish(*described)
