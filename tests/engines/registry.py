"""A registry on the loopback interface, and sockets of daemons that are not well."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path

from tests.engines.cell import Cell, UnusableError
from tests.engines.daemons import READY, start
from tests.sandboxes import DEADLINE, plain_environment, wait_until


class Registry:
    """A registry that speaks plain HTTP at ``address``, where the engines of the cell reach it."""

    def __init__(self, base: Path, cell: Cell | None, address: str) -> None:
        program = shutil.which("docker-registry")
        if program is None:
            raise UnusableError("docker-registry is not installed")
        self.address = address
        self.directory = base / "registry"
        self.directory.mkdir()
        configuration = self.directory / "config.yml"  # YAML is a superset of JSON
        configuration.write_text(
            json.dumps(
                {
                    "version": "0.1",
                    "log": {"level": "warn"},
                    "storage": {"filesystem": {"rootdirectory": str(self.directory / "data")}},
                    "http": {"addr": address},
                }
            )
        )
        self._prefix = cell.prefix if cell else ()
        self._log = self.directory / "log"
        argv = [*self._prefix, "setpriv", "--pdeathsig", "KILL", program, "serve", str(configuration)]
        self._process = start(argv, plain_environment(base), self._log)
        wait_until(lambda: self._process.poll() is not None or self._answers(), READY)
        if not self._answers():
            self.close()
            raise UnusableError(f"docker-registry did not start: {self._log.read_text(errors='replace')}")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(DEADLINE)

    def _answers(self) -> bool:
        host, port = self.address.rsplit(":", 1)
        probe = f"import socket; socket.create_connection(({host!r}, {port}), 1)"
        argv = [*self._prefix, "/usr/bin/python3", "-I", "-S", "-c", probe]
        return subprocess.run(argv, capture_output=True, timeout=DEADLINE, check=False).returncode == 0


def free_port() -> int:
    """Return a port of the loopback interface that nobody uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def listening(path: Path) -> socket.socket:
    """Return a socket that takes connections and never answers, until it is closed."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    path.chmod(0o666)
    server.listen(64)
    return server
