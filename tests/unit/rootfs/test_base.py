"""From a plan to its stages: their keys, and finding them again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from coopfile.errors import CoopError
from coopfile.language.items import HostPattern, ImageReference, LocalImage
from coopfile.plan.model import Base as BaseTable
from coopfile.plan.model import Plan, with_leaf
from coopfile.rootfs import base
from coopfile.rootfs.base import Base
from coopfile.rootfs.chain import Link, chain
from coopfile.rootfs.store import Root, Store
from tests.unit.plan.samples import PLAN

DIGEST = "sha256:" + "0123456789abcdef" * 4
IMAGE = ImageReference("docker.io", "library/debian", "12", DIGEST)
SOURCE = "docker.io/library/debian"
IMAGED = PLAN.replace(base=BaseTable(IMAGE))
CHANGES: dict[str, object] = {
    "packages.apt": ("other",),
    "packages.pip": ("other",),
    "setup.run": ("other",),
    "agent.install": "other",
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return an empty store."""
    return Store(str(tmp_path / "rootfs"))


@pytest.fixture
def found(store: Store) -> Iterator[Callable[[Plan], Base]]:
    """Yield what finds a plan's root file system for a project; it is let go in the end."""
    held: list[int] = []

    def find(plan: Plan) -> Base:
        result = base.find(plan, store.directory, "/project")
        held.extend(result.held)
        return result

    yield find
    for descriptor in held:
        os.close(descriptor)


def build(store: Store, links: tuple[Link, ...]) -> None:
    """Build empty stages."""
    for link in links:
        about = {"environment": [["A", "b"]], "source": SOURCE} if link.kind == "image" else {}

        def make(_: str, about: Mapping[str, Any] = about) -> Mapping[str, Any]:
            return about

        store.build(link.key, link.kind, link.parent, make)


def keys(plan: Plan, root: Root | None = None, own: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the keys of a plan's stages by their kinds."""
    return {link.kind: link.key for link in chain(plan, root, own)}


def test_a_change_counts_from_its_stage_on() -> None:
    """A stage's key depends on what it does and what it stands on, and on nothing else of the plan."""
    plan = with_leaf(IMAGED, "packages.pip", ("pytest",))
    first = keys(plan)
    order = list(first)
    assert order[0] == "image" and order[-2:] == ["setup.run", "agent.install"]
    for key, value in CHANGES.items():
        other = keys(with_leaf(plan, key, value))
        at = order.index(key)
        assert [kind for kind in order if other[kind] == first[kind]] == order[:at], key
    for key, value in (("setup.network", "none"), ("limits.pids", 7), ("base.image", IMAGE.replace(tag="x"))):
        assert keys(with_leaf(plan, key, value)) == first, key
    assert not set(
        keys(with_leaf(plan, "base.image", IMAGE.replace(digest="sha256:" + "0" * 64))).values()
    ) & set(first.values())


def test_a_generation_is_kept_on_the_same_image() -> None:
    """What was built for a project alone is its own until its image is another."""
    generations = {"setup.run": "again"}
    shared, own = keys(IMAGED), keys(IMAGED, None, generations)
    assert [kind for kind in own if own[kind] != shared[kind]] == ["setup.run", "agent.install"]
    root = Root(tuple(own.values()), generations)
    assert keys(IMAGED, root) == own
    third = keys(IMAGED, root, {"setup.run": "third"})
    assert third["setup.run"] not in (own["setup.run"], shared["setup.run"])
    other = with_leaf(IMAGED, "base.image", IMAGE.replace(digest="sha256:" + "0" * 64))
    assert keys(other, root) == keys(other)


def test_found_again(store: Store, found: Callable[[Plan], Base]) -> None:
    """The layers are found highest first, with the image's variables, the second time as the first."""
    links = chain(IMAGED, None)
    build(store, links)
    first = found(IMAGED)
    assert first.layers == tuple(f"{store.directory}/stages/{link.key}/fs" for link in reversed(links))
    assert first.environment == (("A", "b"),) and len(first.held) == len(links)
    assert found(IMAGED).replace(held=()) == first.replace(held=())
    assert store.collect().stages == (), "what was found is held"


@pytest.mark.parametrize(
    "image",
    [
        IMAGE.replace(repository="library/other"),
        IMAGE.replace(registry="registry.example"),
        LocalImage("oci", "/image", None, DIGEST),
        LocalImage("oci", "image", None, DIGEST),
    ],
)
def test_an_image_from_elsewhere(
    store: Store, found: Callable[[Plan], Base], image: ImageReference | LocalImage
) -> None:
    """What a lock says is no reason to give a project what came from a place that it does not name."""
    links = chain(IMAGED, None)
    build(store, links)
    with pytest.raises(CoopError, match="from elsewhere") as caught:
        found(with_leaf(IMAGED, "base.image", image))
    assert "coop init" in str(caught.value.remedy)
    assert found(with_leaf(IMAGED, "base.image", IMAGE.replace(tag="other"))).layers
    store.use("/project", tuple(link.key for link in links))
    assert found(with_leaf(IMAGED, "base.image", image)).layers


@pytest.mark.parametrize("times", [0, 1])
def test_a_stage_that_is_gone(store: Store, found: Callable[[Plan], Base], times: int) -> None:
    """A stage that is missing is noticed, however often all were found before."""
    links = chain(IMAGED, None)
    build(store, links)
    store.use("/project", tuple(link.key for link in links))
    for _ in range(times):
        found(IMAGED)
    shutil.rmtree(f"{store.directory}/stages/{links[1].key}")
    with pytest.raises(CoopError, match="no longer there") as caught:
        found(IMAGED)
    assert caught.value.remedy == "coop init builds it"


def test_what_was_recorded_last_counts(store: Store, found: Callable[[Plan], Base]) -> None:
    """A project that was built anew is found as it is now, though it was found before."""
    old, new = chain(IMAGED, None), chain(IMAGED, None, {"setup.run": "again"})
    build(store, old)
    store.use("/project", tuple(link.key for link in old))
    assert found(IMAGED).layers[0].endswith(f"{old[-1].key}/fs")
    build(store, new)
    store.use("/project", tuple(link.key for link in new), {"setup.run": "again"})
    assert found(IMAGED).layers[0].endswith(f"{new[-1].key}/fs")


@pytest.mark.parametrize("text", [b"", b"x", b"\0" * 100])
def test_a_damaged_entry_is_a_miss(store: Store, found: Callable[[Plan], Base], text: bytes) -> None:
    """What is kept of earlier searches may be cut or overwritten."""
    build(store, chain(IMAGED, None))
    first = found(IMAGED)
    (entry,) = Path(store.directory, "found").iterdir()
    entry.write_bytes(text)
    assert found(IMAGED).layers == first.layers


def test_the_network_makes_another_stage() -> None:
    """What a command made with a network is not taken for what it would have made without."""
    without, with_one = (chain(with_leaf(IMAGED, "setup.network", mode), None) for mode in ("none", "host"))
    assert without[0] == with_one[0]
    assert not {link.key for link in without[1:]} & {link.key for link in with_one[1:]}


def test_what_a_proxy_lets_a_build_reach_makes_another_stage(
    store: Store, found: Callable[[Plan], Base]
) -> None:
    """A command that was let to other hosts made another layer; without a proxy the list does not count."""
    proxied = with_leaf(IMAGED, "setup.network", "proxy")
    none, some, same = (
        with_leaf(proxied, "network.allow", tuple(map(HostPattern, hosts)))
        for hosts in ((), ("b.example", "a.example"), ("a.example", "b.example"))
    )
    assert chain(none, None)[0] == chain(some, None)[0] and chain(some, None) == chain(same, None)
    assert not {link.key for link in chain(none, None)[1:]} & {link.key for link in chain(some, None)[1:]}
    links = chain(none, None)
    build(store, links)
    store.use("/project", tuple(link.key for link in links))
    found(none)
    with pytest.raises(CoopError, match="has changed"):
        found(some)
    other = with_leaf(IMAGED, "network.allow", some.network.allow)
    assert chain(other, None) == chain(IMAGED, None)


def test_what_changed_is_told(store: Store, found: Callable[[Plan], Base]) -> None:
    """The error names the first stage that is not there."""
    with pytest.raises(CoopError, match="not built yet"):
        found(IMAGED)
    links = chain(IMAGED, None)
    build(store, links)
    store.use("/project", tuple(link.key for link in links))
    with pytest.raises(CoopError, match=r"setup\.run has changed"):
        found(with_leaf(IMAGED, "setup.run", ("other",)))
    other = with_leaf(IMAGED, "base.image", IMAGE.replace(digest="sha256:" + "0" * 64))
    with pytest.raises(CoopError, match=r"base\.image has changed"):
        found(other)
    with pytest.raises(CoopError, match="not locked yet"):
        found(with_leaf(IMAGED, "base.image", IMAGE.replace(digest=None)))
