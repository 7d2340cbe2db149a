"""Projects on small images that the tests make: a fixture for conftests to import."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from coopfile.rootfs.platforms import of_machine
from tests.sandboxes import Project
from tests.unit.rootfs.fakeregistry import FakeRegistry
from tests.unit.rootfs.images import MadeImage

BUSYBOX = Path("/bin/busybox")
TOOLS = ("cat", "chmod", "env", "id", "ls", "mkdir", "mv", "rm", "sh", "touch", "true")


def made(version: str) -> MadeImage:
    """Return an image of busybox for this machine whose /etc/version tells it from others."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, content in (
            ("bin/busybox", BUSYBOX.read_bytes()),
            ("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n"),
            ("etc/version", version.encode()),
        ):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
        for tool in TOOLS:
            member = tarfile.TarInfo(f"bin/{tool}")
            member.type, member.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(member)
    image = MadeImage(str(of_machine(os.uname().machine)), Env=["PATH=/opt/bin:/bin", "FROM_IMAGE=yes"])
    image.hold(raw.getvalue())
    return image


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """Yield a registry on the loopback interface that holds version one of ``made``."""
    found = FakeRegistry()
    found.add(made("one"), "1")
    yield found
    found.close()


@pytest.fixture
def imaged(project: Project) -> Iterator[Callable[..., Project]]:
    """Yield what puts the project on an image of busybox with some links, pipes and files more."""
    if not BUSYBOX.exists():
        pytest.skip("busybox-static is not installed")
    registry = FakeRegistry()

    def on_image(links: dict[str, str], pipes: Sequence[str] = (), **files: str) -> Project:
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w") as tar:
            contents = {"bin/busybox": BUSYBOX.read_bytes(), **{k: v.encode() for k, v in files.items()}}
            for name, content in contents.items():
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(content), 0o755
                tar.addfile(member, io.BytesIO(content))
            tools = {f"bin/{tool}": "busybox" for tool in ("cat", "ls", "mkdir", "sh", "touch", "readlink")}
            for name, target in {**tools, **links}.items():
                member = tarfile.TarInfo(name)
                member.type, member.linkname = tarfile.SYMTYPE, target
                tar.addfile(member)
            for name in pipes:
                member = tarfile.TarInfo(name)
                member.type = tarfile.FIFOTYPE
                tar.addfile(member)
        image = MadeImage(str(of_machine(os.uname().machine)))
        image.hold(raw.getvalue())
        registry.add(image, "1")
        project.coopfile(f'base.image = "{registry.address}/team/app:1"\n')
        made = project.coop("init")
        assert made.status == 0, made
        return project

    yield on_image
    registry.close()
