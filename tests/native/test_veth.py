"""network.mode = "veth": the internet and names, by every means there is, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Iterator

import pytest

from coopfile.plan.endpoints import NAMESERVER
from tests.clients import CLIENTS, SCAN, publish_for_apt, publish_for_npm, tools
from tests.imaged import BUSYBOX
from tests.native.test_local_image import archive
from tests.netlab import (
    FORBIDDEN,
    HOSTS,
    HTTP,
    INTERNET,
    INTERNET6,
    NEIGHBOUR,
    PORT,
    RESOLV_CONF,
    Lab,
    on_lab,
)
from tests.sandboxes import Project, Workshop, descendants, kill, wait_gone, wait_until

pytestmark = pytest.mark.native

AT_ONCE = 10  # sandboxes

FETCH = """
import socket, sys
kind = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}[sys.argv[1]]
host, port = sys.argv[2:]
for family, _, _, _, address in socket.getaddrinfo(host, int(port), type=kind):
    client = socket.socket(family, kind)
    client.settimeout(20)
    client.connect(address)
    client.send(b"x")
    print(address[0], client.recv(9).decode())
"""


def ipv6(way: str) -> bool:
    """Tell whether a means has IPv6; slirp4netns's is experimental."""
    return not way.endswith("slirp4netns")


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_internet(connected: Project, way: str, protocol: str) -> None:
    """Servers of the internet answer over TCP and UDP, by IPv4 and IPv6."""
    for address in (INTERNET, INTERNET6) if ipv6(way) else (INTERNET,):
        result = connected.python(FETCH, protocol, address, str(PORT))
        assert result.out == f"{address} hello\n", result


# In a mount namespace like the one that systemd gives a machine: all is shared, and /tmp is a mount.
_SHARED = """
mount --bind /tmp /tmp && mount --make-rshared / || exit 3
before=$(cat /proc/self/mountinfo)
"$@"
status=$?
[ "$(cat /proc/self/mountinfo)" = "$before" ] || echo "mounts have changed" >&2
exit $status
"""


def test_mounts_of_the_host(connected: Project, lab: Lab) -> None:
    """Where mounts are shared, what a helper unmounts in a namespace of its own stays on the host."""
    inside = connected.unshared[len(lab.enter) :]
    connected.unshared = (*lab.enter, "unshare", "--mount", "sh", "-c", _SHARED, "sh", *inside)
    result = connected.python(FETCH, "tcp", INTERNET, str(PORT))
    assert result.out == f"{INTERNET} hello\n" and "mounts have changed" not in result.err, result
    status = connected.coop("status")
    assert "mounts have changed" not in status.err, status


def test_means(connected: Project, way: str, lab: Lab) -> None:
    """The sandbox is connected by what was asked for, else this file tests something else."""
    process = connected.popen("sh", "-c", "echo; sleep 60")
    assert process.stdout is not None
    process.stdout.read(1)
    programs = set(filter(None, map(helper_of, descendants(process.pid))))
    assert {name.split(".")[0].replace("passt", "pasta") for name in programs} == {way.split("-")[1]} - {
        "veth"
    }


def test_names(connected: Project, way: str) -> None:
    """Names are resolved, those that do not exist are not, and the host's search list stays outside."""
    result = connected.python(FETCH, "tcp", "www.example.org", str(PORT))
    expected = {f"{INTERNET} hello", f"{INTERNET6} hello"} if ipv6(way) else {f"{INTERNET} hello"}
    assert expected <= set(result.out.splitlines()), result
    script = "import socket; socket.getaddrinfo('nobody.example.org', 1)"
    assert "gaierror" in connected.python(script).err
    text = connected.output("cat /etc/resolv.conf")
    assert "corp" not in text and "search" not in text and text.startswith("nameserver ")


def test_as_oneself(connected: Project, way: str) -> None:
    """With the caller's own uid inside there is the internet too, or it is said who needs root inside."""
    result = connected.python(FETCH, "tcp", INTERNET, str(PORT), options=("--set", "session.user=me"))
    if way == "user-slirp4netns":
        assert result.status == 125 and 'session.user = "root"' in result.err
    else:
        assert result.out == f"{INTERNET} hello\n", result


@pytest.fixture
def own_resolver(lab: Lab) -> Iterator[None]:
    """Let the lab's host ask a server on its own loopback, as with dnsmasq or unbound."""
    lab.name_servers("nameserver 127.0.0.1\n")
    yield
    lab.name_servers(RESOLV_CONF)


@pytest.mark.usefixtures("own_resolver")
def test_names_from_the_hosts_loopback(connected: Project) -> None:
    """A name server that only the host itself can ask is asked on the sandbox's behalf."""
    result = connected.python(FETCH, "tcp", "four.example.org", str(PORT))
    assert result.out == f"{INTERNET} hello\n", result


def test_loopback(connected: Project) -> None:
    """The sandbox has a loopback of its own, over IPv4 and IPv6."""
    script = """
import socket
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    server = socket.create_server((address, 0), family=family)
    socket.create_connection(server.getsockname()[:2], timeout=5).sendall(b"x")
    print(server.accept()[0].recv(1))
"""
    assert connected.python(script).out == "b'x'\nb'x'\n"


@pytest.mark.skipif(not BUSYBOX.exists(), reason="busybox-static is not installed")
def test_images(connected: Project) -> None:
    """Set-up commands and runs on an image have the internet and its names, and not the LAN."""
    archive(connected, "image.tar", "one")
    server, neighbour = (f"echo | /bin/busybox nc -w 20 {host} {PORT}" for host in (INTERNET, NEIGHBOUR))
    connected.coopfile(
        'base.image = "docker-archive:image.tar"\nnetwork.mode = "veth"\n'
        f"[setup]\nrun = ['{server} > /greeted', '! {neighbour}', 'cat /etc/resolv.conf > /asked']\n"
    )
    built = connected.coop("init")
    assert built.status == 0, built
    script = f"cat /greeted; {server}; {neighbour} || echo none; cat /asked /etc/resolv.conf"
    servers = f"nameserver {NAMESERVER}\noptions edns0\n"
    assert connected.output(script) == f"hellohellonone\n{servers}{servers}".rstrip()


def test_tools(connected: Project, lab: Lab) -> None:
    """curl, git and pip fetch from servers of the internet, by name."""
    publish(lab)
    url = f"http://four.example.org:{HTTP}/served"
    assert connected.output(f"curl -fsS --max-time 30 {url}/plain.txt") == "text"
    assert connected.output(f"git clone -q {url}/project.git /tmp/clone && cat /tmp/clone/file") == "text"
    quiet = "-q --no-cache-dir --disable-pip-version-check"
    source = f"--index-url {url}/simple --trusted-host four.example.org"
    result = connected.shell(
        f"/usr/bin/python3 -m pip install {quiet} {source} --target /tmp/lib parcel && cat /tmp/lib/parcel.py"
    )
    if "No module named pip" in result.err:
        pytest.skip("this host's Python has no pip")
    assert result.out == "value = 1\n", result


def publish(lab: Lab) -> None:
    """Put a file, a repository and a Python package on the internet, unless they are there."""
    served = lab.files / "served"
    if served.exists():
        return
    package = served / "simple/parcel"
    package.mkdir(parents=True)
    (served / "plain.txt").write_text("text\n")
    with zipfile.ZipFile(package / "parcel-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("parcel.py", "value = 1\n")
        wheel.writestr("parcel-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: parcel\nVersion: 1\n")
        wheel.writestr(
            "parcel-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(
            "parcel-1.dist-info/RECORD",
            "parcel.py,,\nparcel-1.dist-info/METADATA,,\nparcel-1.dist-info/WHEEL,,\n",
        )
    publish_for_npm(served / "npm")
    publish_for_apt(served / "apt")
    work = lab.files / "work"
    work.mkdir()
    (work / "file").write_text("text\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(work), "GIT_CONFIG_NOSYSTEM": "1"}
    author = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org")
    for arguments in (
        ("init", "-q"),
        ("add", "file"),
        (*author, "commit", "-qm", "first"),
        ("clone", "-q", "--bare", ".", str(served / "project.git")),
        ("--git-dir", str(served / "project.git"), "update-server-info"),
    ):
        subprocess.run(["git", *arguments], cwd=work, env=environment, check=True, timeout=60)


def test_what_people_fetch(connected: Project, lab: Lab) -> None:
    """curl, git, pip, npm and apt fetch, in the sandbox in which a scan finds nothing of host and network."""
    publish(lab)
    before = len(lab.connections())
    result = connected.shell(f"{CLIENTS}\n/usr/bin/python3 -Ic '{SCAN}'")
    done, _, found = result.out.partition("found:")
    assert done.split() == tools(), result
    assert found.count("(") == found.count(INTERNET) == 3, result
    reached = {line.split()[1] for line in lab.connections()[before:] if line.startswith("tcp")}
    assert INTERNET in reached and not reached & {*FORBIDDEN, *HOSTS}


def test_many_at_once(connected: Project) -> None:
    """Sandboxes that run at the same time do not get in each other's way."""
    running = [
        connected.popen("/usr/bin/python3", "-Ic", FETCH, "tcp", "four.example.org", str(PORT))
        for _ in range(AT_ONCE)
    ]
    for process in running:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out) == (0, f"{INTERNET} hello\n".encode()), err


@pytest.mark.parametrize("how", ["end", "kill coop", "kill the monitor", "kill all"])
def test_nothing_left(connected: Project, lab: Lab, how: str) -> None:
    """However a run ends: no process, interface, address, route, rule or setting of the host's is left."""
    end = "sleep 0" if how == "end" else "sleep 60"
    process = connected.popen("sh", "-c", f"echo; {end}")
    assert process.stdout is not None and process.stdout.read(1) == b"\n"
    below = descendants(process.pid)
    if how == "kill coop":
        process.kill()
    elif how == "kill the monitor":
        os.kill(below[0], signal.SIGKILL)
    elif how == "kill all":
        # From the last: pasta, slirp4netns and whatever holds rules are left to the kernel alone.
        helpers = [pid for pid in below if helper_of(pid)]
        kill(process.pid, *(pid for pid in below if pid not in helpers))
    process.wait(30)
    assert wait_gone(below), below
    assert lab.changes() == {}


def helper_of(pid: int) -> str:
    """Return the name of the program that a process is if it connects a sandbox, else nothing."""
    try:
        name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""
    return name if name.startswith(("passt", "slirp4netns")) else ""


@pytest.mark.parametrize("what", ["address", "route"])
def test_roaming(connected: Project, lab: Lab, what: str) -> None:
    """When the host joins a network that the sandbox could reach, the sandbox is cut off, and else not."""
    script = f"""
import socket, sys
for _ in sys.stdin:
    try:
        print(socket.create_connection(("{INTERNET}", {PORT}), 5).recv(9), flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"""
    process = connected.popen("/usr/bin/python3", "-Ic", script, stdin=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None

    def tried() -> bytes:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        return process.stdout.readline()

    private, public = "10.66.0.1/24", "2001:db8:99::5/64"
    lab.run("ip", "address", "add", private, "dev", "lo")
    try:
        assert [tried() for _ in range(3)] == [b"b'hello'\n"] * 3
        if what == "address":
            lab.run("ip", "address", "add", public, "dev", "lo")
        else:
            lab.run("ip", "route", "add", "2001:db8:99::/64", "dev", "eth0")
        assert wait_until(lambda: tried() != b"b'hello'\n", 30)
    finally:
        lab.run("ip", "address", "flush", "dev", "lo", "to", private)
        lab.run("ip", "address", "flush", "dev", "lo", "to", public)
        lab.run("ip", "-6", "route", "flush", "2001:db8:99::/64")


def test_descriptors(connected: Project) -> None:
    """What connects the sandbox has none of the descriptors that the caller has open."""
    theirs, ours = os.pipe()
    number = os.fstat(ours).st_ino
    process = connected.popen("sh", "-c", "echo; sleep 60", pass_fds=(ours,))
    try:
        assert process.stdout is not None and process.stdout.read(1) == b"\n"
        for pid in filter(helper_of, descendants(process.pid)):
            held = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
            assert f"pipe:[{number}]" not in held
    finally:
        os.close(theirs)
        os.close(ours)


@pytest.fixture
def unprivileged(lab: Lab, workshop: Workshop) -> Iterator[Project]:
    """Yield a project of the unprivileged user's on the lab's host, without the internet yet."""
    made = on_lab(lab, workshop.actor("user"), "veth")
    made.coopfile('network.mode = "veth"\n')
    yield made
    made.close()


def test_no_device(unprivileged: Project) -> None:
    """Where the tun device is not for everybody, as on the machine itself, that is what is said."""
    if shutil.which("pasta") is None and shutil.which("slirp4netns") is None:
        pytest.skip("neither pasta nor slirp4netns is installed")
    hide = (
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs none /dev/net && mknod -m 600 /dev/net/tun c 10 200 && exec "$@"',
        "sh",
    )
    at = unprivileged.unshared.index("--") + 1
    unprivileged.unshared = (*unprivileged.unshared[:at], *hide, *unprivileged.unshared[at:])
    result = unprivileged.run("true")
    assert result.status == 125, result
    assert "/dev/net/tun cannot be opened" in result.err and "chmod 0666 /dev/net/tun" in result.err


def test_no_program(unprivileged: Project) -> None:
    """Without pasta and slirp4netns the package to install is named."""
    unprivileged.wrap = ("/usr/bin/env", "PATH=/nonexistent")
    result = unprivileged.run("true")
    assert result.status == 125, result
    assert "neither pasta nor slirp4netns" in result.err and "install the package passt" in result.err


def test_no_program_for_a_build(unprivileged: Project) -> None:
    """That a stage could not be built is said before its image is fetched."""
    unprivileged.wrap = ("/usr/bin/env", "PATH=/nonexistent")
    unprivileged.coopfile(f'base.image = "127.0.0.1:1/a@sha256:{"0" * 64}"\nsetup.run = ["true"]\n')
    result = unprivileged.coop("init")
    assert result.status == 125 and 'setup.network = "veth": there is neither pasta' in result.err, result
    assert 'setup.network = "host"' in result.err


@pytest.mark.parametrize("where", ["workspace", "link"])
def test_program_within_reach(unprivileged: Project, where: str) -> None:
    """A program that a sandboxed command could have put on PATH is not started outside."""
    programs = unprivileged.mkdir("programs")
    unprivileged.write("programs/pasta", "#!/bin/sh\ntouch /tmp/taken\n", 0o755)
    path = str(programs)
    if where == "link":
        outside = unprivileged.actor.directory("path")
        (outside / "pasta").symlink_to(programs / "pasta")
        path = str(outside)
    unprivileged.wrap = ("/usr/bin/env", f"PATH={path}")
    result = unprivileged.run("true")
    assert result.status == 125 and "neither pasta nor slirp4netns" in result.err, result


def test_old_program(unprivileged: Project) -> None:
    """A pasta that does not know what is asked of it gives way to slirp4netns, else it is said."""
    programs = unprivileged.home / "programs"
    programs.mkdir()
    old = programs / "pasta"
    old.write_text("#!/bin/sh\necho \"pasta: unrecognized option '--ns-ifname=eth0'\" >&2\nexit 1\n")
    old.chmod(0o755)
    unprivileged.wrap = ("/usr/bin/env", f"PATH={programs}:/usr/bin")
    (programs / "slirp4netns").symlink_to("/nonexistent")
    unprivileged.wrap = ("/usr/bin/env", f"PATH={programs}")
    result = unprivileged.run("true")
    assert result.status == 125, result
    assert "is too old" in result.err and "install" in result.err
    (programs / "slirp4netns").unlink()
    if slirp := shutil.which("slirp4netns"):
        (programs / "slirp4netns").symlink_to(slirp)
        assert unprivileged.python(FETCH, "tcp", INTERNET, str(PORT)).out == f"{INTERNET} hello\n"


def test_no_name_server(unprivileged: Project, lab: Lab) -> None:
    """A host that names no server is refused: pasta would ask whoever listens on its loopback."""
    lab.name_servers("# nobody\n")
    try:
        result = unprivileged.run("true")
    finally:
        lab.name_servers(RESOLV_CONF)
    assert result.status == 125 and "names no server" in result.err, result
