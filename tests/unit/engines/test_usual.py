"""What `coop run` says of a container that is weaker than the plan."""

from __future__ import annotations

import pytest

from coopfile.engines.making import is_usual
from coopfile.plan.launch import Weakening
from coopfile.render.facts import Engine


@pytest.mark.parametrize(
    ("key", "seccomp", "usual"),
    [
        ("limits.tmp", True, True),
        ("proc", True, True),
        ("seccomp", True, True),
        ("seccomp", False, False),
        ("limits.memory", True, False),
        ("session.user", True, False),
    ],
)
def test_what_is_so_on_every_machine_is_usual(key: str, seccomp: bool, usual: bool) -> None:
    """A filter that lets more through is podman's on every machine; no filter at all is this machine's."""
    engine = Engine(name="podman", program="podman", seccomp=seccomp)
    assert is_usual(Weakening(key, "text"), engine) == usual
