"""What serves a container's network, with a neighbour that no engine has made."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coopfile.engines import neighbour
from coopfile.engines.call import EngineError
from coopfile.engines.network import Network, Served, new_socket
from coopfile.errors import CoopError
from coopfile.render.facts import Engine
from coopfile.render.networks import Neighbour

# An engine that starts one program, whatever it is told; ``run`` and ``container inspect`` are asked of it.
_ENGINE = """#!/bin/sh
case $1 in
  run) {start} >/dev/null 2>&1 & echo $! >{place}/pid; echo 0;;
  container) if kill -0 $(cat {place}/pid) 2>&-; then echo '{{"Running": true}}'; else echo '{{}}'; fi;;
esac
"""
Begin = Callable[[str], tuple[Network, Neighbour]]


@pytest.fixture
def place() -> Iterator[Path]:
    """Yield a directory whose path leaves room for that of a socket, which has 108 bytes."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@pytest.fixture
def begin(place: Path) -> Begin:
    """Return what begins to serve a network with a program that says how the neighbour is started."""

    def make(start: str) -> tuple[Network, Neighbour]:
        path = new_socket(str(place / "state"))
        (place / "program.py").write_text(neighbour._PROGRAM)
        program = f"{sys.executable} -I -S {place}/program.py {path}"
        engine = place / "engine"
        engine.write_text(_ENGINE.format(start=start.format(program=program), place=place))
        engine.chmod(0o755)
        made = Neighbour(
            engine=Engine("docker", str(engine)),
            name="n",
            labels=(),
            image="i",
            argv=(),
            user="0:0",
            identities=None,
            mounts=(),
            runtime=None,
            memory=None,
            lowest=None,
        )
        return Network(Served((), "", "", ()), path), made

    return make


def left(place: Path) -> list[str]:
    """Return the sockets that are there."""
    return os.listdir(place / "state/networks")


def test_this_machines_own_network(begin: Begin, place: Path) -> None:
    """Sockets of the host's network are refused: whoever connects to the sandbox's proxy would be outside."""
    network, made = begin("{program} 0 0")
    with pytest.raises(CoopError, match="this machine's own network"):
        network.make(made, os.environ)
    assert network.end() == () and left(place) == []


def test_a_neighbour_that_ends(begin: Begin, place: Path) -> None:
    """One that cannot do its work is noticed at once."""
    network, made = begin("false")
    with pytest.raises(EngineError, match="does not answer"):
        network.make(made, os.environ)
    assert network.end() == () and left(place) == []


def test_a_neighbour_without_sockets(begin: Begin, place: Path) -> None:
    """One that hands over fewer sockets than the proxy needs is refused."""
    network, made = begin("{program}")
    with pytest.raises(CoopError, match="has ended"):
        network.make(made, os.environ)
    assert network.end() == () and left(place) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="a network of its own takes root here")
def test_a_network_of_its_own(begin: Begin, place: Path) -> None:
    """It is served, ended twice without harm, and what a killed process left is swept up."""
    stale = place / "state/networks/1.1.x"
    stale.parent.mkdir(parents=True)
    stale.touch()
    network, made = begin("unshare --net sh -c 'ip link set lo up; exec {program} 3128 1080'")
    network.make(made, os.environ)
    assert left(place) == []
    assert network.end() == network.end() == ()
