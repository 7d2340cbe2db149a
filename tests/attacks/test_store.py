"""Attacks on the store of root file systems: by what packages leave in it, and by other users."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.imaged import BUSYBOX
from tests.native.test_rebuild import TOOL, Built, with_apk
from tests.sandboxes import Project
from tests.unit.rootfs.fakeregistry import FakeRegistry

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(not BUSYBOX.exists(), reason="busybox-static is not installed"),
]

DEEP = """
import os, sys
os.chdir(sys.argv[1])
for _ in range(60):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
"""


@pytest.fixture
def built(project: Project) -> Iterator[Built]:
    """Yield a project with a package, whose manager has left something in the cache of downloads."""
    registry = FakeRegistry()
    registry.add(with_apk("one"), "1")
    made = Built(project, registry)
    made.write(TOOL)
    result = project.coop("init")
    assert result.status == 0, result
    yield made
    registry.close()


def store(built: Built) -> Path:
    """Return the actor's store."""
    return built.project.home / ".local/share/coop/rootfs"


def downloads(built: Built) -> Path:
    """Return the project's directory of downloads."""
    (found,) = store(built).glob("caches/*/apk")
    return found


def test_downloads_that_are_shut(built: Built) -> None:
    """A package that shuts the cache keeps neither the next build nor the collector out."""
    downloads(built).chmod(0)
    result = built.project.coop("rebuild")
    assert result.status == 0, result
    downloads(built).chmod(0)
    assert built.project.coop("clean", "--caches").status == 0
    assert not list(store(built).glob("caches/*"))


def test_downloads_without_bottom(built: Built) -> None:
    """Directories in the cache that no path reaches keep nobody from counting and removing what is there."""
    made = built.project.actor.run("/usr/bin/python3", "-I", "-c", DEEP, str(downloads(built)))
    assert made.status == 0, made
    for argv in (["status"], ["rebuild"], ["clean", "--caches", "--dry-run"], ["clean", "--caches"]):
        result = built.project.coop(*argv)
        assert result.status == 0, result
    assert not list(store(built).glob("caches/*")) and not list(store(built).glob("building/*"))


def test_others_do_not_get_in(built: Built) -> None:
    """A store that was open to other users is closed before anything is built in it."""
    store(built).chmod(0o777)
    assert built.project.coop("rebuild").status == 0
    assert stat.S_IMODE(store(built).stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_store_of_somebody_else(built: Built) -> None:
    """What another user may change is not built in, nor collected from."""
    os.chown(store(built), 12345, 12345)
    store(built).chmod(0o777)
    for verb in ("rebuild", "clean"):
        result = built.project.coop(verb)
        assert result.status == 125 and "belongs to user 12345" in result.err, result


@pytest.mark.parametrize("name", ["stages", "building", "locks", "roots", "caches"])
def test_a_part_that_is_shut(built: Built, name: str) -> None:
    """A part of the store that cannot be read is told, with what to do, and nothing counts as unused."""
    if built.project.actor.uid == 0:
        pytest.skip("root reads it")
    (store(built) / name).chmod(0)
    try:
        results = [built.project.coop(*argv) for argv in (["clean"], ["status"], ["rebuild"])]
        results.append(built.project.run("true"))
    finally:
        (store(built) / name).chmod(0o700)
    assert results[0].status == 125 and "XDG_DATA_HOME" in results[0].err, results[0]
    assert not [result for result in results if "Traceback" in result.err]
    assert built.project.run("true").status == 0
