"""Sandboxes on images in local files: no registry, and nothing but what the lock says."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from tests.imaged import BUSYBOX, made
from tests.sandboxes import Project
from tests.unit.rootfs.images import MadeImage, index, layout_files, sha256

NAME = "org.opencontainers.image.ref.name"
ARM = {"os": "linux", "architecture": "arm64"}
INTEL = {"os": "linux", "architecture": "amd64"}

pytestmark = pytest.mark.skipif(not BUSYBOX.exists(), reason="busybox-static is not installed")


@pytest.fixture
def offline(project: Project) -> Project:
    """Return a project whose coop has no network at all, not even a loopback interface that is up."""
    project.wrap = ("unshare", "--user", "--map-current-user", "--net")
    return project


def layout(project: Project, name: str = "images/base", **tags: MadeImage) -> Path:
    """Write an OCI layout of images by their tags into the workspace, or to an absolute path."""
    body = index(*(image.entry(None, annotations={NAME: tag}) for tag, image in tags.items()))
    return written(project, name, layout_files(body, *tags.values()))


def written(project: Project, name: str, files: dict[str, bytes]) -> Path:
    """Write files of the actor's below a directory."""
    for file, content in files.items():
        project.write(f"{name}/{file}", content)
    return project.directory / name


def archive(project: Project, name: str, *tags: str) -> Path:
    """Write what ``docker save`` writes: an image of its own for each tag, whose version is the tag."""
    raw, lines = io.BytesIO(), []
    with tarfile.open(fileobj=raw, mode="w") as tar:

        def add(name: str, content: bytes) -> None:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))

        for tag in tags:
            image = made(tag)
            config = f"{sha256(image.config_bytes)[7:]}.json"
            lines.append({"Config": config, "RepoTags": [f"app:{tag}"], "Layers": [f"{tag}/layer.tar"]})
            add(config, image.config_bytes)
            add(f"{tag}/layer.tar", image.tar)
        add("manifest.json", json.dumps(lines).encode())
    return project.write(name, raw.getvalue())


def on(project: Project, image: str, more: str = "") -> None:
    """Write and approve a Coopfile on an image."""
    project.coopfile(f"base.image = {json.dumps(image)}\n{more}")


def version(project: Project) -> str:
    """Return which image a run has."""
    return project.output("cat /etc/version")


def store(project: Project) -> list[Path]:
    """Return the stages in the actor's store."""
    return sorted((project.home / ".local/share/coop/rootfs/stages").glob("*"))


def test_a_layout(offline: Project) -> None:
    """Locked, unpacked and run without a network; later the file is needed no more."""
    image = made("one")
    path = layout(offline, v1=image)
    on(offline, "oci:images/base")
    refused = offline.run("true")
    assert refused.status == 125 and "coop init" in refused.err
    assert offline.coop("init").status == 0
    assert offline.output("cat /etc/version; echo $FROM_IMAGE") == "oneyes"
    lock = (offline.directory / "Coopfile.lock").read_text()
    assert 'image = "oci:images/base"' in lock and sha256(image.manifest) in lock
    assert str(offline.directory) not in lock + offline.coop("plan", "--json").out, "both are portable"
    path.rename(path.with_name("away"))
    assert version(offline) == "one"


@pytest.mark.parametrize("form", ["~/saved images/base.tar", "{home}/saved images/base.tar"])
def test_a_saved_archive(offline: Project, form: str) -> None:
    """Its path may be absolute or below the home; of several images the name says which."""
    path = f"docker-archive:{form.format(home=offline.home)}"
    archive(offline, f"{offline.home}/saved images/base.tar", "one", "two")
    on(offline, path)
    refused = offline.coop("init")
    assert refused.status == 125 and "app:one, app:two" in refused.err
    on(offline, f"{path}:app:two")
    assert offline.coop("init").status == 0
    assert version(offline) == "two"


def test_several_platforms(offline: Project) -> None:
    """One lock serves every machine: it has the index's digest, and each takes its own image."""
    here = made("here")
    there = made("there")
    ours, theirs = (INTEL, ARM) if os.uname().machine == "x86_64" else (ARM, INTEL)
    there.config["architecture"] = theirs["architecture"]
    inner = index(there.entry(theirs), here.entry(ours))
    body = index(
        {"mediaType": "application/vnd.oci.image.index.v1+json", "digest": sha256(inner), "size": len(inner)}
    )
    written(offline, "images/base", layout_files(body, here, there, more=(inner,)))
    on(offline, "oci:images/base")
    assert offline.coop("init").status == 0
    assert sha256(inner) in (offline.directory / "Coopfile.lock").read_text()
    assert version(offline) == "here"


def test_another_platform_alone_is_refused(offline: Project) -> None:
    """The error names what there is."""
    image = made("there")
    image.config["architecture"] = "s390x"
    layout(offline, v1=image)
    on(offline, "oci:images/base")
    refused = offline.coop("init")
    assert refused.status == 125 and "linux/s390x" in refused.err and store(offline) == []


def test_a_moved_tag(offline: Project) -> None:
    """The lock keeps the image while the layout has it; renewed, it is the tag's new one."""
    one, two = made("one"), made("two")
    path = layout(offline, v1=one)
    on(offline, "oci:images/base:v1")
    assert offline.coop("lock").status == 0
    written(offline, "images/base", layout_files(index(two.entry(None, annotations={NAME: "v1"})), two))
    assert offline.coop("init").status == 0
    assert version(offline) == "one"
    renewed = offline.coop("lock", "--upgrade")
    assert renewed.status == 0 and "(was sha256:" in renewed.err
    assert offline.coop("init").status == 0
    assert version(offline) == "two"
    assert path.is_dir()


@pytest.mark.parametrize("transport", ["oci", "docker-archive"])
def test_a_file_that_was_made_anew_is_not_used(offline: Project, transport: str) -> None:
    """What a sandboxed command puts in the file's place is refused until its owner says otherwise."""
    image = f"{transport}:images/base"
    if transport == "oci":
        layout(offline, v1=made("one"))
    else:
        archive(offline, "images/base", "one")
    on(offline, image)
    assert offline.coop("lock").status == 0
    if transport == "oci":
        for path in sorted((offline.directory / "images/base/blobs/sha256").iterdir()):
            path.unlink()
        layout(offline, v1=made("evil"))
    else:
        archive(offline, "images/base", "evil")
    refused = offline.coop("init")
    assert refused.status == 125 and "coop lock --upgrade" in refused.err and store(offline) == []
    assert offline.coop("lock", "--upgrade").status == 0
    assert offline.coop("init").status == 0
    assert version(offline) == "evil"


@pytest.mark.parametrize("which", ["manifest", "config", "layer"])
def test_a_tampered_blob(offline: Project, which: str) -> None:
    """A file under the right name with another content is refused, and nothing of it is kept."""
    image = made("one")
    path = layout(offline, v1=image)
    on(offline, "oci:images/base")
    assert offline.coop("lock").status == 0
    body = {"manifest": image.manifest, "config": image.config_bytes, "layer": image.layer}[which]
    blob = path / "blobs/sha256" / sha256(body)[7:]
    blob.write_bytes(body[:-9] + bytes([body[-9] ^ 1]) + body[-8:])
    refused = offline.coop("init")
    assert refused.status == 125 and "digest" in refused.err and "Traceback" not in refused.err
    assert store(offline) == []


def test_a_link_leads_to_no_image_of_the_callers(offline: Project) -> None:
    """A sandboxed command cannot point the file's path at an image that it was not given."""
    layout(offline, f"{offline.home}/private", v1=made("private"))
    offline.link("images/base", f"{offline.home}/private")
    on(offline, "oci:images/base")
    for verb in (["lock"], ["init"]):
        refused = offline.coop(*verb)
        assert refused.status == 125 and "symbolic link" in refused.err, refused
    assert not (offline.directory / "Coopfile.lock").exists()


def test_a_pipe_is_not_waited_for(offline: Project) -> None:
    """Whatever a sandboxed command leaves where the file was, coop says so at once."""
    offline.mkdir("images")
    os.mkfifo(offline.directory / "images/base.tar")
    on(offline, "docker-archive:images/base.tar")
    refused = offline.coop("init")
    assert refused.status == 125 and "is not a file" in refused.err


def test_an_image_in_a_file_needs_approval(offline: Project) -> None:
    """A repository cannot bring in an image of its own that nobody approved, nor change which."""
    layout(offline, v1=made("one"))
    layout(offline, "other", v1=made("two"))
    on(offline, "oci:images/base")
    assert offline.coop("init").status == 0
    offline.coopfile('base.image = "oci:other"\n', allow=False)
    for verb in (["init"], ["lock", "--upgrade"]):
        refused = offline.coop(*verb)
        assert refused.status == 125 and "coop allow" in refused.err, (verb, refused)
    own = offline.run("cat", "/etc/version", options=["--set", "base.image=oci:images/base"])
    assert (own.status, own.out) == (0, "one"), own


def test_the_same_image_is_one_stage(offline: Project) -> None:
    """What counts is the digest: where it came from makes no other root file system."""
    image = made("one")
    layout(offline, v1=image)
    layout(offline, "copy", v1=image)
    for path in ("oci:images/base", "oci:copy:v1"):
        on(offline, path)
        assert offline.coop("lock", "--upgrade").status == 0
        assert offline.coop("init").status == 0
    assert len(store(offline)) == 1 and version(offline) == "one"
