"""The lock: read as it is written, and only for the image that it is of."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile import lock
from coopfile.errors import CoopError
from coopfile.language.items import ImageReference
from tests.unit.plan.samples import PLAN, with_leaf

DIGEST = "sha256:" + "ab" * 32
IMAGE = ImageReference("docker.io", "library/debian", "bookworm")
LOCK = lock.Lock(str(IMAGE), DIGEST)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_written_and_read(image: str) -> None:
    """What is written is read as it was, whatever an image is called."""
    made = lock.Lock(image, DIGEST)
    assert lock.parse(lock.text(made).encode(), "x") == made


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version = 1",
        "version = 2\n[base]\nimage = 'a'\ndigest = 'b'",
        "version = 1\n[base]\nimage = 'a'\ndigest = 'sha256:12'",
        "version = 1\n[base]\nimage = ['a']\ndigest = 1",
        "version = 1\nbase = 1",
        "[",
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
