"""The workspace and what [files] adds: who can read and write what, on both sides."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.sandboxes import Project

pytestmark = pytest.mark.native


def own_file(project: Project, path: Path, text: str = "content") -> Path:
    """Make a file of the actor's outside the workspace, and the directories above it."""
    project.mkdir(path.parent)
    path.write_text(text)
    return project.actor.own(path)


def test_workspace(project: Project) -> None:
    """The workspace can be read and written, and what is written there stays."""
    project.write("in", "from the host")
    script = (
        "cat in; echo changed > in; mkdir -p a/b; echo new > a/b/c; ln -s c a/b/l; mv a/b a/d; chmod 700 a"
    )
    assert project.output(script) == "from the host"
    assert (project.directory / "in").read_text() == "changed\n"
    assert (project.directory / "a/d/l").read_text() == "new\n"
    assert (project.directory / "a").stat().st_mode & 0o777 == 0o700


def test_workspace_at_its_own_path(project: Project) -> None:
    """workspace.path = "host" gives the workspace its path on the host."""
    project.coopfile('workspace.path = "host"\n')
    assert project.output("pwd; echo $COOP_WORKSPACE; echo x > new").split() == [str(project.directory)] * 2
    assert (project.directory / "new").exists()
    assert project.output(f"ls -A {project.directory.parent}") == project.directory.name
    assert project.shell("test -e /workspace").status == 1


@pytest.mark.parametrize("path", ["/work", "/home/dev/src", "/root/project", "/tmp/w", "/opt/a/b"])
def test_workspace_elsewhere(project: Project, path: str) -> None:
    """workspace.path puts the workspace anywhere that is the sandbox's own."""
    project.coopfile(f'workspace.path = "{path}"\n')
    assert project.output("pwd; echo x > new") == path
    assert (project.directory / "new").exists()


@pytest.mark.parametrize("path", ["/proc/x", "/dev/x", "/usr/x/y", "/sys", "/run/x"])
def test_workspace_where_it_cannot_be(project: Project, path: str) -> None:
    """A workspace inside what the sandbox is made of is refused in words, and the host is as before."""
    project.coopfile(f'workspace.path = "{path}"\n')
    before = project.tree()
    result = project.run("true")
    assert result.status == 125, result
    assert "cannot be at" in result.err and "help:" in result.err
    assert project.tree() == before


def test_read(project: Project) -> None:
    """files.read shows a file and a directory of the host's at their own paths, read-only."""
    directory = project.actor.directory("shared")
    own_file(project, directory / "below/file")
    file = own_file(project, project.actor.directory("other") / "single")
    project.coopfile(f'[files]\nread = ["{directory}", "{file}"]\n')
    assert project.output(f"cat {directory}/below/file {file}") == "contentcontent"
    script = (
        f"echo x > {file}; echo x > {directory}/new; rm {directory}/below/file; rm {file}; "
        f"mv {directory}/below {directory}/b"
    )
    result = project.shell(script)
    assert result.status != 0
    assert (directory / "below/file").read_text() == file.read_text() == "content"
    assert sorted(path.name for path in directory.iterdir()) == ["below"]
    assert project.shell(f"ls {file.parent}").out.split() == ["single"]


def test_write(project: Project) -> None:
    """files.write lets a file and a directory of the host's be changed, and nothing beside them."""
    directory = project.actor.directory("shared")
    file = own_file(project, project.actor.directory("other") / "single")
    own_file(project, file.parent / "neighbour")
    project.coopfile(f'[files]\nwrite = ["{directory}", "{file}"]\n')
    project.output(f"echo x > {file}; echo y > {directory}/new")
    assert (file.read_text(), (directory / "new").read_text()) == ("x\n", "y\n")
    assert project.shell(f"cat {file.parent}/neighbour; echo x > {file.parent}/neighbour").out == ""
    assert (file.parent / "neighbour").read_text() == "content"


@pytest.mark.parametrize("user", ["root", "me"])
def test_home_paths(project: Project, user: str) -> None:
    """``~/`` is the caller's home on the host and the sandbox's home inside."""
    own_file(project, project.home / ".toolrc")
    own_file(project, project.home / ".cache/tool/file")
    project.coopfile(f'session.user = "{user}"\n[files]\nread = ["~/.toolrc"]\nwrite = ["~/.cache/tool"]\n')
    assert (
        project.output('cat "$HOME/.toolrc" "$HOME/.cache/tool/file"; echo x > "$HOME/.cache/tool/new"')
        == "contentcontent"
    )
    assert (project.home / ".cache/tool/new").read_text() == "x\n"
    assert project.shell('echo x > "$HOME/.toolrc"').status != 0
    # Beside them the home is the sandbox's own.
    project.output('echo x > "$HOME/.own"; echo x > "$HOME/.cache/own"')
    assert not (project.home / ".own").exists() and not (project.home / ".cache/own").exists()


def test_missing(project: Project) -> None:
    """A path that the host does not have is left out, not made; -v says so."""
    project.coopfile('[files]\nread = ["~/no/such", "/no/such/thing"]\nwrite = ["~/neither"]\n')
    before = set(project.home.rglob("*"))
    result = project.shell('ls -A "$HOME"; ls /no', options=["-v"])
    assert result.out == ".claude\n"
    for name in (
        "no/such: not on this host",
        "/no/such/thing: not on this host",
        "neither: not on this host",
    ):
        assert name in result.err
    assert not (project.home / "no").exists() and not (project.home / "neither").exists()
    ours = {".cache", "coop", "plans", "running", "starting", ".local", "share", "sessions", "audit"}
    ours |= {path.name for path in project.home.glob(".local/state/coop/audit/*")}
    ours |= {path.name for path in project.home.glob(".local/share/coop/sessions/**/*")}
    ours |= {path.name for path in project.home.glob(".local/share/coop/sessions/*")}
    ours |= {path.name for path in project.home.glob(".cache/coop/plans/*")}
    assert {path.name for path in set(project.home.rglob("*")) - before} <= ours


def test_link_of_the_host(project: Project) -> None:
    """A link outside every writable place is followed once: its target appears at the link's path."""
    own_file(project, project.home / "dotfiles/rc")
    (project.home / ".rc").symlink_to("dotfiles/rc")
    project.coopfile('[files]\nread = ["~/.rc"]\n')
    assert project.output('cat "$HOME/.rc"; test ! -e "$HOME/dotfiles" && test ! -L "$HOME/.rc"') == "content"


@pytest.mark.parametrize("kind", ["read", "write"])
def test_link_in_the_workspace(project: Project, kind: str) -> None:
    """A path that goes through a link in the workspace is refused: the sandbox could have made it."""
    secret = own_file(project, project.actor.directory("private") / "secret")
    project.link("data", str(secret.parent))
    project.coopfile(f'[files]\n{kind} = ["{project.directory}/data/secret"]\n')
    result = project.shell(f"cat {project.directory}/data/secret")
    assert (result.status, result.out) == (125, "")
    assert "symbolic link" in result.err


def test_link_in_a_writable_directory(project: Project) -> None:
    """So is one through a link in what files.write gives, in whatever order they are named."""
    writable = project.actor.directory("writable")
    secret = own_file(project, project.actor.directory("private") / "secret")
    (writable / "link").symlink_to(secret)
    project.coopfile(f'[files]\nread = ["{writable}/link"]\nwrite = ["{writable}"]\n')
    result = project.run("true")
    assert result.status == 125 and "symbolic link" in result.err


def test_nested_read_in_workspace(project: Project) -> None:
    """A part of the workspace that files.read names at its path inside becomes read-only."""
    project.write("vendor/file", "content")
    project.coopfile(f'workspace.path = "host"\n[files]\nread = ["{project.directory}/vendor"]\n')
    result = project.shell("cat vendor/file; echo x > vendor/file")
    assert result.out == "content" and result.status != 0
    assert (project.directory / "vendor/file").read_text() == "content"


def test_nested_read_in_writable(project: Project) -> None:
    """A read-only directory inside a writable one stays in its place: the way to it cannot be moved."""
    kept = own_file(project, project.home / "src/a/keep/file", "good")
    project.coopfile('[files]\nwrite = ["~/src"]\nread = ["~/src/a/keep"]\n')
    project.output(
        "cd ~/src; touch a/beside; echo evil >a/keep/file; mv a b; mv a/keep a/other; rm -rf a/keep; "
        "mkdir -p a/keep; echo evil >a/keep/file; true"
    )
    assert kept.read_text() == "good"
    found = sorted(str(path.relative_to(project.home)) for path in (project.home / "src").rglob("*"))
    assert found == ["src/a", "src/a/beside", "src/a/keep", "src/a/keep/file"]


@pytest.mark.parametrize("session", [False, True])
def test_what_is_given_in_what_is_protected(project: Project, session: bool) -> None:
    """A file of a protected directory of the home that is named itself is writable, and nothing beside it."""
    own_file(project, project.home / ".config/git/given")
    kept = own_file(project, project.home / ".config/git/config", "good")
    own_file(project, project.home / "a/s/t/given")
    held = own_file(project, project.home / "a/s/kept", "good")
    project.coopfile(
        '[files]\nwrite = ["~/.config", "~/.config/git/given", "~/a", "~/a/s/t"]\n'
        f'read = ["{project.home}/a/s"]\n'
    )
    script = (
        "cd; echo evil >.config/git/config; echo evil >a/s/kept; mv .config/git .config/x; mv a/s a/x; "
        "rm -rf .config/git a/s; mkdir -p .config/git; echo evil >.config/git/config; "
        "echo x >.config/git/given; echo x >a/s/t/given"
    )
    options = ["--session", "work"] if session else []
    project.coop("run", *options, "--", "sh", "-c", script)
    assert (project.home / ".config/git/given").read_text() == "x\n"
    assert (project.home / "a/s/t/given").read_text() == "x\n"
    assert kept.read_text() == held.read_text() == "good"


def test_nested_read_in_the_workspace_through_the_workspace(project: Project) -> None:
    """What is given read-only at its own path cannot be written at the workspace's either."""
    project.write("lib/vendor/file", "good")
    path = project.directory / "lib/vendor"
    project.coopfile(f'[files]\nread = ["{path}"]\n')
    result = project.shell("echo evil >lib/vendor/file; mv lib lib2; mv lib/vendor v; touch lib/beside")
    assert result.status == 0, result
    assert (path / "file").read_text() == "good"
    assert sorted(os.listdir(path.parent)) == ["beside", "vendor"]


def test_mount_point_would_change_the_host(project: Project) -> None:
    """A path whose mount point would have to be made in the workspace is refused, and nothing is made."""
    other = own_file(project, project.actor.directory("other") / "file")
    project.coopfile(f'workspace.path = "{other.parent}"\n[files]\nread = ["{other}"]\n')
    before = project.tree()
    result = project.run("true")
    assert result.status == 125
    assert "would change the host" in result.err
    assert project.tree() == before


def test_directory_above_the_workspace(project: Project) -> None:
    """files.read of a directory that holds the workspace shows it read-only there."""
    parent = project.directory.parent
    project.coopfile(f'[files]\nread = ["{parent}"]\n')
    result = project.shell(f"echo x > new && cat {project.directory}/new && echo y > {project.directory}/new")
    assert result.out == "x\n" and result.status != 0
    assert (project.directory / "new").read_text() == "x\n"


def test_socket(project: Project) -> None:
    """A socket is refused in files.read, which would not hold it, and usable with files.write."""
    path = project.actor.directory("s") / "socket"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    project.actor.own(path)
    path.chmod(0o777)
    try:
        project.coopfile(f'[files]\nread = ["{path}"]\n')
        result = project.run("true")
        assert result.status == 125 and "is a socket" in result.err
        project.coopfile(f'[files]\nwrite = ["{path}"]\n')
        script = f"import socket; c = socket.socket(socket.AF_UNIX); c.connect('{path}'); c.send(b'x')"
        assert project.python(script).status == 0
        connection, _ = server.accept()
        with connection:
            assert connection.recv(1) == b"x"
    finally:
        server.close()


@pytest.mark.parametrize("kind", ["read", "write"])
def test_devices_and_pipes(project: Project, kind: str) -> None:
    """Pipes and devices of the host are refused."""
    fifo = project.home / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, "/dev/null"):
        project.coopfile(f'[files]\n{kind} = ["{path}"]\n')
        result = project.run("true")
        assert result.status == 125, path
        assert "Traceback" not in result.err


def test_unreadable_source(project: Project) -> None:
    """What the caller cannot open is refused in words, or readable when the caller is root."""
    if project.actor.uid == 0:
        pytest.skip("root can open everything")
    project.coopfile('[files]\nread = ["/root/.bashrc"]\n')
    result = project.run("true")
    assert (result.status, "Traceback" in result.err) == (125, False) or "not on this host" in project.run(
        "true", options=["-v"]
    ).err


def test_home_as_workspace(project: Project) -> None:
    """The whole home directory is no workspace."""
    result = project.run("true", options=["-C", str(project.home)])
    assert result.status == 125 and "home directory" in result.err


def test_coopfile_is_read_only(project: Project) -> None:
    """The command cannot change what the next run is made of, in any way it might try."""
    project.coopfile("# kept\n")
    project.write("Coopfile.local", "# kept too\n")
    script = """
for f in Coopfile Coopfile.local; do
  echo x > $f; rm -f $f; mv $f other; cp /bin/true $f; ln -f /bin/true $f; chmod 777 $f; truncate -s 0 $f
  echo x > new; mv -f new $f; touch $f
done 2>/dev/null
rm -f new; exit 0
"""
    before = project.tree()
    assert project.shell(script).status == 0
    assert project.tree() == before


def test_own_state_is_hidden(project: Project) -> None:
    """coop's caches and state are not readable even where files.write gives the whole home's cache."""
    project.mkdir(project.home / ".cache")
    project.coopfile('[files]\nwrite = ["~/.cache"]\n')
    project.run("true")
    result = project.shell(
        'ls "$HOME/.cache/coop"; echo x > "$HOME/.cache/coop/x"; mv "$HOME/.cache/coop" "$HOME/.cache/y"'
    )
    assert result.status != 0 and result.out == ""
    assert not (project.home / ".cache/y").exists()
