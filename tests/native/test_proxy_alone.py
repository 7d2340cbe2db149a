"""`coop proxy`: what a rendered Seatbelt sandbox is led to, on Linux and without what Linux alone has."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import mac
from tests.native.test_veth import publish
from tests.netlab import INTERNET, Lab, on_lab
from tests.proxylab import Secure, allow
from tests.sandboxes import DEADLINE, NAMES, Project, Result, Workshop, run

pytestmark = pytest.mark.native

SITE = "four.example.org"
LIKE_A_MAC = "like a Mac"


class Alone:
    """A project on the lab's host, and `coop proxy` for it; ``coop`` is the command line."""

    def __init__(self, project: Project, coop: tuple[str, ...]) -> None:
        self.project = project
        self.coop = (*project.unshared, *coop)
        self.port = 0

    @contextlib.contextmanager
    def serving(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """Have it run."""
        process = subprocess.Popen(
            [*self.coop, "proxy", "--json", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.project.directory,
            env=self.project.environment,
        )
        assert process.stdout is not None
        try:
            told = b""
            while not told.endswith(b"}\n"):
                line = process.stdout.readline()
                assert line, process.communicate(timeout=DEADLINE)
                told += line
            found = json.loads(told)
            assert "127.0.0.1" in found["addresses"]
            self.port = found["port"]
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=DEADLINE)

    def verb(self, *words: str) -> Result:
        """Run another verb."""
        return run([*self.coop, *words], b"", self.project.directory, self.project.environment)

    def curl(self, *words: str, scheme: str = "http", host: str = "127.0.0.1") -> Result:
        """Fetch something through it."""
        through = ("curl", "-sS", "--max-time", "30", "--noproxy", "", "-x", f"{scheme}://{host}:{self.port}")
        argv = [*self.project.unshared, *through, *words]
        return run(argv, b"", self.project.directory, self.project.environment)


@pytest.fixture(params=[*NAMES, LIKE_A_MAC])
def alone(request: pytest.FixtureRequest, lab: Lab, workshop: Workshop) -> Iterator[Alone]:
    """Yield one for each of those who may start it."""
    publish(lab)
    like_a_mac = request.param == LIKE_A_MAC
    project = on_lab(lab, workshop.actor(NAMES[-1] if like_a_mac else request.param), "veth")
    allow(project, SITE, "127.0.0.1", "metadata.example.org")
    coop = project.actor.coop
    if like_a_mac:
        coop = (sys.executable, "-I", "-c", Path(mac.__file__).read_text(), str(workshop.library))
    yield Alone(project, coop)
    project.close()


def test_listed(alone: Alone, secure: Secure) -> None:
    """What is listed passes on one port, whatever is spoken, at both addresses of the loopback."""
    certificate = alone.project.write("ca.pem", secure.certificate.read_bytes())
    with alone.serving():
        for scheme in ("http", "socks5h"):
            for host in ("127.0.0.1", "[::1]"):
                found = alone.curl(f"http://{SITE}/served/plain.txt", scheme=scheme, host=host)
                assert found.out == "text\n", found
            found = alone.curl(
                "--cacert", str(certificate), f"https://{SITE}/served/plain.txt", scheme=scheme
            )
            assert found.out == "text\n", found


def test_blocked(alone: Alone, lab: Lab) -> None:
    """What is not listed, or local, is blocked, told at once and listed by `coop log`."""
    before = len(lab.connections())
    with alone.serving() as process:
        for url in ("http://www.example.org/", f"http://{INTERNET}/", "http://127.0.0.1/"):
            assert "is blocked" in alone.curl(url).out
        assert (
            "www.example.org:80 is blocked by network.allow in Coopfile:1"
            in alone.curl("--noproxy", "127.0.0.1", f"http://127.0.0.1:{alone.port}/").out
        )
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    assert b"coop: www.example.org:80 is blocked by network.allow in Coopfile:1; allowed: " in told
    assert b"Traceback" not in told
    assert lab.connections()[before:] == []
    logged = json.loads(alone.verb("log", "--json").out)
    assert [entry["host"] for entry in logged] == ["www.example.org", INTERNET, "127.0.0.1"]


def test_port(alone: Alone) -> None:
    """The port that is asked for is taken at both addresses, or it is an error in words."""
    with alone.serving():
        port = alone.port
        taken = alone.verb("proxy", "--port", str(port))
        assert taken.status == 125 and f"cannot listen on port {port} of 127.0.0.1" in taken.err
    with alone.serving("--port", str(port)):
        assert alone.port == port
    wrong = alone.verb("proxy", "--port", "65536")
    assert wrong.status == 2 and "not a port" in wrong.err


def test_rendered(alone: Alone) -> None:
    """A profile for a Mac names the port of the facts, and the text says what to start first."""
    place = {"home": "/Users/you", "workspace": "/Users/you/shop"}
    facts = alone.project.write("mac.json", json.dumps({"system": "darwin", "host": place, "proxy": 8877}))
    text = alone.verb("render", "seatbelt", "--facts", str(facts), "--", "make").out
    assert '(allow network-outbound (remote tcp "localhost:8877"))' in text
    assert "# first, in another terminal, to be left running: coop proxy --port 8877" in text
    facts.write_text(json.dumps({"system": "darwin", "host": place}))
    refused = alone.verb("render", "seatbelt", "--facts", str(facts), "--", "make")
    assert refused.status == 125 and '"proxy": 8877' in refused.err


def test_other_modes(alone: Alone) -> None:
    """A plan without a proxy has none, and what widens it is approved first."""
    alone.project.coopfile("")
    refused = alone.verb("proxy")
    assert refused.status == 125 and 'network.mode is "none"' in refused.err
    alone.project.coopfile('network = { mode = "proxy", allow = ["example.com"] }\n', allow=False)
    refused = alone.verb("proxy")
    assert refused.status == 125 and "coop allow" in refused.err


def test_this_machine(alone: Alone) -> None:
    """Where coop cannot look at the machine, it says what to do instead."""
    if alone.coop[-1] in alone.project.actor.coop:
        pytest.skip("this is Linux")
    refused = alone.verb("render", "facts")
    assert refused.status == 125 and "--facts FILE" in refused.err and "Traceback" not in refused.err
