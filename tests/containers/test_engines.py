"""The engines that the other tests of this directory run on: they work, and leave nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.engines.cell import UnusableError
from tests.engines.engine import MORE_NAMES, NAMES, Engine, Engines
from tests.engines.images import IMAGES
from tests.engines.registry import Registry
from tests.sandboxes import CHECKOUT, Project, Workshop, mounts, wait_until

EVERY = pytest.mark.parametrize("engine", (*NAMES, *MORE_NAMES), indirect=True)


@EVERY
def test_a_command_runs_in_a_container(engine: Engine) -> None:
    """Every engine runs a program of an image and returns its output and exit status."""
    result = engine.run("busybox", "sh", "-c", "id -u; exit 7")
    assert (result.status, result.out) == (7, "0\n"), result
    assert engine.containers() == []


def test_an_actor_may_use_the_engine_with_the_project_environment(engine: Engine, project: Project) -> None:
    """What coop will call, the engine's program on PATH with the project's variables, sees the images."""
    image = engine.image("busybox")
    found = project.actor.run(
        *(engine.program, "image", "inspect", image), cwd=project.directory, environment=project.environment
    )
    assert found.status == 0, found


def test_a_project_is_seen_in_a_container_and_files_there_belong_to_somebody_known(
    engine: Engine, project: Project
) -> None:
    """A directory of the actor's can be bound, and its owner can write there."""
    user = "0:0" if engine.name == "podman-rootless" else f"{engine.actor.uid}:{engine.actor.gid}"
    mount = f"type=bind,src={project.directory},dst=/work"
    result = engine.run("busybox", "touch", "/work/made", options=("--mount", mount, "--user", user))
    assert result.status == 0, result
    assert (project.directory / "made").stat().st_uid == engine.actor.uid


def test_the_prefix_keeps_the_directory_and_the_pid(engine: Engine, project: Project) -> None:
    """Signals that a test sends to what it started reach it, and it stands where it was put."""
    script = "import os; print(os.getpid(), os.getcwd(), os.getuid())"
    started = subprocess.Popen(
        [*engine.actor.prefix, "/usr/bin/python3", "-I", "-S", "-c", script],
        cwd=project.directory,
        stdout=subprocess.PIPE,
        text=True,
    )
    output, _ = started.communicate(timeout=60)
    assert output.split() == [str(started.pid), str(project.directory), str(engine.actor.uid)]


@pytest.mark.parametrize("name", IMAGES)
def test_images_are_made_without_a_network(engine: Engine, name: str) -> None:
    """Each image is there under the same name on every engine, with its configuration."""
    found = json.loads(engine.output("image", "inspect", engine.image(name)))[0]["Config"]
    for line in IMAGES[name]:
        key, value = line.split(" ", 1)
        if key == "ENV":
            assert value in found["Env"]
        elif key == "VOLUME":
            assert list(found["Volumes"]) == [value]
        elif key in ("ENTRYPOINT", "CMD"):
            assert found[key.capitalize()] == json.loads(value)
        else:
            assert found[{"USER": "User", "WORKDIR": "WorkingDir"}[key]] == value


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_a_debian_is_made_when_asked_for(engine: Engine) -> None:
    """The Debian image has apt; it needs the network once, and is skipped without."""
    try:
        engine.image("debian")
    except UnusableError as error:
        pytest.skip(str(error))
    assert engine.run("debian", "apt-get", "--version").status == 0


def test_an_image_comes_from_the_registry(engine: Engine, registry: Registry) -> None:
    """What was pushed to the loopback registry, and forgotten, is pulled again over plain HTTP."""
    reference = engine.push(registry, "busybox")
    assert engine.call("image", "inspect", reference).status != 0
    engine.output("pull", reference)
    assert engine.call("image", "inspect", reference).status == 0
    engine.output("rmi", reference)


def test_runsc_is_what_runs(engines: Engines) -> None:
    """A container of docker+runsc has gVisor's kernel."""
    try:
        engine = engines.get("docker+runsc")
    except UnusableError as error:
        pytest.skip(str(error))
    assert "gVisor" in engine.run("busybox", "dmesg").out


def test_rootless_podman_has_more_than_one_user(engines: Engines) -> None:
    """The actor has subordinate ids: a container without privileges can become somebody else."""
    try:
        engine = engines.get("podman-rootless")
    except UnusableError as error:
        pytest.skip(str(error))
    if engines.root is None and engine.run("busybox", "cat", "/proc/self/uid_map").out.count("\n") < 2:
        pytest.skip("this account has no subordinate ids")
    assert engine.run("nobody", "id", "-u").out == "65534\n"


DOCKER_CLIENT = pytest.mark.skipif(shutil.which("docker") is None, reason="docker is not installed")


@DOCKER_CLIENT
def test_a_hanging_daemon_takes_connections_and_says_nothing(engines: Engines, hanging_daemon: str) -> None:
    """A client of the hanging daemon waits for ever."""
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(
            ["docker", "version"],
            env={**os.environ, "DOCKER_HOST": hanging_daemon},
            capture_output=True,
            timeout=2,
            check=False,
        )


@DOCKER_CLIENT
def test_a_dead_daemon_refuses_connections(engines: Engines, dead_daemon: str) -> None:
    """A client of the dead daemon is told at once."""
    done = subprocess.run(
        ["docker", "version"],
        env={**os.environ, "DOCKER_HOST": dead_daemon},
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert b"Cannot connect" in done.stderr


_KILLED = """
import time
from tests.engines.cell import UnusableError
from tests.engines.engine import MORE_NAMES, NAMES, Engines
from tests.sandboxes import Workshop

engines = Engines(Workshop())
made = []
for name in (*NAMES, *MORE_NAMES):
    try:
        engine = engines.get(name)
    except UnusableError:
        continue
    runtime = ("--runtime", engine.runtime) if engine.runtime else ()
    image = engine.image("busybox")
    made.append(engine.output("run", "--detach", "--network", "none", *runtime, image, "sleep", "1000"))
print(*made, flush=True)
time.sleep(1000)
"""


def test_a_killed_test_run_leaves_nothing_after_the_next_one(workshop: Workshop) -> None:
    """Daemons die with the tests; containers, control groups and mounts go when tests start again."""
    interfaces = os.listdir("/sys/class/net")
    run = [sys.executable, "-c", _KILLED]
    killed = subprocess.Popen(run, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    names = [f"coop-tests-{killed.pid}", *killed.stdout.readline().split()]
    assert len(names) > 1, "no engine ran"
    assert _traces(names)
    killed.kill()
    killed.wait(60)
    killed.stdout.close()
    assert wait_until(lambda: not _processes(names, "dockerd"), 20), _processes(names, "dockerd")
    again = "from tests.engines.cell import sweep; from tests.sandboxes import _sweep; sweep(); _sweep()"
    subprocess.run([sys.executable, "-c", again], cwd=CHECKOUT, check=True, timeout=120)
    assert wait_until(lambda: not _traces(names), 20), _traces(names)
    assert os.listdir("/sys/class/net") == interfaces


def _traces(names: list[str]) -> list[str]:
    """Return the processes, mounts, control groups and directories that have one of some names in theirs."""
    found = mounts().splitlines()
    for directory, below, _ in os.walk("/sys/fs/cgroup"):
        found += [f"{directory}/{name}" for name in below]
    found += [str(path) for path in Path(tempfile.gettempdir()).iterdir()]
    return _processes(names) + [line for line in found if any(name in line for name in names)]


def _processes(names: list[str], program: str = "") -> list[str]:
    """Return the command lines that have one of some names, and a program's name if given, in them."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                words = (
                    Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                )
            except OSError:
                continue
            if program in words and any(known in words for known in names):
                found.append(f"{name} {words}")
    return found
