"""Which registries may be without TLS, as registries.conf says."""

from __future__ import annotations

from pathlib import Path

import pytest

from coopfile.errors import CoopError
from coopfile.rootfs.configured import insecure

PLAIN = '[[registry]]\nlocation = "{}"\ninsecure = true\n'


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """Return the place of a machine's registries.conf, which is not there."""
    (tmp_path / "etc").mkdir()
    return tmp_path / "etc/registries.conf"


def own(home: Path) -> Path:
    """Return the place of a user's registries.conf, whose directory is made."""
    path = home / ".config/containers/registries.conf"
    path.parent.mkdir(parents=True)
    return path


def test_nothing_is_configured(tmp_path: Path, system: Path) -> None:
    """Without files every registry has TLS."""
    assert insecure({"HOME": str(tmp_path)}, str(system)) == ()
    assert insecure({}, str(system)) == ()


def test_a_users_file_comes_instead(tmp_path: Path, system: Path) -> None:
    """Of the machine's and the user's file the user's counts, and what lies beside both."""
    system.write_text(PLAIN.format("machine.example"))
    environment = {"HOME": str(tmp_path)}
    assert insecure(environment, str(system)) == ("machine.example",)
    mine = own(tmp_path)
    mine.write_text(PLAIN.format("Mine.example:5000"))
    assert insecure(environment, str(system)) == ("mine.example:5000",)
    (tmp_path / "etc/registries.conf.d").mkdir()
    (tmp_path / "etc/registries.conf.d/a.conf").write_text(PLAIN.format("more.example"))
    (tmp_path / "etc/registries.conf.d/a.txt").write_text("no TOML")
    assert insecure(environment, str(system)) == ("mine.example:5000", "more.example")
    environment["CONTAINERS_REGISTRIES_CONF"] = str(system)
    assert insecure(environment, str(system)) == ("machine.example",)


def test_what_is_later_counts(tmp_path: Path, system: Path) -> None:
    """A later file takes back what an earlier one allowed."""
    system.write_text(PLAIN.format("a.example"))
    (tmp_path / "etc/registries.conf.d").mkdir()
    (tmp_path / "etc/registries.conf.d/b.conf").write_text('[[registry]]\nlocation = "a.example"\n')
    assert insecure({}, str(system)) == ()


@pytest.mark.parametrize(
    "entry",
    [
        'location = "a.example"',
        'location = "a.example"\ninsecure = "true"',
        'location = "a.example/team"\ninsecure = true',
        'prefix = "*.example"\ninsecure = true',
        'prefix = "b.example"\nlocation = "a.example"\ninsecure = true',
        "location = 5\ninsecure = true",
        "insecure = true",
    ],
)
def test_what_stays_with_tls(system: Path, entry: str) -> None:
    """What is not said of one whole registry is not taken for it."""
    system.write_text(f"[[registry]]\n{entry}\n")
    assert insecure({}, str(system)) == ()


def test_an_older_format_says_nothing(system: Path) -> None:
    """The first format had other tables, which no engine reads any more."""
    system.write_text('[registries.insecure]\nregistries = ["a.example"]\n')
    assert insecure({}, str(system)) == ()


@pytest.mark.parametrize(
    "content",
    [
        *(b"[", b"registry = 1", b"registry = [1]", b"\xff", b"#" * (1 << 20) + b"#"),
        b"x = " + b"[" * 500 + b"]" * 500,
    ],
)
def test_a_damaged_file_is_an_error(system: Path, content: bytes) -> None:
    """That names the file; nothing is guessed."""
    system.write_bytes(content)
    with pytest.raises(CoopError, match=r"registries\.conf") as caught:
        insecure({}, str(system))
    assert caught.value.remedy


def test_a_file_that_is_none(system: Path) -> None:
    """A directory in its place is an error too."""
    system.mkdir()
    with pytest.raises(CoopError, match=r"registries\.conf"):
        insecure({}, str(system))
