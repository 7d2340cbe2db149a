"""Building and committing with Apple's ``container``: what its builder takes, and what says the rest."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from coopfile.errors import CoopError
from coopfile.render import apple
from coopfile.render.apple_images import ImageConfig, commit_dockerfile
from tests.unit.render.apple.checker import read
from tests.unit.render.apple.macs import ENGINE, shown

CONFIG = ImageConfig(
    environment=(("PATH", "/usr/bin:/bin"), ("A", "a b 'c' \"d\" $E ${F} \\n \\ # é")),
    directory="/my $work",
    user="1000:1000",
    entrypoint=("/start", "--flag", '"'),
    command=("a b",),
)


def test_commit_is_an_export_and_a_build(snapshot: SnapshotAssertion) -> None:
    """There is no commit: its steps are argv that exist, and a Dockerfile that says what the image said."""
    steps = apple.commit(ENGINE, "coop-shop-run", "localhost/coop/shop:1", "/private/tmp/x", CONFIG)
    calls = [read(step.argv) for step in steps]
    assert [call.verb for call in calls] == ["export", "build"]
    assert calls[0].one("output") == "/private/tmp/x/rootfs.tar"
    assert (calls[1].subject, calls[1].one("file")) == ("/private/tmp/x", "-")
    assert [steps[0].stdin, steps[1].stdin] == [None, commit_dockerfile(CONFIG)]
    assert "\n".join(shown(step.argv) for step in steps) + "\n" + str(steps[1].stdin) == snapshot


def words(line: str) -> str:
    """Return a value as BuildKit's word processor reads it: double quotes, and a backslash before three."""
    assert line[0] == line[-1] == '"'
    result, inner = "", iter(line[1:-1])
    for character in inner:
        assert character not in '"$'
        if character == "\\":
            following = next(inner)
            assert following in '"$\\'
            character = following
        result += character
    return result


@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=3),
)
def test_an_images_config_is_said_again(value: str, command: list[str]) -> None:
    """Values and commands of an image come through a Dockerfile as they are, one line each."""
    config = ImageConfig((("A", value),), "/" + value, "", (), tuple(command))
    lines = commit_dockerfile(config).split("\n")[2:-1]
    assert words(lines[0].removeprefix("ENV A=")) == value
    assert words(lines[1].removeprefix("WORKDIR ")) == "/" + value
    found = json.loads(lines[2].removeprefix("CMD ")) if command else []
    assert found == command and len(lines) == (3 if command else 2)


@pytest.mark.parametrize(
    "config",
    [
        ImageConfig(environment=(("A", "a\nRUN false"),)),
        ImageConfig(environment=(("A B", "x"),)),
        ImageConfig(environment=(("A", "\udcff"),)),
        ImageConfig(command=("\udcff",)),
        ImageConfig(user="a\tb"),
        ImageConfig(command=("x" * 17_000,)),
    ],
)
def test_a_config_that_no_dockerfile_holds_is_refused(config: ImageConfig) -> None:
    """What a Dockerfile would garble or split, or Apple's builder not take, is an error."""
    with pytest.raises(CoopError):
        commit_dockerfile(config)


@pytest.mark.parametrize("network", ["none", "proxy"])
def test_a_build_without_the_internet_is_refused(network: str) -> None:
    """The builder always has a network, so a build that should have none is not made."""
    with pytest.raises(CoopError, match="always has the internet"):
        apple.build(ENGINE, "a:b", network, "/x")


def test_a_build_needs_a_directory() -> None:
    """A context is a directory, not the standard input."""
    with pytest.raises(CoopError, match="directory"):
        apple.build(ENGINE, "a:b", "veth", "-")


def test_dockerfiles_are_held_to_the_builders_size() -> None:
    """16 KiB is one byte too many for Apple's builder."""
    apple.check_dockerfile("#" * (16 * 1024 - 1))
    with pytest.raises(CoopError, match="16,384 bytes"):
        apple.check_dockerfile("é" * (8 * 1024))
