"""A small internet of network namespaces: the host that coop runs on, and the world around it.

Two namespaces and one cable. In ``host`` coop runs; it has a LAN address, a public one, an
uplink, and servers on all its addresses. In ``world`` is everybody else: the host's router and
LAN neighbours, servers of the internet, the cloud's metadata service, and a DNS server. Nothing
is connected to the machine's own network.

The namespaces have no names: they live as long as the processes that are in them, which the
kernel ends with the test run, however that ends.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandboxes import DEADLINE, NAMES, Actor, Project, Workshop, kill, wait_until

SERVER = Path(__file__).with_name("netserver.py")

HOST, ROUTER, NEIGHBOUR = "192.168.77.2", "192.168.77.1", "192.168.77.3"
HOST6, ROUTER6, NEIGHBOUR6 = "2001:db8:77::2", "2001:db8:77::1", "2001:db8:77::3"
HOST_PUBLIC, HOST_PUBLIC6 = "203.0.113.77", "2001:db8:cafe::77"
INTERNET, OTHER = "198.51.100.80", "203.0.113.80"
INTERNET6 = "2001:db8:80::80"
METADATA, METADATA6 = "169.254.169.254", "fd00:ec2::254"

# Everybody else's addresses that a sandbox must not reach, and what each stands for.
FORBIDDEN = {
    ROUTER: "the router",
    NEIGHBOUR: "a neighbour in the LAN",
    METADATA: "the metadata service",
    "10.9.8.7": "a private network",
    "172.20.1.1": "a private network",
    "100.64.7.7": "a carrier's network",
    "100.100.100.200": "a metadata service",
    "192.0.0.192": "a metadata service",
    "198.18.0.9": "a benchmark network",
    "240.1.2.3": "reserved addresses",
    ROUTER6: "the router, over IPv6",
    NEIGHBOUR6: "a neighbour with a public IPv6 address",
    METADATA6: "the metadata service, over IPv6",
    "fd12:3456:789a::1": "a private network, over IPv6",
    "fec0::9": "site-local addresses",
    "64:ff9b::c0a8:4d03": "the neighbour behind NAT64",
    "2002:c0a8:4d03::1": "the neighbour behind 6to4",
}
# The host's own, where its servers listen on every address.
HOSTS = (HOST, HOST_PUBLIC, HOST6, HOST_PUBLIC6)

# What sandboxes have for themselves is somebody else's in the LAN.
TAKEN = ("10.0.2.2", "10.0.2.3", "10.0.2.100")
_WORLD = (INTERNET, OTHER, INTERNET6, *FORBIDDEN, *TAKEN)

RESOLV_CONF = f"search corp.example.org\nnameserver {ROUTER}\n"
PORT = 8080  # every address of the world and of the host: greets over TCP and UDP
LOOPBACK_PORT = 8081  # the same on the host's loopback only
HTTP = 80  # the world: files
GREETING = "hello"


class Lab:
    """The namespaces, with servers that run; ``files`` is what the internet's web servers have."""

    def __init__(self, base: Path) -> None:
        self.files = base / "www"
        self.files.mkdir()
        self._resolv_conf = base / "resolv.conf"
        self.name_servers(RESOLV_CONF)
        self._log = base / "connections"
        self._log.touch()
        self._running: list[subprocess.Popen[bytes]] = []
        try:
            self.host = self._hold()
            self.world = self._hold()
            self._wire(self.world)
            self._serve(self.world, "world", str(HTTP), str(self.files))
            self._serve(self.host, "host")
            self._initial = self.state()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End everything; the kernel takes the namespaces apart."""
        for process in self._running:
            process.kill()
        for process in self._running:
            process.communicate(timeout=DEADLINE)

    @property
    def enter(self) -> tuple[str, ...]:
        """What starts a command on the lab's host, as root."""
        return ("nsenter", f"--target={self.host.pid}", "--net", "--mount", "--")

    @property
    def name_service(self) -> str:
        """The path of the file that is the resolv.conf of the lab's host."""
        return str(self._resolv_conf)

    def run(self, *argv: str) -> str:
        """Run a command on the lab's host as root; return its output."""
        done = subprocess.run(
            [*self.enter, *argv], stdout=subprocess.PIPE, text=True, timeout=DEADLINE, check=True
        )
        return done.stdout

    def connections(self) -> list[str]:
        """Return what was reached so far in the world and on the host: ``tcp ADDRESS PORT``, or ``udp``."""
        return self._log.read_text().splitlines()

    def name_servers(self, text: str) -> None:
        """Write the host's resolv.conf."""
        self._resolv_conf.write_text(text)

    def changes(self) -> dict[str, tuple[str, str]]:
        """Return what of the host's network is not as at first; waits a moment for it to be nothing."""

        def now() -> dict[str, tuple[str, str]]:
            state = self.state()
            return {key: (old, state[key]) for key, old in self._initial.items() if state[key] != old}

        wait_until(lambda: not now(), 15)
        return now()

    def end_visitors(self) -> None:
        """End what has come to the lab's host and is not its own: a helper of sessions stays a while."""
        own = self._initial["processes"].split()
        inode = os.stat(f"/proc/{self.host.pid}/ns/net").st_ino
        visitors = [pid for pid in os.listdir("/proc") if pid.isdigit() and _network(pid) == inode]
        kill(*(int(pid) for pid in visitors if pid not in own))

    def state(self) -> dict[str, str]:
        """Return what the host's network is made of, and who is in it."""
        inode = os.stat(f"/proc/{self.host.pid}/ns/net").st_ino
        members = [pid for pid in os.listdir("/proc") if pid.isdigit() and _network(pid) == inode]
        return {
            "interfaces": self.run("ip", "-oneline", "link"),
            "addresses": self.run("ip", "-oneline", "address"),
            "routes": self.run("ip", "route", "show", "table", "all"),
            "rules": self.run("ip", "rule"),
            "tables": self.run("nft", "list", "ruleset"),
            "forwarding": self.run("sysctl", "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"),
            "processes": " ".join(sorted(members)),
        }

    def _hold(self) -> subprocess.Popen[bytes]:
        """Start a process in a network and a mount namespace of its own."""
        process = subprocess.Popen(
            ["unshare", "--net", "--mount", "sh", "-c", "echo; exec sleep infinity"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            preexec_fn=_die_with_parent,
        )
        self._running.append(process)
        assert process.stdout is not None
        if process.stdout.read(1) != b"\n":
            pytest.skip("network namespaces cannot be made here, even as root")
        return process

    def _wire(self, world: subprocess.Popen[bytes]) -> None:
        # Addresses are there at once, not after a second of asking whether somebody has them.
        for holder in (world, self.host):
            enter = ("nsenter", f"--target={holder.pid}", "--net", "--")
            subprocess.run([*enter, "sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0"], check=True)
        _ip(
            world.pid,
            "link set lo up",
            f"link add uplink type veth peer name eth0 netns {self.host.pid}",
            "link set uplink up",
            *(
                f"addr add {address}/{128 if ':' in address else 32} dev lo{' nodad' * (':' in address)}"
                for address in _WORLD
                if address not in (ROUTER, ROUTER6, NEIGHBOUR6)
            ),
            f"addr add {ROUTER}/24 dev uplink",
            *(f"addr add {address}/64 dev uplink nodad" for address in (ROUTER6, NEIGHBOUR6)),
            f"route add {HOST_PUBLIC}/32 via {HOST}",
            f"route add {HOST_PUBLIC6}/128 via {HOST6}",
        )
        _ip(
            self.host.pid,
            "link set lo up",
            "link set eth0 up",
            f"addr add {HOST}/24 dev eth0",
            f"addr add {HOST_PUBLIC}/32 dev lo",
            f"addr add {HOST6}/64 dev eth0 nodad",
            f"addr add {HOST_PUBLIC6}/128 dev lo nodad",
            f"route add default via {ROUTER} dev eth0",
            f"route add default via {ROUTER6} dev eth0",
        )
        # What lets root's sandboxes out by the kernel alone; a host with Docker or libvirt has it so.
        self.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        self.run("mount", "--bind", str(self._resolv_conf), os.path.realpath("/etc/resolv.conf"))
        # A copy of the device that everybody may open, as distributions have it.
        self.run("mount", "-t", "tmpfs", "tmpfs", str(self.files))
        node = str(self.files / "tun")
        number = os.stat("/dev/net/tun").st_rdev
        self.run("mknod", "-m", "666", node, "c", str(os.major(number)), str(os.minor(number)))
        self.run("mount", "--bind", node, "/dev/net/tun")
        self.run("umount", "-l", str(self.files))

    def _serve(self, holder: subprocess.Popen[bytes], *arguments: str) -> None:
        argv = ["nsenter", f"--target={holder.pid}", "--net", "--", sys.executable, "-I", str(SERVER)]
        process = subprocess.Popen(
            [*argv, str(self._log), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            preexec_fn=_die_with_parent,
        )
        self._running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"


def _ip(pid: int, *commands: str) -> None:
    subprocess.run(
        ["nsenter", f"--target={pid}", "--net", "--", "ip", "-batch", "-"],
        input="\n".join(commands).encode(),
        check=True,
        timeout=DEADLINE,
    )


def _network(pid: str) -> int:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return 0


_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, which outlasts an exec


@pytest.fixture(scope="session")
def lab(workshop: Workshop) -> Iterator[Lab]:
    """Yield the lab; skips the tests where it cannot be built."""
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    for program in ("ip", "nft", "nsenter", "unshare"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    if not stat.S_ISCHR(os.stat("/dev/net/tun").st_mode):
        pytest.skip("this kernel has no tun device")
    base = workshop.base / "lab"
    base.mkdir()
    made = Lab(base)
    yield made
    made.close()


# Who runs coop, and what connects the sandbox: root without the right to configure the host's
# network (as in many containers) does as everybody else.
WAYS = [
    f"{name}-{means}"
    for name in NAMES
    for means in ("veth", "pasta", "slirp4netns")
    if name == "root" or means != "veth"
]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """Return who and by what means: ``root-veth``, ``user-pasta``, …"""
    return str(request.param)


@pytest.fixture
def connected(way: str, lab: Lab, workshop: Workshop) -> Iterator[Project]:
    """Yield a project on the lab's host whose sandboxes have the internet."""
    name, means = way.split("-")
    if means != "veth":
        skip_without(means)
    made = on_lab(lab, workshop.actor(name), means)
    made.coopfile('network.mode = "veth"\n')
    yield made
    made.close()


def skip_without(means: str) -> None:
    """Skip the test where a program is not there, or too old for coop."""
    program = shutil.which(means)
    if program is None:
        pytest.skip(f"{means} is not installed")
    if means == "pasta":
        told = subprocess.run([program, "--help"], capture_output=True, timeout=DEADLINE, check=False)
        if b"--map-guest-addr" not in told.stdout + told.stderr:
            pytest.skip("this pasta is from before 2024_08_21; put a newer one on PATH to test it")


def on_lab(lab: Lab, actor: Actor, means: str) -> Project:
    """Return a project of an actor's on the lab's host, who has only these means to connect a sandbox."""
    made = Project(actor)
    made.environment["COOP_SANDBOX_BACKEND"] = "native"
    less = ("setpriv", "--bounding-set=-net_admin") if means != "veth" and not actor.prefix else ()
    # Who enters a mount namespace stands at its root.
    made.unshared = (*lab.enter, "env", f"--chdir={made.directory}", *less, *actor.prefix)
    if means != "veth":
        programs = made.home / "programs"
        programs.mkdir()
        (programs / means).symlink_to(str(shutil.which(means)))
        made.wrap = ("/usr/bin/env", f"PATH={programs}")
    return made
