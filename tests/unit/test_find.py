"""Finding the project and its files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from coopfile import find
from coopfile.errors import CoopError
from coopfile.native.marks import MODE


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Return a directory with a home in it; ``home/work/project/src/deep`` is where to stand."""
    root = Path(os.path.realpath(tmp_path))
    (root / "home/work/project/src/deep").mkdir(parents=True)
    return root


def at(base: Path, directory: str = "home/work/project/src/deep", file: str | None = None) -> find.Project:
    """Find the project of a directory."""
    return find.find(str(base / directory), file, {"HOME": str(base / "home")})


def layers(project: find.Project) -> list[tuple[str, str]]:
    """Return (layer, name) of what was found."""
    return [(place.layer, place.name) for place in project.places]


def test_nothing(base: Path) -> None:
    """Without a Coopfile the directory itself is the workspace."""
    project = at(base)
    assert project.root == project.directory == str(base / "home/work/project/src/deep")
    assert project.places == ()


@pytest.mark.parametrize("where", ["home/work/project/src/deep", "home/work/project/src", "home/work"])
def test_nearest_above(base: Path, where: str) -> None:
    """The nearest Coopfile at or above the directory makes the workspace."""
    (base / where / "Coopfile").touch()
    (base / "home/work/Coopfile").touch()
    project = at(base)
    assert project.root == str(base / where)
    assert project.directory == str(base / "home/work/project/src/deep")
    assert layers(project) == [("project", "Coopfile")]


@pytest.mark.parametrize("where", ["home", ""])
def test_not_from_home_or_above(base: Path, where: str) -> None:
    """A Coopfile in the home directory, or above it, makes no workspace of it."""
    (base / where / "Coopfile").touch()
    assert at(base).places == ()


def test_at_home(base: Path) -> None:
    """Standing in the home directory itself, its Coopfile counts."""
    (base / "home/Coopfile").touch()
    assert layers(at(base, "home")) == [("project", "Coopfile")]


def test_all_layers(base: Path) -> None:
    """The user's own file comes first, then the project's, then the local one."""
    (base / "home/.config/coop").mkdir(parents=True)
    (base / "home/.config/coop/Coopfile").touch()
    (base / "home/work/project/Coopfile").touch()
    (base / "home/work/project/Coopfile.local").touch()
    assert layers(at(base)) == [
        ("user", "~/.config/coop/Coopfile"),
        ("project", "Coopfile"),
        ("local", "Coopfile.local"),
    ]


def test_local_alone(base: Path) -> None:
    """A Coopfile.local without a Coopfile beside it is nothing."""
    (base / "home/work/project/Coopfile.local").touch()
    assert at(base).places == ()


def test_xdg(base: Path) -> None:
    """The XDG variables say where the user's own file is, if they are absolute."""
    (base / "config/coop").mkdir(parents=True)
    (base / "config/coop/Coopfile").touch()
    home = str(base / "home")
    found = find.find(str(base), None, {"HOME": home, "XDG_CONFIG_HOME": str(base / "config")})
    assert [place.layer for place in found.places] == ["user"]
    assert find.find(str(base), None, {"HOME": home, "XDG_CONFIG_HOME": "config"}).places == ()


def test_user_file_is_no_project(base: Path) -> None:
    """Standing beside the user's own file, it counts as that and not as a project's too."""
    (base / "home/.config/coop").mkdir(parents=True)
    (base / "home/.config/coop/Coopfile").touch()
    assert layers(at(base, "home/.config/coop")) == [("user", "~/.config/coop/Coopfile")]


def test_directories(base: Path) -> None:
    """coop's own directories follow the XDG specification."""
    assert find.directories({"HOME": "/h"}) == find.Directories(
        "/h/.config/coop", "/h/.cache/coop", "/h/.local/state/coop", "/h/.local/share/coop"
    )
    given = {"HOME": "/h", "XDG_CONFIG_HOME": "/c", "XDG_CACHE_HOME": "relative", "XDG_STATE_HOME": "/s"}
    assert find.directories(given) == find.Directories(
        "/c/coop", "/h/.cache/coop", "/s/coop", "/h/.local/share/coop"
    )


def test_home_without_variable() -> None:
    """Without $HOME, or with a relative one, the account's home counts."""
    assert find.home_directory({}) == find.home_directory({"HOME": "x"})
    assert find.home_directory({}).startswith("/")


def test_named_file(base: Path) -> None:
    """A file named by the caller counts for the directory as it is, wherever the file lies."""
    (base / "home/work/project/Coopfile").touch()
    (base / "home/other").touch()
    (base / "home/other.local").touch()
    project = at(base, file="../../../../other")
    assert project.root == str(base / "home/work/project/src/deep")
    assert layers(project) == [("project", "../../../../other"), ("local", "../../../../other.local")]
    assert project.inputs == tuple(f"{base}/home/other{suffix}" for suffix in ("", ".local", ".lock"))


def test_named_file_missing(base: Path) -> None:
    """A named file that does not exist is an error."""
    with pytest.raises(CoopError, match="does not exist"):
        at(base, file="nothing")


@pytest.mark.parametrize("kind", ["directory", "fifo", "device"])
def test_no_file(base: Path, kind: str) -> None:
    """What is named Coopfile and is no file is an error, and does not hang."""
    path = base / "home/work/project/Coopfile"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(CoopError, match=r"is a directory|not a regular file"):
        at(base)


def test_placeholder(base: Path) -> None:
    """A placeholder, which a running sandbox has there, is no Coopfile."""
    (base / "home/work/project/Coopfile").mkdir()
    (base / "home/work/project/Coopfile").chmod(MODE)
    assert at(base).places == ()


def test_dangling_link(base: Path) -> None:
    """A link to nowhere is nothing."""
    (base / "home/work/project/Coopfile").symlink_to("nowhere")
    assert at(base).places == ()


def test_link_is_an_input(base: Path) -> None:
    """The file behind a link is what no sandbox may change."""
    (base / "home/work/real").touch()
    (base / "home/work/project/Coopfile").symlink_to("../real")
    assert at(base).inputs[0] == str(base / "home/work/real")


def test_stranger(base: Path, give_away: Callable[[Path], None]) -> None:
    """A Coopfile that somebody else owns is refused unless it is named."""
    path = base / "home/work/Coopfile"
    path.touch()
    give_away(path)
    with pytest.raises(CoopError, match="belongs to user 12345") as caught:
        at(base)
    assert "-f Coopfile" in (caught.value.remedy or "")
    assert layers(at(base, "home/work", "Coopfile")) == [("project", "Coopfile")]


def test_stamp(base: Path) -> None:
    """The stamp changes with the content."""
    path = base / "home/work/project/Coopfile"
    path.write_text("a")
    before = at(base).places[0].stamp
    assert at(base).places[0].stamp == before
    path.write_text("ab")
    assert at(base).places[0].stamp != before


def test_not_a_directory(base: Path) -> None:
    """A start that is no directory is an error."""
    (base / "file").touch()
    for name in ("file", "missing", "file/below"):
        with pytest.raises(CoopError, match="is not a directory"):
            at(base, name)


def test_start_through_links(base: Path) -> None:
    """The project is where links lead."""
    (base / "home/work/project/Coopfile").touch()
    (base / "link").symlink_to("home/work/project/src")
    assert at(base, "link").root == str(base / "home/work/project")


def test_read(base: Path) -> None:
    """A file's bytes are read as they are, up to the largest size and no more."""
    path = base / "home/work/project/Coopfile"
    path.write_bytes(b"\xff" * find.LARGEST)
    assert find.read_bounded(at(base).places[0]) == b"\xff" * find.LARGEST
    path.write_bytes(b"\xff" * (find.LARGEST + 1))
    with pytest.raises(CoopError, match="a Coopfile has at most"):
        find.read_bounded(at(base).places[0])


def test_read_another(base: Path) -> None:
    """A file that was exchanged since it was found is not read in its place, not even a FIFO."""
    path = base / "home/work/project/Coopfile"
    path.write_text("a")
    place = at(base).places[0]
    path.rename(path.with_name("kept"))
    os.mkfifo(path)
    with pytest.raises(CoopError, match="was replaced"):
        find.read_bounded(place)
    path.unlink()
    with pytest.raises(CoopError, match="No such file"):
        find.read_bounded(place)
