"""What the sessions of a project have added to its root file system, for the runs after them.

It is one stage on top of those that the plan asks for, and stands on the stages that it was made on: on
others it does not count, and is there again when they are. What users (``--as``) add is theirs alone, as
all is that outlives their sandboxes. One file for each project and user, written as a whole or not at all.
"""

from __future__ import annotations

import json
import os

from coopfile import wholefile
from coopfile.errors import CoopError
from coopfile.record import Record
from coopfile.rootfs.base import committed_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coopfile.plan.model import Access

KIND = "committed"
_LARGEST = 1 << 20  # bytes


class Committed(Record):
    """A committed stage, and the life of a session that it came from (``commit.commit``)."""

    stage: str
    origin: str


def read(directory: str, project: str, access: Access | None) -> dict[str, Committed]:
    """Return what is committed in a store, by the key of the highest stage that it stands on.

    Raises CoopError for a record that somebody has damaged.
    """
    path = committed_path(directory, project, access)
    found = _read(path)
    if found is None and os.path.lexists(path):
        raise CoopError(
            f"the record of what is committed for {project} is damaged: {path}",
            "coop reset goes on without it",
        )
    return {} if found is None else found[1]


def write(directory: str, project: str, access: Access | None, on: Mapping[str, Committed]) -> None:
    """Record what is committed, in place of what was. Only inside ``Store.changing``. Raises OSError."""
    stages = {base: {"stage": item.stage, "origin": item.origin} for base, item in on.items()}
    data = {"project": os.fsencode(project).hex(), "on": stages}
    wholefile.write(committed_path(directory, project, access), json.dumps(data).encode())


def forget(directory: str, project: str, access: Access | None) -> dict[str, Committed]:
    """Drop what is committed, and return what that was. Only inside ``Store.changing``. Raises OSError."""
    path = committed_path(directory, project, access)
    found = _read(path)
    if os.path.lexists(path):
        os.unlink(path)
    return {} if found is None else found[1]


def stages(directory: str) -> Iterator[str]:
    """Yield the keys of all that is committed for projects that there are."""
    try:
        names = sorted(os.listdir(f"{directory}/committed"))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        found = _read(f"{directory}/committed/{name}") if name.endswith(".json") else None
        if found is not None and os.path.isdir(found[0]):
            yield from (item.stage for item in found[1].values())


def _read(path: str) -> tuple[str, dict[str, Committed]] | None:
    """Return a project and what is committed for it; None for what is not there, or makes no sense."""
    try:
        content = wholefile.read(path, _LARGEST)
        data = json.loads(content or b"")
        project = os.fsdecode(bytes.fromhex(data["project"]))
        on = {
            str(base): Committed(str(item["stage"]), str(item["origin"])) for base, item in data["on"].items()
        }
        return project, on
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
