"""The short way through the command line agrees with the long one."""

from __future__ import annotations

import contextlib
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coopfile.cli import main, run
from coopfile.cli.options import RunOptions, quick_run

WORDS = st.sampled_from(
    [
        *("-C", "-f", "--as", "--set", "--timeout", "-q", "-v", "--directory", "--file", "--place", "--json"),
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


def with_argparse(argv: list[str]) -> RunOptions | None:
    """Return what argparse makes of ``coop run ARGV``; None when it ends there."""
    seen: list[RunOptions] = []

    def record(options: RunOptions) -> int:
        seen.append(options)
        return 0

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(io.StringIO()):
        patch.setattr(run, "execute", record)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            main._with_argparse(["run", *argv])
    return seen[0] if seen else None


@settings(max_examples=400, deadline=None)
@given(st.lists(WORDS, max_size=8))
def test_agreement(argv: list[str]) -> None:
    """Whatever the short way understands, argparse understands in the same way."""
    quick = quick_run(argv)
    if quick is not None:
        assert with_argparse(argv) == quick


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
