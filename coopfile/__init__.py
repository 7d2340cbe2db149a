"""Coop: a declarative sandbox for AI agents and any other untrusted command.

>>> import subprocess, coopfile
>>> plan = coopfile.compile("Coopfile", overrides={"network.mode": "none"})
>>> subprocess.run(coopfile.wrap(["make", "test"], plan))

Names are loaded when they are first used: a cached ``coop run`` needs none of them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.api import compile as compile
    from coopfile.api import wrap as wrap
    from coopfile.errors import CoopError as CoopError
    from coopfile.plan.model import Plan as Plan

__version__ = "0.1.0"
__all__ = ["CoopError", "Plan", "__version__", "compile", "wrap"]

_PLACES = {
    "CoopError": "coopfile.errors",
    "Plan": "coopfile.plan.model",
    "compile": "coopfile.api",
    "wrap": "coopfile.api",
}


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(place), name)
    globals()[name] = value
    return value
