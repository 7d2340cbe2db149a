"""``coop render`` prints what a back end is told, for this machine or one that is described."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coopfile.cli import render
from coopfile.cli.main import main
from coopfile.render import script
from coopfile.render.factsfile import ENGINES, from_json

FACTS = Path(__file__).resolve().parents[1] / "render" / "facts"
LINUX, MAC, WINDOWS = (FACTS / f"{name}.json" for name in ("docker-rootful", "mac", "windows"))


@pytest.fixture(autouse=True)
def _coopfile(project: Path) -> None:
    (project / "Coopfile").write_text('coop = 1\nfiles.hide = ["**/.env*"]\n')


def printed(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> str:
    """Run a successful ``coop render`` and return what it printed."""
    assert main(["render", *map(str, argv)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def data(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> Any:
    """Return what ``--json`` prints."""
    return json.loads(printed(capsys, "--json", *argv))


def refused(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> str:
    """Return the message of a ``coop render`` that coop refuses."""
    assert main(["render", *map(str, argv)]) in (2, 125)
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_names_are_those_of_the_modules() -> None:
    """The lists that the help shows without importing the renderings are theirs."""
    assert render.STEPS == script.STEPS
    assert render.ENGINES == ENGINES


def test_options_stand_anywhere_and_the_command_behind_two_dashes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Options before and after the target are coop's; all after -- is the command's, also --."""
    words = ["--facts", str(LINUX)]
    first = printed(capsys, *words, "docker", "--", "make", "--facts", "--", "-x")
    assert first == printed(capsys, "docker", *words, "--", "make", "--facts", "--", "-x")
    assert first.rstrip().endswith(" make --facts -- -x")
    assert "--tty" in printed(capsys, "docker", "--tty", *words)


@pytest.mark.parametrize("words", [[], ["dockr"], ["docker", "make"], ["docker", "--step", "fly"]])
def test_wrong_usage_is_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """No target, an unknown one, and a command without -- are wrong usage."""
    with pytest.raises(SystemExit) as caught:
        main(["render", *words])
    assert caught.value.code == 2
    assert "coop render" in capsys.readouterr().err


def test_json_has_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    """The object holds argv for each step, the image, and what falls short."""
    found = data(capsys, "docker", "--facts", LINUX, "--", "make")
    assert set(found["steps"]) == {"run", "keep", "exec", "stop", "remove", "build"}
    assert (found["backend"], found["isolation"], found["assumed"]) == ("docker", "namespace", False)
    assert found["image"]["from"] == "import"
    assert found["steps"]["run"][-1] == "make"
    assert found["commit"][0]["argv"][:2] == ["docker", "commit"]
    assert [hole["key"] for hole in found["holes"]] == ["workspace.protect"]
    assert set(found["weakenings"][0]) == {"key", "text", "remedy"}


def test_the_plan_is_named_by_its_digest(capsys: pytest.CaptureFixture[str]) -> None:
    """The digest in the text and the JSON is that of ``coop plan``."""
    assert main(["plan", "--digest"]) == 0
    digest = capsys.readouterr().out.strip()
    assert data(capsys, "docker", "--facts", LINUX)["plan"] == digest
    assert f"# plan {digest}\n" in printed(capsys, "docker", "--facts", LINUX)


def test_runsc_is_a_kernel_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """The isolation is that of the runtime."""
    assert data(capsys, "docker", "--facts", FACTS / "docker-runsc.json")["isolation"] == "userspace-kernel"


def test_an_engine_that_nothing_is_known_of_is_assumed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Facts without an engine are rendered for a usual one, and that is said."""
    described = json.loads(LINUX.read_text())
    described["engine"] = None
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(described))
    assert data(capsys, "podman", "--facts", path)["assumed"] is True
    assert "nothing is known of this podman" in printed(capsys, "podman", "--facts", path)


def test_facts_of_another_engine_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """What holds for docker need not for podman."""
    assert "the facts are of docker" in refused(capsys, "podman", "--facts", LINUX)


def test_facts_that_cannot_be_read_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A missing and a wrong file are errors with their name."""
    assert "cannot read none.json" in refused(capsys, "docker", "--facts", "none.json")
    (tmp_path / "wrong.json").write_text("{}")
    assert "wrong.json does not describe" in refused(capsys, "docker", "--facts", tmp_path / "wrong.json")


def test_facts_of_this_machine_can_be_rendered_again(
    capsys: pytest.CaptureFixture[str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ``coop render facts`` prints renders to the same text as this machine does, without the engine."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.0)
    (project / ".env").write_text("SECRET=1")
    option = ["--set", 'env.TOKEN={ host = "MY_TOKEN" }']
    text = printed(capsys, "facts", *option)
    assert "s3cret" not in text
    facts = from_json(text)
    assert facts.engine is None
    assert facts.hidden == (f"{project}/.env",)
    path = project / "facts.json"
    here = printed(capsys, "docker", *option)
    path.write_text(text)
    assert printed(capsys, "docker", *option, "--facts", path) == here
    assert "s3cret" not in here
    assert 'TOKEN="${MY_TOKEN?}" docker run' in here


def test_nothing_is_made(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    """Rendering leaves no file behind, neither in the project nor where the masks would be."""
    before = sorted(project.rglob("*"))
    found = data(capsys, "docker", "--", "true")
    assert sorted(project.rglob("*")) == before
    assert found["masks"] is None or not Path(found["masks"]).exists()


def test_dockerfile(capsys: pytest.CaptureFixture[str]) -> None:
    """The Dockerfile is printed as it is, and its image's name with --json."""
    options = ["--set", "base.image=debian", "--set", 'packages.apt=["git"]']
    text = printed(capsys, "dockerfile", *options)
    assert "\nFROM docker.io/library/debian:latest\n" in text
    found = data(capsys, "dockerfile", *options)
    assert found["dockerfile"] == text
    assert found["image"] == data(capsys, "docker", *options, "--facts", LINUX)["image"]["reference"]
    assert "base.image" in refused(capsys, "dockerfile")


def test_seatbelt(capsys: pytest.CaptureFixture[str]) -> None:
    """The text writes the profile and calls sandbox-exec with it."""
    found = data(capsys, "seatbelt", "--facts", MAC, "--", "make")
    text = printed(capsys, "seatbelt", "--facts", MAC, "--", "make")
    assert found["profile"] in text
    assert "/usr/bin/sandbox-exec" in found["steps"]["run"]
    assert found["steps"]["run"][-2:] == ["--", "make"]
    assert found["profile_path"] in found["steps"]["run"]
    assert (found["isolation"], found["directory"]) == ("policy", "/Users/you/shop")


@pytest.mark.parametrize("target", ["seatbelt", "apple"])
def test_macs_are_described(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is of macOS is not rendered from the facts of another system."""
    assert "the facts are of a linux machine" in refused(capsys, target, "--facts", LINUX)


def test_apple(capsys: pytest.CaptureFixture[str]) -> None:
    """Apple's container takes the image from --entrypoint on, and a commit is an export and a build."""
    options = ["apple", "--facts", str(MAC), "--set", "base.image=debian"]
    found = data(capsys, *options, "--", "make", "-j")
    assert found["isolation"] == "vm"
    assert found["steps"]["run"][:2] == ["container", "run"]
    assert found["steps"]["run"][-3:] == ["--entrypoint=make", "docker.io/library/debian:latest", "-j"]
    assert [step["argv"][1] for step in found["commit"]] == ["export", "build"]
    assert "ADD rootfs.tar /" in printed(capsys, *options, "--step", "commit")


def test_windows(capsys: pytest.CaptureFixture[str]) -> None:
    """A drive of Windows is the source of the workspace's mount."""
    found = data(capsys, "docker", "--facts", WINDOWS, "--set", "base.image=debian")
    assert any(word.startswith("type=bind,source=D:\\src\\shop,") for word in found["steps"]["run"])
    assert "base.image is not set" in refused(capsys, "docker", "--facts", WINDOWS)


@pytest.mark.parametrize("target", ["dockerfile", "seatbelt", "facts"])
def test_only_containers_have_steps(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--step with what has no containers is wrong usage rather than ignored."""
    assert "has no containers" in refused(capsys, target, "--step", "stop")


def test_what_is_not_approved_is_not_rendered(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    """What is pasted is run: a project that widens needs approval, though its machine's facts can be seen."""
    (project / "Coopfile").write_text('network.mode = "host"\n')
    assert "coop allow" in refused(capsys, "docker", "--facts", LINUX)
    assert "coop allow" in refused(capsys, "dockerfile")
    printed(capsys, "facts")
    assert main(["allow"]) == 0
    capsys.readouterr()
    assert data(capsys, "docker", "--facts", LINUX)["backend"] == "docker"


def test_who_may_run_nothing_gets_nothing_rendered(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    """--as counts as for ``coop run``."""
    assert "may not run commands" in refused(capsys, "docker", "--as", "irc:stranger", "--facts", LINUX)


def test_text_is_utf_8_whatever_the_stream(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that is to be run is not changed for a stream that lacks its letters."""
    import io
    import sys

    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main(["render", "docker", "--facts", str(LINUX), "--", "echo", "grüße"]) == 0
    assert raw.getvalue().endswith(" echo 'grüße'\n".encode())
