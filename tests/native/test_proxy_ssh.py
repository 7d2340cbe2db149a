"""git over SSH in proxy mode: a real server, and every program that people lead ssh through a proxy with."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.test_veth import publish
from tests.netlab import INTERNET, Lab, _die_with_parent
from tests.proxylab import Secure, allow
from tests.sandboxes import DEADLINE, Project, run, wait_until

pytestmark = pytest.mark.native

SITE = "four.example.org"
HTTP, SOCKS = "127.0.0.1:3128", "127.0.0.1:1080"
# As README.md has them, and over SOCKS.
THROUGH = {
    "nc": f"nc.openbsd -X connect -x {HTTP} %h %p",
    "nc, SOCKS": f"nc.openbsd -X 5 -x {SOCKS} %h %p",
    "ncat": f"ncat --proxy {HTTP} --proxy-type http %h %p",
    "ncat, SOCKS": f"ncat --proxy {SOCKS} --proxy-type socks5 --proxy-dns remote %h %p",
    "socat": "socat - PROXY:127.0.0.1:%h:%p,proxyport=3128",
    "connect-proxy": f"connect-proxy -H {HTTP} %h %p",
    "connect-proxy, SOCKS": f"connect-proxy -S {SOCKS} -R remote %h %p",
}
_CONFIG = """
Port 22
ListenAddress {address}
HostKey {base}/host
AuthorizedKeysFile {base}/key.pub
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PidFile none
"""


class Server:
    """sshd at INTERNET, and the key that it takes."""

    def __init__(self, lab: Lab, base: Path) -> None:
        self.base = base
        for name in ("host", "key"):
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(base / name)]
            subprocess.run(argv, check=True, timeout=DEADLINE, stdin=subprocess.DEVNULL)
        config = base / "config"
        config.write_text(_CONFIG.format(address=INTERNET, base=base))
        # It wants a directory of its own in /run, which the machine may not have.
        script = 'mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec /usr/sbin/sshd -D -e -f "$0"'
        world = ("nsenter", f"--target={lab.world.pid}", "--net", "--")
        self.process = subprocess.Popen(
            [*world, "unshare", "--mount", "sh", "-c", script, str(config)],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=_die_with_parent,
        )
        listens = [*world, "ss", "-Hltn", "sport", "=", ":22"]
        if not wait_until(lambda: run(listens, b"", base, {"PATH": "/usr/sbin:/usr/bin:/bin"}).out):
            raise AssertionError(self.close())

    def close(self) -> bytes:
        """End it; return what it said."""
        self.process.kill()
        return self.process.communicate(timeout=DEADLINE)[1]


@pytest.fixture
def server(lab: Lab, tmp_path: Path) -> Iterator[Server]:
    """Yield an SSH server with the lab's repositories."""
    if not Path("/usr/sbin/sshd").exists():
        pytest.skip("there is no sshd: openssh-server")
    publish(lab)
    made = Server(lab, tmp_path)
    yield made
    made.close()


def prepared(project: Project, server: Server, *hosts: str) -> str:
    """Give a project hosts and the key; return an ssh that takes nothing of the caller's."""
    allow(project, *hosts)
    project.write("key", (server.base / "key").read_bytes(), 0o600)
    known = (server.base / "host.pub").read_text()
    project.write("known", f"{SITE} {known}")
    options = ("StrictHostKeyChecking=yes", "UserKnownHostsFile=known", "BatchMode=yes", "IdentityAgent=none")
    return " ".join(["ssh", "-F", "none", "-i", "key", *(f"-o {option}" for option in options)])


@pytest.mark.parametrize("through", THROUGH)
def test_clone(proxied: Project, server: Server, lab: Lab, through: str) -> None:
    """With its port 22 listed, a repository is cloned from a host, and from no other."""
    command = THROUGH[through]
    if shutil.which(command.split()[0], path="/usr/bin:/bin") is None:
        pytest.skip(f"there is no {command.split()[0]}")
    ssh = prepared(proxied, server, f"{SITE}:22")
    script = f"""
export GIT_SSH_COMMAND="{ssh} -o ProxyCommand='{command}'"
git clone -q ssh://root@{SITE}{lab.files}/served/project.git /tmp/clone && cat /tmp/clone/file
git ls-remote -q ssh://root@other.example.org{lab.files}/served/project.git || echo blocked
"""
    result = proxied.shell(script)
    assert result.out.split() == ["text", "blocked"], result
    assert "other.example.org:22 is blocked by network.allow in Coopfile:1" in result.err


def test_in_the_coopfile(proxied: Project, server: Server, lab: Lab) -> None:
    """The variable can be the Coopfile's, and then `git clone` is all there is to type."""
    ssh = prepared(proxied, server, f"{SITE}:22")
    command = f"{ssh} -o ProxyCommand='{THROUGH['socat']}'"
    text = (proxied.directory / "Coopfile").read_text()
    proxied.coopfile(f'{text}env.GIT_SSH_COMMAND = "{command}"\n')
    url = f"ssh://root@{SITE}{lab.files}/served/project.git"
    assert proxied.output(f"git clone -q {url} /tmp/clone && cat /tmp/clone/file") == "text"


def test_another_port(proxied: Project, server: Server) -> None:
    """A host that is listed for TLS's port is not reached at SSH's, and ssh itself has no way at all."""
    ssh = prepared(proxied, server, SITE)
    through = f"-o ProxyCommand='{THROUGH['socat']}'"
    result = proxied.shell(f"{ssh} {through} root@{SITE} true || {ssh} root@{SITE} true || echo no")
    assert result.out == "no\n" and f"{SITE}:22 is blocked by network.allow" in result.err


def test_at_the_port_of_tls(proxied: Project, server: Server, secure: Secure) -> None:
    """SSH at port 443 is not TLS, and does not pass: the answer says what does."""
    ssh = prepared(proxied, server, f"{SITE}:443")
    through = f"-o ProxyCommand='{THROUGH['socat']}'"
    result = proxied.shell(f"{ssh} -p 443 {through} root@{SITE} true || echo no")
    assert result.out == "no\n" and f"{SITE}:443 is blocked: only TLS passes to this port" in result.err
