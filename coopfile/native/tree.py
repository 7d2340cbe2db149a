"""Building the new root from operations, and moving into it.

Runs as PID 1 of the sandbox, in its own mount namespace, with every capability over
it and none outside.
"""

from __future__ import annotations

import os
import sys

from coopfile.native import syscalls
from coopfile.native.operations import MASKS, Operation, Root, Tree
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coopfile.native.upper import Upper


class Layout(Record):
    """The operations, what has to be held on the host meanwhile, and what was left out.

    ``guards`` come after ``operations``, when the places are held. ``held`` are
    (real directory, relative paths) whose places are kept by placeholders;
    ``landlock`` are (path inside, writable) of what may be used; ``writable`` and
    ``guarded`` are real paths of the host; ``skipped`` says which of the plan's paths
    this host does not have.
    """

    root: Root
    operations: tuple[Operation, ...]
    guards: tuple[Operation, ...]
    held: tuple[tuple[str, tuple[str, ...]], ...]
    landlock: tuple[tuple[str, bool], ...]
    writable: tuple[str, ...]
    guarded: tuple[str, ...]
    skipped: tuple[str, ...]


# Any directories will do to build on: what is mounted there covers them in this namespace only.
_STAGES = ("/tmp", "/run", "/mnt", "/var", "/usr", "/dev")


def build(
    root: Root,
    operations: Sequence[Operation],
    guards: Sequence[Operation],
    ready: Callable[[], None],
    *,
    keeps_upper: bool = False,
    proc: int | None = None,
) -> Upper | None:
    """Make a root, move into it, and run the operations there.

    Whatever they need of the host is open before the move, and then the old root goes: else a
    link of an image could lead there, for ``..`` of the root is what is mounted over it. ``ready``
    is called before the guards: it returns when their places are held. With ``keeps_upper`` the
    directory that takes what is written to a root of layers stays open, and is returned. ``proc`` is a
    mount that shows the sandbox's processes, for a caller that is none of them.
    """
    if keeps_upper:
        from coopfile.native import upper
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    tree = Tree()
    tree.keeps_upper = keeps_upper
    if proc is not None:
        tree.prepared["/proc"] = proc
    root.prepare(tree)
    for operation in operations:
        operation.prepare(tree)
    stage, tree.aside = [path for path in _STAGES if os.path.isdir(path)][:2]
    for operation in operations:
        operation.cover(tree)
    root.mount(tree, stage)
    os.chdir(stage)
    tree.adopt_root(os.open(".", syscalls.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
    sys.meta_path.clear()  # what is imported from here on would be the sandbox's own
    # The old root now lies on top of the new one at the same place: pivot_root(2).
    syscalls.pivot_root(".", ".")
    syscalls.umount(".")
    os.chdir("/")
    _make_masks(tree)
    for operation in operations:
        operation.execute(tree)
    ready()
    for guard in guards:
        guard.execute(tree)
    _drop_masks(tree)
    root.execute(tree)
    return None if tree.upper is None else upper.keep(tree.upper, root.below)


def _make_masks(tree: Tree) -> None:
    """Make what hides: an empty file and an empty directory that nobody may open."""
    os.mkdir(MASKS[True], 0, dir_fd=tree.root)
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    os.close(os.open(MASKS[False], flags, 0, dir_fd=tree.root))


def _drop_masks(tree: Tree) -> None:
    """Take the masks' names away; where they are mounted they stay."""
    os.rmdir(MASKS[True], dir_fd=tree.root)
    os.unlink(MASKS[False], dir_fd=tree.root)
