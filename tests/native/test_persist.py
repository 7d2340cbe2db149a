"""What outlives a run: session.persist and session.caches, as the sandbox and the host see them."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from coopfile.plan.sessions import CACHES, flat, session_id
from tests.sandboxes import Project, tree, wait_until

pytestmark = pytest.mark.native

USERS = """
[[users]]
name = "a"
trust = "full"
match = ["x:a"]
[[users]]
name = "b"
trust = "inner"
match = ["x:b"]
"""


def store(project: Project) -> Path:
    """Return where coop keeps the project's default session."""
    return project.home / ".local/share/coop/sessions" / session_id(str(project.directory), None)


def keep(*paths: str) -> tuple[str, ...]:
    """Return the options that keep more directories of the home."""
    return ("--set", "session.persist=[" + ",".join(f'"{path}"' for path in paths) + "]")


PERSIST = {"options": keep(".config/app")}


def test_agents_directory_lasts(project: Project) -> None:
    """Without a word in the Coopfile ~/.claude is there in the next run, and the rest of the home is not."""
    project.output("echo kept > ~/.claude/notes; echo lost > ~/notes; mkdir ~/.claude/deep")
    assert project.output("cat ~/.claude/notes; ls -A ~; ls -A ~/.claude").split() == [
        "kept",
        ".claude",
        "deep",
        "notes",
    ]
    assert not (project.home / ".claude").exists()
    assert project.tree().keys() == {"Coopfile"}


def test_where_it_is(project: Project) -> None:
    """The directories are the caller's alone, tell whose they are, and hold what the command wrote."""
    project.output(
        "umask 0; echo x > ~/.claude/x; mkdir -p ~/.config/app; echo y > ~/.config/app/y", **PERSIST
    )
    session = store(project)
    assert (session / "project").read_text() == f"{project.directory}\n"
    assert (session / "persist/.claude/x").read_text() == "x\n"
    assert (session / "persist/.config%2Fapp/y").read_text() == "y\n"
    for path in (session.parent, session, session / "persist", session / "persist/.claude"):
        status = path.stat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o700, project.actor.uid), path


def test_session_variable(project: Project) -> None:
    """COOP_SESSION names the session, is the same in every run, and differs from project to project."""
    first = project.output("echo $COOP_SESSION")
    assert first == project.output("echo $COOP_SESSION") == store(project).name
    other = Project(project.actor)
    other.home, other.environment = project.home, project.environment
    assert other.output("echo $COOP_SESSION; ls ~/.claude") != first
    other.close()


def test_two_runs_at_once(project: Project) -> None:
    """Two runs of a session share its directories while both are there."""
    script = "touch ~/.claude/here; until [ -e ~/.claude/answer ]; do sleep 0.02; done"
    waiting = project.popen("sh", "-c", script)
    project.output("until [ -e ~/.claude/here ]; do sleep 0.02; done; touch ~/.claude/answer")
    assert waiting.wait(60) == 0


def test_nested_directories(project: Project) -> None:
    """A directory below another kept one is its own, and is there without the outer one too."""
    options = keep("a", "a/b", "a/b/c/d")
    project.output("echo 1 > ~/a/1; echo 2 > ~/a/b/2; echo 3 > ~/a/b/c/d/3", options=options)
    assert project.output("cd ~; cat a/1 a/b/2 a/b/c/d/3", options=options).split() == ["1", "2", "3"]
    persist = store(project) / "persist"
    assert sorted(path.name for path in persist.iterdir()) == [".claude", "a", "a%2Fb", "a%2Fb%2Fc%2Fd"]
    assert (persist / "a%2Fb/2").exists() and not (persist / "a/b/2").exists()
    assert project.output("ls ~/a/b", options=keep("a/b")).split() == ["2", "c"]


def test_names_that_flattening_must_tell_apart(project: Project) -> None:
    """Names with the characters that stand for others, with odd ones, and long ones get a place each."""
    names = ["a/b", "a%2Fb", "a%b", "-x", "é ü", "x" * 250, "x/" * 120 + "y"]
    options = keep(*names)
    project.run("sh", "-c", 'for name; do echo "$name" > ~/"$name/note"; done', "sh", *names, options=options)
    result = project.run("sh", "-c", 'for name; do cat ~/"$name/note"; done', "sh", *names, options=options)
    assert result.out.splitlines() == names
    assert len(list((store(project) / "persist").iterdir())) == len({flat(name) for name in names}) + 1


def test_user_me(project: Project) -> None:
    """With another home inside the same directories are in it, and those on the way are the user's."""
    project.output("echo x > ~/.config/app/x", **PERSIST)
    options = (*keep(".config/app"), "--set", "session.user=me")
    assert (
        project.output("cat ~/.config/app/x; touch ~/.config/other; echo $HOME", options=options).split()[0]
        == "x"
    )


def test_other_users_have_their_own(project: Project) -> None:
    """Each user has what they left, and nobody what the owner or another left."""
    project.write(str(project.home / ".config/coop/Coopfile"), USERS)
    seen = {}
    for who in (None, "x:a", "x:b"):
        options = (*(("--as", who) if who else ()), "--set", 'session.caches=["pip"]')
        before = project.output(
            f"ls ~/.claude ~/.cache/pip; echo {who} > ~/.claude/{who or 'owner'}", options=options
        )
        assert [line for line in before.splitlines() if line and not line.endswith(":")] == []
        project.output(f"touch ~/.cache/pip/{who or 'owner'}", options=options)
        seen[who] = project.output("ls ~/.claude ~/.cache/pip; echo $COOP_SESSION", options=options).split()
    assert [set(words) & {"owner", "x:a", "x:b"} for words in seen.values()] == [{"owner"}, {"x:a"}, {"x:b"}]
    assert len({words[-1] for words in seen.values()}) == 3
    assert "owner" in project.output("ls ~/.claude", options=("--as", "terminal:default"))


def test_what_is_given_by_name_comes_first(project: Project) -> None:
    """A path of files.* is what is seen where a kept directory would be, or below it, and that is said."""
    project.write(f"{project.home}/.claude/mine", "host")
    for key in ("files.read", "files.write"):
        options = ("-v", "--set", f'{key}=["~/.claude"]', *keep(".claude/deep"))
        result = project.shell("cat ~/.claude/mine; mkdir -p ~/.claude/deep 2>/dev/null", options=options)
        assert result.out == "host"
        for path in (".claude", ".claude/deep"):
            assert f"skipped: session.persist: {path}: /root/{path} is in /root/.claude" in result.err
    assert not (store(project) / "persist/.claude").exists()


@pytest.mark.parametrize("user", ["root", "me"])
def test_given_below_what_is_kept(project: Project, user: str) -> None:
    """Paths of files.* below a kept directory are there, read-only where they are, and stay the host's."""
    project.write(f"{project.home}/.claude/settings.json", "host")
    project.write(f"{project.home}/.claude/shared/x", "host")
    options = (
        *("--set", 'files.read=["~/.claude/settings.json"]', "--set", f"session.user={user}"),
        *("--set", 'files.write=["~/.claude/shared"]'),
    )
    script = "cd ~/.claude; cat settings.json; echo x > settings.json; mv settings.json y; "
    script += "rm -f shared/x; touch own"
    for _ in range(2):
        project.write(f"{project.home}/.claude/shared/x", "host")
        result = project.shell(script, options=options)
        assert result.out == "host" and "Read-only" in result.err and "busy" in result.err
        assert not (project.home / ".claude/shared/x").exists()
    assert (project.home / ".claude/settings.json").read_text() == "host"
    assert not (project.home / ".claude/own").exists()
    assert tree(store(project) / "persist/.claude").keys() == {"own", "settings.json", "shared"}


def test_workspace_below_what_is_kept(project: Project) -> None:
    """The workspace may lie below a kept directory, and a kept one in the workspace is the workspace's."""
    options = ("-v", "--set", "workspace.path=/root/work/here", *keep("work", "work/here/sub"))
    result = project.shell("pwd; touch new ~/work/beside; mkdir sub; touch sub/x", options=options)
    assert result.out == "/root/work/here\n" and "work/here/sub is in the workspace" in result.err
    assert sorted(project.tree()) == ["Coopfile", "new", "sub", "sub/x"]
    assert sorted(tree(store(project) / "persist/work")) == ["beside", "here"]


def test_a_home_that_cannot_be_written(project: Project) -> None:
    """Where coop can keep nothing, the command runs, and every run says that nothing lasts."""
    project.environment["XDG_DATA_HOME"] = "/proc/none"
    for _ in range(2):
        result = project.shell("ls ~/.claude; mkdir ~/.claude; echo done")
        assert result.out == "done\n" and "weaker than the plan: session.persist: thrown away" in result.err
    assert "XDG_DATA_HOME" in project.shell("true", options=("-v",)).err


def test_locked_by_the_command(project: Project) -> None:
    """A command that takes its own directory's rights away keeps it all the same."""
    project.output("echo x > ~/.claude/x; mkdir ~/.claude/deep; chmod 0 ~/.claude/deep; chmod 0 ~/.claude")
    assert project.output("chmod 700 ~/.claude; cat ~/.claude/x") == "x"


def test_caches(project: Project) -> None:
    """Each named cache is where its tool looks, lasts, and is none of the session's own directories."""
    names = sorted(CACHES)
    options = ("--set", "session.caches=[" + ",".join(f'"{name}"' for name in names) + "]")
    paths = [path for name in names for path in CACHES[name].directories]
    project.run("sh", "-c", 'for path; do echo "$path" > ~/"$path/note"; done', "sh", *paths, options=options)
    result = project.run("sh", "-c", 'for path; do cat ~/"$path/note"; done', "sh", *paths, options=options)
    assert result.out.splitlines() == paths
    (caches,) = (project.home / ".local/share/coop/caches").iterdir()
    assert sorted(path.name for path in caches.iterdir()) == sorted([*names, "project"])
    assert (
        project.output("echo $CARGO_HOME $PIP_CACHE_DIR", options=options) == "/root/.cargo /root/.cache/pip"
    )
    assert project.output("echo $CARGO_HOME$PIP_CACHE_DIR; ls -A ~").split() == [".claude"]
    result = project.shell("true", options=("--set", 'session.caches=["pip", "apt"]'))
    assert "weaker than the plan: session.caches: apt" in result.err and "pip" not in result.err


def test_pip_finds_its_cache(project: Project) -> None:
    """pip on the host's own tools says that its cache is the one that is kept."""
    script = "python3 -m pip --version >/dev/null 2>&1 || exit 9; python3 -m pip cache dir"
    result = project.shell(script, options=("--set", 'session.caches=["pip"]'))
    if result.status == 9:
        pytest.skip("there is no pip among the host's own tools")
    assert result.out == "/root/.cache/pip\n"


def test_why(project: Project) -> None:
    """`coop why` knows what is kept: the host's own is not read, and what is written lasts."""
    project.write(f"{project.home}/.claude/mine", "host")
    caches = ("--set", 'session.caches=["pip"]')
    for verb, path, status, said in (
        ("read", "~/.claude/mine", 1, "session.persist"),
        ("write", "~/.claude/mine", 0, "next run"),
        ("write", "~/.cache/pip/x", 0, "session.caches"),
        ("read", "~/.claude", 0, "of its own"),
    ):
        answer = project.coop("why", *caches, verb, path)
        assert answer.status == status and said in answer.out, answer
    assert project.coop("why", "--set", 'files.read=["~/.claude"]', "read", "~/.claude/mine").status == 0
    assert project.shell("cat ~/.claude/mine").status != 0
    assert project.shell("echo x >> ~/.claude/mine").status == 0
    assert (project.home / ".claude/mine").read_text() == "host"


def test_looking_makes_nothing(project: Project) -> None:
    """What only shows a plan makes no directories."""
    operations = project.coop("plan", "--operations")
    assert f"keep       {store(project)}/persist/.claude -> /root/.claude (read-write)" in operations.out
    assert project.coop("status").status == 0
    assert not (project.home / ".local/share/coop").exists()


def test_on_an_image(imaged: Callable[..., Project]) -> None:
    """On an image the same directories last, over what the image has there, and nothing else does."""
    project = imaged({}, **{"root/.claude/of-the-image": "x"})
    options = (*keep(".config/app"), "--set", 'session.caches=["pip"]')
    script = "cd ~; ls .claude; echo 1 > .claude/1; echo 2 > .config/app/2; echo 3 > .cache/pip/3; echo 4 > 4"
    assert project.output(script, options=options) == ""
    script = "cd ~; cat .claude/* .config/app/* .cache/pip/*; ls; echo $PIP_CACHE_DIR"
    assert project.output(script, options=options).split() == ["1", "2", "3", "/root/.cache/pip"]


@pytest.mark.parametrize(
    ("links", "place"),
    [
        ({"root": "var/home", "var/home/x": "y"}, "/var/home/.claude"),
        ({"root": "/var/home", "var/home/x": "y"}, "/var/home/.claude"),
        ({"root/.claude": "/srv", "srv/x": "y"}, "/srv"),
        ({"root/.claude": "../../../../srv", "srv/x": "y"}, "/srv"),
        ({"root/.claude": "/workspace"}, "/workspace"),
        ({"root/.claude": "/proc/self/cwd"}, ""),
        ({"root/.claude": "/proc/1/root/srv", "srv/x": "y"}, ""),
        ({"root/.claude": "nowhere"}, ""),
        ({"root/.claude": ".claude"}, ""),
        ({"root/.claude/x": "y", "root/.claude": "/etc/../../../tmp"}, "/tmp"),
    ],
)
def test_links_of_an_image(imaged: Callable[..., Project], links: dict[str, str], place: str) -> None:
    """Where an image has a link the mount stays inside, or the run is refused; the host is as it was."""
    project = imaged(links)
    project.write(f"{project.home}/mine", "host")
    before = project.tree()
    result = project.shell("touch ~/.claude/mark; cat /proc/self/mountinfo")
    assert project.tree() == before
    assert not [
        path for path in tree(project.home) if path.endswith("mark") and "persist/.claude/" not in path
    ]
    if place:
        assert result.status == 0 and f" {place} rw," in result.out, result
        assert (store(project) / "persist/.claude/mark").exists()
    else:
        assert result.status == 125 and "Traceback" not in result.err, result
        assert "session" in result.err or ".claude" in result.err, result


def test_a_file_of_an_image(imaged: Callable[..., Project]) -> None:
    """A file of the image where a kept directory goes is an error that names it."""
    result = imaged({}, **{"root/.claude": "x"}).run("true")
    assert result.status == 125 and "/root/.claude is a file inside the sandbox" in result.err


def test_rm(project: Project) -> None:
    """`coop rm` removes the session, whatever its modes are, and nothing of others; caches when asked to."""
    caches = ("--set", 'session.caches=["pip"]')
    project.output(
        "mkdir -p ~/.claude/a/b; ln -s /workspace ~/.claude/l; chmod 0 ~/.claude/a", options=caches
    )
    project.write(str(project.home / ".config/coop/Coopfile"), USERS)
    project.output("touch ~/.claude/x", options=("--as", "x:a"))
    before = project.tree()
    assert f"would remove {store(project)}\n" == project.coop("rm", "--dry-run").out
    assert store(project).exists()
    assert project.coop("rm").out == f"removed {store(project)}\n"
    assert not store(project).exists() and project.tree() == before
    assert project.coop("rm").out == "nothing is kept for this project\n"
    assert project.output("ls -A ~/.claude") == ""
    assert project.output("ls -A ~/.claude", options=("--as", "x:a")) == "x"
    assert list((project.home / ".local/share/coop/caches").iterdir())
    assert "/caches/" in project.coop("rm", "--caches").out
    assert not list((project.home / ".local/share/coop/caches").iterdir())


@pytest.mark.parametrize("content", ["", "touch ~/.claude/x"])
def test_clean_after_a_project(project: Project, content: str) -> None:
    """`coop clean` takes what is empty of a project that is gone, and what is not when it is asked to."""
    project.output(content or "true")
    kept = store(project)
    assert project.coop("clean").status == 0 and kept.exists(), "the project is there"
    project.directory = project.directory.rename(f"{project.directory}.moved")
    dry = project.coop("clean", "--json", "--dry-run")
    assert (str(kept) in dry.out) == (not content) and kept.exists()
    told = project.coop("clean").out
    assert kept.exists() == bool(content) and ("coop clean --sessions" in told) == bool(content)
    assert project.coop("clean", "--sessions").status == 0
    assert not kept.exists()


def test_rm_while_it_is_used(project: Project) -> None:
    """What a running sandbox uses is not removed from under it."""
    waiting = project.popen("sh", "-c", "touch ~/.claude/here; read x", stdin=subprocess.PIPE)
    assert wait_until((store(project) / "persist/.claude/here").exists)
    refused = project.coop("rm")
    assert refused.status != 0 and "is running" in refused.err
    assert (store(project) / "persist/.claude/here").exists()
    waiting.communicate(b"\n", timeout=60)
    assert project.coop("rm").status == 0
    assert not store(project).exists()


def test_rm_while_a_run_starts(project: Project) -> None:
    """A run that waits for `coop rm` has directories afterwards, and what it leaves in them lasts."""
    project.output("touch ~/.claude/former")
    lock = os.open(project.home / ".local/state/coop/running/starting", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)  # as `coop rm` does
    number = f":{os.fstat(lock).st_ino} "
    waiting = project.popen("sh", "-c", "touch ~/.claude/later")

    def waits() -> bool:
        return any("->" in line and number in line for line in Path("/proc/locks").read_text().splitlines())

    assert wait_until(waits)
    shutil.rmtree(store(project))
    os.close(lock)
    waiting.communicate(timeout=60)
    assert waiting.returncode == 0
    assert [path.name for path in (store(project) / "persist/.claude").iterdir()] == ["later"]


def test_status_names_the_session(project: Project) -> None:
    """`coop status` says where it is, and that nothing bounds it."""
    assert f"kept   {store(project)}, of any size" in project.coop("status").out
