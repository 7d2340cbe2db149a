"""From `base.image` to a sandbox on it: locked, fetched, unpacked once, run, and collected."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from coopfile.rootfs.tree import fingerprint
from tests.imaged import BUSYBOX, made
from tests.sandboxes import Project, Workshop, wait_until
from tests.unit.rootfs.fakeregistry import FakeRegistry

pytestmark = pytest.mark.skipif(not BUSYBOX.exists(), reason="busybox-static is not installed")


@pytest.fixture
def imaged(project: Project, registry: FakeRegistry) -> Project:
    """Return an approved project on the registry's image."""
    project.coopfile(f'[base]\nimage = "{registry.address}/team/app:1"\n')
    return project


def stages(project: Project) -> list[Path]:
    """Return the stages in the actor's store."""
    return sorted((project.home / ".local/share/coop/rootfs/stages").glob("*"))


def test_init_and_run(imaged: Project, registry: FakeRegistry) -> None:
    """`coop init` fetches the image once, and a run has its programs, its variables and its files."""
    refused = imaged.run("true")
    assert refused.status == 125 and "coop init" in refused.err
    first = imaged.coop("init")
    assert first.status == 0, first
    asked = len(registry.seen)
    assert imaged.coop("init").status == 0
    assert len(registry.seen) == asked, "a second init asks nothing of the registry"
    out = imaged.output('cat /etc/version; echo " $FROM_IMAGE $PATH"; ls /usr /work 2>/dev/null; id -u; pwd')
    assert out.split() == ["one", "yes", "/opt/bin:/bin", "0", "/workspace"]
    assert sorted(path.name for path in imaged.directory.iterdir()) == ["Coopfile", "Coopfile.lock"]


def test_the_image_is_never_written(imaged: Project) -> None:
    """Whatever a run does to its root file system, the next one finds the image as it was."""
    assert imaged.coop("init").status == 0
    (stage,) = stages(imaged)
    before = fingerprint(str(stage / "fs"))
    imaged.output("rm -r /etc /bin/id; mkdir /etc; echo x > /etc/version; chmod 777 /bin")
    assert fingerprint(str(stage / "fs")) == before
    assert imaged.output("cat /etc/version; ls /bin/id") == "one/bin/id"


def test_the_store_is_out_of_sight(imaged: Project) -> None:
    """A sandbox that is given the home sees and changes nothing of the store."""
    assert imaged.coop("init").status == 0
    settings = ["--set", f'files.write=["{imaged.home}"]']
    script = f"ls {imaged.home}/.local/share/coop; touch {imaged.home}/.local/share/coop/x"
    result = imaged.shell(script, options=settings)
    assert result.status != 0 and result.err.count("Permission denied") + result.err.count("Read-only") >= 2


def test_lock(imaged: Project, registry: FakeRegistry) -> None:
    """The lock keeps the image when its tag moves, until it is renewed; then init has to fetch."""
    assert imaged.coop("init").status == 0
    registry.add(made("two"), "1")
    assert imaged.coop("lock").status == 0
    assert imaged.output("cat /etc/version") == "one"
    renewed = imaged.coop("lock", "--upgrade")
    assert renewed.status == 0 and "(was sha256:" in renewed.err
    refused = imaged.run("true")
    assert refused.status == 125 and "coop init" in refused.err
    assert imaged.coop("init").status == 0
    assert imaged.output("cat /etc/version") == "two"


def test_a_stale_lock_is_an_error(imaged: Project, registry: FakeRegistry) -> None:
    """A lock of another image than the Coopfile's says so, and how to renew it."""
    assert imaged.coop("init").status == 0
    registry.add(made("three"), "3")
    imaged.coopfile(f'[base]\nimage = "{registry.address}/team/app:3"\n')
    for verb in (["run", "--", "true"], ["init"], ["lock"], ["plan"]):
        result = imaged.coop(*verb)
        assert result.status == 125, (verb, result)
        assert "base.image is now" in result.err and "coop lock --upgrade" in result.err
    assert imaged.coop("lock", "--upgrade").status == 0
    assert imaged.coop("init").status == 0
    assert imaged.output("cat /etc/version") == "three"


@pytest.mark.parametrize("text", ["", "x", "version = 2\n", "version = 1\n[base]\nimage = 1\n", "\xff"])
def test_a_damaged_lock_is_an_error(imaged: Project, text: str) -> None:
    """A lock that coop did not write is refused with a remedy, never ignored."""
    imaged.write("Coopfile.lock", text.encode("latin-1"))
    result = imaged.run("true")
    assert result.status == 125 and "Coopfile.lock" in result.err and "coop lock" in result.err
    assert "Traceback" not in result.err


def test_the_lock_cannot_be_written_inside(imaged: Project) -> None:
    """A sandboxed command cannot choose what the next run is made of."""
    assert imaged.coop("init").status == 0
    assert imaged.shell("echo x >> Coopfile.lock; rm -f Coopfile.lock").status != 0
    assert imaged.output("cat /etc/version") == "one"


def test_an_image_needs_approval(project: Project, registry: FakeRegistry) -> None:
    """A repository cannot have coop fetch an image that nobody approved."""
    project.coopfile(f'[base]\nimage = "{registry.address}/team/app:1"\n', allow=False)
    for verb in (["init"], ["lock"], ["run", "--", "true"]):
        result = project.coop(*verb)
        assert result.status == 125 and "coop allow" in result.err
    assert registry.seen == []


def test_clean(imaged: Project, registry: FakeRegistry) -> None:
    """What the project no longer uses is freed; what it uses stays."""
    assert imaged.coop("init").status == 0
    registry.add(made("two"), "1")
    assert imaged.coop("lock", "--upgrade").status == 0 and imaged.coop("init").status == 0
    assert len(stages(imaged)) == 2
    assert "would free" in imaged.coop("clean", "--dry-run").out and len(stages(imaged)) == 2
    assert "in 1 stages" in imaged.coop("clean").out and len(stages(imaged)) == 1
    assert imaged.output("cat /etc/version") == "two"


@pytest.mark.parametrize("delay", [0.15, 0.3, 0.5])
def test_killed(imaged: Project, registry: FakeRegistry, delay: float) -> None:
    """Killed at any moment, init leaves nothing that the next one cannot do with."""
    argv = [*imaged.actor.prefix, *imaged.actor.coop, "init", "-C", str(imaged.directory)]
    started = subprocess.Popen(
        argv, env=imaged.environment, stderr=subprocess.DEVNULL, start_new_session=True
    )
    time.sleep(delay)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait(10)
    assert imaged.coop("init").status == 0
    assert imaged.output("cat /etc/version") == "one"
    building = imaged.home / ".local/share/coop/rootfs/building"
    assert wait_until(lambda: not list(building.iterdir()), 5)


def test_a_registry_that_lies(imaged: Project, registry: FakeRegistry) -> None:
    """A blob of another content is refused, and nothing of it is kept."""
    assert imaged.coop("lock").status == 0
    for digest in list(registry.blobs):
        if len(registry.blobs[digest]) > 10_000:
            body = registry.blobs[digest]
            registry.blobs[digest] = body[:5000] + bytes([body[5000] ^ 1]) + body[5001:]
    result = imaged.coop("init")
    assert result.status == 125 and "digest" in result.err and "Traceback" not in result.err
    assert stages(imaged) == []


def test_workshop_has_what_it_takes(workshop: Workshop) -> None:
    """The tests' own installation of coop can fetch images."""
    assert (workshop.library / "oras").is_dir()
