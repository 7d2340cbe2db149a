"""Having what was written on disk before something says that it is there."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager

from coopfile.native import syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_PAUSE = 0.5  # seconds for a disk to be idle in; what a layer dirties meanwhile is written in as many


def sync(path: str) -> None:
    """Have everything of a file system on disk. Raises OSError, also if earlier writing there has failed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        syscalls.syncfs(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def syncing(path: str) -> Iterator[None]:
    """Have a file system written to disk all the while, so that little is left for ``sync`` at the end.

    The kernel would begin only when memory is short or half a minute has gone by. What could not be
    written is raised at the end, as OSError: syncfs(2) tells it once, so a later one would know nothing.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    ended = threading.Event()
    failed: list[OSError] = []

    def run() -> None:
        try:
            while True:
                syscalls.syncfs(descriptor)
                if ended.wait(_PAUSE):
                    return
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="sync", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        os.close(descriptor)
    if failed:
        raise failed[0]
