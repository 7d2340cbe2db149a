"""What goes wrong with engines themselves: a clear message in time, and nothing of ours left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.asked import DOCKER, altered, coop_run, image, leftovers, options, with_path
from tests.containers.proxy import Proxy
from tests.engines import daemons
from tests.engines.cell import UnusableError
from tests.engines.daemons import Daemon
from tests.engines.engine import Engine, Engines
from tests.sandboxes import Project, descendants, wait_until

CLIENTS = [path for path in ("/usr/local/bin", "/usr/bin") if os.path.exists(f"{path}/docker")]
IMPATIENT = """
from coopfile.engines import timeouts
timeouts.QUICK, timeouts.CREATE, timeouts.STARTS, timeouts.REMOVAL, timeouts.SETTLES = 5.0, 5.0, 5.0, 5.0, 2.0
timeouts.REMOVAL_GOES_ON = 10.0
"""
_FILL = (
    'mount -t tmpfs -o size=64k,nr_inodes=3,mode=1777 tmpfs "$0" && mkdir -m 777 "$0/coop"; '
    'cat /dev/zero >"$0/full" 2>/dev/null; exec "$@"'
)


# Detection


@DOCKER
def test_an_engine_that_is_not_installed_is_named(engine: Engine, project: Project, tmp_path: Path) -> None:
    """Each engine that was asked for is told of, with what helps."""
    with_path(project, str(tmp_path))
    result = project.run("true", options=["--set", 'sandbox.backend=["docker", "podman"]'])
    assert result.status == 125
    assert "docker: not installed" in result.err
    assert "podman: not installed" in result.err
    assert "help: install docker; or install podman" in result.err


@DOCKER
@pytest.mark.parametrize("client", CLIENTS)
def test_a_daemon_that_is_down_is_told_at_once(
    engine: Engine, project: Project, dead_daemon: str, client: str
) -> None:
    """Whatever the command line's version exits with, the reason is the daemon's."""
    project.environment["DOCKER_HOST"] = dead_daemon
    with_path(project, f"{client}:/usr/bin:/bin")
    result = coop_run(project, engine, "true")
    assert result.status == 125
    assert "docker: Cannot connect to the Docker daemon" in result.err
    assert "start its daemon" in result.err


@DOCKER
@pytest.mark.parametrize(
    ("backend", "seconds"), [('["docker", "podman"]', 1.0), ("docker", 5.0)], ids=["several", "one"]
)
def test_a_daemon_that_hangs_is_given_up(
    engine: Engine, project: Project, hanging_daemon: str, backend: str, seconds: float
) -> None:
    """One of several gets a second, the only one five; no process of the command line stays."""
    project.environment["DOCKER_HOST"] = hanging_daemon
    client = shutil.which("docker", path=project.environment["PATH"])
    assert client is not None
    programs = project.actor.directory("programs")
    (programs / "docker").symlink_to(client)
    with_path(project, str(programs))
    settings = ["--set", f"sandbox.backend={backend}", "--set", "base.image=localhost/none"]
    for _ in range(5):  # a busy machine may have it take longer, now and then
        begin = time.monotonic()
        started = project.popen("true", options=settings)
        _, err = started.communicate(timeout=60)
        took = time.monotonic() - begin
        if took < seconds + 2:
            break
    assert seconds <= took < seconds + 4
    assert started.returncode == 125
    assert b"docker: did not answer in time" in err
    assert not [pid for pid in descendants(os.getpid()) if hanging_daemon in _environment(pid)]


def _environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""


# Hanging later


@pytest.fixture
def proxied(engine: Engine, project: Project, request: pytest.FixtureRequest) -> Iterator[Proxy]:
    """Yield a proxy before the daemon that holds what the parameter matches; coop is impatient."""
    if engine.image("busybox"):
        warm = coop_run(project, engine, "true", settings=[image(engine, "busybox")])
        assert warm.status == 0, warm
    path = project.home / "proxy.sock"
    target = Path(engine.environment["DOCKER_HOST"].removeprefix("unix://"))
    made = Proxy(path, target, request.param)
    project.environment["DOCKER_HOST"] = made.address
    project.actor = altered(project.actor, project.home, IMPATIENT)
    yield made
    made.close()


@DOCKER
@pytest.mark.parametrize(
    ("proxied", "said"),
    [
        (r"^POST \S*/containers/create", "`docker create` did not answer within 5 s"),
        (r"^POST \S*/containers/\w+/start", "docker did not start the command in time"),
        (r"^GET \S*/containers/\w{12,}/json", "`docker container` did not answer within 5 s"),
        (r"^GET \S*/images/", "`docker image` did not answer within 5 s"),
    ],
    indirect=["proxied"],
    ids=["create", "start", "inspect", "image"],
)
def test_a_daemon_that_hangs_in_the_middle_is_given_up(
    engine: Engine, project: Project, proxied: Proxy, said: str
) -> None:
    """Each step has its time and its message; what the daemon does when it wakes up is undone."""
    result = coop_run(project, engine, "true", settings=[image(engine, "busybox")], timeout=100)
    assert result.status == 125
    assert said in result.err, result
    assert "is it well?" in result.err or "is docker well?" in result.err, result
    assert proxied.held.is_set()
    proxied.let_go()
    assert proxied.passed.wait(20)
    assert wait_until(lambda: engine.containers() == [], 20)
    assert wait_until(lambda: leftovers(project) == [], 20)


@DOCKER
@pytest.mark.parametrize("proxied", [r"^DELETE \S*/containers/"], indirect=True, ids=["rm"])
def test_a_removal_that_hangs_is_told_and_tried_again(
    engine: Engine, project: Project, proxied: Proxy
) -> None:
    """The command's exit status counts; the guard goes on until the container is gone."""
    result = coop_run(project, engine, "sh", "-c", "exit 7", settings=[image(engine, "busybox")], timeout=40)
    assert result.status == 7, result
    assert "docker did not remove the container: coop tries again" in result.err
    assert len(engine.containers()) == 1
    proxied.let_go()
    assert wait_until(lambda: engine.containers() == [], 30)
    assert wait_until(lambda: leftovers(project) == [], 30)


@DOCKER
@pytest.mark.parametrize("proxied", [r"^POST \S*/containers/\w+/start"], indirect=True, ids=["start"])
def test_a_signal_during_a_start_that_hangs_ends_it(engine: Engine, project: Project, proxied: Proxy) -> None:
    """TERM is answered within the time of a start."""
    started = project.popen("true", options=options(engine, image(engine, "busybox")))
    assert proxied.held.wait(20)
    started.send_signal(signal.SIGTERM)
    assert started.wait(20) in (125, 143)
    proxied.let_go()
    assert wait_until(lambda: engine.containers() == [], 20)


# No space left


@DOCKER
def test_no_space_for_coop_itself(engine: Engine, project: Project) -> None:
    """Neither with its state's file system full nor with that of temporary files is there a traceback."""
    cell = getattr(project.actor, "_cell", None)
    if cell is None:
        pytest.skip("a mount needs root")
    full = project.actor.directory("full")
    becoming = project.actor.prefix[len(cell.prefix) :]
    project.unshared = (*cell.prefix, "unshare", "--mount", "sh", "-c", _FILL, str(full), *becoming)
    result = coop_run(project, engine, "true", environment={"XDG_STATE_HOME": str(full)})
    assert result.status == 125
    assert "No space left on device" in result.err, result
    assert "is its file system full?" in result.err
    settings = (image(engine, "busybox"), 'setup.run=["echo built >/built"]', "setup.network=none")
    given = {"TMPDIR": str(full), "XDG_CACHE_HOME": str(full)}
    result = coop_run(project, engine, "cat", "/built", settings=settings, environment=given)
    assert (result.status, result.out) in [(0, "built\n"), (125, "")], result
    assert "Traceback" not in result.err
    assert (engine.containers(), leftovers(project)) == ([], [])


@DOCKER
def test_no_space_for_the_engine(
    engine: Engine, project: Project, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's own words come through, and nothing is left."""
    cell = getattr(project.actor, "_cell", None)
    if cell is None:
        pytest.skip("a mount needs root")
    base = project.actor.directory("small")
    data = f"{base}/docker/data"
    mount = f"mount -t tmpfs -o size=32m tmpfs {data}; "
    monkeypatch.setattr(daemons, "_START", ("sh", "-c", mount + daemons._START[2], "sh"))
    try:
        daemon = Daemon(base, project.actor, cell)
    except UnusableError as error:
        pytest.skip(str(error))
    small = Engine("docker", "docker", project.actor, {"DOCKER_HOST": f"unix://{daemon.socket}"})
    enter = ["nsenter", f"--mount=/proc/{daemon._process.pid}/ns/mnt", "sh", "-c"]
    try:
        project.environment.update(small.environment)
        reference = image(small, "busybox")
        subprocess.run([*enter, f"cat /dev/zero >{data}/full"], capture_output=True, timeout=30, check=False)
        for settings in ([], [reference]):
            result = coop_run(project, engine, "true", settings=settings)
            assert result.status == 125
            assert "no space left on device" in result.err, result
            assert (small.containers(), leftovers(project)) == ([], [])
        subprocess.run([*enter, f"rm {data}/full"], timeout=30, check=True)
        assert coop_run(project, engine, "true", settings=[reference]).status == 0
    finally:
        daemon.close()
