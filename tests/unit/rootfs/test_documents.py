"""Manifests, indexes and configs, and what is refused of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.errors import CoopError
from coopfile.rootfs import documents
from coopfile.rootfs.model import Descriptor, ImageConfig, Platform
from coopfile.rootfs.resolve import resolve
from tests.unit.rootfs.images import AMD64, LAYER, MadeImage, descriptor, index, of, sha256


def resolved(
    body: bytes, media_type: str, *images: MadeImage, platform: Platform = AMD64, more: Any = ()
) -> Any:
    """Resolve a document whose images are at hand."""
    held = {sha256(one): one for one in (body, *more)}
    for image in images:
        held.update({**image.blobs, sha256(image.manifest): image.manifest})
    top = Descriptor(media_type, sha256(body), len(body))
    return resolve("app:1", "app:1", top, body, platform, lambda blob: held[blob.digest])


def alone(image: MadeImage) -> Any:
    """Resolve an image that no index names."""
    return resolved(image.manifest, image.media_type, image)


def test_an_image_is_what_its_documents_say() -> None:
    """Config, layers and digests come from the documents, in order."""
    image = MadeImage(Entrypoint=["/bin/app"], Cmd=["-v"])
    found = alone(image)
    assert found.digest == found.manifest.digest == sha256(image.manifest)
    assert found.layers == (of(image.layers[0]),)
    assert found.config == ImageConfig(
        platform=AMD64,
        environment=(("PATH", "/bin"), ("A", "b=c")),
        user="1000:1000",
        directory="/srv",
        entrypoint=("/bin/app",),
        command=("-v",),
        diff_ids=(sha256(image.tar),),
    )


@pytest.mark.parametrize("kind", ["oci", "docker"])
def test_an_index_leads_to_the_image_of_the_platform(kind: str) -> None:
    """OCI indexes and Docker's lists name images; attestations beside them are not images."""
    images = [MadeImage("linux/arm64", b"arm"), MadeImage("linux/amd64", b"intel")]
    if kind == "docker":
        for image in images:
            image.media_type, image.config_type = documents.DOCKER_MANIFEST, documents.DOCKER_CONFIG
            image.layers[0]["mediaType"] = "application/vnd.docker.image.rootfs.diff.tar.gzip"
    attestation = MadeImage("unknown/unknown", b"signed")
    body = index(
        attestation.entry({"os": "unknown", "architecture": "unknown"}),
        attestation.entry(
            {"os": "linux", "architecture": "amd64"},
            annotations={"vnd.docker.reference.type": "attestation-manifest"},
        ),
        images[0].entry({"os": "linux", "architecture": "arm64", "variant": "v8"}),
        images[1].entry({"os": "linux", "architecture": "amd64"}),
        media_type=documents.OCI_INDEX if kind == "oci" else documents.DOCKER_LIST,
    )
    found = resolved(body, "", *images)
    assert found.digest == sha256(body)
    assert found.manifest.digest == sha256(images[1].manifest)
    assert found.config.platform == AMD64


def test_an_index_of_attestations_alone_names_no_platform() -> None:
    """What is left is an error, not the attestation."""
    body = index(MadeImage().entry({"os": "unknown", "architecture": "unknown"}))
    with pytest.raises(CoopError, match=r"is not there for linux/amd64$"):
        resolved(body, "")


def test_indexes_may_be_nested_but_not_for_ever() -> None:
    """Layouts have an index within an index; a long chain is refused."""
    image = MadeImage()
    body = index(image.entry({"os": "linux", "architecture": "amd64"}))
    held: list[bytes] = []
    for depth in range(4):
        if depth < 3:
            assert resolved(body, documents.OCI_INDEX, image, more=held).layers
        held.append(body)
        body = index(descriptor(body, documents.OCI_INDEX))
    with pytest.raises(CoopError, match="nested too deep"):
        resolved(body, documents.OCI_INDEX, image, more=held)


def test_a_manifest_for_another_platform_is_refused() -> None:
    """Without an index the config tells what the image is for."""
    image = MadeImage("linux/arm64")
    with pytest.raises(CoopError) as error:
        alone(image)
    assert error.value.message == "app:1 is not there for linux/amd64, only for linux/arm64"


@pytest.mark.parametrize(
    ("media_type", "compression"),
    [
        ("application/vnd.oci.image.layer.v1.tar", ""),
        ("application/vnd.oci.image.layer.v1.tar+gzip", "gzip"),
        ("application/vnd.oci.image.layer.v1.tar+zstd", "zstd"),
        ("application/vnd.docker.image.rootfs.diff.tar", ""),
        ("application/vnd.docker.image.rootfs.diff.tar.gzip", "gzip"),
        ("application/vnd.docker.image.rootfs.diff.tar.zstd", "zstd"),
    ],
)
def test_layers_may_be_plain_gzip_or_zstd(media_type: str, compression: str) -> None:
    """Every media type of a layer is known with its compression."""
    image = MadeImage()
    image.layers[0]["mediaType"] = media_type
    assert alone(image).layers[0].media_type == media_type
    assert documents.LAYERS[media_type] == compression


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"urls": ["https://elsewhere.example/layer"]}, "at other addresses"),
        ({"mediaType": "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"}, "at other addresses"),
        ({"mediaType": "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"}, "at other addresses"),
        ({"mediaType": f"{LAYER}+encrypted"}, "encrypted"),
        ({"mediaType": "application/wasm"}, "unknown kind"),
        ({"mediaType": "a\x1b[2Jb"}, "no media type"),
        ({"digest": "sha256:../../../etc/passwd"}, "is not a digest"),
        ({"digest": "md5:d41d8cd98f00b204e9800998ecf8427e"}, "is not a digest"),
        ({"digest": f"sha256:{'A' * 64}"}, "is not a digest"),
        ({"digest": None}, "is not a digest"),
        ({"size": -1}, "no possible size"),
        ({"size": True}, "no possible size"),
        ({"size": "12"}, "no possible size"),
        ({"size": 1 << 50}, "no possible size"),
    ],
)
def test_layers_that_cannot_be_had_are_refused(change: dict[str, Any], said: str) -> None:
    """Foreign, encrypted and malformed layers are errors before anything is downloaded."""
    image = MadeImage()
    image.layers[0].update(change)
    with pytest.raises(CoopError, match=said) as error:
        alone(image)
    assert error.value.remedy
    assert "\x1b" not in error.value.message


def _many_layers(image: MadeImage) -> None:
    image.layers *= 501


def _big_layers(image: MadeImage) -> None:
    image.layers[0]["size"] = 40 << 30
    image.layers.append(image.layers[0])


def _artifact(image: MadeImage) -> None:
    image.config_type = "application/vnd.cncf.helm.config.v1+json"


def _both(image: MadeImage) -> None:
    image.more = {"manifests": []}


def _big_config(image: MadeImage) -> None:
    image.more = {"config": {**descriptor(b"", documents.OCI_CONFIG), "size": 5 << 20}}


def _no_config(image: MadeImage) -> None:
    image.more = {"config": None}


def _other_type(image: MadeImage) -> None:
    image.more = {"mediaType": documents.OCI_INDEX}


def _strange_type(image: MadeImage) -> None:
    image.more = {"mediaType": "text/plain"}


def _schema_one(image: MadeImage) -> None:
    image.more = {"schemaVersion": 1}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_many_layers, "more than 500 layers"),
        (_big_layers, "more than 64 GiB"),
        (_artifact, "is not an image: it holds application/vnd.cncf.helm.config.v1.json"),
        (_both, "neither an index nor a manifest"),
        (_big_config, "more than 4 MiB"),
        (_no_config, "a descriptor is missing"),
        (_other_type, "it says it is application/vnd.oci.image.index"),
        (_strange_type, "its media type is text/plain"),
        (_schema_one, "old format"),
    ],
)
def test_manifests_that_are_no_images_are_refused(change: Any, said: str) -> None:
    """Bounds, artifacts, ambiguous documents and Docker's schema 1 are errors."""
    image = MadeImage()
    change(image)
    with pytest.raises(CoopError, match=said):
        alone(image)


def test_schema_one_is_known_by_its_media_type() -> None:
    """What registries still serve of it is named, with what to do."""
    with pytest.raises(CoopError, match="old format") as error:
        resolved(b"{}", "application/vnd.docker.distribution.manifest.v1+prettyjws")
    assert "push it again" in str(error.value.remedy)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("config", "x", "form"),
        ("config", {"Env": "A=b"}, "Env"),
        ("config", {"Env": [1]}, "Env"),
        ("config", {"Env": ["A=\0"]}, "Env"),
        ("config", {"Env": ["A=\ud800"]}, "Unicode"),
        ("config", {"Env": ["A=b"] * 10_001}, "Env"),
        ("config", {"User": ["root"]}, "User"),
        ("config", {"User": "u" * 300}, "User"),
        ("config", {"WorkingDir": 1}, "WorkingDir"),
        ("config", {"WorkingDir": "/" + "d" * 5000}, "WorkingDir"),
        ("config", {"Cmd": "sh"}, "Cmd"),
        ("rootfs", None, "form"),
        ("rootfs", {"diff_ids": ["x"]}, "diff_ids"),
        ("rootfs", {"diff_ids": []}, "0 layers, its manifest 1"),
        ("os", 1, "platform"),
        ("architecture", "a\nb", "platform"),
    ],
)
def test_configs_are_bounded(key: str, value: Any, said: str) -> None:
    """A config that is not one is an error, whatever is wrong with it."""
    image = MadeImage()
    image.config[key] = value
    with pytest.raises(CoopError, match=said):
        alone(image)


@pytest.mark.parametrize("missing", ["config", "Env", "User", "WorkingDir"])
def test_what_a_config_leaves_out_is_empty(missing: str) -> None:
    """Absent and null mean the same: nothing is set."""
    image = MadeImage()
    if missing == "config":
        image.config["config"] = None
    else:
        image.config["config"][missing] = None
    config = alone(image).config
    fields = {"config": "user", "Env": "environment", "User": "user", "WorkingDir": "directory"}
    assert not getattr(config, fields[missing])


def test_environment_and_directory_are_as_engines_have_them() -> None:
    """The last value of a name counts, names alone set nothing, and a directory is absolute."""
    image = MadeImage(Env=["A=1", "B", "=x", "A=2"], WorkingDir="app/../srv//")
    config = alone(image).config
    assert config.environment == (("A", "2"),)
    assert config.directory == "/srv"


KEYS = (
    "config",
    "layers",
    "rootfs",
    "diff_ids",
    "digest",
    "size",
    "manifests",
    "platform",
    "mediaType",
    "Env",
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(ANYTHING)
def test_documents_of_any_form_end_in_a_coop_error(content: Any) -> None:
    """Whatever JSON a stranger writes, it is an image or a CoopError."""
    body = json.dumps(content).encode()
    for read in (
        lambda: resolved(body, ""),
        lambda: documents.read_config("app", body, None),
        lambda: documents.read_manifest("app", documents.read_object("app", body)),
    ):
        try:
            read()
        except CoopError:
            pass


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[" * 100_000, b'"\xff"', b"1" * 5000, b"[]", b" " * (5 << 20)]
)
def test_what_is_no_json_object_is_an_error(body: bytes) -> None:
    """Deep, long and malformed texts are errors, not crashes."""
    with pytest.raises(CoopError):
        documents.read_object("app", body)


def test_text_of_strangers_is_shown_in_one_line() -> None:
    """Escape sequences and floods do not reach the terminal."""
    assert documents.printable("a\x1b[2Jb\r\nc\u202e") == "a [2Jb c"
    assert len(documents.printable("x" * 1000)) == 200
