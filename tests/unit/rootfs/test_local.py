"""Images on disk: layouts, saved archives, and what neither may make coop read."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coopfile.errors import CoopError
from coopfile.rootfs import documents
from coopfile.rootfs.download import fetch_all
from coopfile.rootfs.local import open_local
from coopfile.rootfs.model import Descriptor
from tests.unit.rootfs.images import AMD64, LAYER, MadeImage, index, layout_files, of, sha256

LINUX = {"os": "linux", "architecture": "amd64"}
ARM = {"os": "linux", "architecture": "arm64"}
NAME = "org.opencontainers.image.ref.name"


def layout(base: Path, body: bytes, *images: MadeImage, more: tuple[bytes, ...] = ()) -> Path:
    """Write a layout with an index."""
    path = base / "layout"
    for name, content in layout_files(body, *images, more=more).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def resolved(transport: str, path: Path, name: str = "") -> Any:
    """Resolve an image on disk for linux/amd64."""
    source = open_local(transport, str(path), name)
    try:
        return source.image(AMD64)
    finally:
        source.close()


def fetched(transport: str, path: Path, base: Path, name: str = "") -> list[bytes]:
    """Return the layers of an image on disk, fetched as a store would."""
    source = open_local(transport, str(path), name)
    try:
        image = source.image(AMD64)
        (base / "out").mkdir()
        paths = fetch_all(source, image.layers, str(base / "out"))
        return [Path(paths[layer.digest]).read_bytes() for layer in image.layers]
    finally:
        source.close()


def fails(call: Callable[[], Any]) -> CoopError:
    """Return the error that a call has to end in."""
    with pytest.raises(CoopError) as error:
        call()
    return error.value


def archive(path: Path, members: dict[str, bytes | str], how: str = "w") -> Path:
    """Write a tar archive; text is the target of a symbolic link."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    path.write_bytes(gzip.compress(raw.getvalue()) if how == "gz" else raw.getvalue())
    return path


def saved(image: MadeImage, *tags: str, layer: bytes | None = None) -> dict[str, bytes | str]:
    """Return the members of what docker saved until its version 24."""
    digits = sha256(image.config_bytes)[7:]
    lines = [{"Config": f"{digits}.json", "RepoTags": list(tags) or None, "Layers": ["one/layer.tar"]}]
    return {
        f"{digits}.json": image.config_bytes,
        "one/layer.tar": image.tar if layer is None else layer,
        "manifest.json": json.dumps(lines).encode(),
    }


def test_a_layout_with_one_image_needs_no_name(tmp_path: Path) -> None:
    """The only one is taken, whatever it is called."""
    made = MadeImage()
    path = layout(tmp_path, index(made.entry(None, annotations={NAME: "v1"})), made)
    image = resolved("oci", path)
    assert image.reference == f"oci:{path}"
    assert image.digest == sha256(made.manifest)
    assert image.layers == (of(made.layers[0]),)
    assert fetched("oci", path, tmp_path) == [made.layer]


def test_a_tag_chooses_among_several(tmp_path: Path) -> None:
    """Without one, and with a wrong one, the error names those there are."""
    one, two = MadeImage(name=b"one"), MadeImage(name=b"two")
    body = index(one.entry(None, annotations={NAME: "v1"}), two.entry(None, annotations={NAME: "v2"}))
    path = layout(tmp_path, body, one, two)
    assert resolved("oci", path, "v2").digest == sha256(two.manifest)
    assert "v1, v2" in str(fails(lambda: resolved("oci", path)).remedy)
    assert "v1, v2" in str(fails(lambda: resolved("oci", path, "v3")).remedy)


@pytest.mark.parametrize("nested", [True, False])
def test_a_layout_may_hold_several_platforms(tmp_path: Path, nested: bool) -> None:
    """As an index within its own, or in its own; attestations are left out."""
    arm, intel = MadeImage("linux/arm64", b"arm"), MadeImage(name=b"intel")
    signed = MadeImage("unknown/unknown").entry({"os": "unknown", "architecture": "unknown"})
    inner = index(arm.entry(ARM), intel.entry(LINUX), signed)
    body = index({"mediaType": documents.OCI_INDEX, "digest": sha256(inner), "size": len(inner)})
    path = layout(tmp_path, body if nested else inner, arm, intel, more=(inner,))
    image = resolved("oci", path)
    assert image.manifest.digest == sha256(intel.manifest)
    assert image.digest == sha256(inner)


def test_a_layout_for_another_platform_is_refused(tmp_path: Path) -> None:
    """The platforms that are there are named."""
    arm = MadeImage("linux/arm64")
    assert (
        "only for linux/arm64"
        in fails(lambda: resolved("oci", layout(tmp_path, index(arm.entry(ARM)), arm))).message
    )


@pytest.mark.parametrize("where", ["blob", "blobs", "sha256"])
def test_links_in_a_layout_are_not_followed(tmp_path: Path, where: str) -> None:
    """A layout cannot make coop read a file of the host's, though its content were the right one."""
    made = MadeImage()
    path = layout(tmp_path, index(made.entry(None)), made)
    outside = tmp_path / "outside"
    victim = {
        "blob": path / "blobs/sha256" / made.layers[0]["digest"][7:],
        "blobs": path / "blobs",
        "sha256": path / "blobs/sha256",
    }[where]
    victim.rename(outside)
    victim.symlink_to(outside)
    assert "cannot be read" in fails(lambda: fetched("oci", path, tmp_path)).message


@pytest.mark.parametrize("transport", ["oci", "docker-archive"])
@pytest.mark.parametrize("where", ["itself", "above"])
def test_no_link_leads_to_an_image(tmp_path: Path, transport: str, where: str) -> None:
    """A sandboxed command could have made it, to get at an image that it was never given."""
    held, made = tmp_path / "held", MadeImage()
    held.mkdir()
    if transport == "oci":
        path = layout(held, index(made.entry(None)), made)
    else:
        path = archive(held / "saved.tar", saved(made))
    link = tmp_path / "link"
    link.symlink_to(path if where == "itself" else held)
    error = fails(lambda: resolved(transport, link if where == "itself" else link / path.name))
    assert "link is a symbolic link" in error.message and error.remedy


def test_a_pipe_in_a_layout_is_not_waited_for(tmp_path: Path) -> None:
    """What is no file is an error."""
    made = MadeImage()
    path = layout(tmp_path, index(made.entry(None)), made)
    (path / "index.json").unlink()
    os.mkfifo(path / "index.json")
    assert "is not a file" in fails(lambda: resolved("oci", path)).message


@pytest.mark.parametrize("content", [b"short", None])
def test_a_damaged_blob_of_a_layout_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """Another size, and another content of the same size; nothing is left of it."""
    made = MadeImage()
    path = layout(tmp_path, index(made.entry(None)), made)
    blob = path / "blobs/sha256" / made.layers[0]["digest"][7:]
    blob.write_bytes(made.layer[:-2] + b"xx" if content is None else content)
    fails(lambda: fetched("oci", path, tmp_path))
    assert os.listdir(tmp_path / "out") == []


@pytest.mark.parametrize("marker", ['{"imageLayoutVersion": "2.0.0"}', "{}", "x"])
def test_what_is_no_layout_is_refused(tmp_path: Path, marker: str) -> None:
    """Its marker has to be there and of version 1."""
    made = MadeImage()
    path = layout(tmp_path, index(made.entry(None)), made)
    (path / "oci-layout").write_text(marker)
    fails(lambda: resolved("oci", path))
    (path / "oci-layout").unlink()
    assert "oci-layout cannot be read" in fails(lambda: resolved("oci", path)).message
    assert "cannot be read" in fails(lambda: resolved("oci", path / "none")).message


@pytest.mark.parametrize("how", ["w", "gz"])
def test_a_saved_archive_is_an_image(tmp_path: Path, how: str) -> None:
    """Its id is the config's digest; layers are called by what they unpack to."""
    made = MadeImage()
    path = archive(tmp_path / "saved.tar", saved(made, "app:v1"), how)
    image = resolved("docker-archive", path)
    assert image.digest == sha256(made.config_bytes)
    assert image.config.user == "1000:1000"
    assert image.layers == (
        Descriptor("application/vnd.oci.image.layer.v1.tar", sha256(made.tar), len(made.tar)),
    )
    assert fetched("docker-archive", path, tmp_path) == [made.tar]


def test_a_saved_archive_may_have_compressed_layers(tmp_path: Path) -> None:
    """Then the digest is that of the compressed bytes."""
    made = MadeImage()
    path = archive(tmp_path / "saved.tar", saved(made, layer=made.layer))
    assert resolved("docker-archive", path).layers == (
        Descriptor(LAYER, sha256(made.layer), len(made.layer)),
    )
    assert fetched("docker-archive", path, tmp_path) == [made.layer]


def test_links_within_a_saved_archive_are_followed_by_name(tmp_path: Path) -> None:
    """Docker wrote a layer that two images share once."""
    made = MadeImage()
    members = saved(made)
    members["two/layer.tar"] = members.pop("one/layer.tar")
    members["one/layer.tar"] = "../two/layer.tar"
    assert fetched("docker-archive", archive(tmp_path / "saved.tar", members), tmp_path) == [made.tar]


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../etc/passwd", "../one/layer.tar", "gone"])
def test_links_of_a_saved_archive_lead_nowhere_else(tmp_path: Path, target: str) -> None:
    """Not to the host's files, and not round in a circle."""
    members = saved(MadeImage())
    members["one/layer.tar"] = target
    path = archive(tmp_path / "saved.tar", members)
    assert "holds no" in fails(lambda: resolved("docker-archive", path)).message


@pytest.mark.parametrize(
    ("wanted", "there"),
    [
        ("app:v1", "app:v1"),
        ("docker.io/library/app:v1", "app:v1"),
        ("app", "app:latest"),
        ("team/app:v1", "docker.io/team/app:v1"),
        ("ghcr.io/team/app:v1", "ghcr.io/team/app:v1"),
    ],
)
def test_a_name_chooses_in_a_saved_archive(tmp_path: Path, wanted: str, there: str) -> None:
    """Docker leaves its own registry out; other names do not match."""
    one, two = MadeImage(name=b"one"), MadeImage(name=b"two")
    first, second = saved(one, there), saved(two, "other:v1")
    second["two/layer.tar"] = second.pop("one/layer.tar")
    lines = json.loads(first["manifest.json"]) + json.loads(second["manifest.json"])
    lines[1]["Layers"] = ["two/layer.tar"]
    path = archive(tmp_path / "saved.tar", {**first, **second, "manifest.json": json.dumps(lines).encode()})
    assert resolved("docker-archive", path, wanted).digest == sha256(one.config_bytes)
    assert there in str(fails(lambda: resolved("docker-archive", path)).remedy)
    assert there in str(fails(lambda: resolved("docker-archive", path, "nope:v1")).remedy)


def test_a_saved_layer_that_is_not_its_diff_id_is_refused(tmp_path: Path) -> None:
    """A plain layer is verified by it."""
    made = MadeImage()
    path = archive(tmp_path / "saved.tar", saved(made, layer=made.tar[:-1] + b"x"))
    assert "has the digest" in fails(lambda: fetched("docker-archive", path, tmp_path)).message


def as_layout(made: MadeImage, name: str = "v1") -> dict[str, bytes | str]:
    """Return the members of a layout in an archive."""
    return {**layout_files(index(made.entry(None, annotations={NAME: name})), made)}


def test_what_docker_saves_today_is_read_by_its_own_names(tmp_path: Path) -> None:
    """Such an archive is a layout and has a manifest.json as well, with whole names."""
    made = MadeImage()
    layer, config = made.layers[0]["digest"][7:], sha256(made.config_bytes)[7:]
    line = {
        "Config": f"blobs/sha256/{config}",
        "RepoTags": ["app:v1"],
        "Layers": [f"blobs/sha256/{layer}"],
    }
    members = {**as_layout(made), "manifest.json": json.dumps([line]).encode()}
    path = archive(tmp_path / "saved.tar", members)
    assert resolved("docker-archive", path, "app:v1").digest == sha256(made.config_bytes)
    assert fetched("docker-archive", path, tmp_path) == [made.layer]


@pytest.mark.parametrize("transport", ["docker-archive", "oci-archive"])
def test_a_layout_in_an_archive_is_an_image(tmp_path: Path, transport: str) -> None:
    """Under either name, if it has no manifest.json."""
    made = MadeImage()
    path = archive(tmp_path / "saved.tar", as_layout(made))
    assert resolved(transport, path, "v1").digest == sha256(made.manifest)
    assert fetched(transport, path, tmp_path) == [made.layer]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a tar archive|oci-layout"),
        (b"no tar" * 1000, "not a tar archive"),
        (b"\x1f\x8b not gzip", "cannot be decompressed"),
        (gzip.compress(b"no tar" * 1000, mtime=0), "not a tar archive"),
        (gzip.compress(b"x" * 100_000, mtime=0)[:50], "cannot be decompressed"),
    ],
    ids=["nothing", "text", "no gzip", "gzip of text", "cut gzip"],
)
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    """With the reason."""
    path = tmp_path / "saved.tar"
    path.write_bytes(content)
    with pytest.raises(CoopError, match=said):
        resolved("docker-archive", path)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_headers_are_bounded(tmp_path: Path, kind: bytes) -> None:
    """A file of holes that says it is one long header takes no memory, nor do very many short ones."""
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 1 << 40
    path = tmp_path / "saved.tar"
    with path.open("wb") as file:
        file.write(header.tobuf(tarfile.GNU_FORMAT))
        file.truncate(1 << 41)
    assert "too long" in fails(lambda: resolved("docker-archive", path)).message
    header.size = 8000
    one = header.tobuf(tarfile.GNU_FORMAT) + bytes(8192)
    with path.open("wb") as file:
        for _ in range(5000):
            file.write(one)
    fails(lambda: resolved("docker-archive", path))


def test_an_archive_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    """Wherever it ends."""
    whole = archive(tmp_path / "saved.tar", saved(MadeImage())).read_bytes()
    path = tmp_path / "cut.tar"
    for length in (100, 600, 1500, 3000):
        path.write_bytes(whole[:length])
        fails(lambda: fetched("docker-archive", path, tmp_path))


@pytest.mark.parametrize(
    "lines",
    [
        b"{}",
        b"[]",
        b"[1]",
        b'[{"Config": 1, "Layers": []}]',
        b'[{"Config": "gone.json", "Layers": []}]',
        b'[{"Config": "../../etc/passwd", "Layers": ["/etc/passwd"]}]',
        b'[{"Config": "manifest.json", "Layers": 1}]',
        b'[{"RepoTags": 5}]',
    ],
)
def test_a_manifest_of_an_archive_that_makes_no_sense_is_refused(tmp_path: Path, lines: bytes) -> None:
    """Whatever stands in it."""
    path = archive(tmp_path / "saved.tar", {"manifest.json": lines})
    fails(lambda: resolved("docker-archive", path))


def test_a_missing_archive_is_told(tmp_path: Path) -> None:
    """So is a directory, and a pipe is not waited for."""
    os.mkfifo(tmp_path / "pipe")
    for name, said in (("none", "cannot be read"), ("pipe", "is not a file"), (".", "is not a file")):
        error = fails(lambda: resolved("docker-archive", tmp_path / name))  # noqa: B023
        assert said in error.message and "docker save" in str(error.remedy)


def test_directories_on_the_way_need_not_be_readable(tmp_path: Path) -> None:
    """As /home is on some machines; it is enough that they can be passed."""
    made = MadeImage()
    (tmp_path / "passed").mkdir()
    path = layout(tmp_path / "passed", index(made.entry(None)), made)
    (tmp_path / "passed").chmod(0o311)
    assert resolved("oci", path).layers


def locked(transport: str, path: Path, digest: str, name: str = "") -> Any:
    """Resolve an image on disk that is locked to a digest."""
    source = open_local(transport, str(path), name, digest)
    try:
        return source.image(AMD64)
    finally:
        source.close()


@pytest.mark.parametrize("name", ["", "v1", "gone"])
def test_a_digest_counts_before_a_tag(tmp_path: Path, name: str) -> None:
    """As with a registry: what is locked is used while it is there, whatever the tag means by now."""
    one, two = MadeImage(name=b"one"), MadeImage(name=b"two")
    path = layout(tmp_path, index(two.entry(None, annotations={NAME: "v1"})), one, two)
    assert locked("oci", path, sha256(one.manifest), name).manifest.digest == sha256(one.manifest)


@pytest.mark.parametrize("nested", [True, False])
def test_a_digest_may_be_of_several_platforms(tmp_path: Path, nested: bool) -> None:
    """An index within the layout, or the layout's own: each machine finds its image by it."""
    arm, intel = MadeImage("linux/arm64", b"arm"), MadeImage(name=b"intel")
    inner = index(arm.entry(ARM), intel.entry(LINUX))
    body = index({"mediaType": documents.OCI_INDEX, "digest": sha256(inner), "size": len(inner)})
    path = layout(tmp_path, body if nested else inner, arm, intel, more=(inner,))
    assert locked("oci", path, sha256(inner)).manifest.digest == sha256(intel.manifest)
    assert "only for linux/arm64" in fails(lambda: locked("oci", path, sha256(arm.manifest))).message


def test_what_is_locked_has_to_be_there(tmp_path: Path) -> None:
    """A layout or an archive that was made anew is not used, and the error says what to do."""
    made, digest = MadeImage(), sha256(MadeImage(name=b"other").manifest)
    path = layout(tmp_path, index(made.entry(None)), made)
    for transport, there in (
        ("oci", path),
        ("oci-archive", archive(tmp_path / "layout.tar", as_layout(made))),
        ("docker-archive", archive(tmp_path / "saved.tar", saved(made))),
    ):
        error = fails(lambda: locked(transport, there, digest))  # noqa: B023
        assert documents.short(digest) in error.message and "coop lock --upgrade" in str(error.remedy)
    assert locked("docker-archive", tmp_path / "saved.tar", sha256(made.config_bytes)).layers


def test_a_locked_manifest_has_to_be_what_its_name_says(tmp_path: Path) -> None:
    """A blob under the right name with another content is not believed."""
    made, other = MadeImage(), MadeImage(name=b"other")
    path = layout(tmp_path, index(made.entry(None)), made, other)
    (path / "blobs/sha256" / sha256(made.manifest)[7:]).write_bytes(other.manifest)
    assert "has the digest" in fails(lambda: locked("oci", path, sha256(made.manifest))).message


@pytest.mark.parametrize("size", [100, 5000, 1 << 20, (1 << 20) + 100])
def test_there_is_no_room_to_decompress_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """However much of it is left for the end, the error says what helps."""
    path = tmp_path / "image.tar.gz"
    path.write_bytes(gzip.compress(bytes(size)))
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: open("/dev/full", "r+b", buffering=8192))  # noqa: SIM115
    error = fails(lambda: open_local("docker-archive", str(path)))
    assert "cannot be decompressed: [Errno 28]" in error.message and "TMPDIR" in str(error.remedy)


def test_there_is_no_place_to_decompress_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is not the archive's fault."""
    path = tmp_path / "image.tar.gz"
    path.write_bytes(gzip.compress(bytes(1024)))

    def nowhere() -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "TemporaryFile", nowhere)
    error = fails(lambda: open_local("docker-archive", str(path)))
    assert "cannot be decompressed" in error.message and "TMPDIR" in str(error.remedy)


@pytest.mark.parametrize("transport", ["oci", "docker-archive"])
def test_an_interrupt_ends_a_copy(tmp_path: Path, transport: str) -> None:
    """Control-C does not wait until layers of many gigabytes are copied, and leaves nothing of them."""
    made = MadeImage()
    large = os.urandom(1 << 20) * 8
    made.hold(large, large)
    place = (
        layout(tmp_path, index(made.entry(None)), made)
        if transport == "oci"
        else archive(tmp_path / "image.tar", saved(made))
    )
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    source = open_local(transport, str(place))
    told: list[int] = []

    def interrupt(_: Descriptor, count: int) -> None:
        told.append(count)
        if len(told) == 1:
            source.close()

    with pytest.raises(CoopError, match="stopped"):
        fetch_all(source, source.image(AMD64).layers, str(blobs), interrupt)
    assert len(told) == 1 and list(blobs.iterdir()) == []


@pytest.mark.parametrize("transport", ["oci", "docker-archive"])
def test_the_config_is_had_as_it_is(tmp_path: Path, transport: str) -> None:
    """Byte for byte, so that an engine calls the image by the same id."""
    made = MadeImage()
    if transport == "oci":
        path = layout(tmp_path, index(made.entry(None)), made)
    else:
        path = archive(tmp_path / "saved.tar", saved(made))
    source = open_local(transport, str(path))
    try:
        assert source.config(source.image(AMD64)) == made.config_bytes
    finally:
        source.close()
