"""What an engine says of a container: docker-inspect(1); podman-inspect(1) has the same."""

from __future__ import annotations

import json

from coopfile.engines.call import EngineError, must, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from coopfile.render.docker import Argv
    from coopfile.render.facts import Engine

NEVER_STARTED = ("created", "configured", "initialized")
_NOT_SEEN = "source path does not exist"  # in Docker's words


def state_of(engine: Engine, identifier: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return an engine's State of a container. Raises EngineError, also when it is gone."""
    argv = (engine.program, "container", "inspect", "--format", "{{json .State}}", identifier)
    what = "how the command fares is not known"
    try:
        state = json.loads(must(what, argv, environment=environment))
    except ValueError:
        raise EngineError(f"{what}: {engine.name} gave no JSON", None, argv) from None
    except EngineError as error:
        if "o such container" in error.said:
            raise EngineError(
                "somebody removed the container while the command ran in it, which ended the command",
                None,
                argv,
                error.said,
            ) from None
        raise
    return dict(state)


def unmade(engine: Engine, argv: Argv, said: str) -> EngineError:
    """Return the error for a container that an engine did not make; ``said`` is the reason it gave."""
    remedy = None
    if _NOT_SEEN in said:
        remedy = (
            f"does {engine.name} run on this machine, and see the files that you see? try: docker context ls"
        )
    return EngineError(f"{engine.name} cannot make the container: {shown(said)}", remedy, argv, said)
