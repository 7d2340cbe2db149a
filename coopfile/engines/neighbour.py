"""A container of coop's own beside another: it makes the network that both are in, and sockets in it.

A socket stays in the network where it was made. So what listens in the sandbox's network, and what
connects there, is made by a program in that network, which hands it through a socket of the file
system to coop's processes outside. That takes no right to enter the network, which is the engine's,
and gives no way out: there is nothing in the network but its loopback.
"""

from __future__ import annotations

import os
import sys

from coopfile.engines import collect, images
from coopfile.errors import CoopError
from coopfile.plan.hosttools import TOOLS
from coopfile.plan.launch import Mount, inside
from coopfile.plan.reach import HTTP_PORT, SOCKS_PORT
from coopfile.render.container import LABEL_MANAGED, LABEL_OWNER
from coopfile.render.networks import Neighbour

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from coopfile.engines.making import Place
    from coopfile.plan.model import Plan
    from coopfile.render.container import Container
    from coopfile.render.facts import Engine, Entry

_PRIVILEGED = 1024  # the first port that everybody may listen on, else: ip(7)
_MEMORY = 128 << 20  # bytes, of an interpreter of a tenth
_SOCKET = "/coop-network"
_LIBRARIES = "/etc/ld.so.cache"  # where those of an interpreter from elsewhere are
# Hands over a socket that tells whose network this is, and those that listen; then one for each byte
# that asks, until nobody can ask any more. As PID 1 it would be deaf to TERM otherwise.
_PROGRAM = """
import _signal, _socket, os, sys
_signal.signal(_signal.SIGTERM, lambda *_: os._exit(0))
channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
channel.connect(sys.argv[1])
def hand(answer, sockets):
    rights = b"".join(made.fileno().to_bytes(4, sys.byteorder) for made in sockets)
    channel.sendmsg([answer], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)] if rights else [])
found = [_socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)]
for port in sys.argv[2:]:
    found.append(_socket.socket(_socket.AF_INET, _socket.SOCK_STREAM))
    found[-1].setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    found[-1].bind(("127.0.0.1", int(port)))
    found[-1].listen(4096)
hand(b"1", found)
while found:
    found.pop().close()
while asked := channel.recv(1):
    try:
        made = [_socket.socket(_socket.AF_INET6 if asked == b"6" else _socket.AF_INET, _socket.SOCK_STREAM)]
    except OSError:
        made = []
    hand(b"1", made)
    while made:
        made.pop().close()
"""


def prepare(
    plan: Plan, engine: Engine, place: Place, made: Container, owner: str, token: str, socket: str
) -> Neighbour:
    """Return the neighbour of a container, whose image is there then. Raises CoopError.

    ``owner`` labels it, ``token`` makes its name unique, and ``socket`` is the real path of the socket
    that it connects to.
    """
    if not sys.executable:
        raise CoopError("the Python interpreter that runs this cannot be found", "use one that has a path")
    plain = plan.replace(base=plan.base.replace(image=None))
    tools = collect.tools(plain, place.host, engine)
    program = os.path.realpath(sys.executable)
    ports = (HTTP_PORT, SOCKS_PORT) if plan.network.mode == "proxy" else ()
    published = [port.sandbox for port in plan.network.publish]
    lowest = min(published, default=_PRIVILEGED)
    return Neighbour(
        engine=engine,
        name=f"{made.name}-net-{token[:6]}",
        labels=((LABEL_MANAGED, "true"), (LABEL_OWNER, owner)),
        image=images.ensure_tools(engine, tools, place.environment),
        argv=(program, "-I", "-S", "-c", _PROGRAM, _SOCKET, *map(str, ports)),
        user="0:0" if engine.rootless else f"{place.host.uid}:{place.host.gid}",
        identities="host" if engine.remapped else None,
        mounts=(*_mounts(tools, program), Mount(socket, _SOCKET, False)),
        runtime=made.runtime,
        memory=_MEMORY if "memory" in engine.limits else None,
        lowest=lowest if lowest < _PRIVILEGED else None,
    )


def _mounts(tools: Iterable[Entry], program: str) -> Iterator[Mount]:
    """Yield what the interpreter needs of the host: its tools, and where else it is itself."""
    shown = [
        Mount(entry.content, entry.path, False)
        for entry in tools
        if entry.kind == "bind" and any(inside(entry.path, path) for path in (*TOOLS, _LIBRARIES))
    ]
    yield from shown
    if not any(inside(program, mount.target) for mount in shown):
        yield Mount(os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_prefix), False)
