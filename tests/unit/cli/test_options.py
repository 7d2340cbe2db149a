"""The short way through the command line agrees with the long one."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coopfile.cli import exec as exec_verb
from coopfile.cli import execution, parsing
from coopfile.cli.main import main
from coopfile.cli.options import (
    ExecOptions,
    RunOptions,
    asks_for_json,
    quick_exec,
    quick_run,
    seconds,
    verb_first,
)
from coopfile.errors import UsageError
from coopfile.language.values import BadValue, Duration

WORDS = st.sampled_from(
    [
        *("-C", "-f", "--as", "--set", "--timeout", "-q", "-v", "--directory", "--file", "--place", "--json"),
        *("--session", "--ttl", "-w", "--dir", "--env", "-T", "--no-terminal", "--session=x", "--env=A=b"),
        *(
            "--",
            "-",
            "",
            "-x",
            "--unknown",
            "-qq",
            "-qv",
            "--quiet",
            "--verbose",
            "--col",
            "-Cdir",
            "--file=x",
        ),
        *("--set=a=b", "--timeout=5s", "-h", "--help", "--version", "--color", "never", "group"),
        *("dir", "a=b", "5s", "make", "test", "run", "plan", "ls", "-la", "=", "a b", "é", "\n"),
    ]
)


def with_argparse(argv: list[str], verb: str = "run") -> RunOptions | ExecOptions | None:
    """Return what argparse makes of ``coop run ARGV``, or of another verb's; None when it ends there."""
    return of_whole([verb, *argv])


def of_whole(line: list[str]) -> RunOptions | ExecOptions | None:
    """Return what argparse makes of a whole command line of ``coop run`` or ``coop exec``."""
    seen: list[RunOptions | ExecOptions] = []

    def record(options: RunOptions | ExecOptions) -> int:
        seen.append(options)
        return 0

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(io.StringIO()):
        patch.setattr(exec_verb, "execute", record)
        patch.setattr(execution, "execute", record)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            parsing.run(line)
    return seen[0] if seen else None


@settings(max_examples=400, deadline=None)
@given(st.lists(WORDS, max_size=8))
def test_agreement(argv: list[str]) -> None:
    """Whatever the short way understands, argparse understands in the same way."""
    quick = quick_run(argv)
    if quick is not None:
        assert with_argparse(argv) == quick


@settings(max_examples=400, deadline=None)
@given(st.lists(WORDS, max_size=6), st.sampled_from(["run", "exec"]), st.lists(WORDS, max_size=4))
def test_options_before_the_verb(before: list[str], verb: str, after: list[str]) -> None:
    """Moved behind it they mean what argparse takes them to mean where they stand."""
    line = [*before, verb, *after]
    moved = verb_first(line)
    if moved != line and moved[0] in ("run", "exec"):  # the verb may have become an option's value
        assert of_whole(moved) == of_whole(line)


def test_settings_before_the_verb_are_kept() -> None:
    """Those after it come on top of them: what the first forbid stays forbidden."""
    line = ["--set=network.mode=none", "-q", "run", "--set", "env.A=1", "-q", "true"]
    found = of_whole(line)
    assert found is not None and found.assignments == ("network.mode=none", "env.A=1")
    assert found.quiet == 2


def test_plain_options_before_the_verb_take_the_short_way() -> None:
    """As those after it do."""
    line = verb_first(["-C", "dir", "--set", "a=b", "-q", "run", "--", "make", "-C", "x"])
    assert line[0] == "run"
    assert quick_run(line[1:]) == RunOptions(
        command=("make", "-C", "x"), directory="dir", assignments=("a=b",), quiet=1
    )


@settings(max_examples=400, deadline=None)
@given(st.lists(WORDS, max_size=8))
def test_agreement_on_exec(argv: list[str]) -> None:
    """Whatever the short way of ``coop exec`` understands, argparse understands in the same way."""
    quick = quick_exec(argv)
    if quick is not None:
        assert with_argparse(argv, "exec") == quick


@pytest.mark.parametrize(
    "argv",
    [
        ["work", "true"],
        ["work"],
        ["work", "--", "true"],
        ["work", "--", "--", "-x"],
        ["work", "ls", "--", "-la", "-w", "x"],
        ["-q", "-C", "dir", "work", "-v", "--", "true"],
        ["work", "-w", "src", "--env", "A=b", "--env", "C=d", "--timeout", "5s", "-T", "--", "make"],
        ["--env", "A=b", "--dir", "src", "work", "--no-terminal", "--env", "C=d", "make", "-j4"],
    ],
)
def test_usual_lines_of_exec(argv: list[str]) -> None:
    """Options stand before a session's name or after it, and the command's own are left alone."""
    quick = quick_exec(argv)
    assert quick is not None
    assert with_argparse(argv, "exec") == quick


@pytest.mark.parametrize(
    "argv", [[], ["--", "work", "true"], ["-h"], ["work", "--env"], ["work", "--env=A=b"], ["work", "-"]]
)
def test_left_to_argparse_of_exec(argv: list[str]) -> None:
    """What is less usual, or wrong, is left to argparse."""
    assert quick_exec(argv) is None


def test_options_after_the_name_with_argparse() -> None:
    """What only argparse understands may stand after the name, too."""
    asked = with_argparse(["--env", "A=b", "work", "--env=C=d", "--place", "group", "--", "true"], "exec")
    assert isinstance(asked, ExecOptions)
    assert asked.variables == ("A=b", "C=d") and asked.place == "group" and asked.command == ("true",)


def test_a_commands_own_options_with_argparse() -> None:
    """Behind ``--`` nothing is coop's, on whatever way the line is understood."""
    for line in (["--color=never", "work", "--", "--help"], ["work", "--color=never", "--", "--help"]):
        asked = with_argparse(line, "exec")
        assert isinstance(asked, ExecOptions) and asked.command == ("--help",)


@settings(max_examples=300, deadline=None)
@given(st.text("0123456789hms.", max_size=6) | st.from_regex(r"[0-9]{1,5}(ms|s|m|h)", fullmatch=True))
def test_times(text: str) -> None:
    """A time is what the language says that it is, or refused with its words."""
    try:
        expected: float | None = Duration().parse(text) / 1000
    except BadValue:
        expected = None
    if expected is None:
        with pytest.raises(UsageError, match="--timeout: "):
            seconds("--timeout", text)
    else:
        assert seconds("--timeout", text) == expected


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["true"],
        ["--", "true"],
        ["--", "-x", "--", "y"],
        ["make", "--", "x"],
        ["ls", "-la", "-C", "x"],
        ["-q", "-v", "-v", "--", "true"],
        [
            "-C",
            "dir",
            "-f",
            "file",
            "--as",
            "a:b",
            "--timeout",
            "5s",
            "--set",
            "a=b",
            "--set",
            "c=d",
            "--",
            "make",
        ],
        ["--directory", "dir", "--file", "file", "true"],
        ["--session", "work", "--ttl", "2h", "--", "make"],
    ],
)
def test_usual_lines(argv: list[str]) -> None:
    """The usual command lines take the short way, and mean what argparse says."""
    quick = quick_run(argv)
    assert quick is not None
    assert with_argparse(argv) == quick


@pytest.mark.parametrize(
    "argv",
    [
        ["-h"],
        ["--json", "true"],
        ["-C"],
        ["-Cdir", "x"],
        ["--set=a=b"],
        ["--color", "never"],
        ["-qq"],
        ["-"],
        ["--set", "--", "x"],
    ],
)
def test_left_to_argparse(argv: list[str]) -> None:
    """What is less usual is left to argparse."""
    assert quick_run(argv) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("file", "f"), ("identity", "i"), ("place", "group"), ("assignments", ("a=b",)), ("plan", "{}")],
)
def test_compile_options(field: str, value: object) -> None:
    """Whatever changes the plan changes the key that it is cached under; the command does not."""
    plain = RunOptions(command=("x",))
    assert plain.compile_options == RunOptions(command=("y",), timeout="5s").compile_options
    assert plain.replace(**{field: value}).compile_options != plain.compile_options


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("--json plan", True),
        ("plan --json", True),
        ("-C x check -q --json", True),
        ("run --json -- ls", True),
        ("run --set a=b --json ls", True),
        ("exec work --json -- ls", True),
        ("run -- npm ls --json", False),
        ("run npm ls --json", False),
        ("-C x run -q npm --json", False),
        ("run --session work npm --json", False),
        ("exec work npm --json", False),
        ("exec --dir x work npm --json", False),
        ("render docker -- npm --json", False),
        ("run --as --json", False),
        ("", False),
    ],
)
def test_a_commands_options_do_not_ask_coop_for_json(line: str, wanted: bool) -> None:
    """What a command is to print is its own: coop's errors go to standard error all the same."""
    assert asks_for_json(line.split()) is wanted


def test_an_error_beside_a_commands_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever reads the command's JSON is not given coop's instead."""
    (project / "Coopfile").write_text('network.mode = "host"\n')
    assert main(["run", "npm", "ls", "--json"]) == 125
    captured = capsys.readouterr()
    assert captured.out == "" and "coop allow" in captured.err
