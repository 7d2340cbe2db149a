"""workspace.protect: what the host later executes or reads as configuration stays as it is."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess

import pytest

from coopfile.native.marks import is_placeholder
from tests.sandboxes import DEADLINE, Project, descendants, wait_until

pytestmark = pytest.mark.native

EXISTING = (
    ".git/config",
    ".git/hooks/pre-commit",
    ".envrc",
    ".vscode/tasks.json",
    ".mcp.json",
    ".idea/x.xml",
)
MISSING = (
    ".git/hooks/post-merge",
    ".envrc",
    ".vscode/tasks.json",
    ".claude/settings.json",
    ".mcp.json",
    ".idea",
)

# Everything one might try on a path $1, most of it in vain. mv(1) would copy where rename(2) fails.
ATTACK = """
f=$1; d=${f%/*}; [ "$d" = "$f" ] && d=.
top=${f%%/*}
try() { "$@" 2>/dev/null; }
mkdir -p own; echo evil > own/file; chmod 755 own/file; mkdir -p own/directory
try cp own/file "$f"; try sh -c 'echo evil > "$1"' sh "$f"; try sh -c 'echo evil >> "$1"' sh "$f"
try ln -sf /etc/passwd "$f"; try ln -f own/file "$f"; try mkdir -p "$f"; try mkfifo "$f"
try truncate -s 0 "$f"; try dd if=own/file of="$f" conv=notrunc
try chmod 777 "$f"; try touch -d 2001-01-01 "$f"; try setfattr -n user.x -v 1 "$f"
try ln "$f" own/name && echo evil >> own/name
try python3 - "$f" "$d" "$top" <<'END'
import ctypes, os, sys
f, d, top = sys.argv[1:]
pairs = [("own/file", f), ("own/directory", f), (f, "own/taken"), (d, "own/parent"), (top, "own/top")]
for old, new in pairs:
    for flags in (0, 2):  # RENAME_EXCHANGE
        ctypes.CDLL(None).renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags)
END
try rm -rf "$f"; try rm -rf "$top"; try rmdir "$f"; try rmdir "$d"; try rmdir "$top"
try mkdir -p "$d"; try cp own/file "$f"; try sh -c 'echo evil > "$1"' sh "$f"
rm -rf own; true
"""


@pytest.fixture
def repository(project: Project) -> Project:
    """Return a project with the protected files in it."""
    for name in EXISTING:
        project.write(name, "good\n")
    return project


@pytest.mark.parametrize("path", EXISTING)
def test_existing(repository: Project, path: str) -> None:
    """A protected file that exists survives every attempt, and can be read."""
    before = repository.tree()
    result = repository.run("sh", "-c", ATTACK + 'cat "$1"', "sh", path)
    assert result.out == "good\n", result
    # What is not protected itself may go: the rest of a directory on the way.
    assert repository.tree()[path] == before[path]


@pytest.mark.parametrize("path", MISSING)
def test_missing(project: Project, path: str) -> None:
    """A protected file that does not exist cannot be made in any way, and nothing is left of its keeping."""
    project.mkdir(".git")
    project.run("sh", "-c", ATTACK, "sh", path)
    assert not os.path.lexists(project.directory / path)
    assert set(project.tree()) <= {".git", "Coopfile"}


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", ".claude/commands/x.md", ".vscode/settings.json"])
def test_missing_parents(project: Project, path: str) -> None:
    """Not even with the directories above it missing."""
    project.run("sh", "-c", ATTACK, "sh", path)
    assert sorted(project.tree()) == ["Coopfile"]


def test_looks_empty(project: Project) -> None:
    """What keeps a missing place looks like an empty directory inside, and to git like nothing."""
    assert project.output("ls -A .envrc; test -d .envrc && echo directory") == "directory"


def test_own_list(project: Project) -> None:
    """workspace.protect adds to the built-in list, for files, directories and what is missing."""
    project.write("ci/deploy.sh", "good\n")
    project.write("infra/deep/file", "good\n")
    project.coopfile('workspace.protect = ["ci/deploy.sh", "infra", "absent/later"]\n')
    before = project.tree()
    for path in ("ci/deploy.sh", "infra/deep/file", "infra/new", "absent/later", "Coopfile", ".envrc"):
        project.run("sh", "-c", ATTACK, "sh", path)
    assert project.tree() == before
    project.output("echo x > ci/other && echo y > beside")


def test_neighbours_stay_writable(repository: Project) -> None:
    """Beside a protected file its directory can be used as ever."""
    repository.output("echo x > .git/index; mkdir .git/objects; echo y > .vscode/other 2>/dev/null; true")
    assert (repository.directory / ".git/index").read_text() == "x\n"
    assert (repository.directory / ".git/objects").is_dir()


def test_protected_through_another_mount(repository: Project) -> None:
    """Protection holds too where files.write gives a directory that holds the workspace."""
    parent = repository.directory.parent
    repository.coopfile(f'[files]\nwrite = ["{parent}"]\n')
    hook = repository.directory / ".git/hooks/pre-commit"
    assert repository.run("sh", "-c", ATTACK, "sh", str(hook)).status == 0
    rename = "import os, sys; os.rename(*sys.argv[1:])"
    assert repository.python(rename, f"{repository.directory}/.git", f"{parent}/x").status != 0
    assert hook.read_text() == "good\n"


def test_hard_link_made_before(repository: Project) -> None:
    """Moving something else in the way of the workspace's links does not reach a protected file."""
    result = repository.shell(
        "ln .git/config mine && echo evil > mine; cp -l .git/config mine2 && echo evil > mine2"
    )
    assert result.status != 0
    assert (repository.directory / ".git/config").read_text() == "good\n"


@pytest.mark.parametrize("target", ["elsewhere", "/etc/passwd", "missing"])
def test_link_in_place_of_a_protected_file(project: Project, target: str) -> None:
    """A link where a protected path should be is refused with a remedy, whatever it leads to."""
    project.write("elsewhere", "x")
    project.link(".envrc", target)
    result = project.run("true")
    assert result.status == 125 and "symbolic link" in result.err and "help:" in result.err
    assert sorted(project.tree()) == [".envrc", "Coopfile", "elsewhere"]


def test_link_in_place_of_a_directory(project: Project) -> None:
    """So is a link where a directory on the way should be."""
    project.mkdir("real/hooks")
    project.link(".git", "real")
    result = project.run("true")
    assert result.status == 125 and "symbolic link" in result.err
    assert not [path for path in project.tree() if "hooks/" in path]


def test_file_in_place_of_a_directory(project: Project) -> None:
    """A file where a directory on the way should be, as in a linked worktree, is protected itself."""
    project.write(".git", "gitdir: /somewhere\n")
    project.run("sh", "-c", ATTACK, "sh", ".git")
    assert (project.directory / ".git").read_text() == "gitdir: /somewhere\n"


def test_read_only_workspace(project: Project) -> None:
    """In a directory that the caller cannot write nothing has to be kept, and the sandbox starts."""
    if project.actor.uid == os.geteuid():
        pytest.skip("needs tests run as root and an actor who is not: root can write everywhere")
    os.chown(project.directory, 0, 0)
    try:
        assert project.shell("echo x > .envrc; ls -A").out == "Coopfile\n"
    finally:
        project.actor.own(project.directory)


def test_unwritable_own_directory(project: Project) -> None:
    """A directory of the caller's own without write permission is no way round it."""
    if project.actor.uid == 0:
        pytest.skip("root needs no permission")
    project.mkdir(".git").chmod(0o555)
    try:
        result = project.shell("chmod 755 .git; mkdir .git/hooks; echo evil > .git/hooks/pre-commit; true")
        assert result.status == 0 or "make its parent writable" in result.err
        assert not (project.directory / ".git/hooks").exists()
    finally:
        (project.directory / ".git").chmod(0o755)


def test_nothing_left(project: Project) -> None:
    """After a run, also one that failed, the workspace has no placeholder in it."""
    before = project.tree()
    for command in (["true"], ["false"], ["no-such-command"], ["sh", "-c", "kill -9 $$"]):
        project.run(*command)
        assert project.tree() == before, command


def placeholders(project: Project) -> list[str]:
    """Return the placeholders in the workspace on the host."""
    found = []
    for directory, names, _ in os.walk(project.directory):
        found += [name for name in names if is_placeholder(os.stat(os.path.join(directory, name)))]
    return sorted(found)


def start(project: Project, script: str = "echo ready; exec sleep 1000") -> subprocess.Popen[bytes]:
    """Start a sandbox and wait until its command runs."""
    process = project.popen("sh", "-c", script)
    assert process.stdout is not None
    line = process.stdout.readline()
    if line != b"ready\n":
        raise AssertionError(process.communicate())
    return process


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a sandbox as a person would, and wait for it."""
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE)


@pytest.mark.parametrize("first_out", [0, 1])
def test_two_at_once(project: Project, first_out: int) -> None:
    """Two sandboxes in one workspace share what keeps the places; the last one out removes it."""
    before = project.tree()
    processes = [start(project), start(project)]
    assert ".envrc" in placeholders(project)
    stop(processes[first_out])
    assert ".envrc" in placeholders(project)
    # It still protects the other one, and a third that comes now.
    assert project.shell("rmdir .envrc || mkdir .envrc/x || echo x > .envrc").status != 0
    stop(processes[1 - first_out])
    assert project.tree() == before


def test_many_at_once(project: Project) -> None:
    """Sandboxes that come and go in one workspace together leave it as it was, and none fails."""
    before = project.tree()
    for _ in range(3):
        running = [project.popen("sh", "-c", "echo evil > .envrc; exit 7") for _ in range(6)]
        for process in running:
            _, err = process.communicate(timeout=DEADLINE)
            assert process.returncode == 7, err
    assert project.tree() == before


def test_created_by_the_host_meanwhile(project: Project) -> None:
    """A file that a person makes in a protected place while a sandbox runs stays theirs."""
    process = start(project)
    (project.directory / ".envrc").rmdir()
    project.write(".envrc", "mine\n")
    stop(process)
    assert (project.directory / ".envrc").read_text() == "mine\n"


def test_adopted_after_kill(project: Project) -> None:
    """What a SIGKILL of everything leaves behind, the next run in the workspace adopts and removes."""
    before = project.tree()
    process = start(project)
    family = [process.pid, *descendants(process.pid)]
    # The monitor first: it would clean up.
    for pid in (family[1], family[0], *family[2:]):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.communicate(timeout=DEADLINE)
    assert ".envrc" in placeholders(project)
    assert project.shell("echo evil > .envrc").status != 0
    assert project.tree() == before


def test_litter_is_no_coopfile(project: Project) -> None:
    """Litter in a Coopfile's place is ignored by the next run."""
    (project.directory / "Coopfile").unlink()
    before = project.tree()
    process = start(project)
    assert "Coopfile" in placeholders(project)
    for pid in (descendants(process.pid)[0], process.pid):
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=DEADLINE)
    assert project.output("echo ran") == "ran"
    assert wait_until(lambda: project.tree() == before, 10)


def git(project: Project, *argv: str) -> str:
    """Run git on the host as the actor."""
    result = project.actor.run(
        "git", "-c", "user.name=t", "-c", "user.email=t@localhost", *argv,
        cwd=project.directory, environment=project.environment,
    )  # fmt: skip
    assert result.status == 0, result
    return result.out


@pytest.fixture
def checkout(project: Project) -> Project:
    """Return a project that is a git repository with one commit."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    git(project, "init", "-q")
    git(project, "add", "Coopfile")
    git(project, "commit", "-q", "-m", "first")
    return project


def test_git_inside(checkout: Project) -> None:
    """git can be used in the workspace: status, add, commit, branches, stash."""
    script = """
export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@localhost GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@localhost
set -e
echo x > file; git add file; git commit -q -m second
git checkout -q -b topic; echo y >> file; git commit -q -am third; git stash list; git log --oneline | wc -l
git status --porcelain
"""
    assert checkout.output(script) == "3"
    assert git(checkout, "status", "--porcelain") == ""
    assert git(checkout, "log", "--format=%s", "topic").split() == ["third", "second", "first"]


def test_git_outside_meanwhile(checkout: Project) -> None:
    """While a sandbox runs, git on the host sees nothing of the placeholders."""
    process = start(checkout)
    assert placeholders(checkout)
    assert git(checkout, "status", "--porcelain", "--untracked-files=all", "--ignored") == ""
    git(checkout, "commit", "-q", "--allow-empty", "-m", "meanwhile")
    stop(process)
    assert git(checkout, "status", "--porcelain") == ""


def test_git_configuration_is_kept(checkout: Project) -> None:
    """git inside can change neither the repository's configuration nor its hooks."""
    before = {name: value for name, value in checkout.tree().items() if "config" in name or "hooks" in name}
    assert checkout.shell("git config core.fsmonitor ./evil").status != 0
    assert checkout.shell("git config core.hooksPath . ; cp /bin/true .git/hooks/pre-commit").status != 0
    after = {name: value for name, value in checkout.tree().items() if "config" in name or "hooks" in name}
    assert after == before


def test_a_guard_that_the_host_takes_away_is_told(project: Project) -> None:
    """When the host renames another file over a protected one, coop names it at the end of the run."""
    config = project.write(".git/config", "[core]\n")
    project.write("ready.sh", "touch started; while [ ! -e go ]; do sleep 0.02; done\n")
    process = project.popen("sh", "ready.sh")
    wait_until((project.directory / "started").exists)
    project.write(".git/new", "[core]\n").rename(config)
    project.write("go")
    _, stderr = process.communicate(timeout=60)
    assert b"/workspace/.git/config was replaced on the host" in stderr
    assert process.returncode == 0


def test_a_guard_that_the_host_moves_away_is_told(project: Project) -> None:
    """When the host makes a backup by a rename and writes a new file, the guard goes with the old one."""
    config = project.write(".git/config", "[core]\n")
    project.write(
        "ready.sh", "touch started; while [ ! -e go ]; do sleep 0.02; done; echo evil > .git/config\n"
    )
    process = project.popen("sh", "ready.sh")
    wait_until((project.directory / "started").exists)
    config.rename(config.with_name("config~"))
    project.write(".git/config", "[core]\n")
    project.write("go")
    _, stderr = process.communicate(timeout=60)
    assert config.read_text() == "evil\n"
    assert b"/workspace/.git/config was replaced on the host" in stderr


def test_a_guard_that_is_gone_cannot_be_feigned(project: Project) -> None:
    """What the command puts in the place of a guard that the host took away hides nothing: it is told."""
    project.write(".git/hooks/pre-commit", "exit 0\n")
    script = "touch started; while [ ! -e go ]; do sleep 0.02; done; rm -rf .git/hooks; ln -s .. .git/hooks\n"
    project.write("ready.sh", script)
    process = project.popen("sh", "ready.sh")
    wait_until((project.directory / "started").exists)
    hooks = project.directory / ".git/hooks"
    hooks.rename(hooks.with_name("hooks.old"))
    project.mkdir(hooks)
    project.write("go")
    _, stderr = process.communicate(timeout=60)
    assert hooks.is_symlink()
    assert b"/workspace/.git/hooks was replaced on the host" in stderr


def test_the_command_line_of_coop_is_not_shown(project: Project) -> None:
    """PID 1's command line names no path of the host and no option."""
    shown = project.output("tr '\\0' ' ' </proc/1/cmdline", options=("--set", "limits.pids=77"))
    assert shown.split() == ["coop"]


def test_git_is_not_led_elsewhere(project: Project) -> None:
    """A sandbox can give git no other directory for its configuration, and git works meanwhile."""
    project.coop("check")
    result = project.shell("git init -q . 2>/dev/null; true")
    assert result.status == 0
    subprocess.run([*project.actor.prefix, "git", "init", "-q", str(project.directory)], check=True)
    script = "git status --short >/dev/null && cat .git/commondir && echo ../evil > .git/commondir"
    result = project.shell(script)
    assert result.out == ".\n" and "Read-only" in result.err
    assert not (project.directory / ".git/commondir").exists()
