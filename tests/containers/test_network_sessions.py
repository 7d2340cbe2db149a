"""Sessions whose network coop serves: the proxy and published ports live as long as the session."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests import publishlab
from tests.containers.enginelab import EngineSessions
from tests.containers.servedlab import ASK, SERVING, title
from tests.engines.engine import Engine
from tests.native.test_veth import publish
from tests.netlab import HOST, PORT, Lab
from tests.proxylab import allow
from tests.sandboxes import Project, Workshop, descendants, wait_gone, wait_until

SITE = "four.example.org"
EACH = pytest.mark.parametrize("used", ("docker", "podman", "podman-rootless"), indirect=True)


@pytest.fixture
def served(on_host: Project, workshop: Workshop, used: Engine, lab: Lab) -> Iterator[EngineSessions]:
    """Yield what drives sessions on an engine from the lab's host; they end with the test."""
    publish(lab)
    made = EngineSessions(on_host, workshop.library, used)
    yield made
    with contextlib.suppress(OSError):
        made.close()


@pytest.mark.parametrize("used", SERVING, indirect=True)
def test_proxy(served: EngineSessions, on_host: Project, lab: Lab) -> None:
    """A session's commands reach what is listed, one after the other; the rest is logged, and not asked."""
    allow(on_host, SITE)
    served.watch_workspace()
    before = len(lab.connections())
    caller = served.opened()
    for _ in range(2):
        assert caller.shell(f"wget -q -O - http://{SITE}/served/plain.txt").out == "text\n"
    reached = len(lab.connections())
    assert reached > before
    done = caller.shell(
        f"wget -q -O - http://www.example.org/; nc -w 2 {HOST} {PORT} </dev/null && echo reached"
    )
    assert done.status != 0 and "reached" not in done.out
    assert lab.connections()[reached:] == []
    logged = json.loads(on_host.coop("log", "--denied", "--json").out)
    assert [(entry["host"], entry["port"]) for entry in logged] == [("www.example.org", 80)]
    served_by = [pid for pid in descendants(served.keeper()) if title(pid) == "coop: network"]
    assert len(served_by) == 2  # the attendant and the proxy
    caller.stop()
    assert wait_gone(served_by)
    assert served.left() == []


@EACH
def test_published(served: EngineSessions, on_host: Project, lab: Lab) -> None:
    """A session's ports are reached while something listens inside, and are free when it has stopped."""
    publishlab.publish(on_host, "3790")
    served.watch_workspace()
    caller = served.opened()
    caller.shell("(while true; do printf hello | nc -l -p 3790; done) >/dev/null 2>&1 &")
    ask = ("/usr/bin/python3", "-I", "-c", ASK, "3790")
    assert wait_until(lambda: lab.run(*ask) == "hello\n", 20)
    caller.stop()
    assert lab.run(*ask) == "refused\n"
    assert served.left() == []


@EACH
def test_port_taken(served: EngineSessions, on_host: Project) -> None:
    """A session whose port somebody has does not start, says why, and leaves nothing."""
    publishlab.publish(on_host, "3791")
    served.watch_workspace()
    first = served.opened("one")
    with pytest.raises(Exception, match=r"port 3791 of .* is taken"):
        served.caller().open("two")
    first.stop("one")
    served.opened("two").stop("two")
    assert served.left() == []


@EACH
def test_keeper_killed(served: EngineSessions, on_host: Project, lab: Lab) -> None:
    """With the keeper end the proxy, the publisher and the network; the session starts anew."""
    publishlab.publish(on_host, "3792", mode="proxy")
    served.watch_workspace()
    caller = served.opened()
    keeper = served.keeper()
    serving = [pid for pid in descendants(keeper) if title(pid) == "coop: network"]
    assert len(serving) == 3
    os.kill(keeper, signal.SIGKILL)
    assert wait_gone(serving)
    assert lab.run("/usr/bin/python3", "-I", "-c", ASK, "3792") == "refused\n"
    assert caller.open()["fresh"] is True
    assert wait_until(lambda: len(served.containers()) == 2, 30)
    caller.stop()
    assert served.left() == []
