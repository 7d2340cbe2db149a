r"""Paths of Windows: ``C:\src`` outside is ``/c/src`` inside, and nothing else gets through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.errors import CoopError
from coopfile.render.windows import inner, outer

_NAMES = st.text(
    st.characters(exclude_categories=("Cc", "Cs"), exclude_characters='<>:"/\\|?*'), min_size=1
).filter(lambda name: not name.endswith((".", " ")))


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("C:\\src", "/c/src"),
        ("c:/src/Shop", "/c/src/Shop"),
        ("D:\\a b\\ç\\x,y", "/d/a b/ç/x,y"),
        ("Z:\\", "/z"),
        ("C:\\src\\", "/c/src"),
    ],
)
def test_a_drive_is_a_directory_inside(path: str, seen: str) -> None:
    """Backslashes become slashes and the drive a directory; the case of names stays."""
    assert inner(path) == seen


@pytest.mark.parametrize(
    "path",
    [
        "\\\\server\\share\\x",
        "//server/share",
        "\\\\?\\C:\\x",
        "C:",
        "C:src",
        "src",
        "\\src",
        "/c/src",
        "",
        "CC:\\x",
        "C:\\a\\..\\b",
        "C:\\a\\.\\b",
        "C:\\secret.",
        "C:\\secret ",
        "C:\\a\\\\b",
        "C:\\x:stream",
        "C:\\a*",
    ],
)
def test_what_is_no_whole_path_on_a_drive_is_refused(path: str) -> None:
    """Shares, relative paths, and names that Windows would take for others are errors."""
    with pytest.raises(CoopError):
        inner(path)


@given(st.sampled_from("ACdZ"), st.lists(_NAMES, max_size=4))
def test_back_and_forth(drive: str, names: list[str]) -> None:
    """What comes in goes out as it was, but for the drive, which is upper case."""
    path = f"{drive}:\\" + "\\".join(names)
    assert outer(inner(path)) == path[0].upper() + path[1:]


@pytest.mark.parametrize("path", ["/src", "/", "c/x", "/C/x", ""])
def test_only_drives_go_out(path: str) -> None:
    """A path that is not below a drive is not made into one of Windows."""
    with pytest.raises(CoopError):
        outer(path)
