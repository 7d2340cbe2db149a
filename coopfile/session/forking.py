"""What the Python API does in a child that the embedding program forks: share nothing with its parent."""

from __future__ import annotations

import os
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol

    class Forked(Protocol):
        """Something that a forked child has a copy of."""

        def forked(self) -> None:
            """Let go, in the child, of what is the parent's. Called before anything else runs there."""


_known: weakref.WeakSet[Forked] = weakref.WeakSet()


def track(thing: Forked) -> None:
    """Have a thing told in every child, as long as it is there."""
    _known.add(thing)


def let_go(descriptors: Iterable[int]) -> None:
    """Put /dev/null in the place of the child's copies of some descriptors; their numbers stay taken.

    What was begun in the parent may go on in the child, too: it finds an end everywhere.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in descriptors:
        if descriptor >= 0:
            os.dup2(null, descriptor, inheritable=False)
    os.close(null)


def _in_child() -> None:
    for thing in list(_known):
        thing.forked()


os.register_at_fork(after_in_child=_in_child)
