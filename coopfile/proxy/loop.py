"""Many connections in one thread: coroutines that wait for descriptors, and threads for what blocks.

asyncio would do, but importing it takes as long as the rest of a sandbox's start.
"""

from __future__ import annotations

import os
import time
from _queue import SimpleQueue
from _thread import start_new_thread

try:
    from coopfile.proxy.epolled import Watcher
except ImportError:
    from coopfile.proxy.polled import Watcher  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from typing import Any

_SWEEP = 0.5  # seconds between looks at the deadlines
NEVER = float("inf")


class LateError(Exception):
    """What was waited for did not come in time."""


class Event:
    """Something that happens once, which one coroutine may wait for."""

    def __init__(self) -> None:
        self.happened = False
        self.waiter: Task | None = None


class Task:
    """A coroutine on its way."""

    __slots__ = ("begun", "coroutine", "deadline", "descriptor", "event", "writes")

    def __init__(self, coroutine: Coroutine[Any, None, None]) -> None:
        self.coroutine = coroutine
        self.begun = False
        self.deadline = 0.0
        self.descriptor = -1
        self.event: Event | None = None
        self.writes = False


class Loop:
    """Runs tasks until it is stopped. ``failed`` is told of what no task should let out.

    Descriptors may be watched for edges: a task waits only for what has just been found not ready.
    Times are as ``time.monotonic`` has them.
    """

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._current: Task | None = None
        self._ready: list[tuple[Task, BaseException | None]] = []
        self._waiting: set[Task] = set()
        self._watcher = Watcher()
        self._readers = self._watcher.readers
        self._writers = self._watcher.writers
        self._timed = 0  # how many of those that wait have a deadline
        self._running = True

    def watch(self, descriptor: int) -> None:
        """Have a non-blocking descriptor's events; closing it ends that."""
        self._watcher.watch(descriptor)

    def start(self, coroutine: Coroutine[Any, None, None]) -> None:
        """Add a task."""
        self._ready.append((Task(coroutine), None))

    def stop(self) -> None:
        """Let ``run`` return."""
        self._running = False

    def run(self) -> None:
        """Run until stopped; what was not begun by then never is."""
        swept = time.monotonic()
        watcher = self._watcher
        while self._running:
            ready, self._ready = self._ready, []
            for task, error in ready:
                self._step(task, error)
            hurries = self._ready or not self._running
            timeout = 0 if hurries else _SWEEP if self._timed else -1
            for descriptor, events in watcher.poll(timeout):
                if events & watcher.READ:
                    self._wake(self._readers.get(descriptor))
                if events & watcher.WRITE:
                    self._wake(self._writers.get(descriptor))
            now = time.monotonic()
            if now - swept >= _SWEEP:
                swept = now
                for task in [task for task in self._waiting if task.deadline <= now]:
                    self._wake(task, LateError())
        for task, _ in self._ready:
            if not task.begun:
                task.coroutine.close()  # else Python complains of it

    async def readable(self, descriptor: int, deadline: float) -> None:
        """Wait for something to read; raises LateError."""
        await _Wait(self._park(deadline, descriptor, writes=False))

    async def writable(self, descriptor: int, deadline: float) -> None:
        """Wait until something can be written; raises LateError."""
        await _Wait(self._park(deadline, descriptor, writes=True))

    async def happens(self, event: Event, deadline: float) -> None:
        """Wait for an event; raises LateError."""
        if not event.happened:
            await _Wait(self._park(deadline, event=event))

    async def give_way(self) -> None:
        """Let the others have a turn."""
        assert self._current is not None
        self._ready.append((self._current, None))
        await _Wait(self._current)

    async def pause(self, seconds: float) -> None:
        """Wait for a time, or a moment more."""
        try:
            await _Wait(self._park(time.monotonic() + seconds))
        except LateError:
            return

    def tell(self, event: Event) -> None:
        """Have an event happen."""
        event.happened = True
        self._wake(event.waiter)

    def interrupt(self, descriptor: int) -> None:
        """Have whoever waits for a descriptor wait no longer: LateError."""
        for writes in (False, True):
            self._wake(self._slots(writes).get(descriptor), LateError())

    def _park(
        self, deadline: float, descriptor: int = -1, *, writes: bool = False, event: Event | None = None
    ) -> Task:
        task = self._current
        assert task is not None
        if event is not None:
            event.waiter = task
        elif descriptor >= 0:
            slots = self._slots(writes)
            if descriptor in slots:
                raise RuntimeError("two tasks wait for the same")
            slots[descriptor] = task
        task.deadline, task.descriptor, task.event, task.writes = deadline, descriptor, event, writes
        self._waiting.add(task)
        self._timed += deadline < NEVER
        return task

    def _slots(self, writes: bool) -> dict[int, Task]:
        return self._writers if writes else self._readers

    def _wake(self, task: Task | None, error: BaseException | None = None) -> None:
        if task is None or task not in self._waiting:
            return
        self._waiting.remove(task)
        self._timed -= task.deadline < NEVER
        if task.event is not None:
            task.event.waiter = None
        elif task.descriptor >= 0:
            del self._slots(task.writes)[task.descriptor]
        self._ready.append((task, error))

    def _step(self, task: Task, error: BaseException | None) -> None:
        self._current = task
        task.begun = True
        try:
            if error is None:
                task.coroutine.send(None)
            else:
                task.coroutine.throw(error)
        except StopIteration:
            pass
        except Exception as unexpected:  # one connection must not end the others
            self._failed(unexpected)


class _Wait:
    """What a coroutine awaits when it has been parked."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def __await__(self) -> Generator[None, None, None]:
        yield None


class Workers:
    """Threads that call a function which blocks, a few at a time."""

    def __init__(self, loop: Loop, function: Callable[..., Any], most: int) -> None:
        self._loop = loop
        self._function = function
        self._most = most
        self._started = 0
        self._idle = 0
        self._asked: SimpleQueue[tuple[Any, list[Any], Event]] = SimpleQueue()
        self._answered: SimpleQueue[Event] = SimpleQueue()
        self._bell, self._bell_end = os.pipe()
        for end in (self._bell, self._bell_end):
            os.set_blocking(end, False)
        loop.watch(self._bell)
        loop.start(self._hand_out())

    async def call(self, *arguments: Any, deadline: float) -> Any:
        """Return what the function returns, or raise what it raises; LateError if it takes too long."""
        event = Event()
        result: list[Any] = []
        if self._idle <= 0 and self._started < self._most:
            try:
                start_new_thread(self._work, ())
            except RuntimeError:  # the user has no more of them
                if not self._started:
                    raise
            else:
                self._started += 1
                self._idle += 1
        self._idle -= 1
        self._asked.put((arguments, result, event))
        await self._loop.happens(event, deadline)
        value, error = result
        if error is not None:
            raise error
        return value

    def _work(self) -> None:
        while True:
            arguments, result, event = self._asked.get()
            try:
                result[:] = self._function(*arguments), None
            except Exception as error:
                result[:] = None, error
            self._answered.put(event)
            try:
                os.write(self._bell_end, b"1")
            except BlockingIOError:
                pass  # it is ringing already

    async def _hand_out(self) -> None:
        while True:
            try:
                os.read(self._bell, 4096)
            except BlockingIOError:
                await self._loop.readable(self._bell, NEVER)
            while not self._answered.empty():
                self._idle += 1
                self._loop.tell(self._answered.get())
