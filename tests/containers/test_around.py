"""What others do around a run: to names, containers, command lines and the workspace."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.containers.asked import DOCKER, EACH_KIND, altered, coop_run, image, leftovers, options, with_path
from tests.engines.engine import Engine, Engines
from tests.sandboxes import Project, descendants, wait_gone, wait_until

# Another mount of the same file system would not be read-only with it.
_READ_ONLY = 'mount -t tmpfs -o mode=755 tmpfs "$0" && touch "$0/Coopfile" && mount -o remount,ro "$0"'


# Others' containers, and those of the dead


@EACH_KIND
def test_a_name_that_is_taken_is_left_to_its_owner(engine: Engine, project: Project) -> None:
    """Where a stranger's container has the very name that coop chose, coop takes another."""
    project.actor = altered(
        project.actor,
        project.home,
        "import secrets\n_given, _real = ['0' * 12], secrets.token_hex\n"
        "secrets.token_hex = lambda count: _given.pop() if _given else _real(count)",
    )
    name = f"coop-{project.directory.name}-{'0' * 12}"
    stranger = engine.output("create", "--name", name, engine.image("busybox"), "true")
    result = coop_run(project, engine, "echo", "works", settings=[image(engine, "busybox")])
    assert (result.status, result.out) == (0, "works\n"), result
    assert engine.containers() == [stranger]


LABELS = (
    (),
    ("coop.owner=",),
    ("coop.owner=somebody",),
    ("coop.owner=0.x.y.z",),
    ("coop.owner=...",),
    ("coop.owner=......",),
    ("coop.owner={uid}.1.2.token",),
    ("coop.owner={uid}......token",),
    ("coop.owner={uid}.{machine}.{boot}.{namespace}.²..token",),
    ("coop.owner={other}.{machine}.{boot}.{namespace}.999999.1.token",),
    ("coop.owner={uid}.{machine}.{boot}.1.999999.1.token",),
    ("coop.owner={uid}.other.other.1.999999.1.token",),
    ("coop.owner={uid}.{machine}.{boot}.{namespace}.{pid}.{started}.token",),
)


@EACH_KIND
def test_containers_of_other_owners_are_not_touched(engine: Engine, project: Project) -> None:
    """With coop's label, but no owner who is surely dead, a container stays as it is."""
    from coopfile.engines.guard import this_owner

    here = this_owner()
    known = {name: getattr(here, name) for name in here._fields}
    known.update(uid=str(engine.actor.uid), other=str(engine.actor.uid + 1))
    strangers = []
    for labels in LABELS:
        words = [word for label in labels for word in ("--label", label.format(**known))]
        made = engine.output(
            "create", "--label", "coop.managed=true", *words, engine.image("busybox"), "true"
        )
        strangers.append(made)
    assert coop_run(project, engine, "true", settings=[image(engine, "busybox")]).status == 0
    assert sorted(engine.containers()) == sorted(strangers)


@EACH_KIND
def test_what_killed_runs_leave_is_removed_and_the_living_are_left(engine: Engine, project: Project) -> None:
    """A killed coop's guard cleans up; after a kill of everything the next run does, and only that."""
    words = ("sh", "-c", "echo up; exec sleep 1000")
    how = options(engine, image(engine, "busybox"))
    living, orphaned, dead = (project.popen(*words, options=how) for _ in range(3))
    for started in (living, orphaned, dead):
        assert started.stdout is not None and started.stdout.readline() == b"up\n"
    assert len(engine.containers()) == 3

    orphaned.kill()
    assert wait_until(lambda: len(engine.containers()) == 2, 20)

    everything = [dead.pid, *(pid for pid in descendants(dead.pid) if _is_ours(pid, engine))]
    for pid in everything:
        os.kill(pid, signal.SIGKILL)
    dead.wait()
    assert wait_gone(everything)
    assert len(engine.containers()) == 2

    assert coop_run(project, engine, "true", settings=[image(engine, "busybox")]).status == 0
    assert len(engine.containers()) == 1
    assert living.poll() is None
    living.terminate()
    assert living.wait(30) == 143
    assert engine.containers() == []
    assert leftovers(project) == []


def _is_ours(pid: int, engine: Engine) -> bool:
    """Tell coop's guard and the engine's command line from what the engine itself runs."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return b"start" in words or any(b"coop" in word for word in words[:4])


# Around the engine


@EACH_KIND
def test_an_engine_command_line_that_is_killed(engine: Engine, project: Project) -> None:
    """The command is ended, since nobody would get its output; where it can be known, coop says so."""
    started = project.popen(
        "sh", "-c", "echo up; exec sleep 1000", options=options(engine, image(engine, "busybox"))
    )
    assert started.stdout is not None and started.stdout.readline() == b"up\n"
    clients = [
        pid
        for pid in descendants(started.pid)
        if b"start" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    ]
    os.kill(clients[0], signal.SIGKILL)
    _, err = started.communicate(timeout=40)
    if engine.name == "docker":
        assert started.returncode == 125
        assert b"command line ended (killed by SIGKILL)" in err
    else:
        assert started.returncode == 143  # a second process of Podman's passes its end on
    assert (engine.containers(), leftovers(project)) == ([], [])


@EACH_KIND
def test_a_container_that_somebody_removes(engine: Engine, project: Project) -> None:
    """coop ends with an error that says what happened, or with the status of the signal that came before."""
    started = project.popen(
        "sh", "-c", "echo up; exec sleep 1000", options=options(engine, image(engine, "busybox"))
    )
    assert started.stdout is not None and started.stdout.readline() == b"up\n"
    engine.call("rm", "--force", *engine.containers())
    _, err = started.communicate(timeout=40)
    # The engine ends the command first, and coop may look before the container is gone.
    if started.returncode not in (128 + signal.SIGTERM, 128 + signal.SIGKILL):
        assert started.returncode == 125
        assert b"somebody removed the container while the command ran" in err
    assert leftovers(project) == []


@EACH_KIND
def test_two_runs_share_a_workspace(engine: Engine, project: Project) -> None:
    """Each sees the other's files; what holds protected places goes with the last."""
    how = options(engine, image(engine, "busybox"))
    waits = "until [ -e {} ]; do sleep 0.1; done; touch {}; [ -d .git ]"
    runs = [
        project.popen("sh", "-c", waits.format(a, b), options=how)
        for a, b in (("first", "second"), ("second", "third"))
    ]
    project.write("first")
    assert [started.wait(60) for started in runs] == [0, 0], [started.communicate() for started in runs]
    assert leftovers(project) == ["first", "second", "third"]
    assert engine.containers() == []


@EACH_KIND
def test_a_workspace_that_is_removed_meanwhile(engine: Engine, project: Project) -> None:
    """The command's own end counts, and nothing stays."""
    started = project.popen(
        "sh",
        "-c",
        "echo up; while [ -e Coopfile ]; do sleep 0.1; done; exit 5",
        options=options(engine, image(engine, "busybox")),
    )
    assert started.stdout is not None and started.stdout.readline() == b"up\n"
    shutil.rmtree(project.directory)
    assert started.wait(60) == 5
    assert engine.containers() == []
    assert not project.directory.exists()


@EACH_KIND
def test_a_read_only_workspace(engine: Engine, project: Project, engines: Engines) -> None:
    """On a read-only file system the command reads, and nothing can be made that would need holding."""
    if engines.root is None:
        pytest.skip("a mount needs root")
    directory = str(project.directory)
    root = engines.root
    project.coop("plan")
    assert root.run("sh", "-c", _READ_ONLY, directory).status == 0
    try:
        result = coop_run(project, engine, "sh", "-c", "ls; touch new", settings=[image(engine, "busybox")])
    finally:
        root.run("umount", directory)
    assert result.out == "Coopfile\n", result
    assert "Read-only file system" in result.err
    assert engine.containers() == []


@DOCKER
@pytest.mark.parametrize("where", ["absolute", "relative", "empty", "link"])
def test_a_planted_command_line_is_not_run(
    engine: Engine, project: Project, tmp_path: Path, where: str
) -> None:
    """What a sandboxed command could have written into the workspace is no engine."""
    planted = f"#!/bin/sh\ntouch {project.home}/planted\necho '{{}}'\n"
    project.write("docker", planted, 0o755)
    link = project.home / "link"
    link.symlink_to(project.directory)
    entry = {"absolute": str(project.directory), "relative": ".", "empty": "", "link": str(link)}[where]
    with_path(project, f"{entry}:{project.environment['PATH']}")
    result = coop_run(project, engine, "true", settings=[image(engine, "busybox")], cwd=project.directory)
    assert result.status == 0, result
    with_path(project, entry)
    result = coop_run(project, engine, "true", cwd=project.directory)
    assert result.status == 125
    assert "docker: not installed" in result.err
    assert not (project.home / "planted").exists()


@EACH_KIND
@pytest.mark.parametrize("value", ["{workspace}/settings", "settings"])
def test_an_engine_is_not_configured_from_the_workspace(engine: Engine, project: Project, value: str) -> None:
    """Configuration names programs to start: from where a sandbox writes it is refused."""
    name = "DOCKER_CONFIG" if engine.name == "docker" else "CONTAINERS_CONF"
    given = value.format(workspace=project.directory)
    result = coop_run(project, engine, "true", environment={name: given})
    assert result.status == 125
    assert f"{name} is {given}, where a sandboxed command could change" in result.err


WRITES = r"""
for place in "$@"; do
  for file in "$place/new" "$place/sub/new" "$place/sub/deeper/new"; do
    if true >"$file"; then echo "written: $file"; fi
  done 2>/dev/null
done
"""


@pytest.mark.parametrize("engine", ["docker", "docker+runsc", "podman", "podman-rootless"], indirect=True)
def test_what_is_mounted_below_what_is_read_only(engine: Engine, project: Project, engines: Engines) -> None:
    """Another file system in a directory that is given to be read, or protected, is not written either."""
    root = engines.root
    if root is None:
        pytest.skip("it needs root")
    given = project.actor.directory("given")
    protected = project.directory / "kept"
    for place in (given, protected):
        for below in ("sub", "sub/deeper"):
            options = f"mode=700,uid={project.actor.uid},gid={project.actor.gid}"
            script = f'mkdir -p "$0" && mount -t tmpfs -o {options} tmpfs "$0"'
            assert root.run("sh", "-c", script, str(place / below)).status == 0
    project.coopfile(f'files.read = ["{given}"]\nworkspace.protect = ["kept"]\n')
    try:
        result = coop_run(project, engine, "sh", "-c", WRITES, "sh", str(given), "kept")
        assert "written" not in result.out, result
    finally:
        for place in (given, protected):
            root.run("umount", "-R", str(place / "sub"))


@DOCKER
def test_an_engine_that_sees_other_files(engine: Engine, engines: Engines) -> None:
    """One on another machine, or outside the container that coop is in: that is asked, and nothing run."""
    root = engines.root
    if root is None:
        pytest.skip("it needs root")
    project = Project(root)
    project.environment.update(engine.environment)
    project.coopfile("")
    script = 'mount -t tmpfs tmpfs "$0" && cd "$0" && echo coop = 1 >Coopfile && exec "$@"'
    project.wrap = ("unshare", "--mount", "sh", "-c", script, str(project.directory))
    result = coop_run(project, engine, "touch", "made")
    assert result.status == 125 and "does docker run on this machine" in result.err, result
    assert leftovers(project) == [] and engine.containers() == []
    project.close()
