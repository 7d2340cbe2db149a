"""What is done when all inside of a session is gone: taking away what there was of it outside.

The monitor has a process of its own do it, for each session: it may have to wait, for the kernel, for
what connected the sandbox, or for a file system that does not answer, and others are not to.
"""

from __future__ import annotations

import marshal
import os
import select

from coopfile.native import cgroups, limits, placeholders, report, running, wire
from coopfile.record import Record
from coopfile.session import store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopfile.native.placeholders import Held


class Kept(Record):
    """What has to be undone, of marshal's types.

    ``groups`` is what ``cgroups.Group`` takes; ``placeholders`` counts on the first ``places``
    descriptors. The one after them is of the file ``announced``, if that is not empty. ``memory`` and
    ``pids`` are limits, to tell when they were reached.
    """

    groups: tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]
    placeholders: tuple[Held, ...]
    places: int
    announced: str
    memory: int
    pids: int

    def packed(self) -> bytes:
        """Return it as ``unpacked`` takes it."""
        return marshal.dumps(tuple(getattr(self, name) for name in self._fields))


def unpacked(data: bytes) -> Kept:
    """Return what was packed."""
    return Kept(*marshal.loads(data))


def undo(directory: str, kept: Kept, descriptors: Sequence[int], stayed: int | None) -> None:
    """Take it all away, and let go of the descriptors: those of ``keep.Session``.

    ``stayed`` is a descriptor of the process that keeps what connects the sandbox, if there is one. It
    has been told, and may have notes of its own.
    """
    alive, notes, *others = descriptors
    group, held = cgroups.Group(*kept.groups), placeholders.Placeholders()
    held.take_over(kept.placeholders, others[: kept.places])
    for text in limits.reached(group.exceeded(), kept.memory, kept.pids):
        report.send(notes, report.Message(report.NOTE, text))
    if stayed is not None:
        waiting = select.poll()
        waiting.register(stayed, select.POLLIN)
        waiting.poll()
    group.remove()
    held.release()
    if store.leads_to(
        directory, alive
    ):  # else that is another one's, whose starter found no trace of this one
        try:
            os.unlink(f"{directory}/{wire.SOCKET}")
        except OSError:
            pass
    if kept.announced:
        running.leave((others[kept.places], kept.announced))
    store.let_go(alive)
