"""Where the proxy says that the list was written: by file and line, and nothing of the user's own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from coopfile.compiling import Request, compile_project
from coopfile.find import find
from coopfile.language.merging import Origin
from coopfile.listed import described, written


def _written(project: Path, environment: dict[str, str], *assignments: str) -> str:
    found = find(str(project), None, environment)
    plan = compile_project(Request(str(project), assignments=assignments), environment, found).plan
    return written(plan, found, environment)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return the variables of a user with a home of their own."""
    (tmp_path / "home" / ".config" / "coop").mkdir(parents=True)
    return {"HOME": str(tmp_path / "home")}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Return the directory of a project."""
    place = tmp_path / "home" / "shop"
    place.mkdir(parents=True)
    return place


def test_lines(shop: Path, environment: dict[str, str]) -> None:
    """The first line counts of each file, and what is the user's own has no name."""
    (shop / "Coopfile").write_text(
        'coop = 1\n\n[network]\nmode = "proxy"\nallow = ["b.example",\n"a.example"]\n'
    )
    assert _written(shop, environment) == "Coopfile:5"
    (shop / "Coopfile.local").write_text('network.allow = ["c.example"]\n')
    assert _written(shop, environment) == "Coopfile:5 and Coopfile.local:1"
    own = Path(environment["HOME"]) / ".config" / "coop" / "Coopfile"
    own.write_text('network.allow = ["secret.example"]\n')
    text = _written(shop, environment)
    assert "your settings" in text and "config" not in text and str(shop) not in text


def test_recalled(shop: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found out once is remembered until a file changes."""
    file = shop / "Coopfile"
    file.write_text('network = { mode = "proxy", allow = ["a.example"] }\n')
    assert _written(shop, environment) == "Coopfile:1"
    with monkeypatch.context() as patched:
        patched.setattr("coopfile.listed._compiled", lambda *_: "never")
        assert _written(shop, environment) == "Coopfile:1"
    file.write_text('coop = 1\n\nnetwork = { mode = "proxy", allow = ["a.example"] }\n')
    assert _written(shop, environment) == "Coopfile:3"


def test_of_a_user(shop: Path, environment: dict[str, str]) -> None:
    """Whoever asks under a name is told the lines of their own override, too."""
    (shop / "Coopfile").write_text(
        'network.mode = "proxy"\n'
        '[[users]]\nname = "bob"\ntrust = "inner"\nmatch = ["irc:bob"]\n'
        'override.network.allow = ["b.example"]\n'
    )
    (shop / "Coopfile.local").write_text('network.allow = ["c.example"]\n')
    found = find(str(shop), None, environment)
    for place in ("direct", "group"):
        request = Request(str(shop), identity="irc:bob", place=place)
        plan = compile_project(request, environment, found).plan
        assert written(plan, found, environment) == "Coopfile:6 and Coopfile.local:1"


def test_elsewhere(shop: Path, environment: dict[str, str]) -> None:
    """A list that is not the files' own has no place in them, and broken files do not matter."""
    (shop / "Coopfile").write_text('network.allow = ["a.example"]\n')
    assert _written(shop, environment, 'network.allow=["b.example"]') == ""
    found = find(str(shop), None, environment)
    plan = compile_project(Request(str(shop)), environment, found).plan
    (shop / "Coopfile").write_text("nonsense\n")
    assert written(plan, find(str(shop), None, environment), environment) == ""


def test_described() -> None:
    """Names cannot break out of a line, and there are not too many of them."""
    text = described([Origin("project", f"Coop\r\nfile{number}", number) for number in range(1, 9)])
    assert text.isprintable() and text.endswith("and 5 more")
    assert described([]) == ""
    assert (
        described([Origin("project", "../x/Coopfile", 3), Origin("user", "/home/me/C", 1)]) == "your settings"
    )
