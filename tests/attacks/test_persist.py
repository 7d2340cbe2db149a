"""Attacks through what outlives a run: links and races left for the next one, and the store itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from coopfile.plan.sessions import session_id
from tests.attacks.options import give
from tests.sandboxes import Project, tree, wait_until

pytestmark = pytest.mark.native

TARGETS = ("/workspace", "/workspace/.git", "../../workspace/sub", "/etc", "/proc/self", "/", "..", "nowhere")


def store(project: Project) -> Path:
    """Return where coop keeps the project's default session."""
    return project.home / ".local/share/coop/sessions" / session_id(str(project.directory), None)


def keep(*paths: str) -> tuple[str, ...]:
    """Return the options that keep more directories of the home."""
    return ("--set", "session.persist=[" + ",".join(f'"{path}"' for path in paths) + "]")


@pytest.mark.parametrize("target", TARGETS)
def test_planted_link(project: Project, target: str) -> None:
    """A link left where the next run mounts something is refused by name, whatever it leads to."""
    project.mkdir(".git/hooks")
    project.mkdir("sub")
    project.write(f"{project.home}/.gitconfig", "host")
    before = project.tree()
    project.output(f'ln -s "{target}" ~/a/b; ln -s "{target}" ~/a/dir', options=keep("a"))
    for options in (
        keep("a", "a/b"),
        keep("a", "a/b/c"),
        keep("a", "a/dir/deep/er"),
    ):
        result = project.shell("echo ran; touch ~/a/b/x", options=options)
        assert (result.status, result.out) == (125, "") and "is a symbolic link" in result.err
    assert project.tree() == before
    assert sorted(tree(store(project) / "persist/a")) == ["b", "dir"]
    assert project.run("true", options=keep("a")).status == 0


@pytest.mark.parametrize(
    ("plant", "given"),
    [
        ("ln -s /workspace/.git ~/.claude/s", "file"),
        ("ln -s /workspace/new ~/.claude/s", "file"),
        ("mkdir ~/.claude/s", "file"),
        ("mkfifo ~/.claude/s", "file"),
        ("touch ~/.claude/s", "directory"),
    ],
)
def test_planted_in_the_place_of_what_is_given(project: Project, plant: str, given: str) -> None:
    """What a command left where a path of files.read goes is neither followed nor mounted over."""
    project.mkdir(".git")
    path = f"{project.home}/.claude/s"
    project.write(path if given == "file" else f"{path}/x", "host")
    before = project.tree()
    project.output(plant)
    result = project.shell("echo ran", options=give("read", "~/.claude/s"))
    assert (result.status, result.out) == (125, "") and "a command left it there" in result.err
    assert project.tree() == before


def test_the_directory_itself_stays(project: Project) -> None:
    """A kept directory cannot be moved, removed or replaced from inside, nor another's be reached from it."""
    options = keep(".config/app")
    script = """
    cd ~; mv .claude x; rm -rf .claude; rmdir .claude; mv .config y; ln -sfn /etc .claude; mv -T .config/app z
    ls -A .claude/.. .claude/../..; cat .claude/../project .claude/../../project
    """
    project.shell(script, options=options)
    persist = store(project) / "persist"
    assert {path.name: path.is_symlink() for path in persist.iterdir()} == {
        ".claude": False,
        ".config%2Fapp": False,
    }
    assert (store(project) / "project").read_text() == f"{project.directory}\n"


def test_no_hard_link_leads_out(project: Project) -> None:
    """A protected or hidden file of the workspace gets no second name where nothing guards it."""
    project.write("release.sh", "host")
    project.write(".env", "secret")
    options = ("--set", 'workspace.protect=["release.sh"]', "--set", 'files.hide=[".env"]')
    for name in ("release.sh", ".env", "Coopfile"):
        assert project.shell(f"ln {name} ~/.claude/{name}", options=options).status != 0
        assert project.shell(f"mv {name} ~/.claude/{name}", options=options).status != 0
    assert (project.directory / "release.sh").read_text() == "host"
    ours = {(project.directory / name).stat().st_ino for name in ("release.sh", ".env", "Coopfile")}
    left = (store(project) / "persist/.claude").iterdir()
    assert not ours & {path.stat().st_ino for path in left}, "copies at most"


def test_store_out_of_sight(project: Project) -> None:
    """A sandbox that is given the whole home sees and changes nothing of the store but what is its own."""
    project.output("echo x > ~/.claude/x")
    script = (
        f"ls -R {store(project).parent}; mkdir -p {store(project)}/persist/evil; cat {store(project)}/project"
    )
    result = project.shell(f"{script}; cat ~/.claude/x", options=give("write", project.home))
    assert result.out == "x\n" and "denied" in result.err
    for path in (project.home / ".local", project.home / ".local/share"):
        result = project.shell(
            f"mv {path}/share {path}/x; mv {path}/coop {path}/y; ls {path}/coop", options=give("write", path)
        )
        assert result.status != 0
    assert (store(project) / "persist/.claude/x").read_text() == "x\n"
    assert [path.name for path in (store(project) / "persist").iterdir()] == [".claude"]


def test_store_cannot_be_given(project: Project) -> None:
    """No path of files.* leads into the store, by its name or through a link."""
    project.output("true")
    kept = store(project) / "persist/.claude"
    project.link(str(project.home / "way"), str(kept))
    for key in ("read", "write"):
        for path in (kept, store(project), project.home / "way"):
            result = project.run("true", options=give(key, path))
            assert result.status == 125 and "hidden from every sandbox" in result.err


def test_store_made_in_time(project: Project) -> None:
    """The first run of all, given what the store will be in, finds no place of it to fill."""
    project.mkdir(project.home / ".local/share")
    data = project.home / ".local/share/coop"
    script = f"mkdir -p {data}/sessions; ln -s /etc {data}/x; mv {data} {data}.x; touch {data.parent}/beside"
    project.shell(script, options=give("write", data.parent))
    assert sorted(path.name for path in data.parent.iterdir()) == ["beside", "coop"]
    assert [path.name for path in data.iterdir()] == ["sessions"]


def test_workspace_in_the_store(project: Project) -> None:
    """What a command left is no project: nothing runs there."""
    project.output("mkdir ~/.claude/below; echo 'limits.pids = 7' > ~/.claude/Coopfile")
    for path in (".claude", ".claude/below"):
        result = project.run("true", options=("-C", str(store(project) / "persist" / path)))
        assert result.status == 125 and "hidden from every sandbox" in result.err


def test_race_for_a_place(project: Project) -> None:
    """A run that swaps a directory for links all the time never has the next run's mount follow one."""
    project.mkdir(".git/hooks")
    project.mkdir("sub")
    before = project.tree()
    swap = """
import os
os.chdir("/root/a")
while not os.path.exists("stop"):
    for target in ("/workspace/sub", "/workspace/.git/hooks", "/root/a/c"):
        try:
            os.mkdir("b"); os.rename("b", "old"); os.rmdir("old")
            os.symlink(target, "b"); os.unlink("b")
        except OSError:
            os.system("rm -rf b old")
"""
    swapping = project.popen("/usr/bin/python3", "-I", "-c", swap, options=keep("a"))
    assert wait_until(lambda: (store(project) / "persist/a").exists())
    ran = 0
    for _ in range(12):
        result = project.shell(
            "touch ~/a/b/mark; ls /workspace/sub /workspace/.git/hooks", options=keep("a", "a/b")
        )
        assert result.status in (0, 125), result
        if "/root/a/b was replaced on the host meanwhile" in result.err:
            # Its mount was gone, as it is told, and its own path led where it may write anyway.
            (project.directory / "sub/mark").unlink(missing_ok=True)
        else:
            assert "mark" not in result.out, result
        assert not (project.directory / ".git/hooks/mark").exists()
        ran += result.status == 0
    project.output("touch ~/a/stop", options=keep("a"))
    assert swapping.wait(60) == 0
    assert project.tree() == before
    assert not list((store(project) / "persist/a").rglob("mark"))


def test_what_a_command_left_is_not_coops(project: Project) -> None:
    """Whatever lies in a kept directory, the next run starts, and reads nothing of it."""
    script = """
import os, socket
os.chdir("/root/.claude")
os.mkfifo("fifo"); socket.socket(socket.AF_UNIX).bind("socket")
os.mkdir("settings.json"); os.symlink("settings.json", "commands"); os.symlink("/root/.claude", "loop")
for n in range(300): os.mkdir("d"); os.chdir("d")
"""
    assert project.python(script).status == 0
    assert project.output("ls ~/.claude").split() == [
        "commands",
        "d",
        "fifo",
        "loop",
        "settings.json",
        "socket",
    ]
