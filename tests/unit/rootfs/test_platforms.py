"""Which image of an index is taken."""

from __future__ import annotations

import pytest

from coopfile.errors import CoopError
from coopfile.rootfs.documents import OCI_MANIFEST, Entry
from coopfile.rootfs.model import Descriptor, Platform
from coopfile.rootfs.platforms import choose, fitness, of_machine


def platform(text: str) -> Platform:
    """Read a platform."""
    return Platform(*text.split("/"))


def entry(text: str | None, number: int) -> Entry:
    """Return a line of an index."""
    blob = Descriptor(OCI_MANIFEST, f"sha256:{number:064d}", 1)
    return Entry(blob, None if text is None else platform(text))


@pytest.mark.parametrize(
    ("offered", "wanted", "chosen"),
    [
        ("linux/arm64 linux/amd64", "linux/amd64", 1),
        ("linux/arm64/v8 linux/amd64", "linux/arm64", 0),
        ("linux/arm64 linux/amd64", "linux/arm64/v8", 0),
        ("linux/arm/v5 linux/arm/v7 linux/arm/v6", "linux/arm/v7", 1),
        ("linux/arm/v5 linux/arm/v7 linux/arm/v6", "linux/arm/v6", 2),
        ("linux/arm linux/arm/v6", "linux/arm/v7", 0),
        ("linux/amd64/v3 linux/amd64", "linux/amd64", 1),
        ("linux/amd64 linux/amd64/v3", "linux/amd64/v3", 1),
        ("linux/amd64/v2 linux/amd64", "linux/amd64/v3", 0),
        ("linux/s390x linux/ppc64le", "linux/ppc64le", 1),
        ("linux/amd64 linux/amd64", "linux/amd64", 0),
        ("windows/amd64 linux/amd64", "linux/amd64", 1),
    ],
)
def test_the_best_that_runs_is_taken(offered: str, wanted: str, chosen: int) -> None:
    """The architecture has to be the same; of the variants that run here, the latest is taken."""
    entries = [entry(text, number) for number, text in enumerate(offered.split())]
    assert choose("image", entries, platform(wanted)) == entries[chosen]


@pytest.mark.parametrize(
    ("offered", "wanted"),
    [
        ("linux/386", "linux/amd64"),
        ("linux/arm/v7", "linux/arm64"),
        ("linux/arm/v7", "linux/arm/v6"),
        ("linux/arm", "linux/arm/v6"),
        ("linux/amd64/v3", "linux/amd64"),
        ("linux/arm64/v9", "linux/arm64/v8"),
        ("linux/riscv64/odd", "linux/riscv64"),
        ("darwin/amd64", "linux/amd64"),
        ("linux/arm/odd", "linux/arm/v7"),
    ],
)
def test_what_does_not_run_is_never_taken(offered: str, wanted: str) -> None:
    """Another architecture or a later variant is an error that names what there is."""
    assert fitness(platform(offered), platform(wanted)) is None
    with pytest.raises(CoopError) as error:
        choose("app:1", [entry(offered, 0)], platform(wanted))
    assert error.value.message == f"app:1 is not there for {wanted}, only for {offered}"
    assert error.value.remedy


def test_a_single_entry_without_a_platform_is_taken_and_several_are_not() -> None:
    """One image that does not say what it is for is asked itself; among several nobody can choose."""
    only = entry(None, 0)
    assert choose("image", [only], platform("linux/amd64")) is only
    with pytest.raises(CoopError, match="is not there for linux/amd64"):
        choose("image", [only, entry(None, 1)], platform("linux/amd64"))


def test_machines_have_the_names_that_images_use() -> None:
    """uname's names become Go's; an unknown machine is an error."""
    assert str(of_machine("x86_64")) == "linux/amd64"
    assert str(of_machine("aarch64")) == "linux/arm64/v8"
    assert str(of_machine("armv7l")) == "linux/arm/v7"
    with pytest.raises(CoopError, match="vax"):
        of_machine("vax")
