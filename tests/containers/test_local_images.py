"""Images in files as real engines write them, and engines that are given images from files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.engines.engine import Engine
from tests.imaged import made
from tests.native.test_local_image import layout
from tests.sandboxes import Project

KINDS = ("oci", "oci-archive", "docker-archive")
_FORMATS = {"oci": "oci-dir", "oci-archive": "oci-archive", "docker-archive": "docker-archive"}
_NAME = "localhost/coop-test/saved:v1"

ENGINES = pytest.mark.parametrize("engine", ["docker", "podman", "podman-rootless"], indirect=True)
PODMAN = pytest.mark.parametrize("engine", ["podman-rootless"], indirect=True)
Save = Callable[[str], str]


@pytest.fixture
def save(engine: Engine, project: Project) -> Iterator[Save]:
    """Yield what writes an image into the project's ``images`` and returns its ``base.image``.

    The engine forgets the image, and what coop has loaded is removed with the test.
    """
    directory = project.mkdir("images")

    def write(kind: str) -> str:
        path = directory / kind
        how = [] if engine.program == "docker" else ["--format", _FORMATS[kind]]
        engine.output(
            "build", "--tag", _NAME, "-", stdin=f"FROM {engine.image('busybox')}\nENV A=1\n".encode()
        )
        engine.output("save", *how, "--output", str(path), _NAME)
        engine.output("rmi", _NAME)
        return f"{kind}:images/{path.name}:{_NAME}"

    yield write
    for name in loaded(engine):
        engine.output("rmi", "--force", name)


def loaded(engine: Engine) -> list[str]:
    """Return the names of the images that coop has loaded."""
    names = engine.output("images", "--format", "{{.Repository}}:{{.Tag}}").split()
    return [name for name in names if name.startswith("localhost/coop-base:")]


def coopfile(project: Project, image: str, backend: str, more: str = "") -> None:
    """Write and approve a Coopfile on an image."""
    text = f"base.image = {json.dumps(image)}\nsandbox.backend = {json.dumps(backend)}\n{more}"
    project.coopfile(text)


def on(engine: Engine) -> str:
    """Return the back end that an engine is."""
    return engine.name.partition("-")[0]


@PODMAN
@pytest.mark.parametrize("kind", KINDS)
def test_what_podman_saves_runs_natively(engine: Engine, project: Project, save: Save, kind: str) -> None:
    """Every kind of file, by the name it was saved under, without a network."""
    coopfile(project, save(kind), "native")
    assert project.coop("init").status == 0
    assert project.output("echo $A; ls /bin/busybox") == "1\n/bin/busybox"
    locked = (project.directory / "Coopfile.lock").read_text()
    assert f'"{kind}:images/{kind}:{_NAME}"' in locked


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_what_docker_saves_runs_natively(engine: Engine, project: Project, save: Save) -> None:
    """Docker's archive, whichever form this version of it writes."""
    coopfile(project, save("docker-archive"), "native")
    assert project.coop("init").status == 0
    assert project.output("echo $A; ls /bin/busybox") == "1\n/bin/busybox"


@ENGINES
def test_an_engine_is_given_the_image(engine: Engine, project: Project, save: Save) -> None:
    """It is loaded once, under the name of its digest, and the file may be gone afterwards."""
    coopfile(project, save("docker-archive"), on(engine))
    refused = project.run("true")
    assert refused.status == 125 and "coop lock" in refused.err and "not locked" in refused.err
    assert project.coop("lock").status == 0
    first = project.run("sh", "-c", "echo $A; ls /bin/busybox")
    assert (first.status, first.out) == (0, "1\n/bin/busybox\n"), first
    assert "loading docker-archive:images" in first.err and len(loaded(engine)) == 1
    (project.directory / "images/docker-archive").unlink()
    again = project.run("true")
    assert again.status == 0 and "loading" not in again.err, again


@pytest.mark.parametrize("kind", ["oci", "oci-archive"])
@PODMAN
def test_podman_is_given_a_layout(engine: Engine, project: Project, save: Save, kind: str) -> None:
    """Layouts are handed on as engines take them."""
    coopfile(project, save(kind), "podman")
    assert project.coop("lock").status == 0
    assert project.output("echo $A") == "1"


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_docker_is_given_a_layout(engine: Engine, project: Project) -> None:
    """Docker itself reads none; a layer that an image has twice is there once."""
    image = made("one")
    image.layers *= 2
    image.config["rootfs"]["diff_ids"] *= 2
    layout(project, v1=image)
    coopfile(project, "oci:images/base", "docker")
    assert project.coop("lock").status == 0
    assert project.output("cat /etc/version") == "one"
    engine.output("rmi", "--force", *loaded(engine))


@pytest.mark.parametrize("engine", ["docker", "podman-rootless"], indirect=True)
def test_an_engine_builds_on_it(engine: Engine, project: Project, save: Save) -> None:
    """Set-up commands are run on the image of the file."""
    image = save("docker-archive")
    coopfile(project, image, on(engine), 'setup.network = "none"\nsetup.run = ["echo two >/which"]\n')
    assert project.coop("lock").status == 0
    result = project.run("sh", "-c", "echo $A; cat /which", timeout=300)
    assert (result.status, result.out) == (0, "1\ntwo\n"), result


@PODMAN
def test_an_engine_is_given_nothing_that_was_changed(engine: Engine, project: Project, save: Save) -> None:
    """Not another image in the place of the one that is locked, and not a damaged one."""
    coopfile(project, save("oci"), "podman")
    assert project.coop("lock").status == 0
    blobs = sorted(
        (project.directory / "images/oci/blobs/sha256").iterdir(), key=lambda path: path.stat().st_size
    )
    body = blobs[-1].read_bytes()
    blobs[-1].write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    damaged = project.run("true")
    assert damaged.status == 125 and "digest" in damaged.err and loaded(engine) == [], damaged
    for blob in blobs:
        blob.unlink()
    gone = project.run("true")
    assert gone.status == 125 and "coop lock --upgrade" in gone.err and loaded(engine) == [], gone


@PODMAN
def test_it_is_not_rendered(engine: Engine, project: Project, save: Save) -> None:
    """Text to paste would have the engine read the file unchecked; status says that it runs here."""
    coopfile(project, save("oci"), "podman")
    assert project.coop("lock").status == 0
    for target in ("podman", "docker", "dockerfile"):
        refused = project.coop("render", target)
        assert refused.status == 125 and "base.image" in refused.err, (target, refused)
    told = project.coop("status")
    assert told.status == 0 and "podman" in told.out.splitlines()[0], told
