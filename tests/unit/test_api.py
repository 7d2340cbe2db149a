"""The Python API: plans from Coopfiles, and an argv that runs a command under a plan."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import coopfile
from coopfile.access.approval import ApprovalError
from coopfile.errors import CoopError
from coopfile.native.probe import probe
from coopfile.plan import canonical
from coopfile.plan.model import Plan

NATIVE = pytest.mark.skipif(
    any(ability.needed and not ability.present for ability in probe()), reason="no namespaces here"
)


@pytest.fixture
def user_file() -> Any:
    """Return what writes the user's own Coopfile, which is removed again."""
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "coop" / "Coopfile"

    def write(text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    yield write
    path.unlink(missing_ok=True)


Write = Callable[[str], None]


def test_a_plan_of_the_current_directory(project: Path) -> None:
    """Without a Coopfile it has the defaults; with one, what it says."""
    assert coopfile.compile().network.mode == "none"
    (project / "Coopfile").write_text("limits.pids = 77\n")
    assert coopfile.compile().limits.pids == 77


def test_a_plan_by_path(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of the project, its Coopfile, or a file with another name."""
    (project / "Coopfile").write_text("limits.pids = 77\n")
    (project / "other.toml").write_text("limits.pids = 78\n")
    (project / "below").mkdir()
    monkeypatch.chdir("/")
    assert coopfile.compile(project / "below").limits.pids == 77
    assert coopfile.compile(str(project / "Coopfile")).limits.pids == 77
    assert coopfile.compile(project / "other.toml").limits.pids == 78
    with pytest.raises(CoopError, match="does not exist"):
        coopfile.compile(project / "none.toml")


@pytest.mark.parametrize("text", ["\U0001f600 \U00020bb7", "é\u2028", "\"'\\\n\t"])
def test_overrides_are_texts_of_every_character(project: Path, text: str) -> None:
    """What TOML writes in another way than JSON, as beyond U+FFFF, arrives as it is."""
    plan = coopfile.compile(overrides={"env.A": text, "env": {"B": text}, "setup.run": [text.strip()]})
    assert {variable.name: variable.value for variable in plan.env} == {"A": text, "B": text}
    assert plan.setup.run == (text.strip(),)


def test_overrides_are_values_of_each_type(project: Path) -> None:
    """Texts, numbers, booleans, lists and tables, hostile characters included."""
    hostile = 'a"b\\c\n#\té\u2028 = ]'
    plan = coopfile.compile(
        overrides={
            "limits.pids": 9,
            "limits.cpus": 1.5,
            "sandbox.enabled": True,
            "limits.memory": "64m",
            "agent.command": ["run", hostile, ""],
            "env.TEXT": hostile.replace("\u2028", ""),
            "env.FROM": {"host": "HOME"},
        }
    )
    assert (plan.limits.pids, plan.limits.cpus, plan.sandbox.enabled) == (9, 1500, True)
    assert plan.limits.memory == 64 << 20
    assert plan.agent.command == ("run", hostile, "")
    variables = {variable.name: variable for variable in plan.env}
    assert variables["TEXT"].value == hostile.replace("\u2028", "")
    assert variables["FROM"].host == "HOME"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"limits.pids": None}, "None is not a value"),
        ({"limits.pids": object()}, "is not a value"),
        ({"limits.pids": "many"}, "limits.pids"),
        ({"limit.pids": 1}, "limit"),
        ({"agent.command": [None]}, "None is not a value"),
    ],
)
def test_overrides_that_are_wrong(project: Path, overrides: dict[str, object], said: str) -> None:
    """A CoopError says which."""
    with pytest.raises(CoopError, match=said):
        coopfile.compile(overrides=overrides)


def test_what_a_project_widens_needs_approval(project: Path) -> None:
    """Until the owner approves it; what the program itself overrides does not."""
    (project / "Coopfile").write_text('network.mode = "host"\n')
    with pytest.raises(ApprovalError, match=r"network\.mode"):
        coopfile.compile()
    (project / "Coopfile").write_text("")
    assert coopfile.compile(overrides={"network.mode": "host"}).network.mode == "host"


@pytest.mark.parametrize("text", ["\U0001f600", "é", "\u2028", 'a"b\\', "a\tb\n", " x ", "[1]", "{a = 1}"])
def test_overrides_are_the_texts_that_they_are(project: Path, text: str) -> None:
    """Whatever characters they have, alone and in lists and tables."""
    overrides = {"env.A": text, "env": {"B": text}, "agent.command": ["x", text]}
    plan = coopfile.compile(overrides=overrides)
    assert [variable.value for variable in plan.env] == [text, text]
    assert plan.agent.command == ("x", text)


def test_an_override_of_no_characters(project: Path) -> None:
    """What no file could say is refused, and not taken for its own spelling."""
    with pytest.raises(CoopError, match="not UTF-8"):
        coopfile.compile(overrides={"env.A": "\udcff"})


def test_the_ceiling_holds(project: Path, user_file: Write) -> None:
    """Whatever the overrides say."""
    user_file("[ceiling]\nlimits.pids = 100\n")
    assert coopfile.compile(overrides={"limits.pids": 100}).limits.pids == 100
    with pytest.raises(CoopError, match="ceiling"):
        coopfile.compile(overrides={"limits.pids": 101})


def test_a_user_gets_their_override(project: Path, user_file: Write) -> None:
    """By identity; nobody else does."""
    text = (
        '[[users]]\nname = "bob"\ntrust = "inner"\nmatch = ["irc:bob"]\n[users.override]\nlimits.pids = 5\n'
    )
    user_file(text)
    plan = coopfile.compile(user="irc:bob")
    assert coopfile.compile().limits.pids != 5
    assert plan.limits.pids == 5
    assert plan.access is not None and plan.access.user == "bob"


def test_a_user_is_asked_for_by_name(project: Path, user_file: Write) -> None:
    """With what their identity would get; a name that nobody has is a mistake."""
    user_file(
        '[[users]]\nname = "bob"\ntrust = "inner"\nmatch = ["irc:b"]\n[users.override]\nlimits.pids = 5\n'
    )
    assert coopfile.compile(user="bob") == coopfile.compile(user="irc:b")
    with pytest.raises(CoopError, match="no user is called 'bib'") as raised:
        coopfile.compile(user="bib")
    assert raised.value.remedy == 'did you mean "bob"?'


def test_trust_by_name_needs_approval(project: Path) -> None:
    """What a project gives to one of its users is asked about, whichever way that user is named."""
    (project / "Coopfile").write_text('[[users]]\nname = "bob"\ntrust = "owner"\nmatch = ["irc:b"]\n')
    with pytest.raises(ApprovalError, match="public → owner") as raised:
        coopfile.compile(user="bob")
    assert "--as irc:b" in (raised.value.remedy or "")


@pytest.mark.parametrize("argv", ["true", [], [1], ["a", b"b"], None])
def test_a_command_is_a_list_of_texts(project: Path, argv: Any) -> None:
    """A text would be taken apart into letters."""
    with pytest.raises(CoopError, match="a command is a list"):
        coopfile.wrap(argv, coopfile.compile())


def test_an_argv_holds_the_plan_and_no_value_of_the_host(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the same wherever it is made."""
    monkeypatch.setenv("SECRET_OF_HOST", "the-very-secret")
    plan = coopfile.compile(overrides={"env.SECRET": {"host": "SECRET_OF_HOST"}})
    argv = coopfile.wrap(["make", "-k"], plan, directory="sub", timeout=1.5)
    assert argv[-3:] == ["--", "make", "-k"]
    assert argv[argv.index("-C") + 1] == str(project / "sub")
    assert argv[argv.index("--timeout") + 1] == "1500ms"
    assert canonical.from_json(argv[argv.index("--plan") + 1], "--plan") == plan
    assert not [word for word in argv if "very-secret" in word]
    assert coopfile.wrap(["true"], plan, timeout=0.0001)[-3] == "1ms"


def test_times_of_an_argv(project: Path) -> None:
    """Infinity is no limit, as for a session; what ``--timeout`` would not take is refused at once."""
    plan = coopfile.compile()
    assert coopfile.wrap(["true"], plan, timeout=168 * 3600)[-3] == "604800000ms"
    assert "--timeout" not in coopfile.wrap(["true"], plan, timeout=float("inf"))
    for wrong in (0, -1, float("nan"), 1e9):
        with pytest.raises(CoopError, match="timeout is") as caught:
            coopfile.wrap(["true"], plan, timeout=wrong)
        assert caught.value.remedy


def run(argv: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
    """Run an argv from elsewhere."""
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, **how)


@NATIVE
def test_an_argv_runs(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the project that it was told, under the plan, quietly, with the command's own exit status."""
    plan: Plan = coopfile.compile(overrides={"env.FROM_PLAN": "yes", "sandbox.backend": "native"})
    (project / "Coopfile").write_text("env.FROM_FILE = 'yes'\n")
    script = 'echo "$FROM_PLAN,$FROM_FILE,$PWD"; exit 7'
    result = run(coopfile.wrap(["sh", "-c", script], plan, directory=project), cwd="/")
    assert (result.returncode, result.stdout, result.stderr) == (7, "yes,,/workspace\n", "")
    result = run(coopfile.wrap(["sleep", "60"], plan, directory=project, timeout=0.3), cwd="/")
    assert result.returncode == 124
    hostile = ["", "-x", "--", "a b", "'\"", "$(id)", "new\nline", "é"]
    result = run(coopfile.wrap(["printf", "<%s>", *hostile], plan), cwd=project)
    assert result.stdout == "".join(f"<{word}>" for word in hostile)


def test_the_ceiling_holds_for_a_given_plan(project: Path, user_file: Write) -> None:
    """A plan from elsewhere gets no more than the owner's file allows."""
    wide = coopfile.compile(overrides={"network.mode": "host", "files.read": ["/opt"]})
    user_file('[ceiling]\nnetwork.mode = "none"\n')
    result = run(coopfile.wrap(["true"], wide, directory=project))
    assert result.returncode == 125
    assert "ceiling" in result.stderr
    assert "network.mode" in result.stderr


@pytest.mark.parametrize(
    "more", [["-f", "Coopfile"], ["--set", "limits.pids=1"], ["--as", "a:b"], ["--place", "group"]]
)
def test_nothing_is_added_to_a_given_plan(project: Path, more: list[str]) -> None:
    """What would change another plan is a mistake beside --plan."""
    (project / "Coopfile").write_text("")
    argv = coopfile.wrap(["true"], coopfile.compile())
    position = argv.index("run") + 1
    result = run([*argv[:position], *more, *argv[position:]])
    assert result.returncode == 2
    assert "--plan is a whole plan" in result.stderr


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 1}', "null", '"x"'])
def test_a_given_plan_that_is_none(project: Path, text: str) -> None:
    """It is refused in words."""
    argv = coopfile.wrap(["true"], coopfile.compile())
    argv[argv.index("--plan") + 1] = text
    result = run(argv)
    assert result.returncode in (2, 125)
    assert "error: " in result.stderr
    assert "Traceback" not in result.stderr
