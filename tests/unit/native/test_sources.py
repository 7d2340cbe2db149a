"""Mount sources: which links are followed, and what may be mounted."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from coopfile.errors import CoopError
from coopfile.native.links import resolve
from coopfile.native.sources import open_real, open_source
from coopfile.plan.launch import inside


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Return a directory with a writable part, a private part, and links of all sorts."""
    root = Path(os.path.realpath(tmp_path))
    (root / "writable/deep").mkdir(parents=True)
    (root / "private").mkdir()
    (root / "private/secret").write_text("x")
    (root / "writable/link").symlink_to(root / "private")
    (root / "writable/deep/relative").symlink_to("../../private/secret")
    (root / "good").symlink_to("private")
    (root / "chain").symlink_to("good/secret")
    (root / "into").symlink_to("writable/deep")
    (root / "through").symlink_to("writable/link/secret")
    (root / "loop").symlink_to("loop")
    return root


@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("private/secret", "private/secret"),
        ("good/secret", "private/secret"),
        ("chain", "private/secret"),
        ("into", "writable/deep"),
        ("into/file", "writable/deep/file"),
        ("missing/deep/file", "missing/deep/file"),
        ("private/../private//./secret", "private/secret"),
        ("good/missing", "private/missing"),
        ("writable/deep/..", "writable"),
    ],
)
def test_resolved(base: Path, path: str, real: str) -> None:
    """Links outside every writable root are followed, to where the kernel would go."""
    found = resolve(f"{base}/{path}", [f"{base}/writable"])
    assert found == f"{base}/{real}"
    assert found == os.path.realpath(f"{base}/{path}")


@pytest.mark.parametrize(
    "path", ["writable/link", "writable/link/secret", "writable/deep/relative", "through", "into/relative"]
)
def test_refused(base: Path, path: str) -> None:
    """A link inside a writable root is never followed, however it is reached."""
    with pytest.raises(CoopError, match="symbolic link inside"):
        resolve(f"{base}/{path}", [f"{base}/elsewhere", f"{base}/writable"])


def test_loop(base: Path) -> None:
    """Links without end are an error."""
    with pytest.raises(CoopError, match="more than 40"):
        resolve(f"{base}/loop", [])


@pytest.mark.parametrize(("path", "expected"), [("/", "/"), ("//", "/"), ("/..", "/"), ("/../usr", "/usr")])
def test_root(path: str, expected: str) -> None:
    """Paths round the root come out as the root."""
    assert resolve(path, []) == expected


@pytest.mark.parametrize(
    ("path", "root", "expected"),
    [
        ("/a", "/a", True),
        ("/a/b", "/a", True),
        ("/ab", "/a", False),
        ("/a", "/a/b", False),
        ("/x", "/", True),
    ],
)
def test_inside(path: str, root: str, expected: bool) -> None:
    """Being inside is about whole components."""
    assert inside(path, root) is expected


def test_open_real_refuses_links(base: Path) -> None:
    """A path that has become a link since it was resolved is not opened."""
    os.close(open_real(f"{base}/private/secret"))
    for path in ("good/secret", "chain", "writable/link"):
        with pytest.raises(OSError, match="openat2"):
            open_real(f"{base}/{path}")


def test_open_source_of_a_link(base: Path) -> None:
    """Opening such a path as a source says what happened."""
    with pytest.raises(CoopError, match="was replaced by a symbolic link"):
        open_source(f"{base}/chain", write=False)


def test_open_source_missing(base: Path) -> None:
    """A source that has vanished, or lies below a file, is absent."""
    assert open_source(f"{base}/missing", write=False) is None
    assert open_source(f"{base}/private/secret/below", write=False) is None


@pytest.mark.parametrize("write", [False, True])
def test_open_source_kinds(base: Path, write: bool) -> None:
    """Files and directories can be mounted, pipes and devices cannot, sockets when they may be used."""
    for path in (f"{base}/private", f"{base}/private/secret"):
        descriptor = open_source(path, write=write)
        assert descriptor is not None
        os.close(descriptor)
    os.mkfifo(base / "fifo")
    for path in (f"{base}/fifo", "/dev/null"):
        with pytest.raises(CoopError, match="neither a file nor a directory"):
            open_source(path, write=write)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(base / "s"))
        if write:
            descriptor = open_source(f"{base}/s", write=True)
            assert descriptor is not None
            os.close(descriptor)
        else:
            with pytest.raises(CoopError, match="is a socket"):
                open_source(f"{base}/s", write=False)
