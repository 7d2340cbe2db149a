"""Plans as Dockerfiles: what builders read is what the plan says, and no more."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from coopfile.compiling import Request, compile_project
from coopfile.errors import CoopError
from coopfile.language.images import Image
from coopfile.language.items import ImageReference, LocalImage
from coopfile.language.values import PackageName, ShellCommand
from coopfile.plan.model import Agent, Base, Packages, Plan, Setup, leaf, with_leaf
from coopfile.render.dockerfile import dockerfile, image_tag
from tests.unit.plan.samples import PLAN
from tests.unit.plan.strategies import LEAVES, PLANS, TEXT
from tests.unit.render.hostile import HOSTILE, Hostile

ROOT = Path(__file__).resolve().parents[3]
MANAGERS = ("apt", "apk", "dnf", "pip", "npm", "cargo")
DIGEST = "sha256:" + "0123456789abcdef" * 4
OTHER = "sha256:" + "f" * 64
NOTHING = Packages(apt=(), apk=(), dnf=(), pip=(), npm=(), cargo=())
# What changes the image; no other setting may change its Dockerfile or its name.
BUILD = ("base.image", *(f"packages.{name}" for name in MANAGERS), "setup.run", "agent.install")
PARTS = {
    "every-manager": PLAN.replace(
        packages=Packages(
            apt=("g++", "jq=1.6*", "tini:amd64"),
            apk=("git", "openssl>3", "so:libc.musl-x86_64.so.1"),
            dnf=("@development-tools", "gcc"),
            pip=("pytest==8.4.1", "uvicorn[standard]>=0.30,!=0.31"),
            npm=("@scope/pkg@^1.2", "typescript"),
            cargo=("ripgrep@14.1.1",),
        )
    ),
    "base-only": PLAN.replace(packages=NOTHING, setup=Setup((), "none"), agent=Agent(None, ())),
    "digest": PLAN.replace(base=Base(ImageReference("ghcr.io", "team/app", "1.2", DIGEST))),
    "digest-without-tag": PLAN.replace(base=Base(ImageReference("ghcr.io", "team/app", None, DIGEST))),
    "hostile": PLAN.replace(
        setup=Setup(tuple(command.command for command in HOSTILE if len(command.command) < 200), "none")
    ),
}


class _Files(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    file_extension = "Dockerfile"


@pytest.fixture
def files(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """Keep each Dockerfile in a file of its own, as it is."""
    return snapshot.use_extension(_Files)


def read(text: str) -> list[tuple[str, str]]:
    """Return the instructions and their arguments as every builder's first pass makes them.

    Comments go first, also those between continued lines; a line is continued by a
    backslash that no backslash stands before, whatever blanks stand after it.
    """
    found: list[tuple[str, str]] = []
    pending = ""
    for line in text.split("\n"):
        assert len(line.encode()) < 65_535, "builders read lines of less than 64 KiB"
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        assert pending == "" or line == line.lstrip(), "blanks before a continued line may be lost"
        continued = re.fullmatch(r"(|.*[^\\])\\[ \t]*", line, re.DOTALL)
        assert continued or not line.rstrip().endswith("\\"), "older builders read on here"
        pending += continued[1] if continued else line
        if not continued:
            name, _, argument = pending.strip().partition(" ")
            found.append((name, argument))
            pending = ""
    assert not pending, "the last line is continued"
    return found


def commands(text: str) -> list[str]:
    """Return what the shell of each RUN gets."""
    arguments = [json.loads(argument) for name, argument in read(text) if name == "RUN"]
    for argument in arguments:
        assert argument[:-1] == ["/bin/sh", "-c", "--"]
    return [argument[-1] for argument in arguments]


def set_up(*run: str) -> Plan:
    """Return a plan of which nothing but these commands is built."""
    return PLAN.replace(packages=NOTHING, setup=Setup(run, "none"), agent=Agent(None, ()))


@pytest.mark.parametrize("name", ["image", "isolated", "node"])
def test_example(name: str, files: SnapshotAssertion) -> None:
    """An example with an image renders to the reviewed Dockerfile."""
    file = ROOT / "examples" / f"{name}.Coopfile"
    assert dockerfile(compile_project(Request(str(file.parent), file=str(file))).plan) == files


@pytest.mark.parametrize("name", PARTS)
def test_part(name: str, files: SnapshotAssertion) -> None:
    """A plan that is about one part renders to the reviewed Dockerfile."""
    assert dockerfile(PARTS[name]) == files


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.name)
def test_a_hostile_command_is_data(hostile: Hostile) -> None:
    """What the containers' tests build is a command of the language, and arrives as it is."""
    assert ShellCommand().parse(hostile.command) == hostile.command
    assert commands(dockerfile(set_up(hostile.command))) == [hostile.command]


@given(st.lists(TEXT, max_size=3), TEXT)
@example(["<<EOF", "<<<<", "x\\"], "\\")
def test_commands_arrive_as_they_are(run: list[str], install: str) -> None:
    """Builders that read a Dockerfile get the plan's commands, in order, and nothing else."""
    plan = set_up(*run).replace(agent=Agent(install, ()))
    text = dockerfile(plan)
    assert commands(text) == [*run, install]
    assert [name for name, _ in read(text)] == ["FROM", "USER", "WORKDIR"] + ["RUN"] * (len(run) + 1)


@given(st.text('\\"# \n\t<a\U0001f600', min_size=1, max_size=7), st.integers(1, 5000))
def test_long_commands_arrive_as_they_are(unit: str, offset: int) -> None:
    """Wherever a long command is continued on a next line, none of it is lost or read as a comment."""
    command = "x" * offset + unit * (12_000 // len(unit))
    assert commands(dockerfile(set_up(command))) == [command]


@given(PLANS)
def test_the_text_is_plain(plan: Plan) -> None:
    """A Dockerfile is ASCII without here-documents and directives, whatever the plan says."""
    if not isinstance(plan.base.image, ImageReference):
        return
    text = dockerfile(plan)
    assert text.isascii() and "<<" not in text and text.endswith("\n")
    assert not re.match(r"#\s*\w+\s*=", text), "no directive to the builder"
    assert all(
        line.startswith(("#", "FROM ", "USER ", "WORKDIR ", "RUN [")) for line in text.split("\n") if line
    )


@given(st.data(), st.sampled_from(sorted(LEAVES)))
def test_only_what_is_built_counts(data: st.DataObject, key: str) -> None:
    """Plans that differ in what is not built share the Dockerfile, and its name save for the network."""
    value = data.draw(LEAVES[key])
    changed = with_leaf(PLAN, key, value)
    if key in BUILD:
        if value not in (None, leaf(PLAN, key)) and not isinstance(value, LocalImage):
            assert dockerfile(changed) != dockerfile(PLAN)
            assert image_tag(changed) != image_tag(PLAN)
    else:
        assert dockerfile(changed) == dockerfile(PLAN)
        same = key != "setup.network" or value == PLAN.setup.network
        assert (image_tag(changed) == image_tag(PLAN)) is same


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [
        ("agent.install", "curl https://example.invalid", -1),
        ("agent.install", None, -1),
        ("setup.run", ("true", "false"), -1),
        ("setup.run", ("false",), -2),
        ("packages.cargo", ("ripgrep",), -2),
        ("packages.pip", ("pytest",), -2),
    ],
)
def test_a_change_keeps_the_layers_before_it(key: str, value: object, kept: int) -> None:
    """What comes before a changed stage stays byte for byte, so that its layers are found again."""
    before = read(dockerfile(PLAN))
    after = read(dockerfile(with_leaf(PLAN, key, value)))
    assert after[: len(before) + kept] == before[:kept]


def test_stages_come_in_order() -> None:
    """System packages come first, then languages' packages, set-up in its order, and the agent last."""
    plan = PARTS["every-manager"].replace(setup=Setup(("b", "a", "b"), "none"))
    *packages, first, second, third, agent = commands(dockerfile(plan))
    programs = ["apt-get install", "apk add", "dnf install", "pip install", "npm install", "cargo install"]
    assert all(program in command for program, command in zip(programs, packages, strict=True))
    assert [first, second, third, agent] == ["b", "a", "b", "npm install"]


@pytest.mark.parametrize("manager", MANAGERS)
def test_packages_are_words_of_the_command(manager: str) -> None:
    """The shell hands each package on as one word: no glob, redirection, history or home of it."""
    names = ("a<2", "b>=1,!=3", "c[d]", "e*", "f~1", "g^2")
    for name in names:
        assert PackageName().parse(name) == name
    plan = with_leaf(set_up(), f"packages.{manager}", names)
    (command,) = commands(dockerfile(plan))
    words = shlex.split(command)
    start = words.index(names[0])
    assert tuple(words[start : start + len(names)]) == names


@pytest.mark.parametrize("manager", MANAGERS)
def test_a_manager_that_is_missing_is_named(manager: str) -> None:
    """The build says which setting needs a manager that the image has not, and fails."""
    plan = with_leaf(set_up(), f"packages.{manager}", ("x",))
    (command,) = commands(dockerfile(plan))
    result = subprocess.run(
        ["/bin/sh", "-c", "--", command], env={"PATH": "/nonexistent"}, capture_output=True, text=True
    )
    assert result.returncode == 127
    assert result.stderr.startswith(f"coop: packages.{manager}: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_digest_of_the_image_pins_it() -> None:
    """Beside a digest the tag is a comment: engines that refuse both take the digest."""
    text = dockerfile(PARTS["digest"])
    assert read(text)[0] == ("FROM", f"ghcr.io/team/app@{DIGEST}")
    assert "# ghcr.io/team/app:1.2\n" in text


def test_a_lock_pins_the_image() -> None:
    """A digest from elsewhere is as good as the image's own, and gives another image's name."""
    assert read(dockerfile(PLAN, digest=DIGEST))[0] == ("FROM", f"docker.io/library/debian@{DIGEST}")
    assert len({image_tag(PLAN), image_tag(PLAN, digest=DIGEST), image_tag(PLAN, digest=OTHER)}) == 3


def test_a_tag_beside_a_digest_does_not_count() -> None:
    """Two tags of one digest are one image to build on."""
    moved = PLAN.replace(base=Base(ImageReference("ghcr.io", "team/app", "2", DIGEST)))
    assert image_tag(moved) == image_tag(PARTS["digest"])


@pytest.mark.parametrize(
    ("plan", "digest", "message"),
    [
        (PARTS["digest"], OTHER, "base.image is pinned to"),
        (PLAN, "sha256:abc", "is not the digest of an image"),
        (PLAN, DIGEST + "\nRUN false", "is not the digest of an image"),
        (PLAN, "sha512:" + "0" * 128, "is not the digest of an image"),
    ],
)
def test_a_digest_that_cannot_be_meant_is_refused(plan: Plan, digest: str, message: str) -> None:
    """A digest that contradicts the image's own, or is none, is an error with a remedy."""
    with pytest.raises(CoopError, match=message) as caught:
        dockerfile(plan, digest=digest)
    assert caught.value.remedy


@pytest.mark.parametrize("key", BUILD[1:])
def test_what_has_no_base_is_refused(key: str) -> None:
    """Without an image there is nothing to install into, and the error names the key."""
    value = "true" if key == "agent.install" else ("true",)
    plan = with_leaf(set_up().replace(base=Base(None)), key, value)
    for render in (dockerfile, image_tag):
        with pytest.raises(CoopError, match=rf"^{re.escape(key)}: .* base\.image is not set") as caught:
            render(plan)
        assert "base.image = " in (caught.value.remedy or "")


def test_the_hosts_own_tools_are_not_built() -> None:
    """A plan that needs no image has no Dockerfile, and the error says why."""
    with pytest.raises(CoopError, match="the host's own tools"):
        dockerfile(set_up().replace(base=Base(None)))


def test_a_command_that_no_kernel_passes_on_is_refused() -> None:
    """A command of 128 KiB does not fit into an argument; one byte less does."""
    assert commands(dockerfile(set_up("é" * 65_535 + "x")))
    with pytest.raises(CoopError, match=r"^setup.run: .* 131,071 bytes"):
        dockerfile(set_up("é" * 65_536))
    with pytest.raises(CoopError, match=r"^packages.apt: "):
        dockerfile(with_leaf(set_up(), "packages.apt", tuple(f"p{number}" for number in range(30_000))))


@pytest.mark.parametrize("repository", ["library/debian", "a/" + "b-" * 100 + "c", "x" * 240, "a__b.c"])
def test_the_name_is_an_images_and_local(repository: str) -> None:
    """The name is one that every engine takes, without a registry of the network in it."""
    name = image_tag(PLAN.replace(base=Base(ImageReference("r.io", repository, "1"))))
    parsed = Image().parse(name)
    assert str(parsed) == name
    assert isinstance(parsed, ImageReference) and parsed.registry == "localhost"
    assert re.fullmatch(r"[0-9a-f]{24}", parsed.tag or "")


def test_a_dockerfile_cannot_begin_with_a_file() -> None:
    """An image in a file is refused, with what to do; nothing is made up for FROM."""
    plan = PLAN.replace(base=Base(LocalImage("oci", "images/base", "v1", DIGEST)))
    for render in (dockerfile, image_tag):
        with pytest.raises(CoopError, match="oci:images/base:v1@sha256:") as caught:
            render(plan)
        assert "registry" in str(caught.value.remedy)
