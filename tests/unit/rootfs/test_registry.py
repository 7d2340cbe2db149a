"""Everything from a registry arrives verified, or an error says what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from coopfile.rootfs import documents
from coopfile.rootfs.download import fetch_all
from coopfile.rootfs.model import Descriptor
from tests.unit.rootfs.fakeregistry import FakeRegistry, Handler
from tests.unit.rootfs.images import AMD64, LAYER, MadeImage, descriptor, index, of, sha256
from tests.unit.rootfs.pulls import BIG, BLOB, fails, fetch, guard, image, redirect


def test_an_image_is_found_by_tag_and_by_digest(registry: FakeRegistry, tmp_path: Path) -> None:
    """Both name the same image, and its layers arrive as they are."""
    made = registry.add(MadeImage(), "v1")
    by_tag = image(registry, "team/app:v1")
    by_digest = image(registry, f"team/app@{sha256(made.manifest)}")
    assert by_tag.layers == by_digest.layers == (of(made.layers[0]),)
    assert by_tag.digest == by_digest.digest == sha256(made.manifest)
    fetch(registry, tmp_path / "layer", by_tag.layers[0])
    assert (tmp_path / "layer").read_bytes() == made.layer
    assert os.listdir(tmp_path) == ["layer"]


@pytest.mark.parametrize("repository", ["app", "team/app", "my.org/team/app", "a/b/c/d"])
def test_repositories_are_asked_for_as_they_are(registry: FakeRegistry, repository: str) -> None:
    """A first part with a dot is not taken for a registry."""
    registry.add(MadeImage())
    image(registry, f"{repository}:latest")
    assert registry.seen[0][0] == f"/v2/{repository}/manifests/latest"


def test_docker_hub_is_where_docker_has_it() -> None:
    """docker.io is the name, registry-1.docker.io the address."""
    from coopfile.language.items import ImageReference
    from coopfile.rootfs.client import Client

    client = Client(ImageReference("docker.io", "library/debian", "12"), lambda: None)
    assert client.container.manifest_url("12") == "registry-1.docker.io/v2/library/debian/manifests/12"
    assert client.what == "docker.io/library/debian"
    client.close()


def test_an_index_from_a_registry_is_followed(registry: FakeRegistry) -> None:
    """The image of the platform is taken; the digest is the index's."""
    arm, intel = registry.add(MadeImage("linux/arm64", b"arm")), registry.add(MadeImage(name=b"intel"))
    body = index(
        arm.entry({"os": "linux", "architecture": "arm64"}),
        intel.entry({"os": "linux", "architecture": "amd64"}),
    )
    registry.put(body, documents.OCI_INDEX)
    found = image(registry)
    assert (found.digest, found.manifest.digest) == (sha256(body), sha256(intel.manifest))


def test_a_manifest_that_is_not_its_digest_is_refused(registry: FakeRegistry) -> None:
    """For a digest that was asked for, one that an index named, and one that the registry promised."""
    made = registry.add(MadeImage())
    other = MadeImage(User="1000:1001")
    registry.manifests[sha256(made.manifest)] = (made.media_type, other.manifest)
    assert "has the digest" in fails(lambda: image(registry, f"team/app@{sha256(made.manifest)}")).message
    registry.put(index(made.entry({"os": "linux", "architecture": "amd64"})), documents.OCI_INDEX)
    assert "has the digest" in fails(lambda: image(registry)).message
    registry.script(
        "/manifests/",
        lambda handler: handler.give(other.manifest, Docker_Content_Digest=f"sha256:{'0' * 64}"),
    )
    assert "has the digest" in fails(lambda: image(registry)).message


def test_a_config_that_is_not_its_digest_is_refused(registry: FakeRegistry) -> None:
    """The same size does not help it."""
    made = registry.add(MadeImage())
    registry.blobs[sha256(made.config_bytes)] = made.config_bytes.replace(b"/srv", b"/etc")
    assert "has the digest" in fails(lambda: image(registry)).message


def test_a_flipped_byte_of_a_layer_is_refused(registry: FakeRegistry, tmp_path: Path) -> None:
    """Nothing is left at the path, nor beside it."""
    registry.blobs[BLOB.digest] = BIG[:-1] + b"\0"
    error = fails(lambda: fetch(registry, tmp_path / "layer"))
    assert "has the digest" in error.message
    assert error.remedy
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("size", [len(BIG) - 1, len(BIG) + 1, 0])
def test_a_layer_of_another_size_is_refused_at_once(
    registry: FakeRegistry, tmp_path: Path, size: int
) -> None:
    """Its length tells before its content is read, and it is not tried again."""
    registry.blobs[BLOB.digest] = (BIG + b"more")[:size]
    assert f"has {size} bytes" in fails(lambda: fetch(registry, tmp_path / "layer")).message
    assert len(registry.asked("/blobs/")) == 1
    assert os.listdir(tmp_path) == []


def test_an_endless_layer_is_cut_off(registry: FakeRegistry, tmp_path: Path) -> None:
    """Without a length, no more is read than the layer may have."""
    sent = 0

    def endless(handler: Handler) -> None:
        nonlocal sent
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True
        while sent < 1 << 30:
            handler.wfile.write(BIG)
            sent += len(BIG)

    registry.script("/blobs/", endless)
    assert "bytes where the image says" in fails(lambda: fetch(registry, tmp_path / "layer")).message
    assert sent < 64 << 20
    assert os.listdir(tmp_path) == []


def test_an_endless_manifest_is_cut_off(registry: FakeRegistry) -> None:
    """A document has a bound of its own."""
    sent = 0

    def endless(handler: Handler) -> None:
        nonlocal sent
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True
        while sent < 1 << 28:
            handler.wfile.write(b" " * (1 << 20))
            sent += 1 << 20

    registry.script("/manifests/", endless)
    assert "more than 4 MiB" in fails(lambda: image(registry)).message
    assert sent < 64 << 20


def test_what_does_not_exist_is_told_as_such(registry: FakeRegistry) -> None:
    """A missing tag is not tried again."""
    assert "does not exist" in fails(lambda: image(registry, "team/app:nope")).message
    assert len(registry.seen) == 1


@pytest.mark.parametrize("status", [200, 404, 403])
def test_a_web_page_is_not_a_registry(registry: FakeRegistry, status: int) -> None:
    """Pages of captive portals and of mistyped names are recognised; their text is not shown."""
    registry.script(
        "/manifests/", lambda handler: handler.give(b"<html>\x1b[2J</html>", status, Content_Type="text/html")
    )
    error = fails(lambda: image(registry))
    if status != 403:
        assert "answers with a web page" in error.message
    assert "\x1b" not in error.message


def test_other_errors_show_what_the_registry_says(registry: FakeRegistry) -> None:
    """In one line, without what a terminal would act upon."""
    body = json.dumps({"errors": [{"code": "TEAPOT", "message": "short and\x1b[2J\nstout"}]}).encode()
    registry.script("/manifests/", lambda handler: handler.give(body, 418))
    assert fails(lambda: image(registry)).message.endswith("with status 418: short and [2J stout")


def test_an_image_in_the_old_format_is_refused(registry: FakeRegistry) -> None:
    """Schema 1 has no digests of configs; it is named."""
    registry.put(b'{"schemaVersion": 1}', "application/vnd.docker.distribution.manifest.v1+prettyjws")
    assert "old format" in fails(lambda: image(registry)).message


def test_all_blobs_are_fetched_side_by_side_and_each_once(registry: FakeRegistry, tmp_path: Path) -> None:
    """Four at a time; a layer that an image has twice is fetched once."""
    bodies = [bytes([number]) * 1000 for number in range(6)]
    together = threading.Barrier(4, timeout=5)

    def meet(handler: Handler) -> None:
        together.wait()
        registry.serve(handler)

    registry.blobs.update({sha256(body): body for body in bodies[:4]})
    registry.script("/blobs/", meet)
    blobs = [of(descriptor(body, LAYER)) for body in bodies[:4]]
    told: dict[str, int] = {}
    whole: list[str] = []
    source = registry.source()
    paths = fetch_all(
        source,
        [*blobs, blobs[0]],
        str(tmp_path),
        lambda blob, count: told.update({blob.digest: told.get(blob.digest, 0) + count}),
        lambda blob, path: whole.append(Path(path).read_bytes().decode()),
    )
    source.close()
    assert {digest: sha256(Path(path).read_bytes()) for digest, path in paths.items()} == {
        digest: digest for digest in paths
    }
    assert told == {blob.digest: 1000 for blob in blobs}
    assert len(registry.asked("/blobs/")) == len(whole) == 4


def test_sha512_is_a_digest_too(registry: FakeRegistry, tmp_path: Path) -> None:
    """The specification has two algorithms; both are checked."""
    digest = documents.digest_of("sha512", BIG)
    registry.blobs[digest] = BIG
    fetch(registry, tmp_path / "layer", Descriptor(LAYER, digest, len(BIG)))
    registry.blobs[digest] = BIG[:-1] + b"\0"
    fails(lambda: fetch(registry, tmp_path / "other", Descriptor(LAYER, digest, len(BIG))))
    assert os.listdir(tmp_path) == ["layer"]


def test_a_connection_is_used_again(registry: FakeRegistry, tmp_path: Path) -> None:
    """For the token, documents, redirects and blobs; the first one asks for TLS."""
    made = registry.add(MadeImage())
    guard(registry, "t0ken")
    registry.script("/blobs/", lambda handler: redirect(handler, handler.path.replace("/blobs/", "/stored/")))
    registry.script("/stored/", lambda handler: handler.give(made.blobs[handler.path.rpartition("/")[2]]))
    source = registry.source()
    found = source.image(AMD64)
    source.fetch(found.layers[0], str(tmp_path / "layer"))
    source.close()
    assert len(registry.seen) == 7
    assert registry.connections == 2


def test_registries_cost_nothing_until_one_is_asked() -> None:
    """oras and requests are imported with the first source of theirs."""
    script = "import sys, coopfile.rootfs.registry, coopfile.rootfs.local, coopfile.rootfs.download\n"
    script += "print(*{'oras', 'requests', 'urllib3', 'jsonschema', 'ssl'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "\n"
