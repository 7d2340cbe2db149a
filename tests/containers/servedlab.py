"""Containers whose network coop serves: engines of the tests, used by who stands on the lab's host.

Engines and lab have networks of their own. Coop, and so its proxy, is in that of the lab's host; what
the engine makes for a container is in neither.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.cell import UnusableError
from tests.engines.engine import Engine, Engines
from tests.netlab import Lab
from tests.sandboxes import DEADLINE, Project

DOCKER_ROOT = "docker by root"
SERVING = ("docker", DOCKER_ROOT, "podman", "podman-rootless", "docker-rootless", "docker-remapped")
"""Every engine that can have a network of coop's, and who uses it."""
EACH_ENGINE = ("docker", "podman", "podman-rootless")

# Sends something to a port of the loopback and prints the answer.
ASK = """
import socket, sys
try:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=30) as end:
        end.sendall(b"hello")
        end.shutdown(socket.SHUT_WR)
        data = b""
        while piece := end.recv(4096):
            data += piece
        print(data.decode())
except ConnectionRefusedError:
    print("refused")
except OSError:
    print("reset")
"""


@pytest.fixture
def used(request: pytest.FixtureRequest, engines: Engines) -> Iterator[Engine]:
    """Yield the engine that the test is about, without containers."""
    name = request.param
    try:
        if name == DOCKER_ROOT:
            if engines.root is None:
                pytest.skip("it needs root")
            made = engines.get("docker").by(engines.root)
        else:
            made = engines.get(name)
    except UnusableError as error:
        pytest.skip(str(error))
    yield made
    made.clean()


@pytest.fixture
def on_host(used: Engine, lab: Lab) -> Iterator[Project]:
    """Yield a project whose owner uses the engine and stands on the lab's host, for its network and names."""
    made = Project(used.actor)
    made.environment.update(used.environment)
    made.environment["COOP_SANDBOX_BACKEND"] = used.program
    words = list(used.actor.prefix)
    network = words.index("sh", 1) + 2  # that of the cell: see ``cell.Cell.prefix``
    words[network] = f"/proc/{lab.host.pid}/ns/net"
    cell = used.actor.prefix[: network + 1]
    names, place = lab.name_service, os.path.realpath("/etc/resolv.conf")
    subprocess.run([*cell, "mount", "--bind", names, place], check=True, timeout=DEADLINE)
    made.unshared = tuple(words)
    yield made
    made.close()
    subprocess.run([*cell, "umount", place], check=True, timeout=DEADLINE)


def title(pid: int) -> str:
    """Return the command line of a process as people see it; "" when it is gone."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return words.replace(b"\0", b" ").strip().decode()
