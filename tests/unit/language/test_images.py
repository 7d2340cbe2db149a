"""Image references, read as Docker reads them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.language.images import TRANSPORTS
from coopfile.language.items import ImageReference, LocalImage
from coopfile.language.values import BadValue, Image

HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("debian", "docker.io/library/debian:latest"),
        ("debian:bookworm-slim", "docker.io/library/debian:bookworm-slim"),
        ("team/app", "docker.io/team/app:latest"),
        ("docker.io/debian", "docker.io/library/debian:latest"),
        ("index.docker.io/debian", "docker.io/library/debian:latest"),
        ("docker.io/library/debian:12", "docker.io/library/debian:12"),
        ("ghcr.io/owner/app:1.2", "ghcr.io/owner/app:1.2"),
        ("localhost/app", "localhost/app:latest"),
        ("localhost:5000/app", "localhost:5000/app:latest"),
        ("registry:5000/a/b/c:t", "registry:5000/a/b/c:t"),
        ("[::1]:5000/app", "[::1]:5000/app:latest"),
        ("GHCR.io/app", "ghcr.io/app:latest"),
        (f"debian@sha256:{HEX}", f"docker.io/library/debian@sha256:{HEX}"),
        (f"debian:12@sha256:{HEX}", f"docker.io/library/debian:12@sha256:{HEX}"),
        ("a__b/c-d.e", "docker.io/a__b/c-d.e:latest"),
    ],
)
def test_a_reference_is_completed_as_docker_does(text: str, full: str) -> None:
    """Registry, library and tag are filled in; a digest needs no tag."""
    assert str(Image().parse(text)) == full


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (f"debian@sha256:{HEX[:12]}", "this one has 12"),
        (f"debian@sha256:{HEX}0", "this one has 65"),
        (f"debian@sha256:{HEX.upper()}", "hexadecimal"),
        ("debian@", "digest"),
        ("debian@sha256", "digest"),
        (f"debian@sha512:{HEX}", "sha256"),
        ("Debian", "lower case"),
        ("Team/app", "lower case"),
        ("team/App:1", "lower case"),
        ("debian:", "tag"),
        ("debian:-x", "tag"),
        ("debian:" + "x" * 129, "tag"),
        ("docker-daemon:debian:12", "docker-daemon"),
        ("dir:/images/x", "dir"),
        ("docker://debian", "address"),
        ("https://ghcr.io/a/b", "address"),
        ("localhost:99999/app", "port"),
        ("-debian", "name"),
        ("a//b", "name"),
        ("/debian", "name"),
        ("a/", "name"),
        ("a b", "not an image"),
        ("ex ample.com/a", "not an image"),
        ("deb\0ian", "NUL"),
        ("débian", "name"),
        (HEX, "id"),
        ("a" * 300, "too long"),
        ("ghcr..io/app", "registry"),
        ("", "empty"),
    ],
)
def test_what_is_no_reference_is_refused_with_the_reason(text: str, part: str) -> None:
    """The message names the part that is wrong."""
    with pytest.raises(BadValue) as error:
        Image().parse(text)
    assert part in error.value.message


@pytest.mark.parametrize("raw", [None, True, 1, [], {}])
def test_an_image_is_a_string(raw: object) -> None:
    """Every other type is refused."""
    with pytest.raises(BadValue):
        Image().parse(raw)


@given(st.text(alphabet=st.sampled_from("abA0.:/@-_[]sha256 "), max_size=30))
def test_a_reference_in_full_is_itself(text: str) -> None:
    """Completing a complete reference changes nothing."""
    try:
        reference = Image().parse(text)
    except BadValue:
        return
    assert Image().parse(str(reference)) == reference
    assert isinstance(reference, ImageReference)
    assert (reference.tag is None) <= (reference.digest is not None)


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("oci:images/base", LocalImage("oci", "images/base")),
        ("oci:./images//base/", LocalImage("oci", "images/base")),
        ("oci:/srv/images/base:v1.2", LocalImage("oci", "/srv/images/base", "v1.2")),
        ("oci:~/images:team/app:1", LocalImage("oci", "~/images", "team/app:1")),
        ("oci-archive:base.tar", LocalImage("oci-archive", "base.tar")),
        ("docker-archive:a b.tar:ghcr.io/o/a:1", LocalImage("docker-archive", "a b.tar", "ghcr.io/o/a:1")),
        ("docker-archive:x.tar:h:5000/a", LocalImage("docker-archive", "x.tar", "h:5000/a")),
        ("oci:a@b/-x", LocalImage("oci", "a@b/-x")),
        ("oci:latest", LocalImage("oci", "latest")),
        (f"oci:a@sha256:{HEX}", LocalImage("oci", "a", None, f"sha256:{HEX}")),
        (f"oci:a:t@sha256:{HEX}", LocalImage("oci", "a", "t", f"sha256:{HEX}")),
    ],
)
def test_an_image_in_a_file(text: str, image: LocalImage) -> None:
    """The first colon ends the path, which is normalised; a digest comes last."""
    assert Image().parse(text) == image
    assert Image().parse(str(image)) == image


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("oci:", "names no file"),
        ("oci::tag", "names no file"),
        ("oci:.", "whole directory"),
        ("oci:../images", '".."'),
        ("oci:a/../../b", '".."'),
        ("oci:/", "whole file system"),
        ("oci:/proc/self/root/x", "/proc"),
        ("oci:~", "whole home"),
        ("oci:~root/x", "another user"),
        ("oci:$HOME/x", "not expanded"),
        ("oci:a*", "glob"),
        ("oci:a:", "name of an image"),
        ("oci:a:-v", "name of an image"),
        ("oci:a:b c", "name of an image"),
        ("oci:a:b@c", "name of an image"),
        ("oci:a:" + "x" * 256, "name of an image"),
        ("oci:a\nb", "line feed"),
        ("oci:a\0b", "NUL"),
        ("oci:a \u202e", "direction"),
        ("oci:a\u2028b", "line break"),
        ("oci:a :t", "space"),
        ("oci:" + "x" * 256, "too long"),
        ("oci:a@sha256:12", "this one has 2"),
        (f"oci:a@sha256:{HEX}:t", "hexadecimal"),
        (f"oci:a@sha256:{HEX}@sha256:{HEX}", "hexadecimal"),
    ],
)
def test_what_is_no_image_in_a_file_is_refused(text: str, part: str) -> None:
    """Paths are as strict as all others of the language, and names are what tools write."""
    with pytest.raises(BadValue) as error:
        Image().parse(text)
    assert part in error.value.message


@given(st.sampled_from(TRANSPORTS), st.text(alphabet=st.sampled_from("ab0.:/@-_~ sha256+"), max_size=30))
def test_an_image_in_a_file_is_itself(transport: str, rest: str) -> None:
    """What is shown is read as it was, and the schema refuses nothing that is accepted."""
    try:
        image = Image().parse(f"{transport}:{rest}")
    except BadValue:
        return
    assert isinstance(image, LocalImage) and Image().parse(str(image)) == image
    assert any(re.search(one["pattern"], f"{transport}:{rest}") for one in Image().schema()["anyOf"])
