"""``coop proxy``: the proxy of a sandbox that coop does not run, in the foreground."""

from __future__ import annotations

import os
import sys

from coopfile.cli import output
from coopfile.cli.execution import require_approval
from coopfile.cli.options import request
from coopfile.errors import CoopError, UsageError
from coopfile.find import directories
from coopfile.plan.sessions import DEFAULT, log_path, session_id
from coopfile.proxy.denials import Denials, open_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from _socket import socket
    from collections.abc import Callable

    from coopfile.compiling import Compiled
    from coopfile.proxy.policy import Ranges

SUMMARY = "serve the list of hosts of this project on this machine, for a rendered Seatbelt sandbox"
EPILOG = """examples:
  coop proxy --port 8877      in one terminal, until Ctrl-C
  coop proxy                  on any free port, which it tells

`coop render seatbelt --facts FILE`, with "proxy": 8877 in the file, makes a profile that reaches this port
and no other.

HTTP, CONNECT and SOCKS 5 on one port of 127.0.0.1 and ::1. What is not in network.allow is blocked, told
here and listed by `coop log`. After a change of network.allow start it anew. `coop run` needs none of this:
its sandboxes have a proxy of their own.

Every user and program of this machine can connect to it, and then reaches from here what is listed.
"""

_CONNECTIONS = 512  # each takes two descriptors
_DESCRIPTORS = 64  # for all else
_LATEST = 65535


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="listen there (default: any free one)"
    )


def main(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from coopfile.compiling import compile_project
    from coopfile.launching import check_access
    from coopfile.proxy import alone

    if not 0 <= options.port <= _LATEST:
        raise UsageError(f"--port {options.port}: not a port", "a number from 1 to 65535")
    compiled = compile_project(request(options))
    plan, root = compiled.plan, compiled.project.root
    if plan.network.mode != "proxy":
        raise CoopError(
            f'network.mode is "{plan.network.mode}", which takes no proxy',
            'network = { mode = "proxy", allow = ["host.example"] }',
        )
    require_approval(compiled)
    check_access(plan)
    listeners = alone.listeners(options.port)
    port = int(listeners[0].getsockname()[1])
    if options.json:
        output.emit_json({"port": port, "addresses": [str(each.getsockname()[0]) for each in listeners]})
    elif not options.quiet:
        text = f"proxy on port {port} of this machine's loopback, for every user of it; Ctrl-C ends it"
        output.emit(f"coop: {text}")
    sys.stdout.flush()
    log = log_path(directories(os.environ).state, session_id(root, plan.access, DEFAULT))
    denials = _Told(-1, _log(log))
    _serve(compiled, listeners, denials)
    return 0


class _Told(Denials):
    """Tells of what is blocked at once."""

    def tell(self, line: str) -> None:
        """Write it where the proxy was started."""
        _say(line)


def _say(text: str) -> None:
    output.emit(f"coop: {output.safe(text)}", sys.stderr)
    sys.stderr.flush()


def _log(place: str) -> int:
    try:
        return open_log(place)
    except OSError as error:
        raise CoopError(f"what is blocked cannot be logged: {place}: {error.strerror}") from None


def _serve(compiled: Compiled, listeners: list[socket], denials: Denials) -> None:
    from coopfile.listed import written
    from coopfile.proxy.loop import Loop
    from coopfile.proxy.policy import Policy
    from coopfile.proxy.server import Server

    plan = compiled.plan
    listed = written(plan, compiled.project, os.environ)
    ranges = _locked_in()
    loop = Loop(lambda error: _say(f"a connection failed: {type(error).__name__}: {error}"))
    server = Server(loop, Policy(plan.network.allow, ranges, listed), denials, _connections())
    for listener in listeners:
        server.listen_for_both(listener)
    loop.run()


def _connections() -> int:
    """Return how many there may be, with as many descriptors as that takes: a Mac gives 256 at first."""
    import resource

    wanted = 2 * _CONNECTIONS + _DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return max((wanted - _DESCRIPTORS) // 2, 1)


def _locked_in() -> Callable[[], tuple[Ranges, Ranges]]:
    """Give up what serving does not take, where the kernel has means for that; return what is local here."""
    if sys.platform == "linux":
        from coopfile.native import landlock, serving

        networks = serving.Networks()
        networks.ranges()
        serving.lock_in(landlock.abi())
        return networks.ranges
    from coopfile.proxy import interfaces, local

    def ranges() -> tuple[Ranges, Ranges]:
        return local.ranges(interfaces.networks())

    try:
        ranges()
    except OSError as error:
        raise CoopError(f"the networks of this machine cannot be told: {error.strerror}") from None
    return ranges
