"""COOP_* variables and --set."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.language.assignments import VARIABLES, from_assignments, from_environment
from coopfile.language.diagnostics import render
from coopfile.language.items import HostPattern, Variable
from coopfile.language.settings import SETTINGS
from tests.unit.language.texts import problem, problems, settings


def test_every_setting_but_env_has_a_variable_of_its_own() -> None:
    """Dots become underscores, and no two keys share a name."""
    assert len(VARIABLES) == len(SETTINGS) - 1
    assert VARIABLES["COOP_SANDBOX_MIN_ISOLATION"].key == "sandbox.min_isolation"


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("network.mode", "bridge", "veth"),
        ("limits.memory", "1g", 1 << 30),
        ("limits.pids", "64", 64),
        ("limits.cpus", " 1.5 ", 1500),
        ("sandbox.enabled", "false", False),
        ("sandbox.backend", "native, podman", ("native", "podman")),
        ("sandbox.backend", '["podman"]', ("podman",)),
        ("sandbox.backend", "auto", ("auto",)),
        ("packages.apt", "git,ripgrep,", ("git", "ripgrep")),
        ("packages.pip", '["a>=1,<2"]', ("a>=1,<2",)),
        ("network.allow", "pypi.org", (HostPattern("pypi.org"),)),
        ("agent.command", '["claude", "-p"]', ("claude", "-p")),
        ("agent.install", "npm i, now", "npm i, now"),
        ("files.hide", "[ab].txt", ("[ab].txt",)),
    ],
)
def test_a_value_from_outside_is_text_toml_or_a_list_with_commas(key: str, text: str, value: Any) -> None:
    """Variables and options take the same forms."""
    name = "COOP_" + key.replace(".", "_").upper()
    assert settings(environment={name: text}).value(key) == value
    assert settings(assignments=[f"{key}={text}"]).value(key) == value


def test_a_string_in_quotes_is_toml_for_an_option_and_text_for_a_variable() -> None:
    """A shell command may well begin and end with quotes."""
    assert settings(assignments=['agent.install="x y"']).value("agent.install") == "x y"
    assert settings(environment={"COOP_AGENT_INSTALL": '"x y"'}).value("agent.install") == '"x y"'


def test_values_from_outside_know_their_names() -> None:
    """Origins are the variable and the option."""
    found = settings(environment={"COOP_LIMITS_PIDS": "9"}, assignments=["env.A=1", "env.B=2"])
    assert [str(origin) for origin in found.origins("limits.pids")] == ["COOP_LIMITS_PIDS"]
    assert [str(origin) for origin in found.origins("env")] == ["--set env.A", "--set env.B"]


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        ("5", Variable("A", value="5")),
        ("true", Variable("A", value="true")),
        ("", Variable("A", value="")),
        ("a=b", Variable("A", value="a=b")),
        ('"q"', Variable("A", value="q")),
        ('{ host = "X" }', Variable("A", host="X")),
        ("{ x", Variable("A", value="{ x")),
        ("two\nlines", Variable("A", value="two\nlines")),
    ],
)
def test_an_option_sets_a_variable_of_the_sandbox(text: str, variable: Variable) -> None:
    """Any text is a value; a table names the host's variable."""
    assert settings(assignments=[f"env.A={text}"]).value("env") == (variable,)


def test_later_options_win_or_add() -> None:
    """Options are merged like layers."""
    found = settings(
        assignments=[
            "limits.pids=8",
            "limits.pids=9",
            "packages.apt=b",
            "packages.apt=a",
            "env.A=1",
            "env.A=2",
        ]
    )
    assert found.value("limits.pids") == 9
    assert found.value("packages.apt") == ("a", "b")
    assert found.value("env") == (Variable("A", value="2"),)


def test_names_that_coop_sets_and_other_programs_names_are_left_alone() -> None:
    """A coop inside a sandbox does not trip over the variables of the one outside."""
    environment = {
        "COOP_SESSION": "x",
        "COOP_WORKSPACE": "/w",
        "COOP_CREATED": "1",
        "COOPER": "x",
        "HOME": "/",
    }
    assert settings(environment=environment).values == settings().values


def test_an_empty_variable_counts_as_absent() -> None:
    """As with most programs, emptying a variable takes it back."""
    assert settings(environment={"COOP_NETWORK_MODE": "", "COOP_FOO": ""}).value("network.mode") == "none"


@pytest.mark.parametrize(
    ("environment", "message", "help"),
    [
        ({"COOP_NETWROK_MODE": "x"}, "no setting has this name", "did you mean COOP_NETWORK_MODE?"),
        ({"COOP_XYZZY": "x"}, "no setting has this name", "COOP_"),
        ({"COOP_ENV_FOO": "x"}, "does not set [env]", "--set env.FOO=value"),
        ({"COOP_ENV": "x"}, "does not set [env]", "--set env.NAME=value"),
        ({"COOP_NETWORK_MODE": "vteh"}, "not known", 'did you mean "veth"?'),
        ({"COOP_LIMITS_PIDS": "many"}, "whole number", ""),
        ({"COOP_SANDBOX_ENABLED": "yes"}, "true or false", "write true"),
        ({"COOP_LIMITS_MEMORY": "2"}, "not a size", "unit"),
        ({"COOP_AGENT_COMMAND": "claude -p"}, "expected an array", '["claude", "-p"]'),
        ({"COOP_NETWORK_ALLOW": "a.org,b..c"}, "b..c", ""),
        ({"COOP_BASE_IMAGE": "\udcff"}, "not UTF-8", ""),
    ],
)
def test_a_bad_variable_is_named(environment: dict[str, str], message: str, help: str) -> None:
    """The problem is of the variable, not of a line."""
    found = problem(environment=environment)
    assert str(found.position) in environment
    assert message in found.message and help in str(found.help)


@pytest.mark.parametrize(
    ("assignment", "name", "help"),
    [
        ("network.mod=none", "--set network.mod", "did you mean network.mode?"),
        ("memory=1g", "--set memory", "did you mean limits.memory?"),
        ("mode=none", "--set mode", "did you mean network.mode?"),
        ("zzzzz=1", "--set zzzzz", "coop schema"),
        ("network.mode", "--set", "--set network.mode=none"),
        ("=x", "--set ", "coop schema"),
        ("users=[]", "--set users", "coop schema"),
        ("env=x", "--set env", ""),
        ("env.A B=x", "--set env.A B", "letters"),
        ("env.COOP_X=x", "--set env.COOP_X", ""),
        ("limits.pids=[1]", "--set limits.pids", ""),
        ("limits.pids=1\n[limits]", "--set limits.pids", ""),
        ("limits.pids=" + "[" * 9000, "--set limits.pids", ""),
        ("limits.pids=" + "9" * 9000, "--set limits.pids", ""),
        ("setup.run=a,b", "--set setup.run", '["a,b"]'),
    ],
)
def test_a_bad_option_is_named(assignment: str, name: str, help: str) -> None:
    """Unknown keys are answered with the nearest one."""
    found = problem(assignments=[assignment])
    assert str(found.position) == name
    assert help in str(found.help)


def test_all_bad_variables_and_options_are_reported() -> None:
    """Each of them, in order."""
    found = problems(environment={"COOP_B": "1", "COOP_A": "1"}, assignments=["y=1", "x=1"])
    assert [str(one.position) for one in found] == ["COOP_A", "COOP_B", "--set y", "--set x"]


NAMES = st.sampled_from(sorted(VARIABLES)) | st.text(max_size=8).map("COOP_".__add__)
TEXT = st.text(st.characters(exclude_characters="\0"), max_size=12) | st.sampled_from(
    ["[", "{}", "[1]", "'x'", "nan"]
)


@given(st.dictionaries(NAMES, TEXT, max_size=4))
def test_no_environment_breaks_the_reader(environment: dict[str, str]) -> None:
    """Whatever stands in a variable, there is a value or a printable problem."""
    _, found = from_environment(environment)
    assert render(found).replace("\n", "").isprintable()


@given(
    st.lists(
        st.tuples(st.sampled_from([s.key for s in SETTINGS] + ["env.A", "x", ""]), TEXT).map("=".join) | TEXT
    )
)
def test_no_option_breaks_the_reader(assignments: list[str]) -> None:
    """Whatever is assigned, there is a value or a printable problem."""
    _, found = from_assignments(assignments)
    assert render(found).replace("\n", "").isprintable()
