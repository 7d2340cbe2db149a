"""`coopfile.FakeBackend`: what people test their own programs with."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
from pathlib import Path

import pytest

import coopfile


@pytest.fixture
def session(plan: coopfile.Plan, fake: coopfile.FakeBackend) -> coopfile.Session:
    """Return a session that runs nothing."""
    return coopfile.Session(plan, name="dev", backend=fake)


def test_answers(session: coopfile.Session, fake: coopfile.FakeBackend) -> None:
    """Each command gets its own; the last one counts."""
    fake.answer(["git", "status"], stdout="clean\n")
    fake.answer("make | tee log", status=2, stdout=b"\xff", stderr="bad\n")
    fake.answer(["crash"], signal=11)
    assert session.exec(["git", "status"]).text == "clean\n"
    result = session.shell("make | tee log")
    assert (result.status, result.stdout, result.error_text) == (2, b"\xff", "bad\n")
    result = session.exec(["crash"])
    assert (result.status, result.signal) == (139, 11)
    fake.answer(["git", "status"], status=1)
    assert session.exec(["git", "status"]).status == 1


def test_a_command_without_an_answer(session: coopfile.Session, fake: coopfile.FakeBackend) -> None:
    """The test is told which one it forgot."""
    with pytest.raises(coopfile.SessionError, match="no answer for git push") as caught:
        session.exec(["git", "push"])
    assert caught.value.remedy
    fake.answer(["git", "push"])
    assert session.exec(["git", "push"]).ok


def test_answers_of_a_function(plan: coopfile.Plan) -> None:
    """It sees the whole call, and may leave it to the others; what it raises is raised."""

    def answer(call: coopfile.Call) -> coopfile.Answer | None:
        if call.argv[0] == "cat":
            return coopfile.Answer(stdout=call.stdin, notes=(call.session,), peak_memory=9)
        if call.argv[0] == "raise":
            raise ZeroDivisionError
        return None

    fake = coopfile.FakeBackend(answer)
    fake.answer(["other"], status=4)
    session = coopfile.Session(plan, name="dev", backend=fake)
    data = os.urandom(300_000)
    result = session.exec(["cat"], stdin=data, output=len(data))
    assert (result.stdout, result.notes, result.peak_memory) == (data, ("dev",), 9)
    assert session.exec(["other"]).status == 4
    with pytest.raises(ZeroDivisionError):
        session.exec(["raise"])


def test_calls_are_noted(session: coopfile.Session, fake: coopfile.FakeBackend) -> None:
    """With all that the program gave."""
    fake.answer(["a"])
    session.exec(["a"], stdin=b"in", environment={"X": "1"}, directory="sub", timeout=3)
    assert fake.calls == [coopfile.Call("dev", ("a",), b"in", (("X", "1"),), "sub", 3)]


def test_the_cap_counts(session: coopfile.Session, fake: coopfile.FakeBackend) -> None:
    """What it prints is real output."""
    fake.answer(["a"], stdout="x" * 200_000, stderr="y" * 10)
    result = session.exec(["a"], output=100)
    assert (result.stdout, result.stderr) == (b"x" * 90, b"y" * 10)
    assert result.cut_stdout == 199_910


def test_streams_of_the_caller(session: coopfile.Session, fake: coopfile.FakeBackend, tmp_path: Path) -> None:
    """It writes where a command would."""
    fake.answer(["a"], stdout="out\n", stderr="err\n")
    with (tmp_path / "file").open("w+") as file:
        session.exec(["a"], stdout=file, stderr=subprocess.STDOUT)
        file.seek(0)
        assert file.read() == "out\nerr\n"


def test_time_that_is_over(session: coopfile.Session, fake: coopfile.FakeBackend) -> None:
    """Nobody has to wait for it."""
    fake.answer(["slow"], takes=3600, stdout="so far\n")
    result = session.exec(["slow"], timeout=60)
    assert (result.status, result.timed_out, result.duration, result.text) == (124, True, 60, "so far\n")
    result = session.exec(["slow"], timeout=1e7)
    assert (result.status, result.timeout) == (0, 1e7)
    result = session.exec(["slow"], timeout=math.inf)
    assert (result.status, result.timed_out, result.duration) == (0, False, 3600)


def test_a_command_that_does_not_end(session: coopfile.Session, fake: coopfile.FakeBackend) -> None:
    """It goes on until it is cancelled, when there is no limit."""
    fake.answer(["for ever"], takes=math.inf)
    fake.answer(["a"])

    async def main() -> None:
        task = asyncio.create_task(session.exec_async(["for ever"], timeout=math.inf))
        while not fake.calls:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await session.exec_async(["a"])).ok

    asyncio.run(main())


def test_sessions_that_end(session: coopfile.Session, fake: coopfile.FakeBackend) -> None:
    """`lose` is what idleness, `coop stop` and crashes do."""
    fake.answer(["a"])
    session.exec(["a"])
    assert fake.running == ("dev",)
    fake.lose()
    assert not fake.running
    session.exec(["a"])
    assert fake.running == ("dev",)
    session.destroy()
    assert not fake.running


def test_it_is_what_sessions_take(plan: coopfile.Plan, fake: coopfile.FakeBackend) -> None:
    """A manager, too; what is left open is nothing."""
    fake.answer(["a"])
    before = set(os.listdir("/proc/self/fd"))
    with coopfile.SessionManager(plan, backend=fake) as manager:
        for key in "abc":
            manager.exec(key, ["a"])
        assert len(fake.running) == 3
    assert not fake.running
    assert set(os.listdir("/proc/self/fd")) == before
