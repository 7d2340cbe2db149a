"""coop where an engine's container has hidden parts of /proc, or has not: made here of namespaces alone."""

from __future__ import annotations

import json

import pytest

from tests.sandboxes import Project

pytestmark = pytest.mark.native

# A user namespace in which whoever runs coop is root, and the mounts of which what is below cannot take away.
MASKED = ("unshare", "-Urm", "sh", "-c", 'mount -t tmpfs tmpfs /proc/sysvipc && exec "$@"', "sh")
WHOLE = ("unshare", "-Urm")


@pytest.fixture
def masked(project: Project) -> Project:
    """Return a project in a container whose /proc is masked, as engines have it."""
    project.wrap = MASKED
    return project


def test_a_masked_proc_is_told_with_the_remedy(masked: Project) -> None:
    """The kernel makes no second /proc then: nothing is run, and the options of engines are named."""
    result = masked.shell("touch ran")
    assert result.status == 125
    assert "the kernel refuses to mount /proc" in result.err
    assert "systempaths=unconfined" in result.err and "unmask=ALL" in result.err
    assert not (masked.directory / "ran").exists()


def test_status_knows_of_a_masked_proc(masked: Project) -> None:
    """`coop status` promises no back end that a run would then not have."""
    result = masked.coop("status", "--json")
    native = next(item for item in json.loads(result.out)["backends"] if item["name"] == "native")
    assert not native["usable"], native
    assert {item["name"]: item["present"] for item in native["abilities"]}["/proc"] is False
    assert "systempaths=unconfined" in native["remedy"]


def test_check_knows_of_a_masked_proc(masked: Project) -> None:
    """`coop check` warns of it."""
    result = masked.coop("check")
    assert "/proc" in result.out + result.err and "systempaths=unconfined" in result.out + result.err


def test_a_masked_proc_leaves_the_other_choices(masked: Project) -> None:
    """What the Coopfile has for machines without a back end counts here, too."""
    result = masked.run("echo", "ran", options=("--set", "sandbox.fallback=host"))
    assert (result.status, result.out) == (0, "ran\n")
    assert "NOT SANDBOXED" in result.err


def test_a_container_with_the_whole_of_proc_will_do(project: Project) -> None:
    """Sandboxes can be made in a container that may make namespaces and has the whole of /proc."""
    project.wrap = WHOLE
    result = project.shell("hostname; ls -d /proc/[0-9]* | wc -l; touch /usr/x 2>/dev/null || echo no")
    assert result.status == 0, result
    assert result.out.split()[0] == "coop" and result.out.split()[2] == "no"
    assert int(result.out.split()[1]) < 8
