"""A socket between an engine's command line and its daemon that lets some requests wait."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from pathlib import Path

_REQUEST = re.compile(rb"^(GET|HEAD|POST|PUT|DELETE) (\S+) HTTP/1\.1\r\n")


class Proxy:
    """Passes everything on at ``path`` to the daemon at ``target``, but holds what matches a pattern.

    ``held`` is set when a request is held. ``let_go`` passes on what was held, whether
    or not its client is still there, and nothing is held after that.
    """

    def __init__(self, path: Path, target: Path, pattern: str) -> None:
        self.address = f"unix://{path}"
        self.held = threading.Event()
        self.passed = threading.Event()
        self._go = threading.Event()
        self._target = str(target)
        self._pattern = re.compile(pattern.encode())
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        path.chmod(0o666)
        self._server.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def let_go(self) -> None:
        """Pass on what is held, and hold nothing more."""
        self._go.set()

    def close(self) -> None:
        """Take no more connections."""
        self._go.set()
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as daemon, contextlib.suppress(OSError):
            daemon.connect(self._target)
            threading.Thread(target=self._answer, args=(daemon, client), daemon=True).start()
            late = False
            while data := client.recv(1 << 16):
                request = _REQUEST.match(data)
                if request and not self._go.is_set():
                    line = request[1] + b" " + request[2]
                    if self._pattern.search(line):
                        self.held.set()
                        self._go.wait()
                        late = True
                daemon.sendall(data)
                if late:
                    # The daemon gets to answer before it sees that nobody is there any more.
                    threading.Event().wait(1.0)
                    self.passed.set()
            daemon.shutdown(socket.SHUT_WR)
            threading.Event().wait(0.2)

    @staticmethod
    def _answer(daemon: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := daemon.recv(1 << 16):
                with contextlib.suppress(OSError):
                    client.sendall(data)
            client.shutdown(socket.SHUT_WR)
