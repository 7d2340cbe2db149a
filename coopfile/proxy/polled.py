"""What descriptors are ready for, by poll(2): where there is no epoll, as on macOS."""

from __future__ import annotations

from select import POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, poll

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.proxy.loop import Task

# POLLNVAL: who waits for one that has been closed is to find that out.
_BROKEN = POLLERR | POLLHUP | POLLNVAL


class _Noting(dict[int, "Task"]):
    """Tasks by descriptors; which of these have come and gone is noted in ``changed``."""

    def __init__(self, changed: set[int]) -> None:
        super().__init__()
        self._changed = changed

    def __setitem__(self, descriptor: int, task: Task) -> None:
        self._changed.add(descriptor)
        super().__setitem__(descriptor, task)

    def __delitem__(self, descriptor: int) -> None:
        self._changed.add(descriptor)
        super().__delitem__(descriptor)


class Watcher:
    """Tells of what is so, of what a task waits for and no more: else it would never wait.

    ``readers`` and ``writers`` are for those tasks. Nothing else is kept of a descriptor, which may be
    closed, and its number given to another, between a task's waiting and the next one's.
    """

    READ = POLLIN | _BROKEN
    WRITE = POLLOUT | _BROKEN

    def __init__(self) -> None:
        self._changed: set[int] = set()
        self.readers: dict[int, Task] = _Noting(self._changed)
        self.writers: dict[int, Task] = _Noting(self._changed)
        self._asked = poll()
        self._registered: set[int] = set()

    def watch(self, descriptor: int) -> None:
        """Have a descriptor's events."""

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        """Return descriptors and their events; ``timeout`` is in seconds, negative for none."""
        for descriptor in self._changed:
            wanted = POLLIN * (descriptor in self.readers) | POLLOUT * (descriptor in self.writers)
            if wanted:
                self._asked.register(descriptor, wanted)
                self._registered.add(descriptor)
            elif descriptor in self._registered:
                self._asked.unregister(descriptor)
                self._registered.discard(descriptor)
        self._changed.clear()
        return self._asked.poll(timeout * 1000 if timeout > 0 else timeout)
