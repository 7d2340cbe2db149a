"""network.mode = "proxy" and network.publish in containers: what is listed gets through, and nothing else."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests import publishlab
from tests.containers.servedlab import ASK, EACH_ENGINE, SERVING, title
from tests.engines.engine import Engine
from tests.native.test_veth import publish
from tests.netlab import FORBIDDEN, HOSTS, LOOPBACK_PORT, PORT, Lab
from tests.proxylab import allow
from tests.sandboxes import Project, alive, descendants, wait_gone, wait_until

EVERYWHERE = pytest.mark.parametrize("used", SERVING, indirect=True)
EACH = pytest.mark.parametrize("used", EACH_ENGINE, indirect=True)
QUIET = "--max-time 30 -sS"
SITE = "four.example.org"

# Tries to reach places, straight and by the proxy, and names; prints what was reached.
REACH = """
import json, socket, sys
places = json.loads(sys.argv[1])
reached = []
for address, port in places:
    try:
        socket.create_connection((address, port), timeout=1).close()
        reached.append(f"{address} {port}")
    except OSError:
        pass
end = "HTTP/1.1\\r\\nHost: {0}:{1}\\r\\n\\r\\n"
kinds = ("CONNECT {0}:{1} " + end, "GET http://{0}:{1}/ " + end)
for kind in kinds:
    for address, target in places:
        name = f"[{address}]" if ":" in address else address
        with socket.create_connection(("127.0.0.1", 3128), timeout=30) as proxy:
            proxy.sendall(kind.format(name, target).encode())
            answer = proxy.recv(4096)
            if not answer.startswith(b"HTTP/1.1 403"):
                reached.append(f"{name}:{target} by the proxy: {answer!r}")
try:
    reached.append(str(socket.getaddrinfo("four.example.org", 80)))
except OSError:
    pass
for server in ("198.51.100.80", "192.168.77.1", "127.0.0.11"):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.settimeout(1)
        try:
            question = b"\\4four\\7example\\3org\\0\\0\\1\\0\\1"
            asked.sendto(b"\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0" + question, (server, 53))
            reached.append(f"{server} answers {asked.recv(512)!r}")
        except OSError:
            pass
print(reached)
print(sorted(name for _, name in socket.if_nameindex()))
"""


@pytest.fixture(autouse=True)
def _served(lab: Lab) -> None:
    publish(lab)


@EVERYWHERE
def test_allowed(on_host: Project) -> None:
    """A listed host is reached, by the variables that natively lead to the proxy too."""
    allow(on_host, SITE)
    result = on_host.shell(f"curl {QUIET} http://{SITE}/served/plain.txt; env | grep -i proxy | sort")
    assert result.out.startswith("text\n"), result
    assert "http_proxy=http://127.0.0.1:3128\n" in result.out
    assert result.status == 0, result


@EVERYWHERE
def test_nothing_else(on_host: Project, used: Engine, lab: Lab) -> None:
    """Neither the host at any address, its loopback, LAN, metadata, the engine's gateways, nor names."""
    allow(on_host, SITE)
    before = len(lab.connections())
    places = [(address, PORT) for address in (*HOSTS, *FORBIDDEN, "172.17.0.1", "10.88.0.1", "10.0.2.2")]
    places += [("127.0.0.1", LOOPBACK_PORT), ("198.51.100.80", 80), ("169.254.1.2", PORT)]
    result = on_host.run("/usr/bin/python3", "-I", "-c", REACH, json.dumps(places))
    assert result.out.splitlines() == ["[]", "['lo']"], result
    assert lab.connections()[before:] == []
    assert used.containers() == []


@EACH
def test_blocked(on_host: Project, lab: Lab) -> None:
    """What is not listed is not asked for; answer, notes and `coop log` say so. An empty list is nothing."""
    allow(on_host, SITE)
    before = len(lab.connections())
    result = on_host.shell(f"curl {QUIET} http://www.example.org/; exit 7")
    assert result.status == 7 and "www.example.org:80 is blocked by network.allow" in result.out, result
    assert "coop: www.example.org:80 is blocked by network.allow" in result.err
    assert lab.connections()[before:] == []
    logged = json.loads(on_host.coop("log", "--denied", "--json").out)
    assert [(entry["host"], entry["port"]) for entry in logged] == [("www.example.org", 80)]
    allow(on_host)
    assert f"{SITE}:80 is blocked" in on_host.shell(f"curl {QUIET} http://{SITE}/").out


@EACH
def test_two_do_not_meet(on_host: Project, used: Engine) -> None:
    """Two sandboxes at once have a network each: what one listens on, the other does not reach."""
    allow(on_host, SITE)
    first = publishlab.start(on_host, publishlab.ANSWER, 4000)
    script = f"curl --noproxy '*' --max-time 3 -s http://127.0.0.1:4000/ || curl {QUIET} http://{SITE}/served/plain.txt"
    assert on_host.shell(script).out == "text\n"
    assert first.poll() is None
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)
    assert used.containers() == []


@EVERYWHERE
def test_published(on_host: Project, used: Engine, lab: Lab) -> None:
    """A port of the host's loopback leads to what listens inside, as long as the command runs; no way out."""
    publishlab.publish(on_host, "3777", "3778:80")
    before = lab.state()["processes"]
    for inside, outside in ((3777, 3777), (80, 3778)):
        running = publishlab.start(on_host, publishlab.ANSWER, inside)
        assert lab.run("/usr/bin/python3", "-I", "-c", ASK, str(outside)) == "5 hello\n"
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)
        assert lab.run("/usr/bin/python3", "-I", "-c", ASK, str(outside)) == "refused\n"
    result = on_host.run("/usr/bin/python3", "-I", "-c", "import socket; print(socket.if_nameindex())")
    assert result.out == "[(1, 'lo')]\n", result
    assert used.containers() == []
    assert wait_until(lambda: lab.state()["processes"] == before, 20)


@EACH
def test_port_taken(on_host: Project, used: Engine) -> None:
    """A port that somebody has is told with its place in the Coopfile, and nothing is left."""
    publishlab.publish(on_host, "3779", mode="proxy")
    running = publishlab.start(on_host, publishlab.ANSWER, 3779)
    result = on_host.run("true")
    assert result.status == 125 and "Coopfile:3:" in result.err, result
    assert "port 3779 of 127.0.0.1 is taken" in result.err
    assert on_host.run("true", options=["--no-publish"]).status == 0
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    assert used.containers() == []


@EACH
@pytest.mark.parametrize("victim", ["coop", "network", "container"])
def test_nothing_left(on_host: Project, used: Engine, lab: Lab, victim: str) -> None:
    """Whoever is killed or removed: no process, socket, container or port is left."""
    before = lab.state()["processes"]
    publishlab.publish(on_host, "3780", mode="proxy")
    running = publishlab.start(on_host, publishlab.ANSWER, 3780)
    below = descendants(running.pid)
    coop = next(pid for pid in (running.pid, *below) if "coop: network" in map(title, descendants(pid)))
    if victim == "coop":
        served = [pid for pid in descendants(coop) if title(pid) == "coop: network"]
        assert len(served) >= 3  # itself, the proxy, the publisher
        os.kill(coop, signal.SIGKILL)
        assert wait_gone(served)
    elif victim == "network":
        (attendant,) = [pid for pid in descendants(coop) if _is_attendant(pid)]
        served = [attendant, *descendants(attendant)]
        os.kill(attendant, signal.SIGKILL)
        assert wait_gone(served)
        # The command runs on, with nothing but its loopback.
        assert lab.run("/usr/bin/python3", "-I", "-c", ASK, "3780") == "refused\n"
        assert alive([coop]) == [coop]
        running.send_signal(signal.SIGTERM)
    else:
        used.call("rm", "--force", *used.containers())
    _, said = running.communicate(timeout=90)
    assert b"Traceback" not in said, said
    assert lab.run("/usr/bin/python3", "-I", "-c", ASK, "3780") == "refused\n"
    assert wait_until(lambda: used.containers() == [], 60), used.containers()
    assert wait_until(lambda: lab.state()["processes"] == before, 60)
    assert not list((Path(on_host.environment["HOME"]) / ".local/state/coop/networks").glob("*"))


def _is_attendant(pid: int) -> bool:
    parents = [
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("PPid")
    ]
    return title(pid) == "coop: network" and title(int(parents[0].split()[1])) != "coop: network"


@EACH
def test_nobody_listens_in_time(on_host: Project, used: Engine) -> None:
    """The proxy serves before the command starts: what asks at once is answered."""
    allow(on_host, SITE)
    script = "import socket; print(socket.create_connection(('127.0.0.1', 3128), timeout=30) and 'there')"
    for _ in range(3):
        assert on_host.run("/usr/bin/python3", "-I", "-S", "-c", script).out == "there\n"
    assert used.containers() == []


@EACH
def test_what_serves_may_do_little(on_host: Project, used: Engine) -> None:
    """Proxy and publisher have no capability, cannot be traced, and have none of the caller's files open."""
    publishlab.publish(on_host, "3781", mode="proxy")
    running = publishlab.start(on_host, publishlab.ANSWER, 3781)
    coop = next(
        pid
        for pid in (running.pid, *descendants(running.pid))
        if "coop: network" in map(title, descendants(pid))
    )
    serving = [pid for pid in descendants(coop) if title(pid) == "coop: network" and not _is_attendant(pid)]
    assert len(serving) == 2

    def given_up(pid: int) -> bool:
        status = dict(
            line.split(":\t")
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if ":\t" in line
        )
        return (
            all(int(status[name], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"))
            and status["NoNewPrivs"] == "1"
            and status["Seccomp"] == "2"
        )

    # They do so when they have served for the first time, or a moment has passed.
    assert wait_until(lambda: all(map(given_up, serving)), 20)
    for pid in serving:
        files = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        assert [path for path in files if path.startswith(str(on_host.directory))] == []
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    assert used.containers() == []


@pytest.mark.parametrize("used", ["docker+runsc"], indirect=True)
def test_another_kernel(on_host: Project, used: Engine) -> None:
    """gVisor has a network of its own inside: proxy mode is refused, and ports are listed as not offered."""
    on_host.environment["COOP_SANDBOX_RUNTIME"] = "runsc"
    allow(on_host, SITE)
    result = on_host.run("true")
    assert result.status == 125 and "runsc has a network of its own inside" in result.err, result
    status = json.loads(on_host.coop("status", "--json").out)
    (told,) = [item for item in status["backends"] if item["taken"]]
    assert not told["usable"] and "in which coop's proxy cannot listen" in told["why"]
    assert 'sandbox.runtime = "runc", the native back end' in told["remedy"]
    publishlab.publish(on_host, "3782")
    result = on_host.run("true")
    assert result.status == 0 and "network.publish: 127.0.0.1:3782:3782: not offered" in result.err
    assert used.containers() == []


@pytest.mark.parametrize("used", ["podman-rootless"], indirect=True)
def test_as_oneself(on_host: Project, used: Engine) -> None:
    """Without being root inside the proxy is there too; that /sys shows the host's interfaces is told."""
    on_host.coopfile(f'session.user = "me"\nnetwork = {{ mode = "proxy", allow = ["{SITE}"] }}\n')
    result = on_host.shell(f"curl {QUIET} http://{SITE}/served/plain.txt; id -u")
    assert result.out == f"text\n{on_host.actor.uid}\n", result
    assert "weaker than the plan: network.mode: names and addresses of this machine's" in result.err
    assert used.containers() == []


@pytest.mark.parametrize("used", ["docker"], indirect=True)
def test_an_engine_elsewhere(on_host: Project, used: Engine) -> None:
    """Where the socket does not lead to coop, as on another machine, the command is not started."""
    allow(on_host, SITE)
    tools = on_host.home / "tools"
    on_host.write(str(tools / "docker"), _ELSEWHERE, mode=0o755)
    on_host.environment["PATH"] = f"{tools}:{on_host.environment['PATH']}"
    result = on_host.run("touch", "started")
    assert result.status == 125 and "does not answer" in result.err, result
    assert "the engine has to be on this machine" in result.err
    assert not (on_host.directory / "started").exists()
    assert used.containers() == []


# Docker whose daemon has another socket at the path of coop's: as if it were on another machine.
_ELSEWHERE = """#!/bin/bash
words=()
for word in "$@"; do
  case $word in
    type=bind,source=*,target=/coop-network,*) word="${word/source=*,target/source=/dev/null,target}";;
  esac
  words+=("$word")
done
for place in /usr/local/bin /usr/bin /bin; do
  if [ -x "$place/docker" ]; then exec "$place/docker" "${words[@]}"; fi
done
"""
