"""What the Python API does in a child that the embedding program forks: share nothing with its parent."""

from __future__ import annotations

import os
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Forked(Protocol):
        """Something that a forked child has a copy of."""

        def forked(self) -> None:
            """Let go, in the child, of what is the parent's. Called before anything else runs there."""


_known: weakref.WeakSet[Forked] = weakref.WeakSet()


def track(thing: Forked) -> None:
    """Have a thing told in every child, as long as it is there."""
    _known.add(thing)


def _in_child() -> None:
    for thing in list(_known):
        thing.forked()


os.register_at_fork(after_in_child=_in_child)
