"""Pasted text does what the argv says: shells read it, and a stand-in for the engine notes its calls."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coopfile.errors import CoopError
from coopfile.language.items import Variable
from coopfile.plan.launch import Host, Weakening
from coopfile.plan.model import Plan, with_leaf
from coopfile.render.container import Request
from coopfile.render.facts import Engine, Entry, Facts
from coopfile.render.images import tools_archive
from coopfile.render.script import STEPS, command, here_document, notes, quote, script, seatbelt
from coopfile.render.steps import Rendering, rendering
from tests.unit.plan.samples import PLAN

SHELLS = [
    [path, *arguments]
    for name, *arguments in (
        ["sh"],
        ["dash"],
        ["bash"],
        ["bash", "--posix"],
        ["zsh"],
        ["busybox", "sh"],
        ["ksh"],
    )
    if (path := shutil.which(name)) is not None
]

# Writes its arguments down, counted and each ended by NUL, then TOKEN, then what it reads.
ENGINE = """#!/bin/sh
printf '%s\\0' "$#" "$@" >>"$CALLS"
printf '%s\\0' "${TOKEN-not set}" >>"$CALLS"
case "$1 $2" in
'image inspect') exit 1 ;;
build*|'import '*) cat >>"$CALLS.stdin" ;;
esac
"""

SPECIAL = " '\"\\$`!#&|;<>()[]{}*?~=%,:\n\t\x1b\x07\x7f\u0085\u202eé世\U0001f600-"
HOSTILE = st.text(
    st.sampled_from(SPECIAL) | st.characters(codec="utf-8", exclude_characters="\0"),
    max_size=30,
)
# Files of Linux may have any bytes for names.
NAMES = st.builds(
    lambda text, byte: (text.replace("/", "") + byte).replace("\r", ""),
    HOSTILE,
    st.sampled_from(["", "\udcff", "x"]),
).filter(lambda name: name not in ("", ".", ".."))


def calls(path: Path) -> list[tuple[list[str], str]]:
    """Return (arguments, value of TOKEN) of each call of the stand-in."""
    words = [os.fsdecode(word) for word in path.read_bytes().split(b"\0")[:-1]]
    found = []
    while words:
        end = int(words[0]) + 1
        found.append((words[1:end], words[end]))
        words = words[end + 1 :]
    return found


def given_to(shell: list[str], text: str, directory: Path, **environment: str) -> list[tuple[list[str], str]]:
    """Run a text in a shell with the stand-in for every engine, and return its calls."""
    for name in ("docker", "podman", "container"):
        program = directory / name
        program.write_text(ENGINE)
        program.chmod(0o755)
    log, saved = directory / "calls", directory / "script.sh"
    for old in (log, directory / "calls.stdin"):
        old.unlink(missing_ok=True)
    log.touch()
    saved.write_bytes(text.encode("utf-8", "surrogateescape"))
    path = f"{directory}:{os.environ['PATH']}"
    environment = {"PATH": path, "CALLS": str(log), "LC_ALL": "C.UTF-8", **environment}
    done = subprocess.run([*shell, saved], env=environment, capture_output=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, b""), text
    return calls(log)


def facts(directory: Path | str, **changes: object) -> Facts:
    """Return facts of a Linux host whose masks are below a directory."""
    host = Host(1000, 1000, "you", "/home/you", "/home/you/shop", "/home/you/shop", {"TOKEN": ""})
    found = Facts(
        host,
        engine=Engine("docker", "docker"),
        kinds={"/home/you/shop/.env": "file"},
        hidden=("/home/you/shop/.env",),
        tools=(Entry("bind", "/usr", "/usr"),),
        masks=f"{directory}/masks",
    )
    return found.replace(**changes)


def plan(**leaves: object) -> Plan:
    """Return the sample plan, on the host's own tools where it has none of its own, with other leaves."""
    changed = PLAN
    values: dict[str, object] = {
        "sandbox.backend": ("auto",),
        "sandbox.runtime": None,
        "sandbox.min_isolation": "namespace",
        "env": (),
        **{name.replace("__", "."): value for name, value in leaves.items()},
    }
    if "base.image" in values and values["base.image"] is None:
        values.update(
            {f"packages.{name}": () for name in PLAN.packages._fields}
            | {"setup.run": (), "agent.install": None}
        )
    for key, value in values.items():
        changed = with_leaf(changed, key, value)
    return changed


def rendered(directory: Path | str, *argv: str, **leaves: object) -> Rendering:
    """Render the plan of the leaves for Docker."""
    return rendering(plan(**leaves), facts(directory), Request(argv or ("true",)), "namespace")


@pytest.fixture(params=SHELLS, ids=" ".join)
def shell(request: pytest.FixtureRequest) -> list[str]:
    """Return how to call one of the shells of this machine."""
    found: list[str] = request.param
    return found


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(HOSTILE | NAMES, min_size=1, max_size=20))
def test_quoted_words_are_read_as_they_were(shell: list[str], words: list[str]) -> None:
    """Every shell reads every quoted word as the text that it stands for, byte by byte."""
    line = "printf '%s\\0' " + " ".join(map(quote, words))
    done = subprocess.run([*shell, "-c", os.fsencode(line)], capture_output=True, timeout=20, check=True)
    assert done.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in words]


@given(HOSTILE | NAMES)
def test_quoted_words_can_be_shown(word: str) -> None:
    """A quoted word has nothing that a terminal acts on, and no bytes that are not UTF-8."""
    assert quote(word).replace("\n", "").isprintable()


@pytest.mark.parametrize("word", ["", "=ls", "~", "a b", "{a,b}", "$x", "*", "a;b", "é", "!x", "#x", "a~"])
def test_what_a_shell_would_change_is_quoted(word: str) -> None:
    """Also what only some shells expand: zsh takes =ls for the path of ls."""
    assert quote(word) == f"'{word}'"


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(argv=st.lists(HOSTILE, min_size=1, max_size=4), value=HOSTILE, name=NAMES, hidden=NAMES, token=HOSTILE)
def test_run_calls_the_engine_with_the_argv(
    shell: list[str], argv: list[str], value: str, name: str, hidden: str, token: str
) -> None:
    """Hostile arguments, values, paths and secrets reach the engine as --json says they should."""
    argv[0] = argv[0] or "true"
    workspace = f"/home/you/{name}"
    host = Host(1000, 1000, "you", "/home/you", workspace, workspace, {"SECRET": ""})
    env = (Variable("HOSTILE", value, None), Variable("TOKEN", None, "SECRET"))
    with tempfile.TemporaryDirectory() as directory:
        described = facts(
            directory, host=host, hidden=(f"{workspace}/{hidden}",), kinds={f"{workspace}/{hidden}": "file"}
        )
        asked = plan(**{"base.image": None, "env": env})
        found = rendering(asked, described, Request(tuple(argv)), "namespace")
        place = Path(directory)
        made = given_to(shell, script(found), place, SECRET=token)
        assert [arguments for arguments, _ in made] == [
            list(found.image.present[1:]),
            list(found.image.argv[1:]),
            list(found.step("run")[1:]),
        ]
        assert made[-1][1] == token
        assert (place / "calls.stdin").read_bytes() == tools_archive(described.tools)


@pytest.mark.parametrize("step", STEPS)
def test_each_step_calls_the_engine_with_its_argv(shell: list[str], step: str, tmp_path: Path) -> None:
    """The last call of a step's text is the step's argv, and its standard input the Dockerfile."""
    found = rendered(tmp_path, "make", "-j", "it's")
    last = given_to(shell, script(found, step), tmp_path)[-1][0]
    assert last == list((found.commit[-1].argv if step == "commit" else found.step(step))[1:])
    if step in ("run", "keep", "build"):
        assert (tmp_path / "calls.stdin").read_text() == found.image.stdin


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(HOSTILE | NAMES | st.sampled_from(["#", "\n#\nfalse", "$(false)", "`false`", "'", "\\"]))
)
def test_notes_do_nothing(shell: list[str], lines: list[str]) -> None:
    """What is for people is not run, whatever it says."""
    text = notes(lines) + "echo after"
    done = subprocess.run([*shell, "-c", os.fsencode(text)], capture_output=True, timeout=20, check=True)
    assert (done.stdout, done.stderr) == (b"after\n", b"")


@given(st.lists(st.sampled_from(["X", "X_1", "X_2", "", "é"])).map("\n".join))
def test_a_here_document_ends_where_it_should(text: str) -> None:
    """No line of the text is the delimiter."""
    redirection, rest = here_document(text, "X")
    *lines, delimiter, after = rest.split("\n")
    assert redirection == f"<<'{delimiter}'"
    assert after == ""
    assert delimiter not in lines
    assert "\n".join(lines) == text.removesuffix("\n")


def test_masks_are_made_once_and_nobody_may_open_them(shell: list[str], tmp_path: Path) -> None:
    """What stands in for hidden paths is an empty file and directory of mode 000; a second time is fine."""
    text = script(rendered(tmp_path))
    for _ in range(2):
        given_to(shell, text, tmp_path)
        for name, test in (("file", stat.S_ISREG), ("directory", stat.S_ISDIR)):
            status = (tmp_path / "masks" / name).stat()
            assert test(status.st_mode)
            assert stat.S_IMODE(status.st_mode) == 0


def test_an_image_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    """The engine is asked first."""
    found = rendered(tmp_path)
    text = script(found)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "docker"
    program.write_text(ENGINE.replace("exit 1", "exit 0"))
    program.chmod(0o755)
    saved, log = tmp_path / "script.sh", tmp_path / "log"
    saved.write_text(text)
    environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", "CALLS": str(log)}
    subprocess.run(["sh", saved], env=environment, check=True, timeout=20)
    assert [arguments[0] for arguments, _ in calls(log)] == ["image", "run"]


def test_a_secret_that_the_shell_does_not_have_stops_it(tmp_path: Path) -> None:
    """A variable of the host that is not set is an error, rather than an empty value."""
    found = rendered(tmp_path, env=(Variable("TOKEN", None, "TOKEN"),))
    with pytest.raises(AssertionError, match="TOKEN"):
        given_to(["sh"], script(found, "exec"), tmp_path)


def test_secrets_are_in_no_image(tmp_path: Path) -> None:
    """What waits has no value of the host's in its environment, since a commit would write it down."""
    found = rendered(tmp_path, env=(Variable("TOKEN", None, "TOKEN"),))
    assert "TOKEN" in found.step("run")
    assert "TOKEN" in found.step("exec")
    assert "TOKEN" not in found.step("keep")


def test_what_the_engine_acts_on_is_refused(tmp_path: Path) -> None:
    """A variable that would change how the engine works cannot come from another of the host."""
    with pytest.raises(CoopError, match=r"env\.PATH"):
        rendered(tmp_path, env=(Variable("PATH", None, "TOKEN"),))


def test_holes_are_marked_apart_from_weakenings(tmp_path: Path) -> None:
    """What gives more than the plan is told first, in capitals."""
    found = rendered(tmp_path, network__mode="veth", sandbox__min_isolation="vm")
    lines = script(found).splitlines()
    more = [line for line in lines if line.startswith("# GIVES MORE THAN THE PLAN: ")]
    for key in ("network.mode", "sandbox.min_isolation", "workspace.protect"):
        assert any(f": {key}: " in line for line in more)
    assert any(line.startswith("# weaker than the plan: limits.tmp: ") for line in lines)


@pytest.mark.parametrize(
    ("leaves", "key"),
    [
        ({"sandbox__backend": ("native",)}, "sandbox.backend"),
        ({"sandbox__min_isolation": "userspace-kernel"}, "sandbox.min_isolation"),
        ({"setup__network": "veth"}, "setup.network"),
    ],
)
def test_another_back_end_than_the_plan_asks_for_is_a_hole(
    tmp_path: Path, leaves: dict[str, object], key: str
) -> None:
    """A rendering for a back end that the plan does not take says so."""
    assert key in [hole.key for hole in rendered(tmp_path, **leaves).holes]
    assert key not in [hole.key for hole in rendered(tmp_path).holes]


def test_hosts_that_ignore_case_guard_one_spelling(tmp_path: Path) -> None:
    """On macOS and Windows, what is guarded or hidden has other spellings: that is told."""
    described = facts(tmp_path, system="darwin")
    found = rendering(plan(), described, Request(("true",)), "namespace")
    assert [hole.key for hole in found.holes if "one spelling" in hole.text] == ["files.hide"]
    assert not any("one spelling" in hole.text for hole in rendered(tmp_path).holes)


def test_host_tools_have_to_be_named(tmp_path: Path) -> None:
    """Facts without tools cannot make an image of the host's tools: that is no empty container."""
    with pytest.raises(CoopError, match="tools"):
        rendering(plan(**{"base.image": None}), facts(tmp_path, tools=()), Request(), "namespace")


def test_windows_sources_are_those_of_the_host(tmp_path: Path) -> None:
    """A drive is the engine's source as Windows writes it, and below /d inside; bash changes neither."""
    host = Host(1000, 1000, "you", "/c/Users/you", "/d/a b/shop", "/d/a b/shop", {})
    described = facts(
        tmp_path,
        system="windows",
        host=host,
        masks="/c/masks",
        kinds={"/d/a b/shop/.env": "file"},
        hidden=("/d/a b/shop/.env",),
    )
    found = rendering(plan(workspace__path="host"), described, Request(("true",)), "namespace")
    mounts = [word for word in found.step("run") if word.startswith("type=bind")]
    assert mounts[0].startswith("type=bind,source=D:\\a b\\shop,target=/d/a b/shop,")
    assert "source=C:\\masks\\file,target=/d/a b/shop/.env," in mounts[-1]
    assert "/d/a b/shop" in found.step("run")
    text = script(found)
    assert "MSYS_NO_PATHCONV=1 MSYS2_ARG_CONV_EXCL='*' docker run" in text
    assert ": >C:/masks/file" in text


def test_an_option_stands_on_a_line_with_its_value() -> None:
    """The image and the command share the last line."""
    assert command(("docker", "run", "--rm", "--name", "x", "--env", "A=b", "img", "sh", "-c", "a=b"), 4) == (
        "docker run \\\n  --rm \\\n  --name x \\\n  --env A=b \\\n  img sh -c a=b"
    )


def test_seatbelt_writes_its_profile_and_starts_in_the_directory(shell: list[str], tmp_path: Path) -> None:
    """The profile is a file, exact to the byte; the command starts where it should, and the shell stays."""
    directory, profile = tmp_path / "a 'b", tmp_path / "state" / "p.sb"
    directory.mkdir()
    text = seatbelt(
        ["it's"], (str(profile), "(deny é \\ $x)\nPROFILE\n"), str(directory), ("sh", "-c", "pwd >here"), 3
    )
    subprocess.run([*shell, "-c", f"{text}\npwd >after"], cwd=tmp_path, check=True, timeout=20)
    assert profile.read_text() == "(deny é \\ $x)\nPROFILE\n"
    assert (directory / "here").read_text() == f"{directory}\n"
    assert (tmp_path / "after").read_text() == f"{tmp_path}\n"


def test_a_commit_says_that_it_holds_nothing_new(tmp_path: Path) -> None:
    """The container's root is read-only, and who commits it should know."""
    assert "read-only" in script(rendered(tmp_path), "commit").partition("\n#\n")[0]
    assert "read-only:" not in script(rendered(tmp_path), "exec").partition("\n#\n")[0]


def test_weakenings_reach_the_text_escaped(tmp_path: Path) -> None:
    """A path with an escape sequence or a newline in a note is shown, not acted on."""
    found = rendered(tmp_path).replace(
        holes=(Weakening("k", "\x1b[2J\n#\ntouch x", None),), skipped=("\u202e",)
    )
    text = script(found)
    assert "# GIVES MORE THAN THE PLAN: k: \\x1b[2J\\n#\\ntouch x" in text
    assert "# skipped: \\u202e" in text


def test_an_image_is_not_covered_by_the_hosts_tools(tmp_path: Path) -> None:
    """Facts may name the host's tools beside a plan that has an image: that image is used as it is."""
    assert "target=/usr," in " ".join(rendered(tmp_path, **{"base.image": None}).step("run"))
    assert "target=/usr," not in " ".join(rendered(tmp_path).step("run"))
