"""A registry on the loopback interface that misbehaves as it is told to."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from coopfile.language.items import ImageReference
from coopfile.rootfs.registry import RegistrySource
from coopfile.rootfs.wire import Limits
from tests.unit.rootfs.images import MadeImage, sha256

FAST = Limits(
    connect=20.0,
    read=20.0,
    answer=40.0,
    blob=60.0,
    slow=20.0,
    slow_bytes=2000,
    tries=3,
    refused=2,
    pause=0.01,
    longest_pause=1.5,
)
"""Tried again at once, and given up by no busy machine."""
HASTY = FAST.replace(read=0.4, answer=4.0, blob=6.0, slow=0.25)
"""For registries whose slowness is what a test is about."""

Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """One request. ``server.registry`` knows the answers."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # or every answer waits for an acknowledgement of its head
    server: Any

    def do_GET(self) -> None:
        """Answer a GET."""
        registry: FakeRegistry = self.server.registry
        registry.seen.append((self.path, dict(self.headers)))
        for part, answers in reversed(registry.scripts.items()):
            if part in self.path and answers:
                answer = answers[0] if len(answers) == 1 else answers.pop(0)
                return answer(self)
        return registry.serve(self)

    do_POST = do_GET  # noqa: N815

    def give(self, body: bytes, status: int = 200, **headers: str) -> None:
        """Send a whole answer; underscores in names of headers are hyphens."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def part(self, body: bytes, length: int, until: int) -> None:
        """Promise a length from the range's start on, send up to a point, and hang up."""
        start = self.start
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{length - 1}/{length}")
        self.send_header("Content-Length", str(length - start))
        self.end_headers()
        self.wfile.write(body[start:until])
        self.close_connection = True

    @property
    def start(self) -> int:
        """Where the range that is asked for begins."""
        return int(self.headers.get("Range", "bytes=0-")[6:].rstrip("-"))

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    connections = 0

    def process_request(self, request: Any, client_address: Any) -> None:
        """Count, and answer in a thread."""
        self.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that hang up are what the tests are about."""


class FakeRegistry:
    """A registry. ``scripts`` gives, for parts of paths, the answers to use one after another.

    A part that was scripted later goes before an earlier one.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.scripts: dict[str, list[Answer]] = {}
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.limits = FAST
        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.registry = self  # type: ignore[attr-defined]
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def connections(self) -> int:
        """How many connections there have been."""
        return self._server.connections

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, image: MadeImage, tag: str = "latest") -> MadeImage:
        """Hold an image under a tag and its digest."""
        self.blobs.update(image.blobs)
        self.put(image.manifest, image.media_type, tag)
        return image

    def put(self, body: bytes, media_type: str, tag: str = "latest") -> str:
        """Hold a manifest or an index under a tag and its digest; return that."""
        self.manifests[sha256(body)] = self.manifests[tag] = (media_type, body)
        return sha256(body)

    def script(self, part: str, *answers: Answer) -> None:
        """Answer requests whose path has a part with these, one after another; the last one stays."""
        self.scripts[part] = list(answers)

    def serve(self, handler: Handler) -> None:
        """Answer as a registry should."""
        name = handler.path.partition("?")[0].rpartition("/")[2]
        if "/manifests/" in handler.path and name in self.manifests:
            media_type, body = self.manifests[name]
            handler.give(body, Content_Type=media_type, Docker_Content_Digest=sha256(body))
        elif "/blobs/" in handler.path and name in self.blobs:
            body, start = self.blobs[name], handler.start
            more = {"Content_Range": f"bytes {start}-{len(body) - 1}/{len(body)}"} if start else {}
            handler.give(body[start:], 206 if start else 200, **more)
        else:
            body = b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}'
            handler.give(body, 404, Content_Type="application/json")

    def source(self, reference: str = "team/app:latest", **more: Any) -> RegistrySource:
        """Return a source of coop's for something here."""
        name, at, digest = reference.partition("@")
        repository, _, tag = name.partition(":")
        full = ImageReference(self.address, repository, tag or None, digest if at else None)
        given = {"environment": {}, "limits": self.limits, **more}
        return RegistrySource(full, given.pop("environment"), **given)

    def asked(self, part: str) -> list[dict[str, str]]:
        """Return the headers of every request whose path has a part."""
        return [headers for path, headers in self.seen if part in path]


def big(size: int) -> bytes:
    """Return bytes that do not repeat soon."""
    import hashlib

    return b"".join(hashlib.sha256(str(number).encode()).digest() for number in range(size // 32 + 1))[:size]
