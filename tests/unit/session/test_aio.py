"""Commands of sessions on an asyncio loop."""

from __future__ import annotations

import asyncio
import math
import os
import threading

import pytest

import coopfile
from coopfile.errors import CoopError
from coopfile.session.manager import name_of
from tests.unit.session.host import HostBackend


def test_a_command(plan: coopfile.Plan, host: HostBackend) -> None:
    """It takes and gives what `exec` does."""
    data = os.urandom(1 << 20)

    async def main() -> None:
        with coopfile.Session(plan, backend=host) as session:
            result = await session.exec_async(["cat"], stdin=data, output=len(data))
            assert result.stdout == data
            result = await session.shell_async("echo $A; echo err >&2; exit 3", environment={"A": "a"})
            assert (result.status, result.text, result.error_text) == (3, "a\n", "err\n")
            result = await session.exec_async(["yes"], timeout=0.5, output=100)
            assert (result.status, len(result.stdout)) == (124, 100)
            result = await session.shell_async("exec >&- 2>&- <&-; exit 5", stdin=data)
            assert result.status == 5
            result = await session.shell_async("sleep 60 & echo done", stdin=data)
            assert result.text == "done\n"
            with pytest.raises(CoopError, match="a command is a list"):
                await session.exec_async("true")

    asyncio.run(main())


def test_many_at_once(plan: coopfile.Plan, host: HostBackend) -> None:
    """On one loop, without a thread for each; the session is started once."""

    async def main() -> None:
        with coopfile.SessionManager(plan, backend=host) as manager:
            await manager.exec_async("a", ["true"], timeout=math.inf)
            before = threading.active_count()
            tasks = [
                asyncio.create_task(manager.shell_async("a", f"sleep 0.05; echo {number}", timeout=math.inf))
                for number in range(20)
            ]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(host.live[name_of("key", "a")].commands) == 21
            assert threading.active_count() == before
            results = await asyncio.gather(*tasks)
            assert [result.text for result in results] == [f"{number}\n" for number in range(20)]
            assert len(host.opened) == 1

    asyncio.run(main())


def test_a_cancelled_command_is_killed(plan: coopfile.Plan, host: HostBackend) -> None:
    """Also one that a time limit of the loop's ends; nothing is left open."""

    async def main() -> None:
        with coopfile.Session(plan, backend=host) as session:
            await session.exec_async(["true"])
            before = set(os.listdir("/proc/self/fd"))
            task = asyncio.create_task(session.exec_async(["sleep", "60"], stdin=bytes(1 << 20)))
            while len(host.live[session.name].commands) < 2:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(session.exec_async(["yes"]), 0.05)
            assert [running.process.returncode for running in host.live[session.name].commands] == [0, -9, -9]
            assert set(os.listdir("/proc/self/fd")) == before

    asyncio.run(main())


def test_a_session_that_ends(plan: coopfile.Plan, host: HostBackend) -> None:
    """Between commands it is started again; under one, that one is lost."""

    async def main() -> None:
        session = coopfile.Session(plan, name="dev", backend=host)
        await session.exec_async(["true"])
        host.lose("dev")
        task = asyncio.create_task(session.shell_async("echo so far; sleep 60"))
        while not host.live or not host.live["dev"].commands:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        host.lose("dev")
        with pytest.raises(coopfile.CommandLost):
            await task
        assert (await session.exec_async(["echo", "on"])).text == "on\n"

    asyncio.run(main())


def test_starting_does_not_hold_up_the_loop(plan: coopfile.Plan) -> None:
    """It takes a thread; a session that cannot start says why."""
    host = HostBackend(slow=0.2)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    async def main() -> None:
        ticking = asyncio.create_task(tick())
        with coopfile.Session(plan, backend=host) as session:
            await asyncio.gather(*(session.exec_async(["true"]) for _ in range(3)))
        ticking.cancel()

    asyncio.run(main())
    assert ticks > 3
    assert len(host.opened) == 1
