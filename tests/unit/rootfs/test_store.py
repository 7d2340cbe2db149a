"""The store of stages: complete or not there, built once, collected when nobody uses them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from coopfile.errors import CoopError
from coopfile.rootfs.hold import hold
from coopfile.rootfs.store import Root, Stage, Store, key, project_id

FORK = multiprocessing.get_context("fork")


def making(*names: str, seconds: float = 0.0) -> Callable[[str], Mapping[str, Any]]:
    """Return a builder that makes some files and takes its time."""

    def make(directory: str) -> Mapping[str, Any]:
        for name in names:
            Path(directory, name).write_text(name)
        time.sleep(seconds)
        return {"names": list(names)}

    return make


def build(store: Store, name: str, parent: Stage | None = None) -> Stage:
    """Build a stage with one file."""
    above = parent.key if parent else None
    return store.build(key("test", above, name), "test", above, making(name))


@contextlib.contextmanager
def using(stage: Stage) -> Iterator[None]:
    """Hold a stage, as who runs on it does."""
    descriptor = hold(os.path.dirname(stage.fs))
    assert descriptor is not None
    try:
        yield
    finally:
        os.close(descriptor)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return an empty store whose directory is not there yet."""
    return Store(str(tmp_path / "data" / "rootfs"))


def left(store: Store) -> list[str]:
    """Return what lies in the store beside complete stages."""
    return os.listdir(f"{store.directory}/building")


def test_built_once(store: Store) -> None:
    """A stage is built the first time and found the second."""
    first = build(store, "a")
    assert Path(first.fs, "a").read_text() == "a"
    assert first.about == {"names": ["a"]} and first.size > 0
    again = store.build(first.key, "test", None, lambda _: pytest.fail("built again"))
    assert again == first and store.stages() == (first,) and left(store) == []


def test_keys() -> None:
    """A key depends on the kind, the parent and the inputs, not on the order of a mapping's items."""
    keys = [key("a", None, [1]), key("b", None, [1]), key("a", "x", [1]), key("a", None, [2])]
    assert len(set(keys)) == 4
    assert key("a", None, {"x": 1, "y": 2}) == key("a", None, {"y": 2, "x": 1})


def test_a_failure_leaves_nothing(store: Store) -> None:
    """When its builder fails a stage is not there, and neither is what it made."""

    def fail(directory: str) -> Mapping[str, Any]:
        Path(directory, "half").mkdir(0)
        raise CoopError("no")

    with pytest.raises(CoopError, match="no"):
        store.build("k", "test", None, fail)
    assert store.stage("k") is None and left(store) == []


def test_one_builds_while_others_wait(store: Store, tmp_path: Path) -> None:
    """Of several processes that want a stage one builds it and all have it."""
    log = tmp_path / "log"

    def make(directory: str) -> Mapping[str, Any]:
        with log.open("a") as file:
            file.write("built\n")
        time.sleep(0.3)
        return {}

    def want() -> None:
        assert store.build("k", "test", None, make).key == "k"

    processes = [FORK.Process(target=want) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0] * 4
    assert log.read_text() == "built\n"


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.05, 0.2])
def test_killed(store: Store, delay: float) -> None:
    """A builder that is killed leaves no stage, and the next build removes what it left."""
    process = FORK.Process(target=store.build, args=("k", "test", None, making("x", seconds=60)))
    process.start()
    time.sleep(delay)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join(10)
    assert store.stage("k") is None
    assert store.build("k", "test", None, making("x")).about == {"names": ["x"]}
    assert left(store) == []


def test_a_sweep_spares_the_living(store: Store) -> None:
    """What somebody is building is not taken for left behind."""
    process = FORK.Process(target=store.build, args=("slow", "test", None, making("x", seconds=1)))
    process.start()
    while not Path(store.directory, "building").is_dir() or not left(store):
        time.sleep(0.01)
    build(store, "quick")
    process.join(10)
    assert process.exitcode == 0 and store.stage("slow") is not None


@pytest.mark.parametrize("call", ["makedirs", "open"])
def test_a_sweep_that_comes_between(store: Store, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A place for a stage that is swept away before its builder has locked it is made again."""
    original: Any = getattr(os, call)
    swept: list[str] = []

    def sweeping(path: str, *arguments: Any, **named: Any) -> Any:
        result = original(path, *arguments, **named)
        if os.path.dirname(str(path)) == f"{store.directory}/building" and not swept:
            swept.append(path)
            Store(store.directory)._sweep()
            assert not os.path.exists(path)
        return result

    monkeypatch.setattr(os, call, sweeping)
    assert Path(build(store, "a").fs, "a").read_text() == "a"
    assert swept and not left(store)


def test_half_a_stage_is_none(store: Store) -> None:
    """A stage without what describes it, or with half of that, is not there."""
    stage = build(store, "a")
    meta = Path(store.directory, "stages", stage.key, "stage.json")
    for text in ("", "{", "[]", '{"kind": 1}'):
        meta.write_text(text)
        assert store.stage(stage.key) is None
    meta.unlink()
    assert store.stage(stage.key) is None and store.stages() == ()


def test_half_a_stage_is_replaced(store: Store) -> None:
    """What is left of a damaged stage is in nobody's way: it is built again, or collected."""
    stage = build(store, "a")
    meta = Path(store.directory, "stages", stage.key, "stage.json")
    meta.unlink()
    assert build(store, "a").key == stage.key and store.stage(stage.key) is not None
    meta.unlink()
    assert store.collect(dry_run=True).stages == () and meta.parent.exists()
    store.collect()
    assert not meta.parent.exists() and left(store) == []


def test_collect(store: Store, tmp_path: Path) -> None:
    """What projects use stays, with all that it stands on; the rest goes, and is told."""
    base, other = build(store, "base"), build(store, "other")
    setup = build(store, "setup", base)
    project = tmp_path / "project"
    project.mkdir()
    store.use(str(project), (setup.key,))
    planned = store.collect(dry_run=True)
    assert planned.stages == (other,) and planned.size == other.size
    assert store.stage(other.key) == other
    assert store.collect().stages == (other,)
    assert {stage.key for stage in store.stages()} == {base.key, setup.key} and left(store) == []
    project.rmdir()
    assert {stage.key for stage in store.collect().stages} == {base.key, setup.key}


def test_what_runs_is_not_collected(store: Store) -> None:
    """A stage in use stays until its user is done."""
    stage = build(store, "a")
    with using(stage):
        assert store.collect().stages == ()
    assert store.collect().stages == (stage,)
    assert hold(os.path.dirname(stage.fs)) is None


def test_projects_of_any_name(store: Store, tmp_path: Path) -> None:
    """A project's directory may have any name that a file system takes."""
    stage = build(store, "a")
    project = os.fsdecode(os.fsencode(tmp_path) + b"/\xff \n'")
    os.mkdir(project)
    store.use(project, (stage.key,))
    store.use(project, (stage.key,))
    assert store.collect().stages == ()


def test_no_room(store: Store) -> None:
    """A full disk is an error with its remedy, and leaves nothing."""

    def fill(_: str) -> Mapping[str, Any]:
        raise OSError(28, "No space left on device", "x")

    with pytest.raises(CoopError, match="no room left") as caught:
        store.build("k", "test", None, fill)
    assert "coop clean" in str(caught.value.remedy) and left(store) == []


def test_what_a_project_uses(store: Store, tmp_path: Path) -> None:
    """What was recorded last is told, and what is half written counts as nothing."""
    assert store.root(str(tmp_path)) is None
    store.use(str(tmp_path), ("a", "b"))
    store.use(str(tmp_path), ("a", "c"), {"setup.run": "again"})
    assert store.root(str(tmp_path)) == Root(("a", "c"), {"setup.run": "again"})
    for text in ("", "{", "[]", '{"project": "zz", "stages": []}', '{"project": "61"}'):
        Path(store.root_path(str(tmp_path))).write_text(text)
        assert store.root(str(tmp_path)) is None
        assert store.collect().stages == ()


def test_a_record_that_was_never_put_in_place_counts_as_nothing(store: Store, tmp_path: Path) -> None:
    """A writer that was killed does not have what the project uses taken for unused."""
    used, other = build(store, "a"), build(store, "b")
    path = Path(store.root_path(str(tmp_path)))
    store.use(str(tmp_path), (other.key,))
    unfinished = path.read_bytes()
    store.use(str(tmp_path), (used.key,))
    Path(f"{path}.4194305.tmp").write_bytes(unfinished)
    assert [stage.key for stage in store.collect().stages] == [other.key]


def test_nothing_is_collected_while_it_is_being_recorded(store: Store, tmp_path: Path) -> None:
    """A collection that began before a project's stages were recorded leaves them, held as they are."""
    stage = build(store, "a")
    with using(stage):
        collected = FORK.Process(target=store.collect)
        collected.start()
        store.use(str(tmp_path), (stage.key,))
        collected.join(30)
    assert collected.exitcode == 0 and store.stage(stage.key) == stage
    assert store.collect().stages == ()


def test_downloads_are_collected_with_their_project(store: Store, tmp_path: Path) -> None:
    """The downloads of a project go when it is gone, unless a build uses them now."""
    project = tmp_path / "project"
    project.mkdir()
    store.use(str(project), ())
    caches = Path(store.directory, "caches")
    for name in (project_id(str(project)), "gone", "used"):
        (caches / name / "apt").mkdir(parents=True)
        (caches / name / "apt/x.deb").write_bytes(bytes(5000))
    held = hold(str(caches / "used"))
    assert held is not None
    assert store.collect(dry_run=True).size > 10000
    assert sorted(os.listdir(caches)) == sorted(["gone", "used", project_id(str(project))])
    assert store.collect().size > 5000
    assert sorted(os.listdir(caches)) == sorted(["used", project_id(str(project))])
    os.close(held)
    project.rmdir()
    store.collect()
    assert os.listdir(caches) == [] and left(store) == []


def test_held_while_it_is_there(store: Store, tmp_path: Path) -> None:
    """A stage can be held from the moment it is built, and not once it is gone."""
    stage = build(store, "a")
    place = os.path.dirname(stage.fs)
    held = hold(place)
    assert held is not None and store.collect().stages == ()
    os.close(held)
    assert store.collect().stages == (stage,) and hold(place) is None
    (tmp_path / "link").symlink_to(tmp_path)
    assert hold(str(tmp_path / "link")) is None
