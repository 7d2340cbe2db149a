"""Commands that start with exactly the environment that was asked for: run, and looked at from inside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from coopfile.errors import CoopError
from coopfile.render.environment import with_environment

SHOW = ("/usr/bin/env", "-0")
AROUND = {
    "API_TOKEN": "s e\ncret=1\nOTHER=2",
    "TOKEN": "the outer one",
    "LEAK": "multi\nBAR=x",
    "coop_TOKEN": "leak",
    "coop_name": "leak",
    "coop_names": "leak",
    "NOT_THERE": "leak",
    "coop_NOT_THERE": "leak",
    "name": "leak",
    "BASH_FUNC_x%%": "() { :; }",
    "odd name": "leak",
    "*": "leak",
    "-u": "leak",
    "EMPTY": "",
    "LATIN": os.fsdecode(b"caf\xe9"),
}


def inside(argv: tuple[str, ...], around: Mapping[str, str] = AROUND) -> dict[str, str]:
    """Run argv and return the environment that its command saw."""
    done = subprocess.run(argv, env=around, capture_output=True, check=True, timeout=20)
    assert done.stderr == b""
    return dict(item.split("=", 1) for item in done.stdout.decode().split("\0") if item)


def test_literals_only() -> None:
    """Without inherited values, only the literals are there."""
    literals = {"A": "1 2", "B": 'x\n"$A"', "C": ""}
    argv = with_environment(SHOW, literals, {})
    assert argv[:2] == ("/usr/bin/env", "-i")
    assert inside(argv) == literals


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
def test_inherited(shell: str) -> None:
    """Inherited values arrive by their new names, not in argv, and nothing else does."""
    if not os.path.exists(shell):
        pytest.skip(f"this machine has no {shell}")
    inherited = {"TOKEN": "API_TOKEN", "API_TOKEN": "TOKEN", "NOT_THERE": "NOT_SET", "EMPTY": "EMPTY"}
    argv = with_environment(SHOW, {"A": "1 2"}, inherited)
    assert not any("cret" in argument or "outer" in argument for argument in argv)
    assert inside((shell, *argv[1:])) == {
        "A": "1 2",
        "TOKEN": AROUND["API_TOKEN"],
        "API_TOKEN": AROUND["TOKEN"],
        "EMPTY": "",
    }


@pytest.mark.parametrize("inherited", [{}, {"TOKEN": "API_TOKEN"}])
def test_the_command_is_the_same(inherited: dict[str, str]) -> None:
    """Arguments and the exit status pass through."""
    code = "import sys; print(sys.argv[1:]); sys.exit(7)"
    arguments = ["", "a b", "-u", "A=B", "$HOME", "x\ny"]
    argv = with_environment((sys.executable, "-S", "-c", code, *arguments), {}, inherited)
    done = subprocess.run(argv, env=AROUND, capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stdout) == (7, f"{arguments}\n")


def test_names_of_the_scripts_own() -> None:
    """Variables that are called like those that the script uses meanwhile arrive, too."""
    inherited = {"TOKEN": "coop_TOKEN", "coop_name": "name", "X": "coop_names"}
    found = inside(with_environment(SHOW, {}, inherited))
    assert found == {"TOKEN": "leak", "coop_name": "leak", "X": "leak"}


@pytest.mark.parametrize("inherited", [{"IFS": "TOKEN"}, {"TOKEN": "UID"}, {"PWD": "PWD"}])
def test_variables_of_the_shell(inherited: dict[str, str]) -> None:
    """A variable that a shell would set, or not let be set, is refused."""
    with pytest.raises(CoopError, match="variable of the shell"):
        with_environment(SHOW, {}, inherited)
