"""Versions of packages: what a build found beside what the lock says."""

from __future__ import annotations

from pathlib import Path

import pytest

from coopfile import lock as file
from coopfile.cli import lock
from coopfile.cli.lock import Settled
from coopfile.errors import CoopError

LOCK = file.Lock("docker.io/library/debian:bookworm", "sha256:" + "ab" * 32)
KNOWN = LOCK.replace(packages={"apt": {"git": "1:2.39", "jq": "1.6"}, "pip": {"pytest": "8.4.1"}})


def found(before: file.Lock, versions: dict[str, dict[str, str]], **how: bool) -> tuple[file.Lock, list[str]]:
    """Return the lock after a build, and what was said."""
    said: list[str] = []
    settled = lock.with_packages(Settled("/p/Coopfile.lock", before, before), versions, said.append, **how)
    return settled.after, said


def test_a_new_lock_gets_all() -> None:
    """Versions that it does not know yet are added without a word."""
    assert found(LOCK, {"apt": {"git": "1:2.39"}, "pip": {}}) == (
        LOCK.replace(packages={"apt": {"git": "1:2.39"}}),
        [],
    )


def test_what_it_knows_stays() -> None:
    """Another version is a warning, a package that is not asked for any more goes, a new one comes."""
    after, said = found(KNOWN, {"apt": {"git": "1:2.40", "sed": "4.9"}})
    assert after.packages == {"apt": {"git": "1:2.39", "sed": "4.9"}}
    (line,) = said
    assert line.startswith("packages.apt: git is 1:2.40, not 1:2.39 as Coopfile.lock says")


def test_upgrade() -> None:
    """What is renewed is what was found."""
    assert found(KNOWN, {"apt": {"git": "1:2.40"}}, upgrade=True) == (
        LOCK.replace(packages={"apt": {"git": "1:2.40"}}),
        [],
    )


def test_frozen() -> None:
    """All that differs is listed; what is as locked passes, and the lock stays as it was."""
    assert found(KNOWN, {"apt": {"git": "1:2.39"}}, frozen=True) == (KNOWN, [])
    with pytest.raises(CoopError) as caught:
        found(KNOWN, {"apt": {"git": "1:2.40", "jq": "1.6", "sed": "4.9"}}, frozen=True)
    assert caught.value.message.split("\n") == [
        "the build found other packages than Coopfile.lock says:",
        "  packages.apt: git is 1:2.40, not 1:2.39",
        "  packages.apt: sed is 4.9, and not in Coopfile.lock",
    ]
    assert "coop rebuild --upgrade" in str(caught.value.remedy)


def renewed(lock: file.Lock) -> str:
    """Return the text of a lock of another image."""
    return file.text(lock.replace(digest="sha256:" + "cd" * 32))


@pytest.mark.parametrize("known", [LOCK, None])
def test_a_lock_that_was_renewed_meanwhile_is_left(tmp_path: Path, known: file.Lock | None) -> None:
    """What somebody else writes while a build goes on is not replaced by what the build began with."""
    path = tmp_path / "Coopfile.lock"
    path.write_text(renewed(LOCK))
    settled = Settled(str(path), known, KNOWN)
    with pytest.raises(CoopError, match="was changed"):
        lock.write(settled, print)
    assert path.read_text() == renewed(LOCK)
    path.write_text(file.text(LOCK))
    lock.write(settled, print)
    assert path.read_text() == file.text(KNOWN)
    path.unlink()
    lock.write(settled, print)
    assert path.read_text() == file.text(KNOWN)


def test_a_lock_that_was_damaged_meanwhile_is_left(tmp_path: Path) -> None:
    """Such as by a merge; one that was damaged before is renewed."""
    path = tmp_path / "Coopfile.lock"
    path.write_text("<<<<<<<")
    with pytest.raises(CoopError, match="was changed"):
        lock.write(Settled(str(path), LOCK, KNOWN), print)
    assert path.read_text() == "<<<<<<<"
    lock.write(Settled(str(path), None, KNOWN), print)
    assert path.read_text() == file.text(KNOWN)


@pytest.mark.parametrize(
    "versions",
    [
        {"apt": {"git": "1\n2"}},
        {"apt": {"git": ""}},
        {"apt": {"\x1b[2J": "1"}},
        {"apt": {"git": 1}},
        {"x": {}},
    ],
)
def test_an_image_that_lies(versions: dict[str, dict[str, str]]) -> None:
    """What no package manager would say is not written into a file that people commit."""
    with pytest.raises(CoopError, match="versions that are none"):
        found(LOCK, versions)
