"""What goes wrong while a root file system is fetched and built, and that it leaves the store sound."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coopfile.rootfs.tree import fingerprint, remove_tree
from tests.disk import Disk
from tests.imaged import BUSYBOX, made
from tests.native.test_stages import Built, built, neighbour
from tests.sandboxes import (
    DEADLINE,
    Project,
    descendants,
    tree,
    wait_gone,
    wait_until,
)
from tests.unit.rootfs.fakeregistry import FakeRegistry, Handler, big
from tests.unit.rootfs.images import LAYER, descriptor, sha256, tar

__all__ = ["built", "neighbour"]

pytestmark = pytest.mark.skipif(not BUSYBOX.exists(), reason="busybox-static is not installed")

ROUNDS = 10  # of each actor
SECOND = tar(**{f"data{number}": big(4000) for number in range(300)})
SECOND_BLOB = gzip.compress(SECOND, 1, mtime=0)
# Two stages on the image that are the same whenever they are built, if their times are left out.
SETUP = (
    "for n in $(busybox seq 100); do echo $n > /etc/made$n; done",
    "rm /data7 /etc/made9; mv /data8 /moved",
)
AGENT = "mkdir -p /opt/agent; cat /data1 /data2 > /opt/agent/program; chmod 755 /opt/agent/*"


@pytest.fixture
def registry(registry: FakeRegistry) -> FakeRegistry:
    """Return the registry with an image of two layers."""
    image = made("one")
    image.layers.append(descriptor(SECOND_BLOB, LAYER))
    image.config["rootfs"]["diff_ids"].append(sha256(SECOND))
    registry.add(image, "1")
    registry.blobs[sha256(SECOND_BLOB)] = SECOND_BLOB
    return registry


def start(project: Project) -> subprocess.Popen[bytes]:
    """Start ``coop init`` in a process group of its own."""
    argv = [*(project.unshared or project.actor.prefix), *project.actor.coop, "init"]
    return subprocess.Popen(
        [*argv, "-C", str(project.directory)],
        env=project.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def hold(registry: FakeRegistry, go: threading.Event) -> None:
    """Have the registry keep the second layer back until it may go."""

    def held(handler: Handler) -> None:
        go.wait(DEADLINE)
        registry.serve(handler)

    registry.script("/blobs/" + sha256(SECOND_BLOB), held)


def end(process: subprocess.Popen[bytes]) -> str:
    """Wait for a command that has to succeed; return what it said."""
    _, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, said.decode()
    return said.decode()


def fails(project: Project, *words: str) -> str:
    """Run ``coop init``, which has to fail with some words and without a traceback; return what it said."""
    process = start(project)
    _, said = process.communicate(timeout=DEADLINE)
    text = said.decode()
    assert process.returncode == 125 and "Traceback" not in text, text
    assert all(word in text for word in words), text
    return text


def contents(store: Path) -> dict[str, tuple[str, Any]]:
    """Return kind and content of every stage, all of which have to be whole."""
    found = {}
    for path in store.glob("stages/*"):
        about = json.loads((path / "stage.json").read_text())
        assert sorted(item.name for item in path.iterdir()) == ["fs", "stage.json"]
        # A layer that was built has times and, in attributes of overlayfs, inodes of its own.
        same = fingerprint(str(path / "fs")) if about["kind"] == "image" else tree(path / "fs")
        found[path.name] = (about["kind"], same)
    return found


def ruins(store: Path) -> list[str]:
    """Return what unfinished work has left."""
    return [str(path) for pattern in ("building/*", "roots/*.tmp") for path in store.glob(pattern)]


@pytest.mark.xdist_group("random moments")  # so that what takes longest begins first
def test_killed_at_random_moments(built: Built) -> None:
    """Whenever coop is killed, the next init completes, to the same stages as an undisturbed one."""
    seed = int(os.environ.get("COOP_TEST_SEED") or random.SystemRandom().getrandbits(32))
    print(f"COOP_TEST_SEED={seed}")
    chance = random.Random(seed)
    built.asks(*SETUP, agent=AGENT)
    began = time.monotonic()
    end(start(built.project))
    whole = time.monotonic() - began
    undisturbed = contents(built.store)
    assert sorted(kind for kind, _ in undisturbed.values()) == ["agent.install", "image", "setup.run"]
    for number in range(ROUNDS):
        remove_tree(str(built.store))
        (built.project.directory / "Coopfile.lock").unlink()
        moment = chance.uniform(0.1, 1.0) * whole
        print(f"round {number}: killed after {moment:.3f} of {whole:.3f} s")
        process = start(built.project)
        time.sleep(moment)
        below = descendants(process.pid)
        if number % 2:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()  # and whatever it has started has to notice
        process.wait(DEADLINE)
        end(start(built.project))
        assert wait_gone(below)
        assert contents(built.store) == undisturbed
        assert ruins(built.store) == []
        assert sorted(os.listdir(built.project.directory)) == ["Coopfile", "Coopfile.lock"]
        process.communicate()
    assert built.project.output("cat /etc/version; ls -d /moved /data[78]; true") == "one/moved"


def test_images_are_fetched_once_at_a_time(built: Built, neighbour: Built, registry: FakeRegistry) -> None:
    """Of two projects that want one image at once, one fetches it, and the other says that it waits."""
    built.asks(*SETUP)
    neighbour.asks("echo other > /etc/other")
    for project in (built.project, neighbour.project):
        assert project.coop("lock").status == 0
    go = threading.Event()

    hold(registry, go)
    first = start(built.project)
    assert wait_until(lambda: registry.asked(sha256(SECOND_BLOB)))
    second = start(neighbour.project)
    said = b""
    assert second.stderr is not None
    while b"waiting" not in said:
        piece = os.read(second.stderr.fileno(), 4096)
        assert piece, said
        said += piece
    go.set()
    end(first)
    end(second)
    assert len(registry.asked(sha256(SECOND_BLOB))) == 1
    assert sorted(kind for kind, _ in contents(built.store).values()) == ["image", "setup.run", "setup.run"]
    assert ruins(built.store) == []
    assert built.project.output("cat /moved | busybox wc -c") == "4000"
    assert neighbour.project.output("cat /etc/other") == "other"


def test_a_registry_that_goes_away(built: Built, registry: FakeRegistry) -> None:
    """When the registry ends in the middle of a layer coop says so, and keeps nothing of the image."""
    built.asks()
    assert built.project.coop("lock").status == 0

    def last(handler: Handler) -> None:
        handler.part(SECOND_BLOB, len(SECOND_BLOB), len(SECOND_BLOB) // 2)
        registry.close()

    registry.script("/blobs/" + sha256(SECOND_BLOB), last)
    said = fails(built.project, registry.address)
    assert "refuses connections" in said or "broke" in said
    assert contents(built.store) == {} and ruins(built.store) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ended_while_fetching(built: Built, registry: FakeRegistry, number: signal.Signals) -> None:
    """A signal ends init while one layer is unpacked and another is waited for; nothing of them stays."""
    built.asks()
    go = threading.Event()
    hold(registry, go)
    process = start(built.project)
    assert wait_until(lambda: list(built.store.glob("building/*/fs/bin/busybox")))
    process.send_signal(number)
    _, said = process.communicate(timeout=DEADLINE)
    go.set()
    assert process.returncode == 128 + number and b"Traceback" not in said, said
    assert contents(built.store) == {} and ruins(built.store) == []


@pytest.fixture
def small_disk(built: Built) -> Iterator[Callable[[Path], Disk]]:
    """Yield what puts a small disk at a path, where it is in the way of the project's coop only."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system takes root")
    with contextlib.ExitStack() as made:

        def put(path: Path) -> Disk:
            disk = Disk(built.project.actor, built.project.mkdir(path))
            made.callback(disk.close)
            built.project.unshared = (*disk.enter, *built.project.actor.prefix)
            return disk

        yield put


def test_a_full_disk(built: Built, small_disk: Callable[[Path], Disk]) -> None:
    """Wherever the room ends coop names the place, and what was finished before stays and is whole."""
    project = built.project
    built.asks("head -c 8000000 /dev/urandom > /ballast", agent="true")
    disk = small_disk(built.store)
    sizes = {"8k": 0, "200k": 0, "1m": 0, "3m": 0, "6m": 1}
    for size, stages in sizes.items():
        disk.resize(size)
        if stages:
            fails(project, "setup.run: command failed")
        else:
            said = fails(project, str(built.store), "coop clean")
            assert "No space left" in said or "no room left" in said
        assert len(contents(disk.seen)) == stages and ruins(disk.seen) == [], size
    disk.resize("64m")
    assert project.coop("init", "-C", str(project.directory)).status == 0
    assert len(contents(disk.seen)) == 3 and ruins(disk.seen) == []


def test_no_room_for_the_lock(built: Built, small_disk: Callable[[Path], Disk]) -> None:
    """When there is no room in the project for its lock the error names it, and there is no half of one."""
    project = built.project
    built.asks("true")
    text = (project.directory / "Coopfile").read_bytes()
    project.directory = project.home / "disk"
    disk = small_disk(project.directory)
    (disk.seen / "Coopfile").write_bytes(text)
    project.actor.own(disk.seen / "Coopfile")
    place = ("-C", str(project.directory))
    assert project.coop("allow", "--quiet", *place).status == 0
    with open(disk.seen / "ballast", "wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while ballast.write(bytes(1 << 16)):
            pass
    for _ in range(2):
        fails(project, f"{project.directory}/Coopfile.lock", "No space left")
        assert sorted(path.name for path in disk.seen.iterdir()) == ["Coopfile", "ballast"]
    (disk.seen / "ballast").unlink()
    assert project.coop("init", *place).status == 0
    assert (disk.seen / "Coopfile.lock").is_file()
