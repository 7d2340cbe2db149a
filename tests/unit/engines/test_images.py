"""What is told of builds and pulls that fail, and what is never begun."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from coopfile.engines import images
from coopfile.engines.detect import detect
from coopfile.errors import CoopError
from coopfile.plan.model import with_leaf
from tests.unit.engines import infos
from tests.unit.plan.samples import PLAN

Install = Callable[..., dict[str, str]]
BUILT = with_leaf(PLAN, "sandbox.min_isolation", "namespace")
# `image inspect` finds no image but the base; `build` tells its arguments and fails as the text says.
PROGRAM = """#!/bin/sh
case $1 in
info) cat <<'END'
{info}
END
;;
image) case $5 in docker.io/*) exit 0;; *) exit 1;; esac ;;
build) echo "$@"; cat >/dev/null; cat <<'END'
{says}
END
exit 1 ;;
esac
"""


def failure(install: Install, says: str, plan: object = BUILT) -> tuple[CoopError, list[str]]:
    """Return the error of a build that says something and fails, and all that it said."""
    text = infos.program(infos.DOCKER).split("\n")[2]
    environment = install(docker=PROGRAM.format(info=text, says=says))
    engine = detect(environment, ["docker"])[0].engine
    shown: list[str] = []
    with pytest.raises(CoopError) as caught:
        images.ensure(plan, engine, (), "/home/me/w", environment, shown.append, None)  # type: ignore[arg-type]
    return caught.value, shown


@pytest.mark.parametrize(
    "step",
    ["Step {}/7 : RUN x", "STEP {}/7: RUN x", "#9 [{}/7] RUN x", "#9 [ {}/7] RUN x"],
    ids=["docker", "podman", "buildkit", "buildkit, aligned"],
)
@pytest.mark.parametrize(
    ("number", "title"),
    [
        (4, "packages.apt failed: command -v apt-get"),
        (5, "setup.run[0] failed: true"),
        (6, "agent.install failed: npm install"),
        (3, "docker could not build the image"),
        (9, "docker could not build the image"),
    ],
)
def test_a_failed_build_names_its_command(install: Install, step: str, number: int, title: str) -> None:
    """By the number of the step, in each builder's way of writing it."""
    error, _ = failure(install, f"{step.format(number)}\n ---> Running in x\nthe reason")
    first, *more = error.message.split("\n")
    assert first.startswith(title)
    assert more[-1] == "the reason"
    assert not [line for line in more if "Step" in line or "--->" in line]


def test_a_build_is_held_to_the_memory_of_the_plan(install: Install) -> None:
    """With swap counted too, where the engine can."""
    error, shown = failure(install, "")
    assert "--memory 2147483648b --memory-swap 2147483648b -" in error.message
    assert shown[0].startswith("building localhost/coop/debian:")


def test_a_build_is_not_less_isolated_than_the_plan(install: Install) -> None:
    """Engines build with their default runtime, whatever the plan's is."""
    error, shown = failure(install, "", with_leaf(PLAN, "sandbox.min_isolation", "userspace-kernel"))
    assert "docker would build the image with runc, which gives namespace" in error.message
    assert error.remedy is not None and "default" in error.remedy
    assert shown == []


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ('{"config":{"OnBuild":["RUN x"]}}', True),
        ('{"config":{"onbuild":["RUN x"]}}', True),
        ('{"Config":{"OnBuild":["RUN x"],"OnBuild":[]}}', True),
        ('{"config":{"ONBUILD":["RUN x"]},"config":{}}', True),
        ('{"config":{"OnBuild":null,"Cmd":["OnBuild"]}}', False),
        ('{"config":{"OnBuild":[]},"history":[{"created_by":"ONBUILD RUN x"}]}', False),
        ("{}", False),
    ],
)
def test_triggers_are_found_as_engines_read_them(configuration: str, expected: bool) -> None:
    """Go takes keys in any case, and the parts of an object that is there twice together."""
    assert images.has_triggers(configuration.encode()) is expected


SAVES = PROGRAM.replace("build)", "save) cat {archive} ;;\nbuild)")


def archive(path: Path, *members: tuple[str, bytes]) -> Path:
    """Write an image as `podman save` does."""
    with tarfile.open(path, "w") as made:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    return path


NAME = f"{'0' * 64}.json"


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([("layer.tar", b"x" * 100_000), (NAME, b'{"config":{}}')], "could not build the image"),
        ([("layer.tar", b"x"), (NAME, b'{"config":{"OnBuild":["RUN x"]}}')], "has ONBUILD instructions"),
        ([("layer.tar", b"x")], "cannot be looked at: it has no configuration"),
        ([(NAME, b"{")], "cannot be looked at: it has no configuration"),
        ([(NAME, b" " * (5 << 20))], "cannot be looked at: it has no configuration"),
        ([], "cannot be looked at: it has no configuration"),
    ],
    ids=["none", "one", "no configuration", "no JSON", "too large", "empty"],
)
def test_podman_is_asked_for_the_image_itself(
    install: Install, tmp_path: Path, members: list[tuple[str, bytes]], said: str
) -> None:
    """It shows no triggers: an image whose configuration cannot be read is refused too."""
    text = infos.program(infos.PODMAN).split("\n")[2]
    file = archive(tmp_path / "image.tar", *members)
    environment = install(podman=SAVES.format(info=text, says="", archive=file))
    engine = detect(environment, ["podman"])[0].engine
    assert engine is not None
    with pytest.raises(CoopError) as caught:
        images.ensure(BUILT, engine, (), "/home/me/w", environment, lambda _: None, None)
    assert said in caught.value.message
