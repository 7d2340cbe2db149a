"""Projects in proxy mode on the lab's host, and servers of TLS in the world."""

from __future__ import annotations

import http.server
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.netlab import INTERNET, Lab, _die_with_parent, on_lab
from tests.sandboxes import DEADLINE, NAMES, Project, Workshop, descendants

HTTPS, OTHER_TLS = 443, 8443
ALLOWED = ["four.example.org", "four.example.org:8443", "four.example.org:8080", "*.wild.example.org"]


class Secure:
    """Servers of TLS at INTERNET: of the lab's files, by every name; ``certificate`` is what to trust."""

    def __init__(self, lab: Lab, base: Path) -> None:
        base.mkdir()
        self.certificate = base / "certificate.pem"
        self._names = base / "names"
        self._names.touch()
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
                *("-nodes", "-days", "2", "-subj", "/CN=four.example.org"),
                *("-addext", "subjectAltName=DNS:four.example.org,DNS:other.example.org"),
                *("-keyout", str(base / "key.pem"), "-out", str(self.certificate)),
            ],
            check=True,
            capture_output=True,
            timeout=DEADLINE,
        )
        self._process = subprocess.Popen(
            [
                *("nsenter", f"--target={lab.world.pid}", "--net", "--"),
                *(sys.executable, "-I", __file__, str(base), str(lab.files)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            preexec_fn=_die_with_parent,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def names(self) -> list[str]:
        """Return the server names that hellos have asked for."""
        return self._names.read_text().splitlines()

    def close(self) -> None:
        """End the servers."""
        self._process.kill()
        self._process.communicate(timeout=DEADLINE)


@pytest.fixture(scope="session")
def secure(lab: Lab, workshop: Workshop) -> Iterator[Secure]:
    """Yield servers of TLS."""
    made = Secure(lab, workshop.base / "secure")
    yield made
    made.close()


@pytest.fixture(params=NAMES)
def proxied(request: pytest.FixtureRequest, lab: Lab, workshop: Workshop) -> Iterator[Project]:
    """Yield a project on the lab's host whose sandboxes have a proxy that leads to ``ALLOWED``."""
    made = on_lab(lab, workshop.actor(request.param), "veth")
    allow(made, *ALLOWED)
    yield made
    made.close()


def allow(project: Project, *hosts: str) -> None:
    """Give the project a list."""
    listed = ", ".join(f'"{host}"' for host in hosts)
    project.coopfile(f'network = {{ mode = "proxy", allow = [{listed}] }}\n')


def proxy_of(process_number: int) -> list[int]:
    """Return the proxies among the processes of a run: those with a listening socket of another namespace."""
    monitor, *others = descendants(process_number)
    return [pid for pid in others if not descendants(pid) and _network(pid) == _network(monitor)]


def _network(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


def main(base: Path, files: str) -> None:
    """Serve files over TLS, and write down which names are asked for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(base / "certificate.pem", base / "key.pem")

    def note(_socket: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        with open(base / "names", "a") as file:
            file.write(f"{name}\n")

    context.sni_callback = note

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=files)

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 2048

        def finish_request(self, request: Any, client_address: Any) -> None:
            request.settimeout(DEADLINE)
            with context.wrap_socket(request, server_side=True) as secured:
                super().finish_request(secured, client_address)

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    for port in (HTTPS, OTHER_TLS):
        server = Server((INTERNET, port), Handler)
        threading.Thread(target=server.serve_forever).start()
    print("ready", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
