"""Attacks on hidden and protected paths: other names, other mounts, and what is left for the next run."""

# ruff: noqa: E501  (attack programs, and tables of what they try)
from __future__ import annotations

import os
import re
import time

import pytest

from tests.attacks.options import SETTLED, give, hide
from tests.sandboxes import Project, tree

pytestmark = pytest.mark.native

# --- hidden files -------------------------------------------------------------------------------

SEEK = """
import os, sys
secret = sys.argv[1].encode()
def look(path):
    try:
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:
            if secret in (file.read() or b""):
                print("found", path)
    except (OSError, ValueError):
        pass
def attempt(call, *arguments, **named):
    try:
        call(*arguments, **named)
    except OSError:
        pass
for name in ("conf/.env", ".env"):
    attempt(os.chmod, name, 0o777); attempt(os.link, name, "linked"); attempt(os.rename, name, "moved")
    attempt(os.symlink, name, "pointer"); attempt(os.unlink, name); attempt(os.rename, "plain", name)
    attempt(os.truncate, name, 0)
    for view in ("/proc/self/root/workspace/", "/proc/self/cwd/", "/proc/thread-self/cwd/", "/proc/1/cwd/", "/proc/1/root/workspace/"):
        look(view + name)
attempt(os.rename, "conf", "conf2"); attempt(os.rename, "/workspace", "/tmp/workspace")
attempt(os.rmdir, "conf"); attempt(os.chmod, "conf", 0o777)
fd = os.open(".", os.O_RDONLY)
for name in ("conf/.env", ".env"):
    try:
        look(os.open(name, os.O_RDONLY, dir_fd=fd))
    except OSError:
        pass
for top in ("/workspace", "/tmp", "/root", "/home", "/run", "/var", "/etc", "/mnt"):
    for directory, names, files in os.walk(top, followlinks=False):
        for name in (*files, *names):
            look(f"{directory}/{name}")
"""


@pytest.mark.parametrize(
    "more", ["nothing", "read above", "write above", "read itself", "write inside", "host path"]
)
def test_hidden_files(project: Project, more: str) -> None:
    """A hidden file cannot be read by any other path: links, parents, /proc, or a second mount that holds it."""
    secret = f"hidden in {project.directory}"
    for name in (".env", "conf/.env"):
        project.write(name, secret)
    project.write("plain", "x")
    given = {
        "nothing": (),
        "read above": give("read", project.actor.base),
        "write above": give("write", project.actor.base),
        "read itself": give("read", project.directory),
        "write inside": give("write", project.directory / "conf"),
        "host path": ("--set", 'workspace.path="host"'),
    }[more]
    result = project.python(SEEK, secret, options=[*hide("**/.env"), *given])
    assert (result.status, result.out) == (0, ""), result
    for name in (".env", "conf/.env"):
        assert (project.directory / name).read_text() == secret


@pytest.mark.parametrize("glob", ["**/.env", "conf/.env", "a/b/.env"])
def test_locked_directory(project: Project, glob: str) -> None:
    """A directory that the command locked in one run does not keep coop from hiding what is in it in the next."""
    for name in ("conf/.env", "a/b/.env"):
        project.write(name, "hidden-value")
    project.shell("chmod 000 conf a/b; chmod 000 a", options=hide(glob))
    result = project.shell("chmod 700 a conf; chmod 700 a/b; cat a/b/.env conf/.env", options=hide(glob))
    read = "hidden-value" * (0 if glob == "**/.env" else 1)
    assert result.out == read, result


def test_locked_workspace(project: Project) -> None:
    """Nor does a workspace that the command locked."""
    project.write(".env", "hidden-value")
    project.write("elsewhere/Coopfile")
    project.shell("chmod 000 /workspace", options=hide("**/.env"))
    result = project.shell("chmod 700 /workspace; cat .env", options=hide("**/.env"))
    assert "hidden-value" not in result.out
    project.directory.chmod(0o755)


def test_deep_tree(project: Project) -> None:
    """Directories deeper than a path may be long neither stop the next run nor hide a file from hiding."""
    project.write(".env", "hidden-value")
    made = project.python(
        "import os\nfor i in range(40):\n  os.mkdir('d' * 200); os.chdir('d' * 200)", options=hide("**/.env")
    )
    assert made.status == 0, made
    result = project.shell("cat .env; echo ran", options=hide("**/.env"))
    assert "Traceback" not in result.err
    assert result.out in ("ran\n", ""), result


def test_strange_names(project: Project) -> None:
    """Names with newlines, glob characters, options and bytes that are no UTF-8 are hidden like others."""
    names = [
        b".env",
        b"\xff\xfe/.env",
        b"new\nline/.env",
        b"*?[a]/.env",
        b"-rf/.env",
        b"a b\t/.env",
        b"\\x2f/.env",
        b"'\"/.env",
    ]
    for name in names:
        path = os.fsdecode(name)
        project.write(path, "hidden-value")
    result = project.shell(
        "find . -name .env -exec cat {} +; grep -rs hidden-value .", options=hide("**/.env")
    )
    assert "hidden-value" not in result.out


def test_many_matches(project: Project) -> None:
    """Thousands of files that match a glob make no run fail open: hidden all, or refused."""
    script = "import os\nos.mkdir('m')\nfor i in range(3000): open(f'm/.env{i}', 'w').write('hidden-value')"
    assert project.python(script).status == 0
    result = project.shell("cat m/.env* | wc -c", options=hide("**/.env*"))
    assert (result.status, result.out) in ((0, "0\n"), (125, "")), result


# --- protected files ----------------------------------------------------------------------------

REACH = """
import os, sys
def attempt(call, *arguments):
    try:
        call(*arguments)
    except OSError:
        pass
def write(path):
    with open(path, "w") as file:
        file.write("evil")
targets = [".git/hooks/pre-commit", ".git/hooks/post-merge", ".git/config", ".envrc", "Coopfile", "Coopfile.local", ".claude/settings.json"]
for top in sys.argv[1:]:
    for name in targets:
        path = f"{top}/{name}"
        attempt(write, path); attempt(os.makedirs, path); attempt(os.unlink, path)
        for own in ("own", "owndir"):
            attempt(write, f"{top}/own"); attempt(os.mkdir, f"{top}/owndir")
            attempt(os.rename, f"{top}/{own}", path)
            attempt(os.symlink, "/workspace/own", path); attempt(os.link, f"{top}/own", path)
        attempt(os.rename, path, f"{top}/moved"); attempt(write, path)
        parent = os.path.dirname(path)
        while len(parent) > 1:
            attempt(os.chmod, parent, 0o777); attempt(os.rename, parent, parent + ".moved")
            attempt(os.makedirs, os.path.dirname(path)); attempt(write, path)
            parent = os.path.dirname(parent)
"""


@pytest.mark.parametrize("more", ["above", "git directory", "home", "same"])
def test_protected_through_another_mount(project: Project, more: str) -> None:
    """files.write of what holds, or lies in, the workspace opens no way round the protected paths."""
    project.directory = project.mkdir(project.home / "code/app")
    project.coopfile("")
    project.write(".git/hooks/pre-commit", "good")
    project.write(".git/config", "good")
    before = {name: item[3] for name, item in project.tree().items()}
    path, alias = {
        "above": (project.home / "code", f"{project.home}/code/app"),
        "git directory": (project.directory / ".git", f"{project.directory}"),
        "home": (project.home, f"{project.home}/code/app"),
        "same": (project.directory, f"{project.directory}"),
    }[more]
    result = project.python(REACH, "/workspace", alias, options=give("write", path))
    assert result.status == 0, result
    after = {name: item[3] for name, item in project.tree().items()}
    assert {name: after.get(name) for name in before} == before
    assert not {".envrc", "Coopfile.local", ".claude/settings.json", ".git/hooks/post-merge"} & set(after)
    assert project.directory.is_dir() and (project.home / "code/app/.git/config").read_text() == "good"


@pytest.mark.parametrize("given", ["home", "~/.cache", "~/.config", "~/.local", "~/.local/state"])
def test_own_state(project: Project, given: str) -> None:
    """coop's cache, approvals and settings can be neither read nor changed, whatever of the home is given."""
    for place in (".cache/coop/plans", ".local/state/coop/approvals", ".config/coop", ".config"):
        project.mkdir(project.home / place)
    project.write(str(project.home / ".config/coop/Coopfile"), "")
    project.write(str(project.home / ".cache/coop/plans/00000000"), "private")
    project.write(str(project.home / ".local/state/coop/approvals/x.json"), "private")
    given, top = (str(project.home), str(project.home)) if given == "home" else (given, "/root")
    time.sleep(SETTLED)
    assert project.run("true", options=give("write", given)).status == 0  # and fills the cache
    before = tree(project.home)
    (log,) = project.home.glob(".local/state/coop/audit/*")
    logged = log.read_bytes()
    script = """
    cd TOP; for d in .cache .local/state .config; do
      cat $d/coop/* $d/coop/*/*; chmod 777 $d/coop; mv $d/coop $d/gone; mkdir -p $d/coop/plans; echo x > $d/coop/plans/00000000
      mv $d ${d}2; mkdir -p $d/coop; rm -rf $d/coop; mv .local .local2; mkdir -p .local/state/coop/approvals; echo x > $d/coop/Coopfile
    done 2>/dev/null; true"""
    result = project.shell(script.replace("TOP", top), options=give("write", given))
    assert (result.status, "private" in result.out) == (0, False), result
    after = tree(project.home)
    grown = str(log.relative_to(project.home))
    assert {name: after.get(name) for name in before if name != grown} == {
        name: item for name, item in before.items() if name != grown
    }
    assert re.fullmatch(re.escape(logged) + rb'\{"time": "[^\n]*\}\n', log.read_bytes())


def test_shell_files_of_the_home(project: Project) -> None:
    """With the whole home given, its start-up files, keys and programs still cannot be made or changed."""
    project.write(str(project.home / ".bashrc"), "good")
    names = ".bashrc .profile .zshrc .ssh/authorized_keys .gitconfig .config/git/config .local/bin/ls .config/autostart/x.desktop"
    script = f'cd {project.home}; for f in {names}; do mkdir -p "$(dirname $f)"; echo evil > $f; mv "$(dirname $f)" away; done 2>/dev/null; rm -f .bashrc'
    assert project.shell(script, options=give("write", project.home)).status != 125
    assert (project.home / ".bashrc").read_text() == "good"
    assert b"evil\n" not in [p.read_bytes() for p in project.home.rglob("*") if p.is_file()]


def test_local_file_of_a_named_coopfile(project: Project) -> None:
    """With ``-f``, the local file beside the named one cannot be made: the next run would obey it."""
    project.write("box.toml", "")
    script = "echo '[network]\nmode = \"host\"' > box.toml.local; mv box.toml away; echo x >> box.toml; ls box.toml.local"
    project.shell(script, options=["-f", "box.toml"])
    assert not os.path.lexists(project.directory / "box.toml.local")
    assert (project.directory / "box.toml").read_text() == ""


@pytest.mark.parametrize("kind", ["worktree file", "link", "link to outside"])
def test_git_in_another_shape(project: Project, kind: str) -> None:
    """A .git that is a file or a link is as safe as a directory, or refused."""
    real = project.mkdir(project.home / "real.git/hooks").parent
    project.write(str(real / "config"), "good")
    if kind == "worktree file":
        project.write(".git", f"gitdir: {real}\n")
    else:
        target = project.mkdir("inner.git/hooks").parent if kind == "link" else real
        project.link(".git", str(target) if kind != "link" else "inner.git")
    script = "rm -f .git; echo 'gitdir: /workspace/evil' > .git; mkdir -p .git/hooks; echo evil > .git/hooks/x; ls -d .git"
    result = project.shell(script)
    found = project.directory / ".git"
    if kind == "worktree file":
        assert found.read_text() == f"gitdir: {real}\n"
    else:
        assert result.status == 125, result
        assert found.is_symlink()
    assert tree(real) == {"hooks": tree(real)["hooks"], "config": tree(real)["config"]}


def test_workspace_itself(project: Project) -> None:
    """The workspace's own directory can be neither renamed nor removed nor replaced."""
    before = project.directory.stat().st_ino
    project.shell(
        "cd /; mv /workspace /w; rmdir /workspace; rm -rf /workspace; ln -s /etc /workspace; mv -T /tmp /workspace"
    )
    assert project.directory.stat().st_ino == before
