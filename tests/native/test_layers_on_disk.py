"""Root file systems of layers on kernels before 6.6, whose tmpfs cannot be an upper layer."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from coopfile.rootfs.tree import fingerprint
from tests.sandboxes import Project, Result, descendants, run, wait_gone

pytestmark = pytest.mark.native

# coop, told that it runs on such a kernel.
OLD = """
import os, sys
sys.path.insert(0, {library!r})
real = os.uname()
os.uname = lambda: os.uname_result((real.sysname, real.nodename, "6.1.0-9-amd64", *real[3:]))
from coopfile.startup import entry
entry()
"""


class OnDisk:
    """A project on an image, run by a coop that keeps what is written on disk."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.store = project.home / ".local/share/coop/rootfs"
        library = str(Path(project.actor.coop[-1]).parent / "lib")
        self._script = project.write(str(project.home / "coop-old"), OLD.format(library=library))

    def argv(self, script: str) -> list[str]:
        """Return the command line of a run."""
        found = self.project.argv(["sh", "-c", script])
        place = found.index(self.project.actor.coop[-1])
        return [*found[:place], str(self._script), *found[place + 1 :]]

    def run(self, script: str) -> Result:
        """Run a shell script."""
        return run(self.argv(script), b"", self.project.actor.base, self.project.environment)

    def left(self) -> list[str]:
        """Return what runs have left in the store."""
        return [path.name for path in (self.store / "building").iterdir()]


@pytest.fixture
def on_disk(imaged: Callable[..., Project]) -> OnDisk:
    """Return a project on an image that has a directory to replace."""
    return OnDisk(imaged({}, **{"opt/directory/old": "x"}))


def test_written_and_thrown_away(on_disk: OnDisk) -> None:
    """A run writes its root file system, replaces directories in it, and leaves nothing of that."""
    (stage,) = (on_disk.store / "stages").glob("*/fs")
    before = fingerprint(str(stage))
    script = """
    cd /opt && ls directory && /bin/busybox rm -r directory && mkdir directory && touch directory/new /root/x
    ls directory
    """
    for _ in range(2):
        result = on_disk.run(script)
        assert result.status == 0 and result.out.split() == ["old", "new"], result
        assert "weaker than the plan: limits.tmp" in result.err
        assert on_disk.left() == []
    assert fingerprint(str(stage)) == before


def test_killed(on_disk: OnDisk) -> None:
    """What a killed run leaves the next one removes, but nothing of a run that is still there."""

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            on_disk.argv("touch /opt/written; echo begun; exec /bin/busybox sleep 1000"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=on_disk.project.environment,
        )
        on_disk.project._running.append(process)
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        return process

    killed, other = start(), start()
    assert len(on_disk.left()) == 2
    inside = descendants(killed.pid)
    killed.send_signal(signal.SIGKILL)
    killed.wait(60)
    assert wait_gone(inside)
    assert on_disk.run("true").status == 0
    assert len(on_disk.left()) == 1
    other.send_signal(signal.SIGTERM)
    assert other.wait(60) != 0
    assert on_disk.left() == []
