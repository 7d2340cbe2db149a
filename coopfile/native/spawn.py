"""Starting a command inside the sandbox, along PATH as a shell would."""

from __future__ import annotations

import os

from coopfile.native import signals
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class NotStarted(Record):
    """Why a command was not started: a shell's status for that, and words."""

    status: int
    text: str


def spawn(
    argv: tuple[str, ...], environment: Mapping[str, str], mask: set[int], actions: Sequence[Any] = ()
) -> int | NotStarted:
    """Start a command in a session of its own; return its number.

    ``mask`` is its signal mask, ``actions`` are posix_spawn's on descriptors. posix_spawn shares the
    memory until the exec: a fork of the interpreter costs 1 ms more.
    """
    name = argv[0]
    if not name:
        return NotStarted(127, "a command without a name cannot be found")
    paths = [name]
    if "/" not in name:
        along = [f"{place or '.'}/{name}" for place in environment.get("PATH", "").split(":")]
        paths = [path for path in along if os.access(path, os.F_OK)]
    failure = NotStarted(127, f"{name}: not found inside the sandbox")
    for path in paths:
        try:
            return os.posix_spawn(
                path,
                argv,
                environment,
                file_actions=actions,
                setsid=True,
                setsigmask=mask,
                setsigdef=signals.IGNORED_BY_PYTHON,
            )
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            failure = NotStarted(126, f"{name}: {error.strerror}")
    return failure
