"""What engines are told for a session: a container that waits, and commands in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from syrupy.assertion import SnapshotAssertion

from coopfile.engines import inside
from coopfile.errors import CoopError
from coopfile.plan.model import Plan, with_leaf
from coopfile.render import apple, docker
from coopfile.render.container import Container, Request, container
from coopfile.render.docker import Execution
from coopfile.render.facts import Engine
from tests.unit.render.apple.checker import read
from tests.unit.render.apple.macs import facts, shown, world
from tests.unit.render.apple.test_apple import SMALL

DOCKER = Engine("docker", "/usr/bin/docker")
PODMAN = Engine("podman", "/usr/bin/podman", rootless=True, default_runtime="crun")
APPLE = Engine("apple", "container", version="1.2.2")
ENGINES = pytest.mark.parametrize("engine", [DOCKER, PODMAN, APPLE], ids=lambda engine: engine.name)
REQUEST = Request(inside.waiting("ready"), owner="0.m.b.1.2.3.token", held=True, session="shop-0123456789")
COMMANDS = {
    "plain": Execution(("sh", "-c", "echo a b")),
    "variables": Execution(("true",), ("A", "B"), "/dev/fd/3"),
    "input": Execution(("cat",), input=True),
    "terminal": Execution(("vi",), ("TERM",), input=True, terminal=True),
}
IDENTIFIER = "0" * 64


def made(plan: Plan, engine: Engine) -> Container:
    """Return the container of a session."""
    return container(plan, facts(plan, engine=engine).replace(system="linux"), REQUEST)


def create(plan: Plan, engine: Engine) -> tuple[str, ...]:
    """Return the argv that makes it; values of the host's variables are for commands alone."""
    found = made(plan, engine).replace(inherited=())
    if engine.name == "apple":
        return apple.create(found, facts(plan))
    return docker.create(found)


def within(engine: Engine, execution: Execution) -> tuple[str, ...]:
    """Return the argv that runs a command in it."""
    if engine.name == "apple":
        return apple.within(engine, "coop-shop", execution)
    return docker.within(engine, None, IDENTIFIER, execution)


@ENGINES
def test_a_container_that_waits(engine: Engine, snapshot: SnapshotAssertion) -> None:
    """It is what a run's is, but for its command, its name and its label."""
    argv = create(SMALL, engine)
    if engine.name == "apple":
        read(argv, world(facts(SMALL), made(SMALL, engine)))
    assert shown(argv) == snapshot
    assert argv[argv.index("--name") + 1] == "coop-shop-0123456789"
    assert "coop.session=shop-0123456789" in argv
    assert "--read-only" in argv and "TOKEN" not in argv


@ENGINES
@pytest.mark.parametrize("name", COMMANDS)
def test_commands(engine: Engine, name: str, snapshot: SnapshotAssertion) -> None:
    """Values of variables are on no command line, and there is no terminal that was not asked for."""
    argv = within(engine, COMMANDS[name])
    if engine.name == "apple":
        call = read(argv)
        assert call.command == COMMANDS[name].argv
    assert shown(argv) == snapshot
    assert ("--tty" in argv) == (name == "terminal")
    assert ("--interactive" in argv) == (name in ("input", "terminal"))


def test_the_rest(snapshot: SnapshotAssertion) -> None:
    """Starting, listing, what has changed, and committing."""
    for argv in (apple.attach(APPLE, "coop-shop"), apple.listing(APPLE)):
        read(argv)
    found = [
        docker.attach(DOCKER, None, IDENTIFIER),
        docker.attach(PODMAN, "runsc", IDENTIFIER),
        apple.attach(APPLE, "coop-shop"),
        apple.listing(APPLE),
        docker.difference(DOCKER, IDENTIFIER),
        docker.commit(DOCKER, IDENTIFIER, "localhost/x:1", ("coop.managed", "coop.owner")),
    ]
    assert [shown(argv) for argv in found] == snapshot


@ENGINES
def test_a_root_that_is_to_be_committed(engine: Engine) -> None:
    """It can be written, which is listed as weaker; a run's cannot, and has nothing to commit."""
    plan = with_leaf(SMALL, "session.commit", "ask")
    assert "--read-only" not in create(plan, engine)
    found = made(plan, engine)
    assert found.writable
    texts = [item.text for item in found.weakenings if item.key == "limits.tmp"]
    assert any("can be committed" in text for text in texts)
    assert "session.commit" not in [item.key for item in found.weakenings]
    single = container(plan, facts(plan, engine=engine).replace(system="linux"), REQUEST.replace(session=""))
    assert not single.writable and "session.commit" in [item.key for item in single.weakenings]


def test_gvisor_does_not_let_go_of_what_is_written() -> None:
    """A commit would succeed and save nothing."""
    plan = with_leaf(SMALL, "session.commit", "auto")
    with pytest.raises(CoopError, match="gVisor keeps what is written to itself"):
        made(plan, DOCKER.replace(runtime="runsc"))


@pytest.mark.parametrize("name", ["", "-f", "--all"])
def test_what_looks_like_an_option_is_no_name(name: str) -> None:
    """Nothing of a container's name or id can be an option."""
    calls: tuple[Callable[[], object], ...] = (
        lambda: docker.attach(DOCKER, None, name),
        lambda: docker.within(DOCKER, None, name, COMMANDS["plain"]),
        lambda: docker.difference(DOCKER, name),
        lambda: apple.attach(APPLE, name),
        lambda: apple.within(APPLE, name, COMMANDS["plain"]),
    )
    for call in calls:
        with pytest.raises(CoopError, match="is not a name"):
            call()
