"""Containers as argv of Docker and Podman: every value is one that the engine reads back as it was meant."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.errors import CoopError
from coopfile.plan.launch import Mount
from coopfile.render import docker
from coopfile.render.container import Container, Scratch
from coopfile.render.facts import Engine
from coopfile.render.networks import Neighbour

DOCKER = Engine("docker", "docker")
PODMAN = Engine("podman", "podman", default_runtime="crun")
CONTAINER = Container(
    engine=DOCKER,
    name="coop-x-run",
    labels=(("coop.managed", "true"),),
    image="localhost/image:1",
    argv=("true",),
    directory="/workspace",
    user="1000:1000",
    identities=None,
    environment=(),
    inherited=(),
    mounts=(),
    kept=(),
    scratch=(),
    shm=4096,
    network="none",
    publish=(),
    memory=None,
    swap=False,
    cpus=None,
    pids=None,
    runtime=None,
    terminal=False,
    holes=(),
    weakenings=(),
    skipped=(),
)


def values(argv: Sequence[str], option: str) -> list[str]:
    """Return the values that an option is given, in order."""
    end = argv.index(CONTAINER.image)
    return [argv[index + 1] for index in range(end) if argv[index] == option]


def created(**changes: object) -> tuple[str, ...]:
    """Return the argv that creates the container with some fields changed."""
    return docker.create(CONTAINER.replace(**changes))


# What a path may hold: all but NUL, as bytes that may be no text.
_NAMES = st.text(st.characters(exclude_characters="\0\r", exclude_categories=()), min_size=1, max_size=20)


@given(source=_NAMES, target=_NAMES, write=st.booleans())
def test_a_mount_is_read_back_as_it_was(source: str, target: str, write: bool) -> None:
    """Both command lines read one record of CSV, whose fields are name=value split at the first sign."""
    argv = created(mounts=(Mount(f"/{source}", f"/{target}", write),))
    (value,) = values(argv, "--mount")
    # Go's reader goes on over the ends of lines within quotes.
    (record,) = csv.reader(io.StringIO(value, newline="\n"), strict=True)
    fields: dict[str, str] = {}
    for field in record:
        name, _, content = field.partition("=")
        assert name not in fields
        fields[name] = content
    expected = {
        "type": "bind",
        "source": f"/{source}",
        "target": f"/{target}",
        "bind-propagation": "rprivate",
    }
    assert fields == {**expected, **({} if write else {"readonly": ""})}


@pytest.mark.parametrize("path", ["/a\rb", "/\r", "/a\r\nb"])
def test_a_carriage_return_is_refused(path: str) -> None:
    """Go's reader of CSV drops it before a line end, so that another path would be mounted."""
    for mount in (Mount(path, "/x", False), Mount("/x", path, False)):
        with pytest.raises(CoopError, match="carriage return"):
            created(mounts=(mount,))


def test_mounts_are_in_the_order_of_the_container() -> None:
    """Nothing is sorted again."""
    mounts = tuple(Mount(f"/{name}", f"/{name}", True) for name in "cab")
    found = values(created(mounts=mounts), "--mount")
    assert [value.split(",")[1] for value in found] == ["source=/c", "source=/a", "source=/b"]


@given(st.lists(_NAMES, max_size=5))
def test_the_command_comes_last_as_it_is(words: list[str]) -> None:
    """After the image nothing is an option, and before it nothing of the command is."""
    argv = created(argv=("program", *words))
    assert argv[argv.index(CONTAINER.image) + 1 :] == ("program", *words)
    assert values(argv, "--entrypoint") == [""]


@given(name=st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), value=_NAMES)
def test_values_of_variables_are_one_word(name: str, value: str) -> None:
    """Those from the host are named only: they may be secret, and command lines are there for all to see."""
    assert values(created(environment=((name, value),)), "--env") == [f"{name}={value}"]
    argv = created(inherited=((name, "HOST_NAME"),))
    assert values(argv, "--env") == [name]


def test_variables_that_the_engine_would_act_on_are_refused() -> None:
    """They would have to be in its own environment to be passed on."""
    for name in (
        "PATH",
        "LD_PRELOAD",
        "DOCKER_HOST",
        "CONTAINERS_CONF",
        "HTTPS_PROXY",
        "HOME",
        "SSH_AUTH_SOCK",
        "_CONTAINERS_ROOTLESS_UID",
    ):
        with pytest.raises(CoopError, match=f"env.{name}: docker itself would act on the value of OTHER"):
            docker.variables(CONTAINER.replace(inherited=((name, "OTHER"),)), {"OTHER": "x"}, {})
    # With the value that it has anyway there is nothing to act on anew.
    same = CONTAINER.replace(inherited=(("HOME", "HOME"), ("TOKEN", "MINE")))
    passed = docker.variables(same, {"HOME": "/h", "MINE": "s"}, {"HOME": "/h"})
    assert passed == (("HOME", "/h"), ("TOKEN", "s"))


def test_the_proxies_of_the_caller_are_taken_back() -> None:
    """Docker's command line hands them on by its own configuration, with passwords in them."""
    argv = created(engine=DOCKER.replace(proxies=True), environment=(("HTTP_PROXY", "mine"),))
    given = values(argv, "--env")
    assert {"https_proxy=", "HTTPS_PROXY=", "no_proxy=", "http_proxy="} <= set(given)
    assert [value for value in given if value.startswith("HTTP_PROXY")] == ["HTTP_PROXY=mine"]
    assert values(created(engine=PODMAN), "--env") == []
    assert "--http-proxy=false" in created(engine=PODMAN)


@pytest.mark.parametrize("engine", [DOCKER, PODMAN], ids=lambda engine: engine.name)
def test_a_scratch_directory_with_a_colon_is_refused(engine: Engine) -> None:
    """Engines would make another directory of what stands before it, with the rest as its options."""
    scratch = (Scratch("/home/me/a:size=1,mode=777", 4096, 0o700, 1000, 1000),)
    with pytest.raises(CoopError, match="a colon in its name"):
        created(engine=engine, scratch=scratch)


@pytest.mark.parametrize(
    ("engine", "uid", "expected"),
    [
        (DOCKER, 0, "/home:rw,exec,nosuid,nodev,size=4096,mode=700"),
        (DOCKER, 1000, "/home:rw,exec,nosuid,nodev,size=4096,mode=700,uid=1000,gid=1000"),
        (PODMAN, 0, "/home:rw,exec,nosuid,nodev,size=4096,mode=700"),
        (PODMAN, 1000, "/home:rw,exec,nosuid,nodev,size=4096,mode=700,U"),
    ],
)
def test_scratch_space_belongs_to_its_user(engine: Engine, uid: int, expected: str) -> None:
    """Podman 4 takes no ids for a tmpfs, but a word for those of --user."""
    argv = created(engine=engine, scratch=(Scratch("/home", 4096, 0o700, uid, uid),))
    assert values(argv, "--tmpfs") == [expected, "/dev/shm:rw,exec,nosuid,nodev,size=4096,mode=1777"]
    assert "--shm-size" not in argv


@pytest.mark.parametrize("network", ["none", "host", "veth"])
@pytest.mark.parametrize("engine", [DOCKER, PODMAN], ids=["docker", "podman"])
def test_name_servers_of_the_host_are_not_told_without_a_network(engine: Engine, network: str) -> None:
    """Docker writes them into every container; Podman does not, and refuses the option."""
    argv = created(engine=engine, network=network)
    hidden = network == "none" and engine is DOCKER
    assert values(argv, "--dns") == (["0.0.0.0"] if hidden else [])
    assert values(argv, "--dns-search") == (["."] if hidden else [])
    assert values(argv, "--network") == ["bridge" if network == "veth" else network]


def test_limits() -> None:
    """In bytes, with no more swap than memory, and processors as decimal fractions."""
    argv = created(memory=1 << 20, swap=True, cpus=1500, pids=7)
    assert [values(argv, f"--{name}") for name in ("memory", "memory-swap", "cpus", "pids-limit")] == [
        ["1048576b"],
        ["1048576b"],
        ["1.5"],
        ["7"],
    ]
    assert values(created(memory=1 << 20), "--memory-swap") == []
    for option in ("--memory", "--memory-swap", "--cpus", "--pids-limit"):
        assert option not in created(swap=True)


@pytest.mark.parametrize("cpus", [1, 10, 999, 1000, 128_000, 100_000_000])
def test_processors_are_written_out(cpus: int) -> None:
    """Engines read no powers of ten."""
    (value,) = values(created(cpus=cpus), "--cpus")
    assert float(value) * 1000 == pytest.approx(cpus)
    assert "e" not in value


def test_core_dumps() -> None:
    """Given any other, rootful Podman raises limits to what root may lack the right to."""
    assert values(created(), "--ulimit") == ["core=1:1"]
    assert values(created(engine=PODMAN.replace(rootless=True)), "--ulimit") == ["core=1:1"]
    assert values(created(engine=PODMAN), "--ulimit") == ["host"]


def test_the_runtime_is_named_as_each_engine_wants_it() -> None:
    """Docker knows it as an option of the verb, Podman as one of its own."""
    assert values(created(runtime="runsc"), "--runtime") == ["runsc"]
    assert created(engine=PODMAN, runtime="runsc")[:4] == ("podman", "--runtime", "runsc", "create")


@pytest.mark.parametrize("name", ["", "-f", "--all"])
def test_what_looks_like_an_option_is_no_name(name: str) -> None:
    """Removing, stopping, starting and committing take single names."""
    for call in (docker.remove, docker.stop):
        with pytest.raises(CoopError, match="is not a name"):
            call(DOCKER, name)
    with pytest.raises(CoopError, match="is not a name"):
        docker.start(CONTAINER, name)
    with pytest.raises(CoopError, match="is not a name"):
        docker.commit(DOCKER, "x", name)


def test_a_network_that_is_joined() -> None:
    """It is another container's, from which Docker takes host name and name servers."""
    for engine in (DOCKER, PODMAN):
        argv = created(engine=engine, network="proxy", joined="coop-x-run-1")
        assert values(argv, "--network") == ["container:coop-x-run-1"]
        assert values(argv, "--dns") == values(argv, "--publish") == []
        assert values(argv, "--hostname") == ([] if engine is DOCKER else ["coop"])


def test_a_proxy_that_nobody_serves() -> None:
    """Nothing is made of a plan in proxy mode without the network that the proxy is in."""
    with pytest.raises(CoopError, match="no network that the proxy serves"):
        created(network="proxy")


NEIGHBOUR = Neighbour(
    engine=DOCKER,
    name="coop-x-run-1",
    labels=(("coop.managed", "true"), ("coop.owner", "o")),
    image=CONTAINER.image,
    argv=("/usr/bin/python3", "-c", "pass"),
    user="1000:1000",
    identities=None,
    mounts=(Mount("/usr", "/usr", False),),
    runtime=None,
    memory=1 << 27,
    lowest=None,
)


def test_a_neighbour() -> None:
    """It has no network, no capability, nothing to write to, and no host's names."""
    for engine in (DOCKER, PODMAN):
        argv = docker.neighbour(NEIGHBOUR.replace(engine=engine))
        assert argv[1:3] == ("run", "--detach") and argv[-3:] == NEIGHBOUR.argv
        assert values(argv, "--network") == ["none"]
        assert values(argv, "--cap-drop") == ["ALL"] and "--read-only" in argv
        assert "no-new-privileges" in values(argv, "--security-opt")
        assert values(argv, "--dns") == (["0.0.0.0"] if engine is DOCKER else [])
        assert all("readonly" in value for value in values(argv, "--mount"))
        assert "--sysctl" not in argv
    low = docker.neighbour(NEIGHBOUR.replace(lowest=80, runtime="crun", identities="host"))
    assert values(low, "--sysctl") == ["net.ipv4.ip_unprivileged_port_start=80"]
    assert values(low, "--runtime") == ["crun"] and values(low, "--userns") == ["host"]
