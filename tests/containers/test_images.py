"""Images that engines cannot get, that say things of themselves, or whose making is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.containers.asked import DOCKER, EACH_KIND, coop_run, image, leftovers, options
from tests.engines.engine import Engine
from tests.engines.registry import Registry
from tests.sandboxes import Project, alive, descendants, wait_gone, wait_until

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
        assert started.wait(30) == 128 + number
        assert wait_gone([pid for pid in below if pid in alive(below)])
    finally:
        silent.kill()
        silent.wait()
        silent.stdout.close()
    assert (engine.containers(), leftovers(project)) == ([], [])


@EACH_KIND
def test_an_interrupted_build_ends_at_once(engine: Engine, project: Project) -> None:
    """What the build was running ends too."""
    sleep = f"sleep {1_000_000 + os.getpid()}"  # nobody else's
    settings = (image(engine, "busybox"), f'setup.run=["{sleep}"]', "setup.network=none")
    started = project.popen("true", options=options(engine, *settings))
    assert wait_until(lambda: _running(sleep)), started.communicate()
    started.send_signal(signal.SIGINT)
    assert started.wait(60) == 130
    assert wait_until(lambda: not _running(sleep), 20)
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
