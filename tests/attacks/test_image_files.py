"""Attacks through the files of an image: whatever coop puts into a root file system stays in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sandboxes import Project, tree

pytestmark = pytest.mark.native

UP = "../" * 12


@pytest.mark.parametrize(
    ("place", "way"),
    [
        *((place, UP) for place in ("etc", "root", "dev", "proc", "tmp", "workspace", "root/.claude")),
        ("etc", f"bin/{UP}"),
        ("root", "proc/1/root/"),
        ("dev", f"proc/self/cwd/{UP}"),
    ],
)
def test_links_to_the_host(imaged: Callable[..., Project], project: Project, place: str, way: str) -> None:
    """A link of an image that climbs above the root, or goes through /proc, leads to nothing of the host."""
    victim = project.home / "victim"
    for name in ("hosts", "passwd", "group", "hostname", "pts/x", ".claude/x"):
        project.write(str(victim / name), "host")
    imaged({place: f"{way}{str(victim)[1:]}"})
    before = tree(victim), project.tree()
    project.shell(
        "echo x > ~/.claude/mark; echo x > /etc/mark; echo x > /tmp/mark; echo x > ~/mark; echo x > mark"
    )
    project.directory.joinpath("mark").unlink(missing_ok=True)
    assert (tree(victim), project.tree()) == before


def test_pipes_for_accounts(imaged: Callable[..., Project], project: Project) -> None:
    """An image whose account files are pipes keeps nobody waiting."""
    imaged({}, pipes=("etc/passwd", "etc/group"))
    assert project.run("sh", "-c", "cat /etc/passwd", timeout=20).out.startswith("root:x:0:0:")
