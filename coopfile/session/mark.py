"""What tells of a session's container on disk, as long as that has not been removed: ``<dir>/container``.

It is for the case that the process that keeps the session is killed: so that its container is found again
by who comes next, on the engine that it is on. Nothing in it is secret.
"""

from __future__ import annotations

import json
import os

from coopfile import wholefile
from coopfile.engines.call import REACHED_BY
from coopfile.record import Record
from coopfile.render.facts import Engine
from coopfile.system import READING, is_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = "container"
_LARGEST = 1 << 20  # bytes


class Mark(Record):
    """The engine of a container, the environment of the engine's own processes, and the owner's label."""

    engine: Engine
    environment: Mapping[str, str]
    owner: str


def write(directory: str, mark: Mark) -> None:
    """Write it down. Raises OSError."""
    named = {name: mark.environment[name] for name in REACHED_BY if name in mark.environment}
    fields = {
        "engine": mark.engine.name,
        "program": mark.engine.program,
        "owner": mark.owner,
        "environment": named,
    }
    wholefile.write(f"{directory}/{_NAME}", json.dumps(fields).encode(), 0o600)


def read(directory: str) -> Mark | None:
    """Return what there is, None if there is nothing that makes sense, or what others could have written.

    The program in it is started.
    """
    try:
        descriptor = os.open(f"{directory}/{_NAME}", READING | os.O_NOFOLLOW)
        with open(descriptor, encoding="utf-8") as file:
            if not is_own(os.fstat(descriptor)):
                return None
            known = json.loads(file.read(_LARGEST))
        engine = Engine(str(known["engine"]), str(known["program"]))
        named = {str(name): str(value) for name, value in known["environment"].items()}
        owner = str(known["owner"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if not engine.program.startswith("/"):
        return None
    others = {name: value for name, value in os.environ.items() if name not in REACHED_BY}
    return Mark(engine, {**others, **named}, owner)


def remove(directory: str) -> None:
    """Remove it: so is the container."""
    try:
        os.unlink(f"{directory}/{_NAME}")
    except OSError:
        pass
