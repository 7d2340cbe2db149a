"""The record of what sessions have committed, and runs that find it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coopfile.errors import CoopError
from coopfile.plan.model import Access, Plan, with_leaf
from coopfile.rootfs import base, committed
from coopfile.rootfs.base import Base
from coopfile.rootfs.chain import chain
from coopfile.rootfs.committed import KIND, Committed
from coopfile.rootfs.store import Store
from tests.unit.rootfs.test_base import IMAGED, build

ANN = Access("ann", "full", "direct", (), (), True)


@pytest.fixture
def project(tmp_path: Path) -> str:
    """Return the directory of a project."""
    (tmp_path / "project").mkdir()
    return str(tmp_path / "project")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return an empty store."""
    return Store(str(tmp_path / "rootfs"))


@pytest.fixture
def find(store: Store, project: str) -> Iterator[Callable[[Plan], Base]]:
    """Yield what finds a plan's root file system for the project; it is let go in the end."""
    held: list[int] = []

    def find(plan: Plan) -> Base:
        result = base.find(plan, store.directory, project)
        held.extend(result.held)
        return result

    yield find
    for descriptor in held:
        os.close(descriptor)


def stacked(store: Store, project: str, plan: Plan) -> str:
    """Build a plan's stages, and record that the project uses them; return the key of the highest."""
    links = chain(plan, None)
    build(store, links)
    store.use(project, tuple(link.key for link in links))
    return links[-1].key


def commit(store: Store, project: str, key: str, parent: str, access: Access | None = None) -> None:
    """Build an empty stage, and record it as committed."""
    with store.scratch() as place:
        os.makedirs(f"{place}/stage/fs")
        store.made(f"{place}/stage", KIND, parent, {})
        with store.changing():
            store.adopt(f"{place}/stage", key)
            known = committed.read(store.directory, project, access)
            committed.write(store.directory, project, access, {**known, parent: Committed(key, "x")})


def test_found_on_top(store: Store, project: str, find: Callable[[Plan], Base]) -> None:
    """What is committed is the highest layer, also if it came after the last search, until dropped."""
    top = stacked(store, project, IMAGED)
    plain = find(IMAGED)
    assert plain.committed is None and not plain.unused
    commit(store, project, "c1", top)
    for _ in range(2):
        found = find(IMAGED)
        assert found.committed == "c1" and len(found.held) == len(plain.held) + 1
        assert found.layers == (f"{store.directory}/stages/c1/fs", *plain.layers)
    with store.changing():
        assert committed.forget(store.directory, project, None) == {top: Committed("c1", "x")}
    assert find(IMAGED).replace(held=()) == plain.replace(held=())


def test_on_other_stages(store: Store, project: str, find: Callable[[Plan], Base]) -> None:
    """What stands on other stages is not used and that is told, unless there is something on these, too."""
    commit(store, project, "c1", stacked(store, project, IMAGED))
    other = with_leaf(IMAGED, "setup.run", ("other",))
    top = stacked(store, project, other)
    for _ in range(2):
        found = find(other)
        assert found.unused and found.committed is None and not found.layers[0].endswith("c1/fs")
    commit(store, project, "c2", top)
    found = find(other)
    assert found.committed == "c2" and not found.unused
    assert find(IMAGED).committed == "c1"


def test_of_a_user(store: Store, project: str, find: Callable[[Plan], Base]) -> None:
    """What a user's sessions commit is that user's; of others it is not even told."""
    top = stacked(store, project, IMAGED)
    commit(store, project, "c1", top, ANN)
    assert find(IMAGED.replace(access=ANN)).committed == "c1"
    bob = ANN.replace(user="bob")
    for plan in (IMAGED, IMAGED.replace(access=bob)):
        found = find(plan)
        assert found.committed is None and not found.unused


def test_collected_when_it_is_dropped(store: Store, project: str) -> None:
    """What is committed stays, with all that it stands on, until it is dropped or its project is gone."""
    commit(store, project, "c1", stacked(store, project, IMAGED))
    old = {stage.key for stage in store.stages()}
    stacked(store, project, with_leaf(IMAGED, "setup.run", ("other",)))
    assert store.collect().stages == () and old < {stage.key for stage in store.stages()}
    os.rename(project, f"{project}.away")
    assert "c1" in {stage.key for stage in store.collect(dry_run=True).stages}
    os.rename(f"{project}.away", project)
    with store.changing():
        committed.forget(store.directory, project, None)
    assert "c1" in {stage.key for stage in store.collect().stages}


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"on": {}}', b'{"project": "2f", "on": {"a": 1}}'])
def test_damaged(store: Store, project: str, find: Callable[[Plan], Base], text: bytes) -> None:
    """A record that makes no sense is told, not taken for none, and can be dropped."""
    commit(store, project, "c1", stacked(store, project, IMAGED))
    path = Path(base.committed_path(store.directory, project, None))
    path.write_bytes(text)
    with pytest.raises(CoopError, match="damaged") as caught:
        find(IMAGED)
    assert caught.value.remedy is not None and "coop reset" in caught.value.remedy
    store.collect(dry_run=True)
    with store.changing():
        assert committed.forget(store.directory, project, None) == {}
    assert find(IMAGED).committed is None


def test_a_stage_that_is_gone(store: Store, project: str, find: Callable[[Plan], Base]) -> None:
    """Without its stage, what is committed is not left out in silence."""
    commit(store, project, "c1", stacked(store, project, IMAGED))
    find(IMAGED)
    os.rename(f"{store.directory}/stages/c1", f"{store.directory}/gone")
    with pytest.raises(CoopError, match="no longer there"):
        find(IMAGED)


def test_the_same_again(store: Store, project: str) -> None:
    """A stage that is there already is not replaced; what is left of a damaged one is."""
    top = stacked(store, project, IMAGED)
    commit(store, project, "c1", top)
    before = os.stat(f"{store.directory}/stages/c1").st_ino
    commit(store, project, "c1", top)
    assert os.stat(f"{store.directory}/stages/c1").st_ino == before
    os.unlink(f"{store.directory}/stages/c1/stage.json")
    commit(store, project, "c1", top)
    assert os.stat(f"{store.directory}/stages/c1").st_ino != before and store.stage("c1") is not None
