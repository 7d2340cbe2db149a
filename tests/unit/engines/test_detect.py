"""What is understood of engines' answers, recorded on real machines, and how long they may take."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coopfile.engines import detect as detection
from coopfile.engines.call import own_environment
from coopfile.engines.detect import Found, detect, isolation
from coopfile.errors import CoopError
from coopfile.render.facts import LIMITS, Engine
from tests.unit.engines import infos

Install = Callable[..., dict[str, str]]


def docker(install: Install, info: object, **how: Any) -> Found:
    """Return what is found of a Docker that answers in some way."""
    return detect(install(docker=infos.program(info, **how)), ["docker"])[0]


def podman(install: Install, info: object) -> Engine:
    """Return the engine that is found of a Podman's answer."""
    engine = detect(install(podman=infos.program(info)), ["podman"])[0].engine
    assert engine is not None
    return engine


def engine_of(found: Found) -> Engine:
    """Return the engine that was found."""
    assert found.engine is not None, found
    return found.engine


def test_a_rootful_docker(install: Install) -> None:
    """Names that are containerd's own are no runtimes to ask for."""
    engine = engine_of(docker(install, infos.DOCKER))
    assert engine.replace(program="docker") == Engine(
        name="docker",
        program="docker",
        version="20.10.24+dfsg1",
        runtimes=("runc", "runsc"),
        default_runtime="runc",
        limits=LIMITS,
        init=True,
        seccomp=True,
    )


@pytest.mark.parametrize(
    ("info", "differs"),
    [
        (infos.REMAPPED, {"remapped": True}),
        (infos.ROOTLESS, {"rootless": True, "limits": ()}),
        (infos.NEWER, {"selinux": True, "version": "28.2.2", "runtimes": ("runc",)}),
        ({**infos.DOCKER, "SwapLimit": False}, {"limits": ("memory", "cpu", "pids")}),
        ({**infos.DOCKER, "SecurityOptions": None}, {"seccomp": False}),
        ({**infos.DOCKER, "InitBinary": ""}, {"init": False}),
        ({**infos.DOCKER, "DefaultRuntime": "runsc"}, {"default_runtime": "runsc"}),
    ],
    ids=["remapped", "rootless", "newer", "no swap", "no seccomp", "no init", "runsc by default"],
)
def test_what_differs_between_dockers(
    install: Install, info: dict[str, Any], differs: dict[str, object]
) -> None:
    """Each difference is seen, and nothing else changes."""
    plain = engine_of(docker(install, infos.DOCKER))
    assert engine_of(docker(install, info)) == plain.replace(**differs)


@pytest.mark.parametrize(
    ("info", "status", "why"),
    [
        (infos.DOWN_OLD, 0, "Cannot connect to the Docker daemon"),
        (infos.DOWN_NEW, 1, "from standard error"),
        (infos.DOWN_NEW, 0, "it gave no reason"),
        ("null", 0, "is not understood"),
        ("not JSON", 0, "is not understood"),
        ("[]", 0, "is not understood"),
        ('{"ServerVersion": "1", "Runtimes": 7}', 0, "is not understood"),
        ({**infos.DOCKER, "OSType": "windows"}, 0, "it runs windows containers"),
    ],
)
def test_a_docker_that_cannot_be_used(install: Install, info: object, status: int, why: str) -> None:
    """Whatever it prints and ends with, there is a reason and a remedy."""
    found = docker(install, info, status=status, said="from standard error")
    assert found.engine is None
    assert why in found.why
    assert found.remedy


def test_a_rootful_podman(install: Install) -> None:
    """It has every limit; its runtime is the one that it is configured with."""
    engine = podman(install, infos.PODMAN)
    assert (engine.name, engine.version, engine.rootless) == ("podman", "4.3.1", False)
    assert (engine.runtimes, engine.default_runtime, engine.limits) == (("crun",), "crun", LIMITS)
    assert (engine.selinux, engine.seccomp, engine.proxies) == (False, True, False)


@pytest.mark.parametrize(
    ("info", "limits"),
    [
        (infos.podman_rootless(), ()),
        (infos.podman_rootless("v1", "memory", "pids"), ()),
        (infos.podman_rootless("v2"), ()),
        (infos.podman_rootless("v2", "memory", "pids"), ("memory", "swap", "pids")),
        (infos.podman_rootless("v2", "cpu", "memory", "pids"), LIMITS),
    ],
    ids=["v1", "v1 with controllers", "v2", "v2 delegated", "v2 all"],
)
def test_a_rootless_podman_has_the_limits_that_were_delegated(
    install: Install, info: dict[str, Any], limits: tuple[str, ...]
) -> None:
    """With control groups of version 1 it has none, whatever it lists: it ignores them."""
    engine = podman(install, info)
    assert (engine.rootless, engine.limits) == (True, limits)


def test_an_engine_that_is_missing_or_no_program(install: Install, tmp_path: Path) -> None:
    """What is not there is not installed; what cannot be started is named."""
    environment = install(podman="\x7fELF not really")
    found = {item.name: item for item in detect(environment)}
    assert (found["docker"].why, found["docker"].remedy) == ("not installed", "install docker")
    assert f"{tmp_path}/programs/podman cannot be started: Exec format error" in found["podman"].why


def test_engines_that_hang_cost_one_second_together(install: Install) -> None:
    """One that answers in time is found beside one that does not, and nothing of the latter stays."""
    slow = infos.program(infos.DOCKER, seconds=30)
    environment = install(docker=slow, podman=infos.program(infos.PODMAN))
    begin = time.monotonic()
    found = {item.name: item for item in detect(environment)}
    assert 1.0 <= time.monotonic() - begin < 20
    assert found["docker"].engine is None
    assert found["docker"].why == "did not answer in time"
    assert found["podman"].engine is not None
    environment = install(docker=slow, podman=slow)
    begin = time.monotonic()
    assert [item.engine for item in detect(environment)] == [None, None]
    assert time.monotonic() - begin < 20


def test_an_engine_at_work_is_waited_for(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is late because the machine is slow is found; one that works for ever is given up."""
    monkeypatch.setattr(detection, "DETECT_BUSY", 4.0)
    loop = "import time\nend = time.monotonic() + %d\nwhile time.monotonic() < end: pass"
    working = f"{sys.executable} -c '{loop}'\n"
    late = infos.program(infos.PODMAN).replace("\n", "\n" + working % 2, 1)
    endless = infos.program(infos.DOCKER).replace("\n", "\n" + working % 1000, 1)
    found = {item.name: item for item in detect(install(docker=endless, podman=late))}
    assert found["docker"].why == "did not answer in time"
    assert found["podman"].engine is not None


@pytest.mark.parametrize(
    ("text", "proxies"),
    [(None, False), ("{", False), ("[]", False), ("{}", False), ('{"proxies": {"default": {}}}', True)],
)
def test_proxies_that_docker_would_add_are_seen(
    install: Install, tmp_path: Path, text: str | None, proxies: bool
) -> None:
    """By its configuration file, which may be missing or broken."""
    environment = install(docker=infos.program(infos.DOCKER))
    environment["DOCKER_CONFIG"] = str(tmp_path)
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    assert engine_of(detect(environment, ["docker"])[0]).proxies is proxies


@pytest.mark.parametrize(
    ("runtime", "level"),
    [
        (None, "namespace"),
        ("runc", "namespace"),
        ("crun", "namespace"),
        ("runsc", "userspace-kernel"),
        ("io.containerd.runsc.v1", "userspace-kernel"),
        ("krun", "vm"),
        ("kata", "vm"),
        ("kata-qemu", "vm"),
        ("io.containerd.kata.v2", "vm"),
        ("my-runsc", "namespace"),
    ],
)
def test_a_runtime_that_is_not_known_is_taken_for_the_weakest(runtime: str | None, level: str) -> None:
    """The names are those that installers use."""
    assert isolation(runtime) == level


def test_of_path_only_what_no_sandbox_can_write_counts(tmp_path: Path) -> None:
    """Nor what depends on the current directory; a link counts as what it leads to."""
    (tmp_path / "workspace/bin").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "workspace/bin")
    (tmp_path / "workspace-2").mkdir()
    root = str(tmp_path / "workspace")
    entries = [root, f"{root}/bin", f"{tmp_path}/link", "", ".", "bin", f"{tmp_path}/workspace-2", "/usr/bin"]
    given = {"PATH": ":".join(entries), "A": "b"}
    assert own_environment(given, [root]) == {"PATH": f"{tmp_path}/workspace-2:/usr/bin", "A": "b"}
    assert own_environment({"PATH": ""}, [root])["PATH"] == ""
    assert own_environment({}, [root])["PATH"] == ":".join(map(os.path.realpath, os.defpath.split(":")))


@pytest.mark.parametrize("value", ["settings", "./x", "{root}", "{root}/below", "{link}"])
def test_configuration_that_a_sandbox_can_write_is_refused(tmp_path: Path, value: str) -> None:
    """It names programs that engines start outside."""
    root, link = tmp_path / "workspace", tmp_path / "link"
    root.mkdir()
    link.symlink_to(root)
    given = value.format(root=root, link=link)
    with pytest.raises(CoopError, match=r"DOCKER_CONFIG is .*where a sandboxed command"):
        own_environment({"DOCKER_CONFIG": given}, [str(root)])
    assert own_environment({"DOCKER_CONFIG": "/etc"}, [str(root)])["DOCKER_CONFIG"] == "/etc"


def test_the_recorded_answers_are_json() -> None:
    """What the stand-ins print is what the readers get."""
    assert json.loads(infos.program(infos.DOCKER).split("\n")[2]) == infos.DOCKER
