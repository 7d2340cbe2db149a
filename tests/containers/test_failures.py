"""What goes wrong with engines: a clear message in time, nothing of ours left, nothing of others touched."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.asked import altered, coop_run, image, options
from tests.containers.proxy import Proxy
from tests.engines import daemons
from tests.engines.cell import UnusableError
from tests.engines.daemons import Daemon
from tests.engines.engine import Engine, Engines
from tests.engines.registry import Registry
from tests.sandboxes import Project, alive, descendants, tree, wait_gone, wait_until

DOCKER = pytest.mark.parametrize("engine", ["docker"], indirect=True)
EACH_KIND = pytest.mark.parametrize("engine", ["docker", "podman-rootless"], indirect=True)
CLIENTS = [path for path in ("/usr/local/bin", "/usr/bin") if os.path.exists(f"{path}/docker")]
IMPATIENT = """
from coopfile.engines import timeouts
timeouts.QUICK, timeouts.CREATE, timeouts.STARTS, timeouts.REMOVAL, timeouts.SETTLES = 2.0, 2.0, 2.0, 2.0, 1.0
timeouts.REMOVAL_GOES_ON = 10.0
"""
# Another mount of the same file system would not be read-only with it.
_READ_ONLY = 'mount -t tmpfs -o mode=755 tmpfs "$0" && touch "$0/Coopfile" && mount -o remount,ro "$0"'
_FILL = (
    'mount -t tmpfs -o size=64k,nr_inodes=3,mode=1777 tmpfs "$0" && mkdir -m 777 "$0/coop"; '
    'cat /dev/zero >"$0/full" 2>/dev/null; exec "$@"'
)


def with_path(project: Project, path: str) -> None:
    """Give coop another PATH than what starts it."""
    project.wrap = ("/usr/bin/env", f"PATH={path}")


def leftovers(project: Project) -> list[str]:
    """Return what a run has left in the workspace."""
    return sorted(set(tree(project.directory)) - {"Coopfile"})


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
    begin = time.monotonic()
    result = coop_run(project, engine, "true")
    assert time.monotonic() - begin < 3
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
    begin = time.monotonic()
    settings = ["--set", f"sandbox.backend={backend}", "--set", "base.image=localhost/none"]
    started = project.popen("true", options=settings)
    _, err = started.communicate(timeout=30)
    assert seconds <= time.monotonic() - begin < seconds + 2
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
        (r"^POST \S*/containers/create", "`docker create` did not answer within 2 s"),
        (r"^POST \S*/containers/\w+/start", "docker did not start the command in time"),
        (r"^GET \S*/containers/\w{12,}/json", "`docker container` did not answer within 2 s"),
        (r"^GET \S*/images/", "`docker image` did not answer within 2 s"),
    ],
    indirect=["proxied"],
    ids=["create", "start", "inspect", "image"],
)
def test_a_daemon_that_hangs_in_the_middle_is_given_up(
    engine: Engine, project: Project, proxied: Proxy, said: str
) -> None:
    """Each step has its time and its message; what the daemon does when it wakes up is undone."""
    begin = time.monotonic()
    result = coop_run(project, engine, "true", settings=[image(engine, "busybox")], timeout=40)
    assert time.monotonic() - begin < 20
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


# Images


@EACH_KIND
def test_an_image_that_cannot_be_pulled(engine: Engine, project: Project, registry: Registry) -> None:
    """Without the registry, or without the tag in it, the message says what, why and what to try."""
    nobody, missing = "127.0.0.1:1/coop-test/none:1", f"{engine.push(registry, 'busybox')[:-7]}:no-such-tag"
    for reference, why in ((nobody, "connection refused"), (missing, "unknown")):
        result = coop_run(project, engine, "true", settings=[f"base.image={reference}"])
        assert result.status == 125
        assert f"error: {reference} cannot be pulled" in result.err
        assert why in result.err, result
        assert f"pull {reference}" in result.err
    assert (engine.containers(), leftovers(project)) == ([], [])


@EACH_KIND
def test_what_an_image_says_of_itself_does_not_count(engine: Engine, project: Project) -> None:
    """Entry point, user, directory, volumes and variables are the plan's; a shell need not be there."""
    # Only in the workspace is there a Coopfile to be found.
    probe = ("/bin/busybox", "find", ".", "-name", "Coopfile", "-exec", "/bin/busybox", "env", ";")
    for name in ("entrypoint", "nobody", "workdir", "env", "no-shell", "no-passwd", "volume"):
        result = coop_run(project, engine, *probe, settings=[image(engine, name)])
        assert result.status == 0, (name, result)
        found = dict(line.split("=", 1) for line in result.out.splitlines())
        user = "root" if engine.name == "podman-rootless" or engine.actor.uid == 0 else "tester"
        assert (found["USER"], found["LOGNAME"]) == (user, user), (name, result)
        assert found["HOME"] == ("/root" if user == "root" else f"/home/{user}"), name
        assert (found["SHELL"], found["PWD"]) == ("/bin/sh", "/workspace")
        if name == "env":
            assert (found["PATH"], found["IMAGE"]) == ("/image/bin", "yes")
    assert (engine.containers(), leftovers(project)) == ([], [])
    assert engine.output("volume", "ls", "--quiet") == ""


@DOCKER
def test_the_health_check_of_an_image_is_not_run(engine: Engine, project: Project) -> None:
    """An image cannot have a command run beside the plan's, every second."""
    reference = "localhost/coop-test/health:latest"
    text = f"FROM {engine.image('busybox')}\nHEALTHCHECK --interval=1s CMD touch /workspace/unwell\n"
    engine.output("build", "--tag", reference, "-", stdin=text.encode())
    result = coop_run(project, engine, "sleep", "2.5", settings=[f"base.image={reference}"])
    assert result.status == 0, result
    assert leftovers(project) == []


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
    """coop ends with an error that says what happened."""
    started = project.popen(
        "sh", "-c", "echo up; exec sleep 1000", options=options(engine, image(engine, "busybox"))
    )
    assert started.stdout is not None and started.stdout.readline() == b"up\n"
    engine.call("rm", "--force", *engine.containers())
    _, err = started.communicate(timeout=40)
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


# Interrupted while an image is made


@EACH_KIND
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_pull_ends_at_once(engine: Engine, project: Project, number: int) -> None:
    """The engine's command line ends with coop, and nothing is left."""
    port = 5001
    code = (
        f"import socket\nlistening = socket.create_server(('127.0.0.1', {port}))\n"
        "print('up', flush=True)\nkept = []\nwhile True:\n    kept.append(listening.accept())"
    )
    silent = subprocess.Popen(
        [*engine.actor.prefix, "/usr/bin/python3", "-I", "-c", code], stdout=subprocess.PIPE
    )
    assert silent.stdout is not None and silent.stdout.readline() == b"up\n"
    try:
        started = project.popen("true", options=options(engine, f"base.image=127.0.0.1:{port}/none:1"))
        assert wait_until(lambda: _verbs(started.pid, b"pull"))
        time.sleep(0.3)
        below = descendants(started.pid)
        started.send_signal(number)
        assert started.wait(10) == 128 + number
        assert wait_gone([pid for pid in below if pid in alive(below)])
    finally:
        silent.kill()
        silent.wait()
        silent.stdout.close()
    assert (engine.containers(), leftovers(project)) == ([], [])


@EACH_KIND
def test_an_interrupted_build_ends_at_once(engine: Engine, project: Project) -> None:
    """What the build was running ends too."""
    settings = (image(engine, "busybox"), 'setup.run=["sleep 1001"]', "setup.network=none")
    started = project.popen("true", options=options(engine, *settings))
    assert wait_until(lambda: _running("sleep 1001")), started.communicate()
    started.send_signal(signal.SIGINT)
    assert started.wait(15) == 130
    assert wait_until(lambda: not _running("sleep 1001"), 20)
    assert wait_until(lambda: engine.containers() == [], 20)
    assert leftovers(project) == []


def _verbs(pid: int, verb: bytes) -> list[int]:
    found = []
    for below in descendants(pid):
        try:
            if verb in Path(f"/proc/{below}/cmdline").read_bytes().split(b"\0"):
                found.append(below)
        except OSError:
            continue
    return found


def _running(words: str) -> list[str]:
    """Return the processes of the machine with such a command line, with nothing before it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        except OSError:
            continue
        if text == words:
            found.append(text)
    return found


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
