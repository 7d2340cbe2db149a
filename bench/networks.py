"""Runs with the internet, on a host of the tests' lab: this machine may not forward packets."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

from bench.measure import Subject
from bench.subjects import Place, UnavailableError, command, tool, variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tests.netlab import Lab


@functools.lru_cache(maxsize=1)
def _lab(place: Place) -> Lab:
    if os.geteuid() != 0:
        raise UnavailableError("network namespaces with a host and a world take root")
    for program in ("ip", "nft", "nsenter", "unshare"):
        tool(program)
    try:
        from tests.netlab import Lab
    except ImportError as error:
        raise UnavailableError(f"the tests need {error.name}: make check installs it") from None
    base = Path(place.scratch, "lab")
    base.mkdir()
    made = Lab(base)
    place.cleanup.callback(made.close)
    return made


def _run(place: Place, mode: str, what: str) -> Subject:
    argv = [tool("nsenter"), *_lab(place).enter[1:], command(), "run", "-C", place.project]
    if mode != "none":
        argv += ["--set", f"network.mode={mode}"]
    return Subject(mode, what, (*argv, "--", "true"), place.project, variables(place))


def none(place: Place) -> Subject:
    """Return coop without a network, on that host."""
    return _run(place, "none", "nsenter … coop run")


def veth(place: Place) -> Subject:
    """Return coop with a veth pair."""
    return _run(place, "veth", "the same, with veth")


SUBJECTS: tuple[tuple[str, Callable[[Place], Subject]], ...] = (("none", none), ("veth", veth))
