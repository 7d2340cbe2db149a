"""Ways out of containers that once worked, tried again: each test failed before its hole was closed."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import time
from pathlib import Path

import pytest

from tests.containers.asked import DOCKER, EACH_KIND, altered, coop_run, image, options
from tests.engines.engine import Engine
from tests.sandboxes import Project, wait_until

PODMANS = pytest.mark.parametrize("engine", ["podman", "podman-rootless"], indirect=True)
ENGINES = pytest.mark.parametrize("engine", ["docker", "docker+runsc", "podman-rootless"], indirect=True)
_LARGE = 1 << 28  # bytes, of a sparse file


def program(engine: Engine) -> str:
    """Return the engine's own name."""
    return engine.program.rpartition("/")[2]


def in_home(project: Project, path: str) -> Path:
    """Make a directory of the caller's below their home."""
    return project.mkdir(project.home / path)


# A directory that cannot be looked into, while mounts are chosen

_LOCKED_WHILE_LOOKING = """
import os
from coopfile.engines import collect
_facts_of = collect.facts_of
def facts_of(*arguments, **named):
    os.chmod({path!r}, 0)
    try:
        return _facts_of(*arguments, **named)
    finally:
        os.chmod({path!r}, 0o755)
collect.facts_of = facts_of
"""


@ENGINES
def test_a_directory_that_is_locked_for_a_moment_does_not_lose_its_guards(
    engine: Engine, project: Project
) -> None:
    """Another sandbox takes the right to search .git away just while coop looks, and gives it back."""
    hooks = project.mkdir(".git/hooks")
    lines = _LOCKED_WHILE_LOOKING.format(path=str(hooks.parent))
    project.actor = altered(project.actor, project.home, lines)
    settings = [image(engine, "busybox")]
    result = coop_run(project, engine, "touch", ".git/hooks/post-checkout", settings=settings)
    assert list(hooks.iterdir()) == []
    assert result.status == 125, result
    assert f"{hooks.parent} cannot be searched, and what is in it cannot be guarded" in result.err
    assert f"help: chmod u+rwx {hooks.parent}" in result.err
    assert engine.containers() == []


@EACH_KIND
def test_a_directory_that_stays_locked_is_told_of(engine: Engine, project: Project) -> None:
    """A sandbox can lock .git for good: every later run, and `coop status`, says so and what helps."""
    git = project.mkdir(".git/hooks").parent
    settings = [image(engine, "busybox")]
    assert coop_run(project, engine, "chmod", "000", ".git", settings=settings).status == 0
    assert stat.S_IMODE(git.stat().st_mode) == 0
    everywhere = options(engine, *settings)
    for argv in (("run", *everywhere, "--", "true"), ("status", *everywhere)):
        result = project.coop(*argv)
        assert result.status == (125 if argv[0] == "run" else 1), result
        said = result.out + result.err
        assert "Traceback" not in said
        assert "cannot be searched" in said, result
        assert "chmod u+rwx" in said, result
    git.chmod(0o755)
    assert coop_run(project, engine, "true", settings=settings).status == 0
    assert engine.containers() == []


# Names that mean something to a reader of mount options, and what stands in for hidden paths


@ENGINES
def test_a_hidden_name_with_a_newline_is_mounted_over_by_itself(engine: Engine, project: Project) -> None:
    """The part before the newline is another path, and what hides is mounted read-only."""
    project.coopfile('[files]\nhide = ["**/.env*"]\n')
    project.write(".env\nx", "SECRET")
    project.write(".envd\ny/file", "SECRET")
    script = (
        'cat .env*; cat .envd*/*; for path in .env*; do chmod 777 "$path"; echo evil >"$path"; done; '
        "echo evil >.envd/secret; true"
    )
    result = coop_run(project, engine, "sh", "-c", script, settings=[image(engine, "busybox")])
    assert result.status == 0, result
    assert "SECRET" not in result.out
    masks = project.home / ".local/state/coop/masks"
    assert (masks / "file").lstat().st_size == 0
    assert (masks / "directory").lstat().st_nlink == 2
    assert {stat.S_IMODE((masks / name).lstat().st_mode) for name in ("file", "directory")} == {0}
    assert (project.directory / ".env\nx").read_text() == "SECRET"
    assert sorted(os.listdir(project.directory)) == [".env\nx", ".envd\ny", "Coopfile"]


@EACH_KIND
def test_what_stands_in_for_hidden_paths_is_made_again(engine: Engine, project: Project) -> None:
    """Content, rights or links that got there are not shown to the next sandbox."""
    project.coopfile('[files]\nhide = [".env", "private"]\n')
    project.write(".env", "SECRET")
    project.write("private/key", "SECRET")
    settings = [image(engine, "busybox")]
    show = ("sh", "-c", "cat .env; ls private; cat private/*; true")
    assert coop_run(project, engine, *show, settings=settings).out == ""
    masks = project.home / ".local/state/coop/masks"
    (masks / "file").chmod(0o644)
    (masks / "file").write_text("PLANTED")
    (masks / "directory").chmod(0o755)
    project.write(str(masks / "directory/planted"), "PLANTED")
    result = coop_run(project, engine, *show, settings=settings)
    assert (result.status, result.out) == (0, ""), result
    assert result.err.count("Permission denied") == 3, result
    (masks / "file").unlink()
    project.link(str(masks / "file"), str(project.write("elsewhere", "PLANTED")))
    assert coop_run(project, engine, *show, settings=settings).out == ""


# Programs and settings of engines from where a sandbox writes


@DOCKER
def test_a_planted_command_line_is_not_run_by_other_verbs(engine: Engine, project: Project) -> None:
    """Neither what is rendered nor what is shown asks a program of the workspace."""
    mark = project.home / "planted"
    client = shutil.which("docker", path=project.environment["PATH"])
    project.write("venv/bin/docker", f'#!/bin/sh\ntouch {mark}\nexec {client} "$@"\n', 0o755)
    path = f"{project.directory}/venv/bin:{project.environment['PATH']}"
    project.wrap = ("/usr/bin/env", f"PATH={path}")
    for argv in (("render", "docker", "--", "true"), ("render", "facts"), ("status",), ("plan",)):
        assert project.coop(*argv).status == 0, argv
        assert not mark.exists(), argv


@DOCKER
def test_a_link_of_the_workspace_leads_to_no_command_line(engine: Engine, project: Project) -> None:
    """A directory of PATH that a link in the workspace leads to today may be another one tomorrow."""
    client = shutil.which("docker", path=project.environment["PATH"])
    assert client is not None
    project.link("venv/bin", os.path.dirname(client))
    project.wrap = ("/usr/bin/env", f"PATH={project.directory}/venv/bin")
    result = coop_run(project, engine, "true", settings=[image(engine, "busybox")])
    assert result.status == 125, result
    assert "docker: not installed" in result.err


@DOCKER
@pytest.mark.parametrize("how", ["inside", "through"])
def test_no_daemon_is_reached_through_the_workspace(engine: Engine, project: Project, how: str) -> None:
    """Who listens there, or stands between, is told the secrets that the command is given."""
    real = engine.environment["DOCKER_HOST"].removeprefix("unix://")
    if how == "inside":
        link = project.link("docker.sock", real)
    else:
        project.link("to", os.path.dirname(real))
        link = project.directory / "to" / os.path.basename(real)
    given = {"DOCKER_HOST": f"unix://{link}"}
    result = coop_run(project, engine, "true", settings=[image(engine, "busybox")], environment=given)
    assert result.status == 125, result
    assert f"DOCKER_HOST is unix://{link}, where a sandboxed command could change" in result.err


_PROGRAMS = {"docker": ".docker", "podman": ".config/containers"}
_BELOW = {"docker": ".local/share/docker", "podman": ".config/containers"}


@EACH_KIND
def test_what_engines_are_configured_by_is_not_given_to_write(engine: Engine, project: Project) -> None:
    """Plug-ins, hooks and runtimes are named there, and started outside."""
    own = _PROGRAMS[program(engine)]
    for path in (own, f"{own}/inner"):
        in_home(project, path)
        project.coopfile(f'[files]\nwrite = ["~/{path}"]\n')
        result = coop_run(project, engine, "true", settings=[image(engine, "busybox")])
        assert result.status == 125, (path, result)
        assert "files.write: " in result.err, result
        assert str(project.home / path) in result.err


@EACH_KIND
def test_what_engines_are_configured_by_is_protected_below_what_is_given(
    engine: Engine, project: Project
) -> None:
    """Whether it is there or not."""
    own = Path(in_home(project, _BELOW[program(engine)]))
    project.coopfile(f'[files]\nwrite = ["~/{own.parent.relative_to(project.home)}"]\n')
    script = "cd $HOME/$1; touch beside; echo evil >$2/evil; mv $2 $2-2; mkdir $2; echo evil >$2/evil; true"
    words = ("sh", "-c", script, "sh", str(own.parent.relative_to(project.home)), own.name)
    for _ in ("there", "missing"):
        result = coop_run(project, engine, *words, settings=[image(engine, "busybox")])
        assert result.status == 0, result
        assert "can't create" in result.err, result
        found = {path.name for path in own.parent.iterdir()}
        # coop's own data, which the sandbox does not see, is in ~/.local/share too.
        assert found - {"coop"} == {"beside", *([own.name] if own.exists() else [])}
        shutil.rmtree(own, ignore_errors=True)


# What a project may have without its owner's word


@DOCKER
@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("base.image", '[base]\nimage = "{busybox}"\n'),
        ("packages.apk", '[base]\nimage = "{busybox}"\n[packages]\napk = ["git"]\n'),
        ("setup.run", '[base]\nimage = "{busybox}"\n[setup]\nnetwork = "none"\nrun = ["touch /ran"]\n'),
        ("agent.install", '[base]\nimage = "{busybox}"\n[agent]\ninstall = "touch /ran"\n'),
        ("sandbox.runtime", '[sandbox]\nbackend = ["native", "docker"]\nruntime = "runc"\n'),
        ("sandbox.backend", '[sandbox]\nbackend = ["docker"]\n'),
    ],
    ids=["image", "packages", "setup", "agent", "runtime", "back end"],
)
def test_nothing_is_fetched_or_built_before_its_owner_says_so(
    engine: Engine, project: Project, key: str, text: str
) -> None:
    """Each setting by which a project brings in code, or another kernel's door, is asked about by its key."""
    project.coopfile(text.format(busybox=engine.image("busybox")), allow=False)
    before = set(engine.output("image", "ls", "--quiet", "--no-trunc").split())
    result = project.run("true")
    assert result.status == 125, result
    assert key in result.err
    assert "coop allow" in result.err
    assert set(engine.output("image", "ls", "--quiet", "--no-trunc").split()) == before


@EACH_KIND
def test_an_image_adds_no_steps_to_a_build(engine: Engine, project: Project) -> None:
    """ONBUILD instructions are the image's: the engine would run them, and fetch what they name."""
    reference = "localhost/coop-test/triggers:latest"
    steps = f"FROM {engine.image('busybox')}\nONBUILD RUN touch /ran\n"
    form = () if program(engine) == "docker" else ("--format", "docker")
    engine.output("build", *form, "--tag", reference, "-", stdin=steps.encode())
    settings = [f"base.image={reference}", 'setup.run=["true"]', "setup.network=none"]
    result = coop_run(project, engine, "ls", "/ran", settings=settings)
    assert result.status == 125, result
    assert f"{reference} has ONBUILD instructions" in result.err


# Account files


@DOCKER
def test_the_account_files_of_a_sandbox_are_coops_own(engine: Engine, project: Project) -> None:
    """A link among them, which a repository may hold where the cache is kept in it, shows no other file."""
    project.environment["XDG_CACHE_HOME"] = str(project.mkdir(".cache"))
    secret = project.write(str(project.home / "secret"), "SECRET:x:1:1::/:/bin/sh\n", 0o600)
    settings = [image(engine, "busybox")]
    for _ in range(2):
        result = coop_run(project, engine, "cat", "/etc/passwd", settings=settings)
        assert result.status == 0, result
        assert "SECRET" not in result.out
        assert "tester:x:" in result.out
        found = [path for root in (project.home, project.directory) for path in root.rglob("passwd")]
        assert found
        for path in found:
            path.unlink()
            project.link(str(path), str(secret))
    assert all(not path.is_relative_to(project.directory) for path in found)
    for path in found:
        path.unlink()
        project.write(str(path), "SECRET:x:1:1::/:/bin/sh\n", 0o666)
    assert "SECRET" not in coop_run(project, engine, "cat", "/etc/passwd", settings=settings).out


@DOCKER
def test_the_accounts_of_an_image_are_read_up_to_a_limit(engine: Engine, project: Project) -> None:
    """An image's file of any length takes neither coop's memory nor its time."""
    reference = "localhost/coop-test/large:latest"
    make = f"rm -f /etc/passwd; dd if=/dev/zero of=/etc/passwd bs=1 count=1 seek={_LARGE}"
    text = f"FROM {engine.image('busybox')}\nRUN {make}\n"
    engine.output("build", "--network", "none", "--tag", reference, "-", stdin=text.encode())
    started = project.popen("true", options=options(engine, f"base.image={reference}"))
    begin = time.monotonic()
    _, status, used = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    assert started.returncode in (0, 125)  # Docker itself may refuse the file
    assert used.ru_maxrss < _LARGE >> 11  # in KiB: half of it
    assert time.monotonic() - begin < 50
    engine.output("rmi", reference)


# Files that are more than files


@EACH_KIND
@pytest.mark.parametrize("kind", ["socket", "pipe", "device"])
def test_what_is_given_to_read_is_no_way_to_talk(engine: Engine, project: Project, kind: str) -> None:
    """A read-only mount keeps nobody from using a socket, a pipe or a device: refused, as natively."""
    path = project.home / kind
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("devices cannot be made here")
    project.actor.own(path)
    project.coopfile(f'[files]\nread = ["{path}"]\n')
    said = []
    for settings in (options(engine, image(engine, "busybox")), ["--set", "sandbox.backend=native"]):
        result = project.run("true", options=settings)
        assert result.status == 125, result
        said.append([line for line in result.err.splitlines() if "error: " in line or "help: " in line])
    assert said[0] == said[1]
    assert str(path) in said[0][0]


@ENGINES
def test_what_is_read_only_stays_in_its_place_below_what_is_writable(
    engine: Engine, project: Project
) -> None:
    """The directories on the way to it cannot be moved, to have the next sandbox read something else."""
    outer = in_home(project, "src")
    kept = project.write(str(outer / "a/keep/file"), "good")
    project.coopfile('[files]\nwrite = ["~/src"]\nread = ["~/src/a/keep"]\n')
    script = (
        "cd $HOME/src; touch a/beside; echo evil >a/keep/file; mv a b; mv a/keep a/other; rm -rf a/keep; "
        "mkdir -p a/keep; echo evil >a/keep/file; true"
    )
    result = coop_run(project, engine, "sh", "-c", script, settings=[image(engine, "busybox")])
    assert result.status == 0, result
    assert kept.read_text() == "good"
    assert sorted(path.name for path in outer.rglob("*")) == ["a", "beside", "file", "keep"]


@ENGINES
def test_the_way_to_what_is_hidden_below_what_is_protected_is_read_only(
    engine: Engine, project: Project
) -> None:
    """Mounting it on itself, so that it cannot be renamed, makes it no more writable."""
    project.write("kept/way/secret", "SECRET")
    project.write("kept/way/file", "good")
    project.coopfile('[workspace]\nprotect = ["kept"]\n[files]\nhide = ["kept/way/secret"]\n')
    script = "cat kept/way/secret; echo evil >kept/way/file; touch kept/way/new; mv kept/way kept/w; true"
    result = coop_run(project, engine, "sh", "-c", script, settings=[image(engine, "busybox")])
    assert (result.status, result.out) == (0, ""), result
    assert (project.directory / "kept/way/file").read_text() == "good"
    assert sorted(os.listdir(project.directory / "kept/way")) == ["file", "secret"]


# Labels and variables that are read by what runs outside


@EACH_KIND
def test_a_label_is_not_taken_for_another_container(engine: Engine, project: Project) -> None:
    """What a stranger writes into coop's own label removes nobody's container, whatever it looks like."""
    from coopfile.engines.guard import this_owner

    here = this_owner().replace(uid=str(engine.actor.uid), pid="999999", started="1")
    busybox = engine.image("busybox")
    victim = engine.output("create", "--name", "victim", busybox, "true")
    lines = [
        f"{name} {shown}"
        for name in (victim, "victim")
        for shown in (
            f"exited {here.label}.token",
            f'"{here.label}.token" exited',
            f"{here.label}.token exited",
        )
    ]
    label = "coop.owner=x\n" + "\n".join(lines) + "\n"
    stranger = engine.output("create", "--label", "coop.managed=true", "--label", label, busybox, "true")
    assert coop_run(project, engine, "true", settings=[image(engine, "busybox")]).status == 0
    assert not wait_until(lambda: victim not in engine.containers(), 1.0)
    assert sorted(engine.containers()) == sorted([victim, stranger])


@PODMANS
def test_the_service_manager_of_the_host_is_not_handed_on(engine: Engine, project: Project) -> None:
    """Podman mounts NOTIFY_SOCKET and hands over the descriptors of LISTEN_FDS when it has them."""
    path = project.home / "notify.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(path))
        project.actor.own(path)
        listening.setblocking(False)
        given = {"NOTIFY_SOCKET": str(path), "LISTEN_FDS": "1", "LISTEN_PID": "1"}
        script = "env; grep -i notify /proc/mounts; true"
        how = {"settings": [image(engine, "busybox")], "environment": given}
        result = coop_run(project, engine, "sh", "-c", script, **how)
        assert result.status == 0, result
        assert "NOTIFY" not in result.out.upper()
        assert "LISTEN_" not in result.out
        with pytest.raises(BlockingIOError):
            listening.recv(4096)
