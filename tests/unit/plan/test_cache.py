"""The plan cache: a hit gives the same plan, and whatever is different is a miss."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coopfile import find
from coopfile.find import Project
from coopfile.plan import cache
from tests.unit.plan.samples import ACCESS, PLAN

DIGEST = "sha256:1"
OPTIONS = (None, None, "direct", ())


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project directory with a Coopfile that is not new any more."""
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "Coopfile").write_text("coop = 1\n")
    clock = time.time_ns
    # As if some time had passed: what is too new is not stored, and ctime cannot be set back.
    monkeypatch.setattr(time, "time_ns", lambda: clock() + 10**9)
    return directory


def environment(directory: Path) -> dict[str, str]:
    """Return the variables of a caller whose home is beside the project."""
    return {"HOME": str(directory.parent / "home")}


def found(directory: Path) -> Project:
    """Find the project."""
    return find.find(str(directory), None, environment(directory))


def store(directory: Path) -> str:
    """Store the plan and return the cache's directory."""
    project = found(directory)
    place = str(directory.parent / "cache")
    cache.store(place, cache.key(project, OPTIONS, environment(directory)), PLAN, DIGEST)
    return place


def load(directory: Path, options: tuple[object, ...] = OPTIONS, **variables: str) -> object:
    """Load what there is for the project as it is now."""
    key = cache.key(found(directory), options, {**environment(directory), **variables})
    loaded = cache.load(str(directory.parent / "cache"), key)
    assert loaded is None or loaded[1] == DIGEST
    return None if loaded is None else loaded[0]


def test_hit(files: Path) -> None:
    """What was stored is loaded, equal in every field."""
    assert load(files) is None
    store(files)
    assert load(files) == PLAN


def test_access_is_kept(files: Path) -> None:
    """A plan for a user comes back with the user's access."""
    plan = PLAN.replace(access=ACCESS)
    project = found(files)
    place = str(files.parent / "cache")
    cache.store(place, cache.key(project, OPTIONS, {}), plan, DIGEST)
    assert cache.load(place, cache.key(project, OPTIONS, {})) == (plan, DIGEST)


def test_edit(files: Path) -> None:
    """An edit of the Coopfile is a miss at once, also one that keeps size and modification time."""
    store(files)
    path = files / "Coopfile"
    before = path.stat()
    path.write_text("coop = 2\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert load(files) is None


def test_replaced(files: Path) -> None:
    """So is a replacement of the file by a rename."""
    store(files)
    (files / "new").write_text("coop = 1\n")
    (files / "new").rename(files / "Coopfile")
    assert load(files) is None


@pytest.mark.parametrize("name", ["Coopfile.local", "../home/.config/coop/Coopfile"])
def test_new_layer(files: Path, name: str) -> None:
    """So is a file of another layer that appears, or goes."""
    store(files)
    (files / name).parent.mkdir(parents=True, exist_ok=True)
    (files / name).write_text("coop = 1\n")
    assert load(files) is None
    (files / name).unlink()
    assert load(files) == PLAN
    (files / "Coopfile").unlink()
    assert load(files) is None


@pytest.mark.parametrize(
    "options",
    [
        ("Coopfile", None, "direct", ()),
        (None, "a:b", "direct", ()),
        (None, None, "group", ()),
        (None, None, "direct", ("network.mode=none",)),
    ],
)
def test_options(files: Path, options: tuple[object, ...]) -> None:
    """So is any option that the plan depends on."""
    store(files)
    assert load(files, options) is None


def test_variables(files: Path) -> None:
    """So is a COOP_ variable; others do not matter."""
    store(files)
    assert load(files, COOP_NETWORK_MODE="host") is None
    assert load(files, PATH="/elsewhere", XCOOP_="1") == PLAN


def test_approvals(files: Path) -> None:
    """So is any change of what is approved."""
    store(files)
    approvals = Path(find.approvals(environment(files)))
    approvals.mkdir(parents=True)
    assert load(files) is None
    store(files)
    assert load(files) == PLAN
    time.sleep(0.02)
    (approvals / "x.json").touch()
    assert load(files) is None


@pytest.mark.parametrize("name", ["__version__", "PLAN_VERSION"])
def test_versions(files: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is another version of coop or of the plan."""
    store(files)
    monkeypatch.setattr(cache, name, "other")
    assert load(files) is None


def test_other_project(files: Path) -> None:
    """Two projects have entries of their own."""
    store(files)
    other = files.parent / "other"
    other.mkdir()
    (other / "Coopfile").write_text("coop = 1\n")
    assert load(other) is None
    store(other)
    assert load(files) == load(other) == PLAN
    assert len(list((files.parent / "cache/plans").iterdir())) == 2


def check_stored_later(files: Path, monkeypatch: pytest.MonkeyPatch, changed: int) -> None:
    """Check that nothing is stored just after a change, and something a moment later."""
    monkeypatch.setattr(time, "time_ns", lambda: changed + 20_000_000)
    store(files)
    assert load(files) is None
    monkeypatch.setattr(time, "time_ns", lambda: changed + 100_000_000)
    store(files)
    assert load(files) == PLAN


def test_too_new(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was changed a moment ago is not trusted to keep its time stamp: nothing is stored."""
    check_stored_later(files, monkeypatch, (files / "Coopfile").stat().st_ctime_ns)


@pytest.mark.parametrize("name", ["project/Coopfile.lock", "home/.local/state/coop/approvals/x.json"])
def test_too_new_beside_it(files: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Nor is the lock, or what is approved."""
    place = files.parent / name
    place.parent.mkdir(parents=True, exist_ok=True)
    now = time.time_ns() + 60 * 10**9
    place.write_text("")
    for changed in (place, place.parent):
        os.utime(changed, ns=(now, now))
    check_stored_later(files, monkeypatch, now)


def test_permissions(files: Path) -> None:
    """Entries are the caller's alone, and so is their directory."""
    place = Path(store(files), "plans")
    (entry,) = place.iterdir()
    assert (place.stat().st_mode & 0o777, entry.stat().st_mode & 0o777) == (0o700, 0o600)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o602, 0o620])
def test_others_may_touch_it(files: Path, mode: int) -> None:
    """An entry that somebody else could read or write is not read."""
    (entry,) = Path(store(files), "plans").iterdir()
    entry.chmod(mode)
    assert load(files) is None


def test_others_own_it(files: Path, give_away: Callable[[Path], None]) -> None:
    """Nor is one that belongs to somebody else."""
    (entry,) = Path(store(files), "plans").iterdir()
    give_away(entry)
    assert load(files) is None


def test_link(files: Path) -> None:
    """Nor one behind a link."""
    (entry,) = Path(store(files), "plans").iterdir()
    entry.rename(entry.with_suffix(".moved"))
    entry.symlink_to(entry.with_suffix(".moved"))
    assert load(files) is None


def test_damaged(files: Path) -> None:
    """An entry with a byte changed, or cut, anywhere is a miss and not an error."""
    (entry,) = Path(store(files), "plans").iterdir()
    good = entry.read_bytes()
    for position in (*range(60), *range(60, len(good), 23), len(good) - 1):
        for bad in (good[:position], good[:position] + bytes([good[position] ^ 0x41]) + good[position + 1 :]):
            entry.write_bytes(bad)
            assert load(files) is None, position
    entry.write_bytes(good)
    assert load(files) == PLAN


def test_cannot_store(files: Path) -> None:
    """Not being able to store is no error."""
    (files.parent / "cache").write_text("a file where the directory should be")
    store(files)
    assert load(files) is None


def test_bounded(files: Path) -> None:
    """The cache does not grow without end, and a full one still works."""
    place = Path(store(files), "plans")
    for number in range(400):
        (place / f"{number:08x}").touch()
    store(files)
    assert load(files) == PLAN
    assert len(list(place.iterdir())) < 300
