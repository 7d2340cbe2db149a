"""The loop: what waits is woken, in time or too late, and one that fails does not end the others."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from coopfile.proxy.loop import NEVER, Event, LateError, Loop, Workers
from tests.unit.proxy.conftest import end_parked


def run(*make: Callable[[Loop], Coroutine[Any, Any, None]]) -> list[BaseException]:
    """Run tasks until the last of them stops the loop; return what failed."""
    failed: list[BaseException] = []
    loop = Loop(failed.append)
    for one in make:
        loop.start(one(loop))
    loop.run()
    return failed


def test_pipe() -> None:
    """A reader is woken by what is written, each time."""
    source, target = os.pipe2(os.O_NONBLOCK)
    got = b""

    async def read(loop: Loop) -> None:
        nonlocal got
        loop.watch(source)
        while got != b"abc":
            try:
                got += os.read(source, 1)
            except BlockingIOError:
                await loop.readable(source, NEVER)
        loop.stop()

    async def write(loop: Loop) -> None:
        for byte in (b"a", b"b", b"c"):
            os.write(target, byte)
            await loop.pause(0.01)

    assert run(read, write) == []
    os.close(source)
    os.close(target)


def test_late() -> None:
    """What does not come in time raises, and what happens afterwards wakes nobody."""
    event = Event()

    async def wait(loop: Loop) -> None:
        with pytest.raises(LateError):
            await loop.happens(event, time.monotonic() + 0.01)
        loop.tell(event)
        await loop.happens(event, NEVER)
        loop.stop()

    assert run(wait) == []


def test_failure() -> None:
    """A task that fails is told of, and the others go on."""

    async def fail(_: Loop) -> None:
        raise ValueError("mine")

    async def go_on(loop: Loop) -> None:
        for _ in range(3):
            await loop.give_way()
        loop.stop()

    assert [str(error) for error in run(fail, go_on)] == ["mine"]


def test_stopped() -> None:
    """What was not begun yet when the loop stops never is, and Python does not complain of it."""
    begun: list[str] = []

    async def never() -> None:
        begun.append("late")

    async def stop(loop: Loop) -> None:
        loop.start(never())
        loop.stop()

    assert run(stop) == []
    gc.collect()
    assert begun == []


def test_woken_by_the_last() -> None:
    """What is parked or woken when the loop stops is ended by the tests, and cleans up behind itself."""
    loop, event, never = Loop(lambda _: None), Event(), Event()
    ended: list[Event] = []

    async def wait(awaited: Event) -> None:
        try:
            await loop.happens(awaited, NEVER)
        finally:
            ended.append(awaited)

    async def stop() -> None:
        loop.tell(event)
        loop.stop()

    for task in (wait(never), wait(event), stop()):
        loop.start(task)
    loop.run()
    end_parked(loop)
    assert ended == [never, event]


def test_workers() -> None:
    """What blocks is done beside each other; results and exceptions come back to whoever asked."""

    def square(number: int) -> int:
        time.sleep(0.01)
        if number == 13:
            raise OSError("unlucky")
        return number * number

    found: list[int | str] = []

    def ask(workers: Workers, number: int) -> Coroutine[Any, Any, None]:
        async def asking() -> None:
            try:
                found.append(await workers.call(number, deadline=NEVER))
            except OSError as error:
                found.append(str(error))

        return asking()

    async def start(loop: Loop) -> None:
        workers = Workers(loop, square, 4)
        for number in range(40):
            loop.start(ask(workers, number))
        while len(found) < 40:
            await loop.pause(0.01)
        loop.stop()

    assert run(start) == []
    assert set(found) == {*(number * number for number in range(40) if number != 13), "unlucky"}


def test_no_thread() -> None:
    """When no thread can be had the caller is told, and the next one gets one that can."""
    found: list[object] = []

    async def start(loop: Loop) -> None:
        workers = Workers(loop, lambda: "done", 4)
        for size in (1 << 46, 0):
            before = threading.stack_size(size)
            try:
                found.append(await workers.call(deadline=time.monotonic() + 5))
            except (RuntimeError, LateError) as error:
                found.append(type(error))
            finally:
                threading.stack_size(before)
        loop.stop()

    assert run(start) == []
    assert found == [RuntimeError, "done"]
