"""Attacks through files, links and mounts, from inside and by those who race with the start."""

# ruff: noqa: E501  (attack programs, and tables of what they try)
from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coopfile.native.placeholders import MODE
from tests.sandboxes import DEADLINE, Actor, Project, descendants, tree

pytestmark = pytest.mark.native

RACE = 4.0  # seconds of trying


def hide(*globs: str) -> tuple[str, ...]:
    """Return the options that hide paths of the workspace."""
    return ("--set", "files.hide=[" + ",".join(f'"{glob}"' for glob in globs) + "]")


def give(key: str, *paths: object) -> tuple[str, ...]:
    """Return the options that give the sandbox more of the host: files.read or files.write."""
    return ("--set", f"files.{key}=[" + ",".join(f'"{path}"' for path in paths) + "]")


# --- hidden files -------------------------------------------------------------------------------

SEEK = """
import os, sys
secret = sys.argv[1].encode()
def look(path):
    try:
        with open(path, "rb") as file:
            if secret in file.read():
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
    assert project.run("true", options=give("write", given)).status == 0  # and fills the cache
    before = tree(project.home)
    script = """
    cd TOP; for d in .cache .local/state .config; do
      cat $d/coop/* $d/coop/*/*; chmod 777 $d/coop; mv $d/coop $d/gone; mkdir -p $d/coop/plans; echo x > $d/coop/plans/00000000
      mv $d ${d}2; mkdir -p $d/coop; rm -rf $d/coop; mv .local .local2; mkdir -p .local/state/coop/approvals; echo x > $d/coop/Coopfile
    done 2>/dev/null; true"""
    result = project.shell(script.replace("TOP", top), options=give("write", given))
    assert (result.status, "private" in result.out) == (0, False), result
    after = tree(project.home)
    assert {name: after.get(name) for name in before} == before


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


# --- placeholders -------------------------------------------------------------------------------

GAMES = """
import fcntl, os, stat
names = [n for n in os.listdir(".") if stat.S_ISDIR(os.lstat(n).st_mode)]
keep = []
for name in names:
    for call in (lambda: os.chmod(name, 0o777), lambda: os.rmdir(name), lambda: os.rename(name, name + "x"),
                 lambda: open(name + "/file", "w"), lambda: os.mkdir(name + "/directory"), lambda: os.utime(name),
                 lambda: os.setxattr(name, "user.x", b"1")):
        try:
            call(); print("changed", name)
        except OSError:
            pass
    descriptor = os.open(name, os.O_RDONLY)
    keep.append(descriptor)
    for how in (fcntl.LOCK_EX, fcntl.LOCK_SH):
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except OSError:
            pass
if os.fork() == 0:
    os.setsid()
    import time; time.sleep(300)
"""


def test_placeholder_games(project: Project) -> None:
    """A command that locks, fills, changes and keeps open the placeholders keeps none of them alive."""
    before = project.tree()
    result = project.python(GAMES)
    assert (result.status, result.out) == (0, "")
    assert project.tree() == before


def test_directories_that_look_like_placeholders(project: Project) -> None:
    """A directory of the user's that the command dresses up as a placeholder is not removed with its content."""
    project.write(".git/config", "good")
    project.write(".git/HEAD", "ref: refs/heads/main")
    project.mkdir(".vscode")
    project.shell(f"chmod {MODE:o} .git .claude .vscode; mkdir -p other && chmod {MODE:o} other")
    for _ in range(2):
        project.shell("true")
    assert (project.directory / ".git/config").read_text() == "good"
    assert (project.directory / ".git/HEAD").exists()
    assert (project.directory / ".vscode").is_dir() and (project.directory / "other").is_dir()
    (project.directory / ".git").chmod(0o755)


def test_killed_while_attacking(project: Project) -> None:
    """After a kill of everything, what the command did to the leftovers does not make them a way in."""
    process = project.popen("sh", "-c", "echo ready; sleep 300", stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    for pid in (*descendants(process.pid)[:1], process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait(DEADLINE)
    # What a host program does with an empty directory it does not know.
    shutil.rmtree(project.directory / ".idea", ignore_errors=True)
    project.write(".idea/kept.xml", "good")
    assert project.shell("echo evil > .idea/kept.xml; echo evil > .envrc/x; echo done").out == "done\n"
    assert (project.directory / ".idea/kept.xml").read_text() == "good"
    assert sorted(path.name for path in project.directory.iterdir()) == [".idea", "Coopfile"]


# --- links and races at the start ---------------------------------------------------------------


@pytest.mark.parametrize("key", ["read", "write"])
def test_links_planted_for_the_next_run(project: Project, key: str) -> None:
    """A link that the command plants does not become a mount of the host's file at the next start."""
    secret = project.write(str(project.home / "secret/file"), "hidden-value")
    given = project.mkdir("shared/data")
    before = tree(secret.parent)
    options = give(key, given)
    plants = (
        f"rmdir shared/data; ln -s {secret.parent} shared/data",
        f"rm -rf shared; ln -s {secret.parent.parent} shared",
    )
    for plant in plants:
        project.shell(plant)
        result = project.shell(
            f"cat {given}/file; cat shared/data/file; echo evil > {given}/file", options=options
        )
        assert "hidden-value" not in result.out
        project.shell("rm -rf shared; mkdir -p shared/data")
    assert tree(secret.parent) == before


def test_links_in_a_later_writable_directory(project: Project) -> None:
    """The order in which writable directories are named does not decide which links are followed."""
    secret = project.write(str(project.home / "secret/file"), "hidden-value")
    tools = project.mkdir(project.home / "tools")
    project.shell("ln -s ../secret ~/tools/link", options=give("write", "~/tools"))
    assert (tools / "link").is_symlink()
    result = project.shell(f"cat {tools}/link/file", options=give("write", tools / "link", "~/tools"))
    assert "hidden-value" not in result.out
    assert result.status == 125
    assert secret.read_text() == "hidden-value"


def swapping(first: Path, second: Path) -> Callable[[], None]:
    """Exchange two paths without end, as a command of another sandbox could; return what stops it."""
    script = """
import ctypes, sys, os
libc = ctypes.CDLL(None)
first, second = map(os.fsencode, sys.argv[1:])
while True:
    libc.renameat2(-100, first, -100, second, 2)
"""
    process = subprocess.Popen(["/usr/bin/python3", "-I", "-c", script, str(first), str(second)])

    def stop() -> None:
        process.kill()
        process.wait()

    return stop


@pytest.mark.parametrize("place", ["source", "parent"])
def test_race_for_a_mount_source(project: Project, place: str) -> None:
    """A source that turns into a link and back while the sandbox starts never becomes the link's target."""
    secret = project.write(str(project.home / "secret/below/file"), "hidden-value").parent.parent
    given = project.mkdir("shared/below")
    project.write("shared/below/file", "good")
    if place == "source":
        link, path = project.link("link", str(secret / "below")), given
    else:
        link, path = project.link("link", str(secret)), given.parent
    before = tree(secret)
    stop = swapping(path, link)
    end = time.monotonic() + RACE
    outputs = set()
    try:
        while time.monotonic() < end:
            result = project.shell(f"cat {given}/file; echo evil > {given}/file", options=give("read", given))
            outputs.add(result.status)
            assert "hidden-value" not in result.out
            assert "Traceback" not in result.err
    finally:
        stop()
    assert outputs
    assert tree(secret) == before


def test_race_for_hidden_files(project: Project) -> None:
    """A directory that another sandbox moves about during the start gives no view of what is hidden in it."""
    project.write("one/.env", "hidden-value")
    project.mkdir("two")
    stop = swapping(project.directory / "one", project.directory / "two")
    end = time.monotonic() + RACE
    try:
        while time.monotonic() < end:
            result = project.shell("cat one/.env two/.env", options=hide("**/.env"))
            if "hidden-value" in result.out:
                pytest.xfail(
                    "paths are expanded before they are mounted over; the program that swaps them is no sandbox's"
                )
    finally:
        stop()


def test_race_between_sandboxes(project: Project) -> None:
    """Sandboxes of one project, attacking while others start and end, never get hold of a protected path."""
    project.write(".git/config", "good")
    attack = """
    end=$(($(date +%s) + 5)); while [ $(date +%s) -lt $end ]; do
      for f in .git/hooks .git/hooks/pre-commit .envrc .claude/settings.json .vscode Coopfile.local .git/config; do
        (echo evil > $f; mkdir -p $f; rmdir $f; ln -s /etc $f; mv .git g) 2>/dev/null; done; done"""
    attacker = project.popen("sh", "-c", attack)
    while attacker.poll() is None:
        assert project.shell(
            "echo evil > .envrc; mkdir .git/hooks; echo evil > .git/hooks/x; echo evil >> .git/config"
        ).status
        seen = [p for p in project.directory.rglob("*") if p.is_file() and "evil" in p.read_text()]
        assert seen == []
    assert set(project.tree()) == {"Coopfile", ".git", ".git/config"}


# --- sockets and pipes of the host --------------------------------------------------------------


@pytest.fixture
def listener(actor: Actor) -> Iterator[Path]:
    """Yield a socket of the host's that anybody may connect to, in a directory of the actor's."""
    directory = actor.directory("service")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(directory / "socket"))
    (directory / "socket").chmod(0o777)
    server.listen()
    yield directory / "socket"
    server.close()


CONNECT = """
import socket, sys
for path in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX).connect(path.replace("@", chr(0)))
        print("connected", path)
    except OSError:
        pass
"""


@pytest.mark.parametrize("network", ["none", "host"])
def test_sockets_of_the_host(project: Project, listener: Path, network: str) -> None:
    """Services of the host cannot be reached: not by path, not by a link, not by an abstract name."""
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0coop-test-{os.getpid()}")
    abstract.listen()
    project.link("link", str(listener))
    names = [
        str(listener),
        "link",
        f"@coop-test-{os.getpid()}",
        "/run/docker.sock",
        "/run/dbus/system_bus_socket",
        "/run/systemd/private",
    ]
    result = project.python(CONNECT, *names, options=["--set", f'network.mode="{network}"'])
    abstract.close()
    assert (result.status, result.out) == (0, ""), result


@pytest.mark.xfail(
    strict=True, reason="a read-only mount of a directory does not stop connect() to a socket in it"
)
def test_socket_in_a_directory_given_to_read(project: Project, listener: Path) -> None:
    """A socket below a directory of files.read cannot be connected to."""
    result = project.python(CONNECT, str(listener), options=give("read", listener.parent))
    assert result.out == ""


# --- what the host does meanwhile ---------------------------------------------------------------


@pytest.mark.xfail(strict=True, reason="the kernel drops a mount from a name that the host replaces")
def test_host_replaces_a_protected_file(project: Project) -> None:
    """A protected file that the host replaces by rename (as ``git config`` does) stays protected."""
    project.write(".git/config", "old\n")
    process = project.popen(
        "sh", "-c", "echo ready; read go; echo evil >> .git/config; read go", stdin=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    new = project.write(".git/config.lock", "new\n")
    os.replace(new, project.directory / ".git/config")
    process.communicate(b"\n\n", timeout=DEADLINE)
    assert (project.directory / ".git/config").read_text() == "new\n"


def commit(project: Project) -> Path:
    """Make a repository with one commit; return a path that an attack through git would create."""
    run = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org")
    for argv in (("git", "init", "-q", "."), (*run, "commit", "-q", "-m", "first", "--allow-empty")):
        done = project.actor.run(*argv, cwd=project.directory)
        assert done.status == 0, done
    return project.directory / "executed-on-the-host"


COMMONDIR = pytest.param(
    "commondir",
    marks=pytest.mark.xfail(
        strict=True, reason=".git/commondir is not protected: it names another directory for config and hooks"
    ),
)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is needed")
@pytest.mark.parametrize("way", ["config", "worktree config", "hooks", COMMONDIR, "link", "attributes"])
def test_git_on_the_host(project: Project, way: str) -> None:
    """Nothing that the command does to the repository makes ``git status`` on the host run a program."""
    marker = commit(project)
    program = f"core.fsmonitor 'touch {marker}; false'"
    script = {
        "config": f"git config {program}; git config --global {program}",
        "worktree config": f"git config extensions.worktreeConfig true; git config --worktree {program}; "
        f"printf '[core]\\n\\tfsmonitor = touch {marker}\\n' > .git/config.worktree",
        "hooks": f"for h in post-index-change pre-commit post-checkout; do printf '#!/bin/sh\\ntouch {marker}' > .git/hooks/$h; chmod 755 .git/hooks/$h; done",
        "commondir": f"cp -r .git evil; git config -f evil/config {program}; echo ../evil > .git/commondir",
        "link": f"cp -r .git evil; git config -f evil/config {program}; mv .git away; ln -s evil .git",
        "attributes": f"echo '* filter=evil' > .gitattributes; git config filter.evil.clean 'touch {marker}'",
    }[way]
    project.shell(f"({script}) 2>/dev/null")
    for argv in (("git", "status"), ("git", "diff"), ("git", "log"), ("git", "add", "-A")):
        project.actor.run(*argv, cwd=project.directory)
    assert not marker.exists()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is needed")
@pytest.mark.xfail(
    strict=True, reason="git status on the host reads the configuration of a planted submodule"
)
def test_planted_submodule(project: Project) -> None:
    """A repository planted in the workspace and entered into the index runs nothing on the host."""
    marker = commit(project)
    script = f"""
    git init -q sub && cd sub && git -c user.name=x -c user.email=x commit -q -m x --allow-empty
    git config core.fsmonitor 'touch {marker}; false'; hash=$(git rev-parse HEAD); cd ..
    git update-index --add --cacheinfo 160000,$hash,sub"""
    project.output(script)
    project.actor.run("git", "status", cwd=project.directory)
    assert not marker.exists()
