"""The lock: read as it is written, and only for the image that it is of."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile import lock
from coopfile.errors import CoopError
from coopfile.language.items import ImageReference, LocalImage
from coopfile.plan.model import with_leaf
from tests.unit.plan.samples import PLAN

DIGEST = "sha256:" + "ab" * 32
IMAGE = ImageReference("docker.io", "library/debian", "bookworm")
LOCK = lock.Lock(str(IMAGE), DIGEST)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_written_and_read(image: str) -> None:
    """What is written is read as it was, whatever an image is called."""
    made = lock.Lock(image, DIGEST)
    assert lock.parse(lock.text(made).encode(), "x") == made


_WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=200)
_PACKAGES = st.dictionaries(
    st.sampled_from(["apt", "apk", "dnf", "pip", "npm", "cargo"]),
    st.dictionaries(_WORDS, _WORDS, min_size=1, max_size=5),
)


@given(_PACKAGES)
def test_packages(packages: dict[str, dict[str, str]]) -> None:
    """Versions are read as they were written, and written the same whatever their order was."""
    made = LOCK.replace(packages=packages)
    text = lock.text(made)
    assert lock.parse(text.encode(), "x") == made
    turned = {name: dict(reversed(versions.items())) for name, versions in reversed(packages.items())}
    assert lock.text(LOCK.replace(packages=turned)) == text


def test_a_package_is_a_line() -> None:
    """A lock is read by people when it changes."""
    packages = {"pip": {"pytest": "8.4.1"}, "apt": {"git": "1:2.39.5", "@a/b": "1"}}
    assert lock.text(LOCK.replace(packages=packages)).partition("digest")[2].split("\n")[1:] == [
        "",
        "[packages.apt]",
        '"@a/b" = "1"',
        '"git" = "1:2.39.5"',
        "",
        "[packages.pip]",
        '"pytest" = "8.4.1"',
        "",
    ]


@pytest.mark.parametrize(
    "packages", ["x = 1", "apt = 1", "apt.git = 1", 'apt.git = "\\n"', 'apt.git = ""', 'brew.x = "1"']
)
def test_damaged_packages(packages: str) -> None:
    """What is no version of a package is refused, with a remedy."""
    text = lock.text(LOCK) + "[packages]\n" + packages
    with pytest.raises(CoopError, match="packages") as caught:
        lock.parse(text.encode(), "L")
    assert "coop lock" in str(caught.value.remedy)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version = 1",
        "version = 2\n[base]\nimage = 'a'\ndigest = 'b'",
        "version = 1\n[base]\nimage = 'a'\ndigest = 'sha256:12'",
        "version = 1\n[base]\nimage = ['a']\ndigest = 1",
        "version = 1\nbase = 1",
        lock.text(LOCK) + "[more]",
        "[",
        "version = 1\nx = " + "[" * 500 + "]" * 500,
        "a" + ".a" * 5000 + " = 1",
        "version = " + "1" * 5000,
    ],
)
def test_damaged(text: str) -> None:
    """What coop did not write is refused, with the file's name and a remedy."""
    with pytest.raises(CoopError, match=r"^L") as caught:
        lock.parse(text.encode(), "L")
    assert "coop lock" in str(caught.value.remedy)


def test_applied() -> None:
    """The digest goes into the plan of the same image, and no other."""
    plan = with_leaf(PLAN, "base.image", IMAGE)
    assert lock.locked(plan, LOCK, "L").base.image == IMAGE.replace(digest=DIGEST)
    assert lock.locked(plan, None, "L") == plan
    with pytest.raises(CoopError, match=r"^L is of docker"):
        lock.locked(with_leaf(PLAN, "base.image", IMAGE.replace(tag="trixie")), LOCK, "L")


def test_an_image_in_a_file_is_locked_too() -> None:
    """It is called as in the Coopfile, and another tag or path of it is another image."""
    image = LocalImage("oci", "images/base", "v1")
    made = lock.Lock(lock.named(image.replace(digest=DIGEST)), DIGEST)
    assert made.image == "oci:images/base:v1"
    plan = with_leaf(PLAN, "base.image", image)
    assert lock.locked(plan, made, "L").base.image == image.replace(digest=DIGEST)
    for other in (image.replace(name="v2"), image.replace(path="/srv/base"), image.replace(name=None)):
        with pytest.raises(CoopError, match=r"^L is of oci:images/base:v1"):
            lock.locked(with_leaf(PLAN, "base.image", other), made, "L")


def test_not_applied() -> None:
    """A digest in the Coopfile counts before the lock's; without an image there is nothing to lock."""
    own = with_leaf(PLAN, "base.image", IMAGE.replace(digest="sha256:" + "cd" * 32))
    assert lock.locked(own, LOCK, "L") == own
    tools = with_leaf(PLAN, "base.image", None)
    assert lock.locked(tools, LOCK, "L") == tools


def test_write(tmp_path: Path) -> None:
    """A lock is replaced as a whole, and leaves nothing beside it."""
    path = tmp_path / "Coopfile.lock"
    path.write_text("old")
    lock.write(LOCK, str(path))
    assert lock.parse(path.read_bytes(), "x") == LOCK and list(tmp_path.iterdir()) == [path]
    with pytest.raises(CoopError, match="cannot write"):
        lock.write(LOCK, str(tmp_path / "no/such/directory"))
