"""Removing what sandboxes have kept, when none of them runs any more."""

from __future__ import annotations

import os

from coopfile.errors import CoopError
from coopfile.native import running
from coopfile.rootfs.tree import remove_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def remove(places: Sequence[str], state: str) -> None:
    """Remove directories that no running sandbox uses. Raises CoopError, before anything is removed."""
    try:
        lock = running.hold_starts(state)
        try:
            used = next((place for place in places if running.is_used(state, place)), None)
            if used is not None:
                raise CoopError(
                    f"a sandbox that uses {used} is running", "wait until it ends, or end it, and try again"
                )
            for place in places:
                remove_tree(place)
        finally:
            running.let_start(lock)
            os.close(lock)
    except OSError as error:
        raise CoopError(f"{error.filename or places[0]} cannot be removed: {error.strerror}") from None
