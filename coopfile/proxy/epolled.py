"""What descriptors are ready for, by epoll(7)."""

from __future__ import annotations

from select import EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP, epoll

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.proxy.loop import Task

_EVERYTHING = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET
_BROKEN = EPOLLERR | EPOLLHUP


class Watcher:
    """Tells of changes, of each once. ``readers`` and ``writers`` are for the tasks that wait."""

    READ = EPOLLIN | EPOLLRDHUP | _BROKEN
    WRITE = EPOLLOUT | _BROKEN

    def __init__(self) -> None:
        self.readers: dict[int, Task] = {}
        self.writers: dict[int, Task] = {}
        self._epoll = epoll()
        self.poll = self._epoll.poll

    def watch(self, descriptor: int) -> None:
        """Have a descriptor's events; closing it ends that."""
        self._epoll.register(descriptor, _EVERYTHING)
