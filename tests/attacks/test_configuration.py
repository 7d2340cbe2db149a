"""Attacks through what coop reads: Coopfiles, caches, approvals, variables, names."""

# ruff: noqa: E501  (attack programs, and tables of what they try)
from __future__ import annotations

import json
import os
import shutil
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.options import SETTLED
from tests.sandboxes import Actor, Project, tree

pytestmark = pytest.mark.native

WIDE = """
[network]
mode = "host"
[files]
write = ["~/documents"]
"""
STRANGER = 54321
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's files")


def widened(project: Project, **how: object) -> str:
    """Return what a run says that would show a widened sandbox: its namespace and the host's document."""
    project.write(str(project.home / "documents/file"), "host-document")
    result = project.shell("readlink /proc/self/ns/net; cat ~/documents/file; echo ran", **how)
    assert os.readlink("/proc/self/ns/net") not in result.out, result
    assert "host-document" not in result.out, result
    assert "Traceback" not in result.err, result
    return result.out


@pytest.mark.parametrize("name", ["Coopfile", "sub/Coopfile", "sub/deeper/Coopfile"])
def test_planted_coopfile(project: Project, name: str) -> None:
    """A Coopfile that the command plants where its owner will later run coop gives nothing without approval."""
    project.shell(f"mkdir -p sub/deeper; printf '%s' '{WIDE}' > {name}")
    place = (project.directory / name).parent
    out = widened(project, cwd=place)
    planted = name != "Coopfile"
    assert out == "" if planted else out.endswith("ran\n")


def test_planted_local_file(project: Project) -> None:
    """A Coopfile.local cannot be planted, not even over its placeholder."""
    script = f"rmdir Coopfile.local; mv Coopfile.local x; printf '%s' '{WIDE}' > Coopfile.local; ln -s sub Coopfile.local"
    project.shell(script)
    assert not os.path.lexists(project.directory / "Coopfile.local")
    assert widened(project).endswith("ran\n")


def test_file_over_a_placeholder(project: Project) -> None:
    """Whatever stands at the place of a Coopfile in a directory below is refused or asks for approval."""
    for kind in ("mkdir sub/Coopfile", "mkfifo sub/Coopfile", "ln -s /etc/passwd sub/Coopfile", "ln -s Coopfile sub/Coopfile",
                 "truncate -s 1T sub/Coopfile", "touch sub/Coopfile; chmod 000 sub/Coopfile"):  # fmt: skip
        project.shell(f"rm -rf sub; mkdir sub; {kind}")
        result = project.shell("echo ran", cwd=project.directory / "sub")
        assert "Traceback" not in result.err, result
        assert result.status in (0, 125), result
        project.shell("rm -rf sub")


@pytest.fixture
def shared(actor: Actor) -> Iterator[Path]:
    """Yield a directory of the actor's in which a stranger may make files too."""
    path = actor.directory("shared")
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@ROOT_ONLY
@pytest.mark.parametrize(
    "kind", ["file", "link to own file", "link to root's file", "local file", "local link"]
)
def test_strangers_coopfile(project: Project, shared: Path, kind: str) -> None:
    """A Coopfile of another user's in or above the working directory is refused, and so is a link of theirs."""
    own = project.write("mine", WIDE)
    rooted = project.actor.base / "rooted"
    rooted.write_text(WIDE)
    place = shared / ("Coopfile.local" if "local" in kind else "Coopfile")
    if "local" in kind:
        project.write(str(shared / "Coopfile"), "")
    if "link" in kind:
        place.symlink_to(rooted if "root" in kind else own)
        os.chown(place, STRANGER, STRANGER, follow_symlinks=False)
    else:
        place.write_text(WIDE)
        os.chown(place, STRANGER, STRANGER)
    below = project.mkdir(shared / "work")
    assert widened(project, cwd=below) == ""
    result = project.shell("echo ran", cwd=below)
    assert result.status == 125
    assert str(STRANGER) in result.err, result


def cache(project: Project) -> Path:
    """Return the one entry of the project's cache after an ordinary run."""
    time.sleep(SETTLED)
    project.run("true")
    (entry,) = (project.home / ".cache/coop/plans").iterdir()
    return entry


def forged(entry: Path) -> bytes:
    """Return a cache entry that coop would believe if it stood in the right place: with the host's network."""
    body = entry.read_bytes()[4:].replace(b"\x04none", b"\x04host")
    assert body != entry.read_bytes()[4:]
    return zlib.crc32(body).to_bytes(4, "little") + body


def test_forged_entry_is_believed(project: Project) -> None:
    """The forgery of these tests works where coop does believe it: they test something."""
    os.utime(project.directory / "Coopfile", (1, 1))
    entry = cache(project)
    entry.write_bytes(forged(entry))
    assert project.output("readlink /proc/self/ns/net") == os.readlink("/proc/self/ns/net")


@ROOT_ONLY
def test_strangers_cache_entry(project: Project) -> None:
    """A cache entry that another user owns, or may write, or that is a link, is not read."""
    os.utime(project.directory / "Coopfile", (1, 1))
    entry = cache(project)
    wide = forged(entry)
    for spoil in ("owner", "mode", "link"):
        entry.unlink()
        target = entry if spoil != "link" else project.actor.base / "elsewhere"
        target.write_bytes(wide)
        target.chmod(0o666 if spoil == "mode" else 0o600)
        os.chown(target, *((STRANGER,) * 2 if spoil == "owner" else (project.actor.uid, project.actor.gid)))
        if spoil == "link":
            entry.symlink_to(target)
        assert widened(project).endswith("ran\n")


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"\xe3" * 100000, b"(" * 5000, b"\xa9\xff\xff\xff\x7f", b"i\x00"]
)
def test_damaged_cache_entry(project: Project, content: bytes) -> None:
    """A damaged cache entry is a miss: no crash, no other plan."""
    os.utime(project.directory / "Coopfile", (1, 1))
    entry = cache(project)
    entry.write_bytes(content)
    assert widened(project).endswith("ran\n")


@pytest.mark.parametrize("variable", ["XDG_STATE_HOME", "XDG_CONFIG_HOME"])
def test_own_directories_in_the_workspace(project: Project, variable: str) -> None:
    """Settings and approvals in the workspace, where a repository can bring them along, do not count."""
    project.coopfile(WIDE)
    own = project.mkdir("own/coop/approvals")
    for path in (project.home / ".local/state/coop/approvals").iterdir():
        project.write(str(own / path.name), path.read_bytes(), 0o600)
        path.unlink()
    project.write("own/coop/Coopfile", WIDE)
    assert widened(project, environment={variable: str(project.directory / "own")}) == ""
    project.coopfile("", allow=False)
    assert widened(project, environment={variable: str(project.directory / "own")}) == ""


def test_cache_planted_before_it_was_one(project: Project) -> None:
    """What a command wrote into a directory of the workspace is not believed when that becomes coop's cache."""
    os.utime(project.directory / "Coopfile", (1, 1))
    own = project.mkdir("own")
    entry = cache(project)
    wide = forged(entry)
    project.python(
        "import os, sys\nos.makedirs('own/coop/plans')\nos.umask(0o77)\nopen(sys.argv[1], 'wb').write(bytes.fromhex(sys.argv[2]))",
        f"own/coop/plans/{entry.name}",
        wide.hex(),
    )
    assert (own / "coop/plans" / entry.name).exists()
    assert widened(project, environment={"XDG_CACHE_HOME": str(own)}).endswith("ran\n")


def test_revoked_approval(project: Project) -> None:
    """A plan that was approved, cached and revoked does not run again."""
    project.coopfile('[network]\nmode = "host"\n', allow=False)
    os.utime(project.directory / "Coopfile", (1, 1))
    assert project.shell("echo ran").status == 125
    assert project.coop("allow").status == 0
    for _ in range(2):
        assert project.shell("echo ran").out == "ran\n"
    assert project.coop("allow", "--revoke").status == 0
    result = project.shell("echo ran")
    assert (result.status, result.out) == (125, "")


def test_home_in_the_workspace(project: Project) -> None:
    """A home at or below the workspace, by whatever variable, is refused: all of it would be given."""
    for home in (project.directory, project.mkdir("below/home")):
        result = project.shell("echo ran", environment={"HOME": str(home)})
        assert (result.status, result.out) == (125, "")


NAMES = [
    "a,b",
    "a:b",
    "a=b",
    "a b\t",
    "new\nline",
    "-rf",
    "--",
    "\\040",
    "'\"`$(touch evil)",
    "*?[a]",
    "\x1b[31mred",
    "\x1e\x1f",
    "ünïcödé",
    "...",
]


@pytest.mark.parametrize("name", NAMES)
def test_strange_paths(project: Project, name: str) -> None:
    """Paths with separators of mount options, of options and of shells are paths, nothing else."""
    given = project.write(str(project.home / name / "file"), "content").parent
    project.directory = project.mkdir(project.directory / name)
    project.coopfile("")
    quoted = json.dumps(str(given), ensure_ascii=False).replace("\x7f", "\\u007f")
    result = project.shell('cat "$0"; echo > written; pwd', options=["--set", f"files.read=[{quoted}]"])
    result = project.run("cat", f"{given}/file", options=["--set", f"files.read=[{quoted}]"])
    assert "Traceback" not in result.err, result
    if result.status != 125:
        assert result.out == "content", result
        assert project.output("echo > written; pwd") == "/workspace"
        assert sorted(path.name for path in project.directory.iterdir()) == ["Coopfile", "written"]
    assert "\x1b" not in result.err


def test_path_that_is_no_text(project: Project) -> None:
    """A workspace whose name is not UTF-8 works or is refused, without a traceback."""
    project.directory = project.mkdir(project.directory / os.fsdecode(b"\xff\xfe"))
    project.coopfile("")
    result = project.shell("echo ran")
    assert "Traceback" not in result.err, result
    assert (result.status, result.out) in ((0, "ran\n"), (125, ""))


def private(project: Project) -> dict[str, object]:
    """Return the home without what is coop's own."""
    return {
        name: item for name, item in tree(project.home).items() if not name.startswith((".cache", ".local"))
    }


@pytest.mark.parametrize(
    "text",
    [
        'agent.command = ["a\\u001eb\\u0000"]', 'agent.command = ["a\\u001eb"]', 'agent.command = ["-c"]',
        'env.A = "x\\ny=z"', 'env."A=B" = "x"', 'env.LD_PRELOAD = "/workspace/evil.so"', 'env.PATH = "/workspace"',
        'workspace.path = "/proc"', 'workspace.path = "/"', 'workspace.path = "/dev/shm"', 'workspace.path = "/workspace/../etc"',
        'workspace.path = "/usr"', 'workspace.path = "/work,rw,suid"', 'files.read = ["/proc/1/root"]', 'files.read = ["/dev"]',
        'files.read = ["/sys"]', 'files.read = ["~root"]', 'files.read = [""]', 'files.read = ["~/../.."]',
        'files.hide = ["../../etc/*"]', 'files.hide = ["/etc/passwd"]', 'files.hide = ["[", "**/**/**/**/**/**/x"]',
        'workspace.protect = ["../x"]', 'workspace.protect = ["/etc"]', 'workspace.protect = ["a\\nb", ".git/hooks/../../x"]',
        'limits.tmp = "1k,mode=7777"', 'limits.pids = 0', 'limits.memory = "1k"', 'session.user = "0"',
        'sandbox.enabled = false', 'sandbox.fallback = "host"', 'sandbox.backend = "none"',
    ],
)  # fmt: skip
def test_hostile_values(project: Project, text: str) -> None:
    """A value that means more than it may is refused, or harmless: nothing of the host shows or changes."""
    project.coopfile(text + "\n")
    before = private(project)
    script = "id -u >/dev/null; ls /proc/1/root/etc /sys/kernel; grep Cap /proc/self/status"
    result = project.shell(script)
    assert "Traceback" not in result.err, result
    assert result.status != 0 or "CapEff:\t0000000000000000" in result.out
    assert "passwd" not in result.out and "debug" not in result.out
    assert private(project) == before


@pytest.mark.parametrize("name", ["a\x1eb", "a\x00b"[:1] + "\x1f", "\x1b[2J", "x" * 5000, "\udcff"])
def test_hostile_command_names(project: Project, name: str) -> None:
    """A command's name, whatever is in it, comes back as one line of plain text."""
    result = project.run(name)
    assert result.status in (126, 127), result
    assert "Traceback" not in result.err
    assert "\x1b" not in result.err and "\x1e" not in result.err


@pytest.mark.parametrize(
    "module", ["coopfile", "marshal", "tomllib", "tomli", "signal", "resource", "sitecustomize"]
)
def test_planted_modules(project: Project, module: str) -> None:
    """Python modules that the command plants are not imported by coop when it starts in the workspace."""
    marker = project.directory / "imported"
    project.shell(
        f'mkdir -p {module}; echo \'open("{marker}", "w")\' | tee {module}/__init__.py > {module}.py'
    )
    result = project.shell("echo ran", cwd=project.directory)
    assert result.out == "ran\n"
    assert not marker.exists()
