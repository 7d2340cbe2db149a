"""What a command came to, and the errors that say so."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import coopfile
from coopfile.session.model import Command, Ended
from coopfile.session.result import result_of


def test_a_result_has_all_facts() -> None:
    """Those of the end, of the call and of the streams."""
    command = Command(("make", "test"), timeout=5.0)
    ended = Ended(143, 15, False, 1.5, 4096, ("note",))
    result = result_of(command, ended, (b"a\xff", b"b"), (3, 4))
    assert result == coopfile.Result(
        argv=("make", "test"),
        status=143,
        signal=15,
        timed_out=False,
        timeout=5.0,
        duration=1.5,
        peak_memory=4096,
        stdout=b"a\xff",
        stderr=b"b",
        cut_stdout=3,
        cut_stderr=4,
        notes=("note",),
    )
    assert (result.ok, result.text, result.error_text) == (False, "a\ufffd", "b")
    assert pickle.loads(pickle.dumps(result)) == result


def test_check_returns_what_is_well() -> None:
    """So that it can be put in between."""
    result = coopfile.Result(("true",), 0)
    assert result.check() is result


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"status": 2}, "make 'a b' ended with status 2"),
        ({"status": 137, "signal": 9}, "make 'a b' was ended by SIGKILL"),
        ({"status": 163, "signal": 35}, "make 'a b' was ended by signal 35"),
        ({"status": 124, "timed_out": True, "timeout": 1.5}, "make 'a b' took longer than 1.5 s"),
        ({"status": 127, "notes": ("not \x1b found",)}, r"make 'a b' ended with status 127: not \x1b found"),
    ],
)
def test_check_raises_the_facts(facts: dict[str, Any], said: str) -> None:
    """In words and as attributes; what the command printed is no part of the message."""
    result = coopfile.Result(("make", "a b"), stdout=b"out", stderr=b"\x1b[2Jerr", **facts)
    with pytest.raises(coopfile.CommandFailed) as caught:
        result.check()
    error = caught.value
    assert str(error) == said
    assert (error.result, error.argv, error.status) == (result, ("make", "a b"), result.status)
    assert (error.signal, error.timed_out) == (result.signal, result.timed_out)
    assert (error.stdout, error.stderr) == (b"out", b"\x1b[2Jerr")
    assert bool(error.remedy) == result.timed_out


def test_long_and_hostile_commands_are_shown_safely() -> None:
    """On one line that ends."""
    with pytest.raises(coopfile.CommandFailed) as caught:
        coopfile.Result(("sh", "-c", "\x1b]0;x\x07\n" + "y" * 5000), 1).check()
    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_errors_can_be_sent_to_other_processes() -> None:
    """With their facts, as multiprocessing and executors do."""
    failed = coopfile.CommandFailed(coopfile.Result(("a",), 3, stdout=b"x"))
    again = pickle.loads(pickle.dumps(failed))
    assert (str(again), again.result) == (str(failed), failed.result)
    lost = coopfile.CommandLost("gone", "again", session="dev", argv=("a",), stdout=b"x", stderr=b"y")
    again = pickle.loads(pickle.dumps(lost))
    assert vars(again) == vars(lost)
