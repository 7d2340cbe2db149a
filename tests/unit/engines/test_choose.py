"""Which back end a plan gets: the order, what rules one out, and what is told when none is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coopfile.access.trust import GRANTS
from coopfile.engines import choose
from coopfile.engines.choose import NoBackendError, look, wanted
from coopfile.errors import CoopError
from coopfile.language.items import LocalImage
from coopfile.plan.model import Access, Plan, is_built, with_leaf
from tests.unit.engines import infos
from tests.unit.plan.samples import PLAN

Install = Callable[..., dict[str, str]]
DOCKER = infos.program(infos.DOCKER)
DOCKER_PLAIN = infos.program({**infos.DOCKER, "Runtimes": {"runc": {}}})
DOCKER_RUNSC = infos.program({**infos.DOCKER, "DefaultRuntime": "runsc"})
DOCKER_KATA = infos.program({**infos.DOCKER, "Runtimes": {"runc": {}, "kata": {}}})
DOCKER_DOWN = infos.program(infos.DOWN_OLD)
PODMAN = infos.program(infos.PODMAN)

BASE = PLAN.replace(
    packages=PLAN.packages.replace(apt=()),
    setup=PLAN.setup.replace(run=("true",)),
    agent=PLAN.agent.replace(install=None),
    sandbox=PLAN.sandbox.replace(backend=("auto",), min_isolation="namespace", runtime=None),
)
TOOLS = with_leaf(with_leaf(BASE, "base.image", None), "setup.run", ())
KERNEL = "userspace-kernel"
NO_NAMESPACES = {"native": CoopError("no namespaces here")}


def plan(base: Plan, **changes: object) -> Plan:
    """Return a plan with other values in ``sandbox``, or at keys written with __ for the dot."""
    for key, value in changes.items():
        base = with_leaf(base, key.replace("__", ".") if "__" in key else f"sandbox.{key}", value)
    return base


@pytest.fixture(autouse=True)
def _on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "system", lambda: "linux")


CASES: list[tuple[str, Plan, dict[str, str], str]] = [
    ("auto begins with native", TOOLS, {"docker": DOCKER, "podman": PODMAN}, "native (namespaces)"),
    ("an image as it is does not", with_leaf(BASE, "setup.run", ()), {"docker": DOCKER},
     "native (namespaces)"),
    ("podman is not made to use gVisor", BASE, {"podman": PODMAN, "runsc": "#!/bin/sh\n"},
     "podman (namespaces)"),
    ("unless the plan asks for as much", plan(BASE, min_isolation=KERNEL),
     {"podman": PODMAN, "runsc": "#!/bin/sh\n"}, "podman + gVisor (userspace kernel)"),
    ("a runtime needs an engine", plan(TOOLS, runtime="runsc"), {"docker": DOCKER},
     "docker + gVisor (userspace kernel)"),
    ("then docker, with gVisor if there is one", BASE, {"docker": DOCKER, "podman": PODMAN},
     "docker + gVisor (userspace kernel)"),
    ("then docker as it is", BASE, {"docker": DOCKER_PLAIN, "podman": PODMAN}, "docker (namespaces)"),
    ("then podman", BASE, {"podman": PODMAN}, "podman (namespaces)"),
    ("a daemon that is down is passed over", BASE, {"docker": DOCKER_DOWN, "podman": PODMAN},
     "podman (namespaces)"),
    ("a default that is gVisor is not asked for again", BASE, {"docker": DOCKER_RUNSC},
     "docker (userspace kernel)"),
    ("docker by name is docker's default", plan(BASE, backend=("docker",)), {"docker": DOCKER},
     "docker (namespaces)"),
    ("a list is an order", plan(BASE, backend=("podman", "docker")), {"docker": DOCKER, "podman": PODMAN},
     "podman (namespaces)"),
    ("its first that is there", plan(BASE, backend=("podman", "docker")), {"docker": DOCKER},
     "docker (namespaces)"),
    ("auto at the end of a list", plan(TOOLS, backend=("podman", "auto")), {}, "native (namespaces)"),
    ("more isolation passes native over", plan(TOOLS, min_isolation=KERNEL), {"docker": DOCKER},
     "docker + gVisor (userspace kernel)"),
    ("and finds gVisor in docker by name", plan(BASE, backend=("docker",), min_isolation=KERNEL),
     {"docker": DOCKER}, "docker + gVisor (userspace kernel)"),
    ("a machine is more than a userspace kernel", plan(BASE, min_isolation=KERNEL, runtime="kata"),
     {"docker": DOCKER_KATA}, "docker + kata (virtual machine)"),
    ("a runtime is taken at its word", plan(BASE, runtime="runc"), {"docker": DOCKER},
     "docker + runc (namespaces)"),
    ("another engine may have the runtime", plan(BASE, runtime="crun"), {"docker": DOCKER, "podman": PODMAN},
     "podman + crun (namespaces)"),
    ("nothing, and that is allowed", plan(BASE, fallback="host"), {}, "host (not isolated)"),
    ("something, so that nothing is not needed", plan(BASE, fallback="host"), {"podman": PODMAN},
     "podman (namespaces)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "programs", "title"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_what_is_chosen(install: Install, given: Plan, programs: dict[str, str], title: str) -> None:
    """The first that is there and gives what the plan asks for; plans on BASE do without namespaces."""
    without = NO_NAMESPACES if is_built(given) else None
    assert choose.choose(given, install(**programs), without=without).title == title


def test_who_is_to_be_sandboxed_is(install: Install) -> None:
    """What an owner allows themselves, commands on the host itself, is not for the users that they let in."""
    given, environment = plan(BASE, fallback="host"), install()
    owner = Access("me", "owner", "direct", GRANTS["owner"].tools, GRANTS["owner"].stores, False)
    given = given.replace(access=owner)
    assert choose.choose(given, environment, without=NO_NAMESPACES).title == "host (not isolated)"
    given = given.replace(access=owner.replace(trust="full", sandboxed=True))
    with pytest.raises(NoBackendError):
        choose.choose(given, environment, without=NO_NAMESPACES)


def test_what_is_built_is_native(install: Install) -> None:
    """Packages, set-up and agent need no engine."""
    assert choose.choose(BASE, install(docker=DOCKER)).title == "native (namespaces)"


REFUSED: list[tuple[str, Plan, dict[str, str], list[str]]] = [
    ("nothing is installed", BASE, {},
     ["native: no namespaces here", "docker: not installed",
      "podman: not installed", "install docker; or install podman"]),
    ("the daemon is down", plan(BASE, backend=("docker",)), {"docker": DOCKER_DOWN},
     ["docker: Cannot connect to the Docker daemon", "start its daemon"]),
    ("too little isolation", plan(BASE, min_isolation="vm"), {"docker": DOCKER, "podman": PODMAN},
     ["docker: min_isolation = vm: runc gives namespace", "docker: min_isolation = vm: runsc gives",
      "podman: min_isolation = vm: crun gives namespace"]),
    ("no such runtime", plan(BASE, backend=("docker",), runtime="none"), {"docker": DOCKER},
     ["docker: sandbox.runtime = none: docker has runc, runsc", "register none with docker"]),
    ("a runtime that gives too little", plan(BASE, runtime="runc", min_isolation=KERNEL), {"docker": DOCKER},
     ["docker: min_isolation = userspace-kernel: runc gives namespace"]),
    ("a network that reaches too far", plan(BASE, network__mode="veth"), {"podman": PODMAN},
     ["native: no namespaces here", "podman: network.mode: podman's own network also reaches",
      'the native back end; or network.mode = "proxy" with a list of hosts, or network.mode = "none"']),
    ("a network of its own", plan(BASE, network__mode="proxy", backend=("docker",), runtime="runsc"),
     {"docker": DOCKER}, ['docker: network.mode = "proxy": runsc has a network of its own inside']),
    ("an image in a file", plan(BASE, base__image=LocalImage("oci", "images/base")), {"podman": PODMAN},
     ["native: no namespaces here", "podman: base.image: oci:images/base is not locked yet", "coop lock"]),
    ("another system's", plan(BASE, backend=("apple", "seatbelt")), {"docker": DOCKER},
     ["apple: it is for macOS", "seatbelt: it is for macOS", "coop render apple"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "programs", "said"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_what_is_refused(install: Install, given: Plan, programs: dict[str, str], said: list[str]) -> None:
    """Everything that was tried is told of, with what helps."""
    with pytest.raises(NoBackendError) as caught:
        choose.choose(given, install(**programs), without=NO_NAMESPACES)
    text = f"{caught.value.message}\n{caught.value.remedy}"
    assert caught.value.message.startswith("no back end can enforce this plan here:\n")
    assert [line for line in said if line not in text] == []
    assert {item.name for item in caught.value.tried} == set(wanted(given))


def test_what_failed_is_not_tried_again(install: Install) -> None:
    """After native turned out not to work, the next one is chosen."""
    environment = install(docker=DOCKER_PLAIN)
    failed = {"native": CoopError("no namespaces here")}
    assert choose.choose(TOOLS, environment, without=failed).name == "docker"
    (tried,) = look(TOOLS, ("native",), environment, without=failed)
    assert (tried.choice, tried.why) == (None, "no namespaces here")


@pytest.mark.parametrize(
    ("system", "backend", "names"),
    [
        ("linux", ("auto",), ("native", "docker", "podman")),
        ("darwin", ("auto",), ("apple", "docker", "podman", "seatbelt")),
        ("windows", ("auto",), ("docker", "podman")),
        ("linux", ("podman", "auto", "apple"), ("podman", "native", "docker", "apple")),
    ],
)
def test_what_auto_stands_for(
    monkeypatch: pytest.MonkeyPatch, system: str, backend: tuple[str, ...], names: tuple[str, ...]
) -> None:
    """It depends on the system, and names nothing twice."""
    monkeypatch.setattr(choose, "system", lambda: system)
    assert wanted(plan(BASE, backend=backend)) == names


def test_a_runtime_of_podman_is_one_that_is_known(install: Install) -> None:
    """Podman would start any program of PATH as its runtime, outside."""
    environment = install(podman=PODMAN, crun="#!/bin/sh\n", runc="#!/bin/sh\n")
    chosen: Any = choose.choose(plan(BASE, backend=("podman",), runtime="runc"), environment)
    assert chosen.engine.runtime == "runc"
    for runtime in ("sh", "cat"):
        with pytest.raises(NoBackendError, match=rf"sandbox.runtime = {runtime}: podman has crun, runc"):
            choose.choose(plan(BASE, backend=("podman",), runtime=runtime), environment)
