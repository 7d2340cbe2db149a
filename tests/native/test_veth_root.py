"""network.mode = "veth" as root: the host's own rules, and hosts that are not as one would wish."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.netlab import (
    FORBIDDEN,
    HOSTS,
    INTERNET,
    INTERNET6,
    NEIGHBOUR,
    OTHER,
    PORT,
    RESOLV_CONF,
    Lab,
    on_lab,
)
from tests.sandboxes import Project, Workshop, descendants, wait_gone, wait_until

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root configures networks"),
]

# Connects to every argument (address, port, address to come from or "-") over TCP and UDP, with and
# without a choice of the interface; prints the addresses that answer.
REACH = """
import socket, sys, threading

def attempt(kind, device, address, port, source):
    try:
        client = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
        client.settimeout(2)
        if device:
            client.setsockopt(socket.SOL_SOCKET, 25, b"eth0")  # SO_BINDTODEVICE
        if source != "-":
            client.setsockopt(socket.IPPROTO_IP, 15, 1)  # IP_FREEBIND
            client.bind((source, 0))
        client.connect((address, int(port)))
        client.send(b"x")
        client.recv(9)
        print(address, flush=True)
    except OSError:
        pass

for item in sys.argv[1:]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        for device in (False, True):
            threading.Thread(target=attempt, args=(kind, device, *item.split(","))).start()
"""
ADDRESSES = "ip -oneline address show eth0 | awk '{print $4}'"


@pytest.fixture
def project(lab: Lab, workshop: Workshop) -> Iterator[Project]:
    """Yield a project of root's on the lab's host."""
    made = on_lab(lab, workshop.actor("root"), "veth")
    made.coopfile('network.mode = "veth"\n')
    yield made
    made.close()


@pytest.fixture
def without_programs(project: Project) -> Project:
    """Return the project, where neither pasta nor slirp4netns is to be found."""
    programs = project.home / "programs"
    programs.mkdir()
    project.wrap = ("/usr/bin/env", f"PATH={programs}")
    return project


@contextlib.contextmanager
def arranged(lab: Lab, do: str, undo: str) -> Iterator[None]:
    """Run one script on the lab's host before, another one afterwards."""
    lab.run("sh", "-ec", do)
    try:
        yield
    finally:
        lab.run("sh", "-ec", undo)


class Running:
    """A sandbox that waits, and the processes of it."""

    def __init__(self, project: Project) -> None:
        self.process = project.popen("sh", "-c", "echo; sleep 600", stdin=subprocess.DEVNULL)
        assert self.process.stdout is not None
        assert self.process.stdout.read(1) == b"\n"
        self.processes = descendants(self.process.pid)
        self.caller = self.process.pid
        self.monitor = self.processes[0]
        host = os.stat(f"/proc/{self.monitor}/ns/net").st_ino
        inside = [pid for pid in self.processes if os.stat(f"/proc/{pid}/ns/net").st_ino != host]
        self.first = inside[0]
        (self.link,) = set(self.processes) - {self.monitor, *inside}

    def reached(self, *tried: str) -> set[str]:
        """Return which addresses answer somebody in its network who has every capability."""
        argv = ["nsenter", f"--target={self.first}", "--net", "--", sys.executable, "-Ic", REACH, *tried]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
        return set(done.stdout.split())

    def remove_fence(self) -> None:
        """Remove the rules in its own namespace."""
        argv = ["nsenter", f"--target={self.first}", "--net", "--", "nft", "delete", "table", "inet", "coop"]
        subprocess.run(argv, timeout=60, check=True)

    def gateways(self) -> list[str]:
        """Return the host's addresses on its side."""
        argv = ["nsenter", f"--target={self.first}", "--net", "--", "ip", "-6", "route", "show", "default"]
        shown = subprocess.check_output(argv, text=True, timeout=60)
        argv.remove("-6")
        return [line.split()[2] for line in (shown + subprocess.check_output(argv, text=True)).splitlines()]

    def end(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(30)


def test_the_hosts_rules_alone(project: Project) -> None:
    """Without the rules inside, the host's let it have the internet and nothing else."""
    running = Running(project)
    running.remove_fence()
    internet = [f"{address},{PORT},-" for address in (INTERNET, OTHER, INTERNET6)]
    local = (*FORBIDDEN, *HOSTS, *running.gateways(), "255.255.255.255", "192.168.77.255", "224.0.0.1")
    tried = [*internet, *(f"{address},{PORT},-" for address in local)]
    assert running.reached(*tried) == {INTERNET, OTHER, INTERNET6}


def test_nothing_is_lost_at_first(project: Project) -> None:
    """The link is whole before the command starts: nothing has had to be sent twice, which takes a second."""
    script = f"""
import socket
with socket.create_connection(("{INTERNET}", {PORT})), socket.create_connection(("{INTERNET6}", {PORT})):
    pass
names, values = [line.split() for line in open("/proc/net/netstat") if line.startswith("TcpExt:")]
counted = dict(zip(names, values))
print(counted["TCPSynRetrans"], counted["TCPTimeouts"])
"""
    for _ in range(12):
        assert project.python(script).out.split() == ["0", "0"]


def test_others_addresses(project: Project, lab: Lab) -> None:
    """What claims to come from another address than the sandbox's own goes nowhere."""
    running = Running(project)
    running.remove_fence()
    before = len(lab.connections())
    sources = (NEIGHBOUR, "127.0.0.1", "10.213.0.9")
    assert running.reached(*(f"{INTERNET},{PORT},{source}" for source in sources)) == set()
    assert lab.connections()[before:] == []


def test_an_address_that_the_host_gets_later(project: Project, lab: Lab) -> None:
    """An address that the host has only since the sandbox runs is out of reach by its rules too."""
    later = "203.0.113.99"
    running = Running(project)
    os.kill(running.link, signal.SIGKILL)  # which would disconnect the sandbox
    assert wait_gone([running.link])
    with arranged(lab, f"ip address add {later}/32 dev lo", f"ip address del {later}/32 dev lo"):
        assert running.reached(f"{later},{PORT},-", f"{INTERNET},{PORT},-") == {INTERNET}


def test_ports_that_the_host_passes_on(project: Project, lab: Lab) -> None:
    """The host's own translation, such as of a container's published port, does not lead to a neighbour."""
    rules = f"""nft add table ip elsewhere
nft add chain ip elsewhere to '{{ type nat hook prerouting priority -100; }}'
nft add rule ip elsewhere to ip daddr {OTHER} tcp dport {PORT} dnat to {NEIGHBOUR}"""
    running = Running(project)
    with arranged(lab, rules, "nft delete table ip elsewhere"):
        before = len(lab.connections())
        running.reached(f"{OTHER},{PORT},-")
        assert [line for line in lab.connections()[before:] if line.split()[1] == NEIGHBOUR] == []


@pytest.mark.parametrize("who", ["caller", "monitor", "link"])
def test_killed(project: Project, lab: Lab, who: str) -> None:
    """Rules last as long as the sandbox, whichever of its processes is killed, and no longer."""
    running = Running(project)
    os.kill(getattr(running, who), signal.SIGKILL)
    if who == "link":
        assert wait_gone([running.link])
        running.remove_fence()
        tried = (f"{address},{PORT},-" for address in (INTERNET, NEIGHBOUR, *HOSTS))
        assert running.reached(*tried) == {INTERNET}
        running.end()
    assert wait_gone(running.processes)
    assert wait_until(lambda: "coop" not in lab.run("nft", "list", "tables") + lab.run("ip", "link"), 20)


def test_a_link_that_cannot_look(project: Project, lab: Lab) -> None:
    """Where the link can no longer tell which networks the host joins, the sandbox is cut off."""
    running = Running(project)
    tried = f"{INTERNET},{PORT},-"
    assert running.reached(tried) == {INTERNET}
    subprocess.run(["prlimit", f"--pid={running.link}", "--nofile=3"], timeout=60, check=True)
    lab.run("ip", "address", "add", "10.66.0.1/24", "dev", "lo")
    try:
        assert wait_until(lambda: not running.reached(tried), 20)
    finally:
        lab.run("ip", "address", "del", "10.66.0.1/24", "dev", "lo")
        running.end()
    assert wait_gone(running.processes)


@pytest.mark.parametrize("milliseconds", range(20, 140, 10))
def test_killed_at_any_moment(project: Project, lab: Lab, milliseconds: int) -> None:
    """A caller who is killed while the network is being made leaves nothing."""
    process = project.popen("true")
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(milliseconds / 1000)
    process.kill()
    process.wait(30)
    assert wait_until(lambda: "coop" not in lab.run("nft", "list", "tables") + lab.run("ip", "link"), 20)


def means(project: Project) -> str:
    """Return what connects a sandbox here, by its address."""
    address = project.output(ADDRESSES).split()[0]
    return "veth" if address.startswith("10.213.") else "pasta or slirp4netns"


FIREWALL = """nft -f - <<'EOF'
table ip strict {
    chain forward {
        type filter hook forward priority 0; policy drop;
        %s
    }
}
EOF"""
NO_FIREWALL = "nft delete table ip strict"
REFUSING = (FIREWALL % "", NO_FIREWALL, "packet filter")
NO_FORWARDING = "sysctl -qw net.ipv4.ip_forward=0"
FORWARDING = "sysctl -qw net.ipv4.ip_forward=1"
ROUTED = "ip route add blackhole 10.213.0.0/16", "ip route del blackhole 10.213.0.0/16"


@pytest.mark.parametrize(
    ("do", "undo", "words"),
    [
        REFUSING,
        (NO_FORWARDING, FORWARDING, "ip_forward"),
        (*ROUTED, "addresses"),
    ],
    ids=["firewall", "forwarding", "routes"],
)
def test_hosts_that_will_not(project: Project, lab: Lab, do: str, undo: str, words: str) -> None:
    """Where the host keeps root from it, pasta or slirp4netns does it, else coop says what would."""
    if not (shutil.which("pasta") or shutil.which("slirp4netns")):
        pytest.skip("neither pasta nor slirp4netns is installed")
    with arranged(lab, do, undo):
        assert means(project) == "pasta or slirp4netns"
    assert means(project) == "veth"


@pytest.mark.parametrize(
    ("do", "undo", "words"),
    [REFUSING, (NO_FORWARDING, FORWARDING, "ip_forward")],
    ids=["firewall", "forwarding"],
)
def test_refusals(without_programs: Project, lab: Lab, do: str, undo: str, words: str) -> None:
    """With no other means the run is refused, with the reason and the package to install."""
    with arranged(lab, do, undo):
        result = without_programs.run("true")
        assert result.status == 125, result
        assert words in result.err and "passt" in result.err


def test_a_firewall_that_lets_it_through(project: Project, lab: Lab) -> None:
    """A firewall with an exception for coop's interfaces is no hindrance."""
    rules = 'iifname "coop*" accept; oifname "coop*" accept;'
    with arranged(lab, FIREWALL % rules, NO_FIREWALL):
        assert means(project) == "veth"


def test_routes_of_the_hosts(project: Project, lab: Lab) -> None:
    """Addresses to which the host has a route are not given to sandboxes."""
    with arranged(lab, "ip route add blackhole 10.213.0.0/17", "ip route del blackhole 10.213.0.0/17"):
        for _ in range(3):
            assert int(project.output(ADDRESSES).split(".")[2]) >= 128


def test_without_the_internet(project: Project, lab: Lab) -> None:
    """A host that is in no network at the moment is no reason to refuse."""
    routes = lab.run("ip", "route", "show", "default").strip()
    with arranged(lab, "ip route del default", f"ip route add {routes}"):
        assert means(project) == "veth"


def test_name_servers_that_are_not_there(project: Project, lab: Lab) -> None:
    """A name server on the loopback on which nobody listens, as Docker's, is left to other means."""
    if not (shutil.which("pasta") or shutil.which("slirp4netns")):
        pytest.skip("neither pasta nor slirp4netns is installed")
    lab.name_servers("nameserver 127.0.0.11\n")
    try:
        assert means(project) == "pasta or slirp4netns"
        lab.name_servers("nameserver 127.0.0.1\n")
        assert means(project) == "veth"
    finally:
        lab.name_servers(RESOLV_CONF)


@pytest.mark.parametrize("how", ["not forwarded", "filtered"])
def test_without_ipv6(project: Project, lab: Lab, how: str) -> None:
    """Where the host passes IPv4 on and not IPv6, the sandbox has IPv4 only, and loses no time with IPv6."""
    do, undo = "sysctl -qw net.ipv6.conf.all.forwarding=0", "sysctl -qw net.ipv6.conf.all.forwarding=1"
    if how == "filtered":
        do, undo = FIREWALL.replace("table ip ", "table ip6 ") % "", NO_FIREWALL.replace(" ip ", " ip6 ")
    with arranged(lab, do, undo):
        addresses = project.output(f"{ADDRESSES}; ip -6 route show default; cat /etc/resolv.conf")
        assert addresses.startswith("10.213.")
        assert "fd63" not in addresses and "default" not in addresses
        result = project.python(REACH, f"{INTERNET},{PORT},-", f"{INTERNET6},{PORT},-")
        assert set(result.out.split()) == {INTERNET}


def test_settings_of_the_hosts(project: Project, lab: Lab) -> None:
    """No setting of the host's own interfaces is changed while a sandbox runs."""
    show = ("sh", "-c", "sysctl -a 2>/dev/null | grep -E '^net.ipv[46].(conf.(all|default|eth0|lo)|ip_)'")
    before = lab.run(*show)
    running = Running(project)
    assert lab.run(*show) == before
    running.end()


def test_status(without_programs: Project, lab: Lab) -> None:
    """``coop status`` says what connects sandboxes here, and what is missing where nothing does."""
    result = without_programs.coop("status")
    assert (result.status, "veth and nf_tables" in result.out) == (0, True), result
    for do, undo, words in (REFUSING, (NO_FORWARDING, FORWARDING, "ip_forward")):
        with arranged(lab, do, undo):
            result = without_programs.coop("status")
            assert result.status == 1
            assert words in result.out and "passt" in result.out
