"""Out of a sandbox with the internet: to the host, its neighbours, the cloud's metadata, other sandboxes."""

from __future__ import annotations

import subprocess

import pytest

from tests.netlab import (
    FORBIDDEN,
    HOST,
    HOST6,
    HOST_PUBLIC,
    HOSTS,
    INTERNET,
    LOOPBACK_PORT,
    METADATA,
    NEIGHBOUR,
    NEIGHBOUR6,
    OTHER,
    PORT,
    ROUTER,
    Lab,
)
from tests.sandboxes import Project, descendants

pytestmark = pytest.mark.native

# Tries every pair of its arguments (way, address, port) at once, and prints those that were answered.
ATTEMPTS = """
import errno, socket, struct, sys, threading

def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET

def through_device(client, address):
    client.setsockopt(socket.SOL_SOCKET, 25, b"eth0")  # SO_BINDTODEVICE

def through_index(client, address):
    index = socket.if_nametoindex("eth0")
    if ":" in address:
        client.setsockopt(socket.IPPROTO_IPV6, 76, index)  # IPV6_UNICAST_IF
    else:
        client.setsockopt(socket.IPPROTO_IP, 50, struct.pack("!I", index))  # IP_UNICAST_IF

def without_routes(client, address):
    through_device(client, address)
    client.setsockopt(socket.SOL_SOCKET, 5, 1)  # SO_DONTROUTE

def by_source_route(client, address):
    hops = socket.inet_aton(address)
    client.setsockopt(socket.IPPROTO_IP, 4, bytes([131, 7, 4]) + hops + b"\\0")  # IP_OPTIONS: LSRR

def broadcast(client, address):
    client.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    through_device(client, address)

def plain(client, address):
    pass

def attempt(how, kind, address, port):
    via = INTERNET if how == "by_source_route" else address
    try:
        if how == "mapped":
            client, target = socket.socket(socket.AF_INET6, kind), ("::ffff:" + address, port)
        elif how == "multipath":
            client, target = socket.socket(family_of(address), kind, 262), (address, port)
        elif how == "scoped":
            client = socket.socket(socket.AF_INET6, kind)
            target = (address, port, 0, socket.if_nametoindex("eth0"))
        else:
            client, target = socket.socket(family_of(address), kind), (via, port)
            globals()[how](client, address)
        client.settimeout(2)
        if how == "fast":
            client.sendto(b"x", 0x20000000, target)  # MSG_FASTOPEN
        else:
            client.connect(target)
            client.send(b"x")
        print(how, kind.name, address, port, client.recv(9).decode(), flush=True)
    except OSError:
        pass

fast = plain
INTERNET = sys.argv[1]
threads = []
for item in sys.argv[2:]:
    how, address, port = item.split(",")
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        threads.append(threading.Thread(target=attempt, args=(how, kind, address, int(port))))
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done")
"""


def attempts(project: Project, *tried: str) -> list[str]:
    """Try ways to addresses, each ``way,address,port``; return what was answered."""
    result = project.python(ATTEMPTS, INTERNET, *tried)
    assert result.status == 0, result
    *answered, last = result.out.splitlines()
    assert last == "done"
    return answered


class Watch:
    """What is reached in the lab from now on."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._before = len(lab.connections())

    def reached(self) -> set[str]:
        """Return the addresses, less the internet's and the name server that answers for the sandbox."""
        new = {tuple(line.split()) for line in self._lab.connections()[self._before :]}
        allowed = {("udp", ROUTER, "53"), ("tcp", ROUTER, "53")}
        allowed |= {("tcp", INTERNET, str(PORT)), ("udp", INTERNET, str(PORT))}
        return {" ".join(line) for line in new - allowed}


@pytest.fixture
def watch(lab: Lab) -> Watch:
    """Return a watch that begins with the test."""
    return Watch(lab)


def test_attempts_can_succeed(connected: Project) -> None:
    """What these tests try works where it may: with the internet."""
    ways = ("plain", "through_device", "through_index", "mapped", "fast")
    answered = attempts(connected, *(f"{way},{INTERNET},{PORT}" for way in ways))
    assert {line.split()[0] for line in answered} == set(ways)


def test_everybody_else(connected: Project, watch: Watch) -> None:
    """No address of the LAN, of private networks or of metadata services answers, over TCP or UDP."""
    ports = (PORT, 80, 53)
    assert attempts(connected, *(f"plain,{address},{port}" for address in FORBIDDEN for port in ports)) == []
    assert watch.reached() == set()


def test_the_host(connected: Project, watch: Watch) -> None:
    """No address of the host's answers, private or public, nor its loopback."""
    ports = (PORT, LOOPBACK_PORT)
    loopback = ("127.0.0.1", "127.0.0.2", "::1", "0.0.0.0", "::")
    assert (
        attempts(connected, *(f"plain,{host},{port}" for host in (*HOSTS, *loopback) for port in ports)) == []
    )
    assert watch.reached() == set()


def test_neighbours_by_route(connected: Project, watch: Watch, lab: Lab) -> None:
    """Neighbours in whose network the host has no address, but a route onto the cable, are neighbours."""
    # As with DHCPv6 (one address, and the prefix by router advertisement), and with cloud addresses (/32).
    neighbours = {"203.0.113.200/32": "203.0.113.192/26", "2001:db8:99::9/128": "2001:db8:99::/64"}
    world = ("nsenter", f"--target={lab.world.pid}", "--net", "--")
    for address, network in neighbours.items():
        subprocess.run([*world, "ip", "address", "add", address, "dev", "uplink"], check=True)
        lab.run("ip", "route", "add", network, "dev", "eth0")
    try:
        assert attempts(connected, *(f"plain,{item.split('/')[0]},{PORT}" for item in neighbours)) == []
        assert watch.reached() == set()
        assert attempts(connected, f"plain,{INTERNET},{PORT}") != []
    finally:
        for address, network in neighbours.items():
            lab.run("ip", "route", "del", network, "dev", "eth0")
            subprocess.run([*world, "ip", "address", "del", address, "dev", "uplink"], check=True)


def test_past_the_routes(connected: Project, watch: Watch) -> None:
    """Choosing the interface or the protocol oneself, which needs no capability, leads nowhere new."""
    addresses = (HOST, HOST_PUBLIC, NEIGHBOUR, METADATA, "10.0.2.2", "10.0.2.3")
    addresses6 = (HOST6, NEIGHBOUR6, "fd00:c00b::2")
    tried = [f"mapped,{address},{PORT}" for address in addresses]
    for way in ("through_device", "through_index", "without_routes", "fast", "multipath"):
        tried += [f"{way},{address},{PORT}" for address in (*addresses, *addresses6)]
    assert attempts(connected, *tried) == []
    assert watch.reached() == set()


@pytest.mark.parametrize("how", ["plain", "through_device"])
def test_the_name_servers_address(connected: Project, watch: Watch, how: str) -> None:
    """The address of the name server leads to names only, whoever has it in the host's network."""
    assert attempts(connected, *(f"{how},10.0.2.3,{port}" for port in (PORT, LOOPBACK_PORT, 80))) == []
    attempts(connected, f"{how},10.0.2.3,53")
    assert watch.reached() == set()


def test_source_routes_and_groups(connected: Project, watch: Watch) -> None:
    """Source routes, broadcasts, multicast groups and link-local addresses lead nowhere."""
    ways = [f"by_source_route,{NEIGHBOUR},{PORT}", f"scoped,fe80::1,{PORT}", f"scoped,ff02::1,{PORT}"]
    ways += [f"broadcast,{address},{PORT}" for address in ("255.255.255.255", "192.168.77.255", "10.0.2.255")]
    ways += [f"through_device,{group},{PORT}" for group in ("224.0.0.1", "239.255.255.250", "224.0.0.251")]
    assert attempts(connected, *ways) == []
    assert watch.reached() == set()


# Sends datagrams over the loopback whose source routes lead on to an address; prints where they are seen.
AROUND = """
import socket, sys, time
link = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))  # ETH_P_ALL
link.settimeout(0.5)
for first in ("127.0.0.1", sys.argv[1]):
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.setsockopt(socket.IPPROTO_IP, 4, bytes([131, 7, 4]) + socket.inet_aton(first) + b"\\0")
    client.bind((sys.argv[1], 0))
    client.sendto(b"x", (sys.argv[2], 8080))
seen = set()
try:
    while True:
        data, source = link.recvfrom(2048)
        if data[0] == 0x47 and data[9] == 17:  # options of 8 bytes, and UDP
            seen.add(source[0])
except TimeoutError:
    print(*seen)
"""


def test_forwarding_inside(connected: Project, watch: Watch) -> None:
    """A sandbox whose network has got a router's settings from the host forwards nothing past its rules."""
    process = connected.popen("sh", "-c", "echo; read line", stdin=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.read(1) == b"\n"
    # With root's rights: some kernels let nobody else choose a source route.
    enter = ("nsenter", f"--target={descendants(process.pid)[-1]}", "--net", "--")

    def told(*argv: str) -> str:
        return subprocess.run([*enter, *argv], stdout=subprocess.PIPE, text=True, check=True).stdout

    names = ("ip_forward", "conf.all.accept_source_route", "conf.lo.accept_local", "conf.lo.forwarding")
    told("sysctl", "-qw", *(f"net.ipv4.{name}=1" for name in names))
    own = told("ip", "-4", "-oneline", "address", "show", "dev", "eth0").split()[3].partition("/")[0]
    assert told("/usr/bin/python3", "-Ic", AROUND, own, NEIGHBOUR) == "lo\n"
    assert watch.reached() == set()
    process.communicate(b"\n", timeout=30)


def test_names_of_local_addresses(connected: Project, watch: Watch) -> None:
    """A name that resolves to a local address leads there no more than the address."""
    names = ("neighbour.example.org", "metadata.example.org")
    assert attempts(connected, *(f"plain,{name},{PORT}" for name in names)) == []
    assert watch.reached() == set()


def test_the_rules_stay(connected: Project, watch: Watch) -> None:
    """The command can change neither rules, addresses and routes nor who connects it."""
    script = """
for try in "nft flush ruleset" "nft list ruleset" "ip address add 192.168.77.9/24 dev eth0" \
    "ip link set eth0 down" "ip route add 192.168.77.0/24 dev eth0" "ip link add dummy0 type dummy" \
    "ip neighbour add 10.0.2.9 lladdr 02:00:00:00:00:01 dev eth0" "sysctl -qw net.ipv4.ip_forward=1" \
    "unshare --user --map-root-user --net true" "nsenter --target 1 --net true"; do
    $try 2>/dev/null && echo "done: $try"
done
for process in /proc/[0-9]*; do cat $process/comm 2>/dev/null; done | sort -u
"""
    lines = connected.shell(script).out.splitlines()
    assert [line for line in lines if line.startswith("done")] == []
    assert not {"pasta", "pasta.avx2", "passt", "passt.avx2", "slirp4netns"} & set(lines)
    assert attempts(connected, f"plain,{NEIGHBOUR},{PORT}", f"through_device,{NEIGHBOUR},{PORT}") == []
    assert watch.reached() == set()


@pytest.mark.parametrize("number", [132, 33, 136, 41, 47, 1])
def test_other_protocols(connected: Project, number: int) -> None:
    """SCTP, DCCP, UDP-Lite, tunnels and raw packets to a neighbour cannot be had, or arrive nowhere."""
    script = f"""
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW, 6):
    try:
        client = socket.socket(socket.AF_INET, kind, {number})
        client.settimeout(3)
        client.connect(("{NEIGHBOUR}", {PORT}))
        client.send(b"x" * 16)
        print("sent", kind)
    except OSError:
        pass
"""
    assert connected.python(script).out == ""


LISTEN = """
import socket, sys, threading, time
addresses = set()
for family, somewhere in ((socket.AF_INET, "198.51.100.80"), (socket.AF_INET6, "2001:db8:80::80")):
    probe = socket.socket(family, socket.SOCK_DGRAM)
    try:
        probe.connect((somewhere, 9))
        addresses.add(probe.getsockname()[0])
    except OSError:
        pass
tcp = socket.create_server(("::", 9000), family=socket.AF_INET6, dualstack_ipv6=True)
udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
udp.bind(("::", 9000))
udp.sendto(b"x", ("::ffff:198.51.100.80", 8080))  # as if it were a client, whom answers reach
print("answer", udp.recv(9).decode())
print(*sorted(addresses), flush=True)

def serve(what, receive):
    while True:
        print(what, receive(), flush=True)

threading.Thread(target=serve, args=("tcp", lambda: tcp.accept()[1]), daemon=True).start()
threading.Thread(target=serve, args=("udp", lambda: udp.recvfrom(9)[1]), daemon=True).start()
sys.stdin.read()
"""


class Listening:
    """A sandbox that listens on port 9000 of all its addresses, over TCP and UDP."""

    def __init__(self, project: Project) -> None:
        self._process = project.popen("/usr/bin/python3", "-Ic", LISTEN, stdin=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"answer hello\n"
        self.addresses = self._process.stdout.readline().decode().split()

    def heard(self) -> str:
        """End it and return who came."""
        return self._process.communicate(timeout=30)[0].decode()


def test_other_sandboxes(connected: Project) -> None:
    """One sandbox cannot reach another, at its own addresses or at the host's."""
    listening = Listening(connected)
    own = [address for address in listening.addresses if not address.startswith(("10.0.2.", "fd00:c00b:"))]
    tried = [f"{way},{address},9000" for way in ("plain", "through_device") for address in (*own, *HOSTS)]
    assert attempts(connected, *tried) == []
    assert listening.heard() == ""


def test_from_outside(connected: Project, lab: Lab) -> None:
    """Nobody outside reaches what listens in the sandbox: no neighbour, and nobody through the host."""
    listening = Listening(connected)
    knock = """
import socket, sys
for address in sys.argv[2:]:
    for family in (socket.AF_INET6 if ":" in address else socket.AF_INET,):
        udp = socket.socket(family, socket.SOCK_DGRAM)
        udp.bind((sys.argv[1] if family == socket.AF_INET else "::", 0))
        try:
            udp.sendto(b"intruder", (address, 9000))
        except OSError:
            pass
        tcp = socket.socket(family)
        tcp.settimeout(1)
        try:
            tcp.connect((address, 9000))
            print("connected", address)
        except OSError:
            pass
"""
    targets = (*HOSTS, *(address for address in listening.addresses if not address.startswith("10.0.2.")))
    for holder, source in (
        (lab.world, NEIGHBOUR),
        (lab.world, METADATA),
        (lab.host, HOST),
        (lab.host, "127.0.0.1"),
    ):
        enter = ("nsenter", f"--target={holder.pid}", "--net", "--")
        done = subprocess.run(
            [*enter, "/usr/bin/python3", "-Ic", knock, source, *targets],
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
            check=True,
        )
        assert done.stdout == ""
    assert listening.heard() == ""


def test_strangers(connected: Project, lab: Lab) -> None:
    """A datagram of the sandbox's opens no door to strangers, of the internet neither."""
    listening = Listening(connected)
    shown = lab.run("ss", "--udp", "--all", "--numeric", "--no-header").splitlines()
    ports = {line.split()[3].rpartition(":")[2] for line in shown} - {str(PORT), str(LOOPBACK_PORT)}
    knock = """
import socket, sys
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind((sys.argv[1], 0))
for host in (sys.argv[2], sys.argv[3]):
    for port in sys.argv[4:]:
        udp.sendto(b"intruder", (host, int(port)))
"""
    enter = ("nsenter", f"--target={lab.world.pid}", "--net", "--")
    argv = [*enter, "/usr/bin/python3", "-Ic", knock, OTHER, HOST, HOST_PUBLIC, "9000", *sorted(ports)]
    subprocess.run(argv, timeout=60, check=True)
    assert listening.heard() == ""
