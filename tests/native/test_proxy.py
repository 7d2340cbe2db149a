"""network.mode = "proxy": what is listed and nothing else, for the programs people use."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.clients import CLIENTS, SCAN, tools
from tests.imaged import BUSYBOX, made
from tests.native.test_local_image import layout
from tests.native.test_veth import publish
from tests.netlab import INTERNET, NEIGHBOUR, PORT, Lab
from tests.proxylab import Secure, allow, proxy_of
from tests.sandboxes import Project, Workshop, descendants, kill, run, wait_gone, wait_until

pytestmark = pytest.mark.native

QUIET = "--max-time 30 -sS"
SITE = "four.example.org"

# Connections through both proxies at once; prints how many of them were answered.
MANY = """
import socket, struct, sys
count, host, port = int(sys.argv[1]), sys.argv[2].encode(), int(sys.argv[3])
held = []
for number in range(count):
    client = socket.create_connection(("127.0.0.1", 1080), timeout=60)
    request = b"\\x05\\x01\\x00\\x03" + bytes([len(host)]) + host + struct.pack(">H", port)
    client.sendall(b"\\x05\\x01\\x00" + request)
    held.append(client)
answered = 0
for client in held:
    wanted, data = 2 + 10 + 5, b""
    while len(data) < wanted and (piece := client.recv(wanted - len(data))):
        data += piece
    answered += data[2:4] == b"\\x05\\x00" and data.endswith(b"hello")
print(answered)
"""


@pytest.fixture(autouse=True)
def _served(lab: Lab) -> None:
    publish(lab)


def test_plain(proxied: Project) -> None:
    """A listed host is reached over plain HTTP by name, and its answer comes as it is."""
    assert proxied.output(f"curl {QUIET} http://{SITE}/served/plain.txt") == "text"


def test_secure(proxied: Project, secure: Secure) -> None:
    """A listed host is reached over HTTPS, by CONNECT and by SOCKS, on the ports that are listed."""
    proxied.write("ca.pem", secure.certificate.read_bytes())
    for options in ("", "--noproxy '' --proxy socks5h://127.0.0.1:1080"):
        for site in (SITE, f"{SITE}:8443"):
            script = f"curl {QUIET} {options} --cacert ca.pem https://{site}/served/plain.txt"
            assert proxied.output(script) == "text"


def test_tools(proxied: Project, secure: Secure) -> None:
    """git and pip fetch over HTTPS without being told of the proxy."""
    proxied.write("ca.pem", secure.certificate.read_bytes())
    url = f"https://{SITE}/served"
    clone = f"GIT_SSL_CAINFO=$PWD/ca.pem git clone -q {url}/project.git /tmp/clone && cat /tmp/clone/file"
    assert proxied.output(clone) == "text"
    quiet = "-q --no-cache-dir --disable-pip-version-check --cert ca.pem"
    result = proxied.shell(
        f"/usr/bin/python3 -m pip install {quiet} --index-url {url}/simple --target /tmp/lib parcel"
        " && cat /tmp/lib/parcel.py"
    )
    if "No module named pip" in result.err:
        pytest.skip("this host's Python has no pip")
    assert result.out == "value = 1\n", result


def test_what_people_fetch(proxied: Project, lab: Lab) -> None:
    """With two lines, curl, git, pip, npm and apt fetch, and a scan finds nothing of host and network."""
    allow(proxied, SITE, "*.example.net:443")
    before = len(lab.connections())
    result = proxied.shell(f"{CLIENTS}\n/usr/bin/python3 -Ic '{SCAN}'")
    assert result.out.split() == [*tools(), "found:"], result
    reached = {tuple(line.split()[1:]) for line in lab.connections()[before:] if line.startswith("tcp")}
    assert reached <= {(INTERNET, "80")}


def test_python(proxied: Project) -> None:
    """Python's own client takes the proxy, and sends a body with a length."""
    script = """
import urllib.request
print(urllib.request.urlopen("http://four.example.org/served/plain.txt", timeout=30).read())
"""
    assert proxied.python(script).out == "b'text\\n'\n"


def test_ssh_like(proxied: Project) -> None:
    """What is not TLS passes to a listed port that is not 443, whoever speaks first."""
    script = f"curl {QUIET} --proxytunnel http://{SITE}:{PORT}/ --http0.9 --max-time 3; true"
    assert "hello" in proxied.output(script)


def test_blocked(proxied: Project, lab: Lab) -> None:
    """What is not listed is not asked for, and answer, notes and `coop log` say so."""
    before = len(lab.connections())
    result = proxied.shell(
        f"curl {QUIET} http://www.example.org/; curl {QUIET} https://www.example.org/;"
        f" curl {QUIET} --noproxy '' -x socks5h://127.0.0.1:1080 http://www.example.org:81/; true"
    )
    assert "www.example.org:80 is blocked by network.allow in Coopfile:1; " in result.out
    assert "allowed: *.wild.example.org, four.example.org" in result.out
    for port in (80, 443, 81):
        assert f"coop: www.example.org:{port} is blocked by network.allow" in result.err
    assert "403" in result.err and "(2)" in result.err
    assert lab.connections()[before:] == []
    logged = json.loads(proxied.coop("log", "--denied", "--json").out)
    assert [(entry["host"], entry["port"]) for entry in logged] == [
        ("www.example.org", 80),
        ("www.example.org", 443),
        ("www.example.org", 81),
    ]
    assert all(entry["time"].endswith("Z") for entry in logged)
    for options in (
        ("--denied", "--last", "1"),
        ("--port", "81"),
        ("--host", "*.EXAMPLE.org", "--port", "81"),
    ):
        lines = proxied.coop("log", *options).out.splitlines()
        assert len(lines) == 1 and "www.example.org:81 is blocked" in lines[0]
    assert proxied.coop("log", "--host", "four.*").out == "nothing was blocked\n"
    assert len(proxied.coop("log", "--denied", "--since", "1h").out.splitlines()) == 3


def test_what_a_model_reads(proxied: Project) -> None:
    """The reason is in what programs show of a tunnel that is refused, and the proxy tells it when asked."""
    script = """
import urllib.request
try:
    urllib.request.urlopen("https://www.example.org/", timeout=30)
except OSError as error:
    print(error)
print(urllib.request.urlopen("http://127.0.0.1:3128/", timeout=30).read().decode())
"""
    said = proxied.python(script).out
    assert "403 Blocked by network.allow in Coopfile:1; allowed: *.wild.example.org, four.example.org" in said
    assert "Allowed by network.allow in Coopfile:1: *.wild.example.org, four.example.org" in said
    assert "Z  www.example.org:443 is blocked by network.allow in Coopfile:1; " in said
    answer = proxied.output("curl -sS --max-time 30 -v -p http://www.example.org/ 2>&1; true")
    assert 'Proxy-Status: coop; error=http_request_denied; details="www.example.org:80 is blocked' in answer


def test_own_settings_are_not_told(proxied: Project) -> None:
    """What the user's own file lists is told as such, and neither its place nor its name."""
    own = proxied.home / ".config" / "coop"
    own.mkdir(parents=True, exist_ok=True)
    (own / "Coopfile").write_text('network.allow = ["mine.example.org"]\n')
    said = proxied.output(f"curl {QUIET} http://www.example.org/; true")
    assert "by network.allow in" in said and "your settings" in said
    assert str(proxied.home) not in said and ".config" not in said


@pytest.fixture
def sessions(proxied: Project, lab: Lab) -> Iterator[Project]:
    """Yield a project with sessions, which leave a helper that waits for others."""
    yield proxied
    lab.end_visitors()


def test_sessions(sessions: Project) -> None:
    """`coop exec` tells of what was blocked while its command ran, and of nothing else."""
    for host in ("one", "two"):
        words = ("curl", *QUIET.split(), f"http://{host}.example.org/")
        start = ("run", "--session", "s") if host == "one" else ("exec", "s")
        told = sessions.coop(*start, "--", *words).err.splitlines()
        lines = [line for line in told if "blocked" in line]
        assert len(lines) == 1 and lines[0].startswith(f"coop: {host}.example.org:80 is blocked by"), told
        assert "in Coopfile:1" in lines[0]
    assert "blocked" not in sessions.coop("exec", "s", "--", "true").err
    assert len(sessions.coop("log", "--session", "s").out.splitlines()) == 2
    assert sessions.coop("rm", "s").status == 0


def test_python_results(sessions: Project, workshop: Workshop) -> None:
    """A result of the Python API has what was blocked meanwhile, also on an event loop."""
    words = ("curl", *QUIET.split())
    script = f"""
import sys; sys.path.insert(0, sys.argv.pop(1))
import asyncio, coopfile
with coopfile.Session(coopfile.compile()) as session:
    for run in (session.exec, lambda argv: asyncio.run(session.exec_async(argv))):
        for url in ("http://a.example.org/", "http://{SITE}/served/plain.txt"):
            result = run([*{words!r}, url])
            for denial in result.denials:
                print(denial.host, denial.port, denial.time.endswith("Z"), "in Coopfile:1;" in denial.text)
            print(len(result.denials))
"""
    python = (sessions.actor.coop[0], "-I", "-W", "error", "-c", script, str(workshop.library))
    command = [*sessions.unshared, *sessions.wrap, *python]
    result = run(command, b"", sessions.directory, sessions.environment)
    assert result.out.splitlines() == ["a.example.org 80 True True", "1", "0"] * 2, result


def test_refused_requests_are_logged(proxied: Project) -> None:
    """Requests that the proxy does not take are listed too, with their hosts where those are known."""
    chunks = "-H 'Transfer-Encoding: chunked' -d x"
    result = proxied.shell(
        f"curl {QUIET} {chunks} http://{SITE}/; curl {QUIET} --proxytunnel {chunks} http://{SITE}/; true"
    )
    logged = json.loads(proxied.coop("log", "--denied", "--json").out)
    assert [(entry["host"], entry["port"]) for entry in logged] == [("", 0), (SITE, 80)]
    for entry in logged:
        assert "refused: send a Content-Length" in entry["text"] and entry["text"] in result.err


def test_same_verdict(proxied: Project) -> None:
    """The proxy and `coop why` agree, item for item."""
    for target in ("four.example.org:80", "four.example.org:8443", "four.example.org:22", "example.org:443"):
        said = proxied.coop("why", "connect", target).status == 0
        result = proxied.shell(f"curl {QUIET} --proxytunnel http://{target}/ -o /dev/null")
        assert ("response 403" not in result.err) == said, (target, result)


def test_empty_list(proxied: Project, lab: Lab) -> None:
    """With an empty list nothing passes."""
    allow(proxied)
    before = len(lab.connections())
    result = proxied.shell(f"curl {QUIET} http://{SITE}/; curl {QUIET} http://{INTERNET}/; true")
    assert result.out.count("allowed: nothing") == 2
    assert lab.connections()[before:] == []


def test_address(proxied: Project, lab: Lab) -> None:
    """An address that is listed may be a neighbour's; by a name it is reached then, too."""
    allow(proxied, f"{NEIGHBOUR}:{PORT}", f"neighbour.example.org:{PORT}")
    for host in (NEIGHBOUR, "neighbour.example.org"):
        before = len(lab.connections())
        proxied.shell(f"curl {QUIET} -o /dev/null --http0.9 --max-time 3 -p http://{host}:{PORT}/")
        assert f"tcp {NEIGHBOUR} {PORT}" in lab.connections()[before:]


def test_loopback(proxied: Project) -> None:
    """The sandbox's own loopback is reached past the proxy, and there is no other interface or resolver."""
    script = """
import os, socket, urllib.request, threading, http.server
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.handle_request).start()
print(urllib.request.urlopen(f"http://localhost:{server.server_port}/").status)
print(*[name for _, name in socket.if_nameindex()])
"""
    result = proxied.python(script)
    assert result.out == "200\nlo\n", result


def test_many_at_once(proxied: Project) -> None:
    """A thousand connections at once are all served."""
    assert proxied.python(MANY, "1000", SITE, str(PORT)).out == "1000\n"


def test_large(proxied: Project, lab: Lab) -> None:
    """What is large arrives whole, both over plain HTTP and through a tunnel."""
    size = 32 << 20
    large = lab.files / "large"
    if not large.exists():
        large.write_bytes(os.urandom(1 << 20) * 32)
    for options in ("", "--proxytunnel"):
        script = f"curl {QUIET} {options} http://{SITE}/large | sha256sum; true"
        assert proxied.output(script).split()[0] == hashlib.sha256(large.read_bytes()).hexdigest()
    assert size == large.stat().st_size


def _status(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/status") as file:
        return dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)


@pytest.mark.parametrize("how", ["end", "kill coop", "kill the monitor", "kill all"])
def test_nothing_left(proxied: Project, lab: Lab, how: str) -> None:
    """However a run ends, the proxy ends with it, and nothing of the host's network has changed."""
    process = proxied.popen("sh", "-c", f"echo; {'sleep 0' if how == 'end' else 'sleep 60'}")
    assert process.stdout is not None and process.stdout.read(1) == b"\n"
    below = descendants(process.pid)
    if how == "kill coop":
        process.kill()
    elif how == "kill the monitor":
        os.kill(below[0], signal.SIGKILL)
    elif how == "kill all":
        kill(process.pid, *below)
    process.wait(30)
    assert wait_gone(below), below
    assert lab.changes() == {}


def test_killed_proxy(proxied: Project) -> None:
    """When the proxy is killed nothing is reached any more."""
    process = proxied.popen(
        "sh", "-c", f"echo; read x; curl {QUIET} http://{SITE}/served/plain.txt", stdin=-1
    )
    assert process.stdout is not None and process.stdin is not None and process.stdout.read(1) == b"\n"
    found = proxy_of(process.pid)
    assert len(found) == 1
    os.kill(found[0], signal.SIGKILL)
    assert wait_gone(found)
    out, err = process.communicate(b"\n", timeout=60)
    assert (process.returncode, out) == (7, b""), err  # curl(1): failed to connect to host


def test_large_stacks(proxied: Project) -> None:
    """A caller's large limit for stacks does not keep the proxy from having threads that resolve."""
    proxied.wrap = ("/bin/sh", "-c", 'ulimit -s 1048576; exec "$@"', "sh")
    result = proxied.run("curl", *QUIET.split(), f"http://{SITE}/served/plain.txt")
    assert result.status == 0, result


def test_locked_in(proxied: Project) -> None:
    """The proxy has no capability, cannot gain one, and holds nothing open of the caller's."""
    theirs, ours = os.pipe()
    number = os.fstat(ours).st_ino
    process = proxied.popen("sh", "-c", "echo; sleep 60", pass_fds=(ours,))
    try:
        assert process.stdout is not None and process.stdout.read(1) == b"\n"
        (proxy,) = proxy_of(process.pid)
        assert wait_until(lambda: _status(proxy)["Seccomp"] == "2")
        status = _status(proxy)
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
        assert status["NoNewPrivs"] == "1"
        held = [os.readlink(f"/proc/{proxy}/fd/{name}") for name in os.listdir(f"/proc/{proxy}/fd")]
        assert f"pipe:[{number}]" not in held
    finally:
        os.close(theirs)
        os.close(ours)


def test_variables(proxied: Project) -> None:
    """The variables lead to the proxy, [env] goes over them, and `coop why` knows of both."""
    text = proxied.output("env")
    assert "https_proxy=http://127.0.0.1:3128" in text and "NO_PROXY=localhost,127.0.0.1,::1" in text
    result = proxied.coop("why", "env", "HTTPS_PROXY")
    assert result.status == 0 and "network.mode" in result.out
    options = ("--set", "env.all_proxy=socks5h://127.0.0.1:1080")
    assert "all_proxy=socks5h://" in proxied.output("env", options=options)


@pytest.mark.parametrize(
    ("host", "status", "said"),
    [(SITE, 0, "text"), ("www.example.org", 125, "www.example.org:80 is blocked by network.allow")],
)
@pytest.mark.skipif(not BUSYBOX.exists(), reason="busybox-static is not installed")
def test_build(proxied: Project, host: str, status: int, said: str) -> None:
    """While an image is built, setup.network = "proxy" leads to the same list."""
    layout(proxied, app=made("one"))
    fetch = f"busybox wget -q -O /fetched http://{host}/served/plain.txt"
    proxied.coopfile(
        f'base.image = "oci:images/base"\n[setup]\nrun = ["{fetch}"]\nnetwork = "proxy"\n'
        f'[network]\nallow = ["{SITE}"]\n'
    )
    result = proxied.coop("init")
    assert result.status == status, result
    text = proxied.output("cat /fetched") if status == 0 else result.err
    assert said in text


def test_as_oneself(proxied: Project) -> None:
    """With the caller's own uid inside there is the same proxy."""
    options = ("--set", "session.user=me")
    assert proxied.output(f"curl {QUIET} http://{SITE}/served/plain.txt", options=options) == "text"
