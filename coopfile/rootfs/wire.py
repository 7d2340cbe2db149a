"""Connections that can be cut from outside, and what goes wrong on them, in words.

Imported only where a registry is talked to: requests costs 70 ms.
"""

from __future__ import annotations

import errno
import functools
import ipaddress
import os
import random
import socket
import ssl
import threading
import time
import weakref

import requests
import requests.adapters
import requests.utils
import urllib3
import urllib3.exceptions

from coopfile.errors import CoopError
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_CHUNK = 1 << 20
_MOST_DIGITS = 18  # of a length; of thousands int() makes a ValueError
_AUTHORITIES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")


class Limits(Record):
    """How long a registry may take, in seconds, and how often it is asked again."""

    connect: float = 10.0
    read: float = 30.0
    """Between two pieces of an answer; also what its head may take in all."""
    answer: float = 90.0
    """For a document or a token in all, with every try."""
    blob: float = 6 * 3600.0
    """For a blob in all, with every try."""
    slow: float = 30.0
    """For ``slow_bytes``: what is slower counts as broken."""
    slow_bytes: int = 64 << 10
    tries: int = 5
    refused: int = 3
    """Tries for what does not pass by waiting: connection refused, unknown host."""
    pause: float = 0.5
    """Before the second try; twice as long before every further one."""
    longest_pause: float = 60.0
    """Above all, what a registry may ask for with Retry-After."""


class PassingError(CoopError):
    """A failure that may pass. ``tries`` is how often it is worth trying, ``pause`` what was asked for."""

    def __init__(self, message: str, remedy: str | None, tries: int, pause: float | None = None) -> None:
        super().__init__(message, remedy)
        self.tries = tries
        self.pause = pause


class Patience:
    """How long one thing is tried: counts the failures in a row, and waits between them."""

    def __init__(self, limits: Limits, lines: Lines, seconds: float) -> None:
        self.deadline = time.monotonic() + seconds
        self._limits = limits
        self._lines = lines
        self._failures = 0

    def progressed(self) -> None:
        """Forget the failures until now."""
        self._failures = 0

    def check(self, what: str) -> None:
        """Raise CoopError when the time is over."""
        if time.monotonic() > self.deadline:
            raise CoopError(
                f"{what}: the download takes too long", "try again later, or from another network"
            )

    def wait(self, error: PassingError) -> None:
        """Wait before the next try; raises the error if there is to be none."""
        self._failures += 1
        pause = error.pause
        if pause is None:
            pause = self._limits.pause * 2 ** (self._failures - 1) * random.uniform(0.7, 1.0)
            pause = min(pause, self._limits.longest_pause)
        over = pause > self._limits.longest_pause or time.monotonic() + pause > self.deadline
        if over or self._failures >= error.tries:
            raise error
        if self._lines.closed.wait(pause):
            raise stopped()


class Lines:
    """The sockets of a client that are in use, so that they can be shut from another thread."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._lock = threading.Lock()

    def add(self, line: socket.socket) -> None:
        """Take note of a socket; it is shut at once if everything has been closed."""
        with self._lock:
            self._sockets.add(line)
        if self.closed.is_set():
            shut(line)

    def close(self) -> None:
        """Shut every socket: whoever reads from one gets an error now."""
        self.closed.set()
        with self._lock:
            for line in tuple(self._sockets):
                shut(line)


def shut(line: socket.socket) -> None:
    """End a connection under whoever reads from it."""
    try:
        socket.socket.shutdown(line, socket.SHUT_RDWR)  # SSLSocket's own is not made for another thread
    except OSError:
        pass


class Adapter(requests.adapters.HTTPAdapter):
    """An adapter of requests whose connections are known to ``lines``, and bounded in their answer's head."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        super().__init__(pool_maxsize=8)

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Leave it to the context: requests would read all certificates again for every connection."""
        conn.cert_reqs = "CERT_REQUIRED"

    def send(self, request: requests.PreparedRequest, *arguments: Any, **named: Any) -> requests.Response:
        """Send a request."""
        if str(request.url).startswith("https:") and "ssl_context" not in self.poolmanager.connection_pool_kw:
            self.poolmanager.connection_pool_kw["ssl_context"] = trust()
        return super().send(request, *arguments, **named)

    def init_poolmanager(self, *arguments: Any, **named: Any) -> None:
        """Make the pools."""
        super().init_poolmanager(*arguments, **named)
        self._watch(self.poolmanager)

    def proxy_manager_for(self, *arguments: Any, **named: Any) -> Any:
        """Return the pools of a proxy."""
        manager = super().proxy_manager_for(*arguments, ssl_context=trust(), **named)
        self._watch(manager)
        return manager

    def _watch(self, manager: Any) -> None:
        lines = self._lines

        def watched(pool: Any) -> Any:
            if issubclass(pool.ConnectionCls, _Watched):
                return pool
            connection = type("Watched", (_Watched, pool.ConnectionCls), {"lines": lines})
            return type(pool.__name__, (pool,), {"ConnectionCls": connection})

        pools = manager.pool_classes_by_scheme
        manager.pool_classes_by_scheme = {scheme: watched(pool) for scheme, pool in pools.items()}


class _Watched:
    lines: Lines
    sock: Any
    timeout: Any

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        if self.sock is not None:
            self.lines.add(self.sock)

    def getresponse(self, *arguments: Any, **named: Any) -> Any:
        # The socket's own timeout is one for every piece: lines of a head may trickle for ever.
        seconds = self.timeout if isinstance(self.timeout, int | float) else Limits.read
        over = threading.Event()

        def cut(line: socket.socket) -> None:
            over.set()
            shut(line)

        timer = threading.Timer(seconds, cut, (self.sock,))
        timer.daemon = True
        timer.start()
        try:
            return super().getresponse(*arguments, **named)  # type: ignore[misc]
        except Exception:
            if over.is_set():
                raise TimeoutError("the head of the answer takes too long") from None
            raise
        finally:
            timer.cancel()


def pieces(response: requests.Response, limits: Limits, lines: Lines, peer: str) -> Iterator[bytes]:
    """Yield what arrives of an answer's body as it was sent; raises PassingError when it breaks or crawls."""
    since, arrived = time.monotonic(), 0
    while True:
        try:
            # Not read(): that waits until all it was asked for is there.
            piece = response.raw.read1(_CHUNK, decode_content=False)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise failure(error, peer, limits, lines) from None
        if lines.closed.is_set():
            raise stopped()
        if not piece:
            return
        yield piece
        arrived += len(piece)
        now = time.monotonic()
        if now - since >= limits.slow:
            if arrived < limits.slow_bytes:
                raise PassingError(f"{peer} sends less than {limits.slow_bytes} bytes in {limits.slow:g} s",
                                   "try again later, or from another network", limits.tries)  # fmt: skip
            since, arrived = now, 0


def content_length(response: requests.Response) -> int | None:
    """Return how long an answer says that its body is; None if it says nothing that can be meant."""
    text: str = response.headers.get("Content-Length", "")
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def failure(error: BaseException, peer: str, limits: Limits, lines: Lines) -> CoopError:
    """Return what a failure of a connection means; a PassingError if another try may help."""
    if lines.closed.is_set():
        return stopped()
    chain = tuple(_chain(error))
    found = next((one for one in chain if isinstance(one, ssl.SSLCertVerificationError)), None)
    if found is not None:
        return CoopError(
            f"the certificate of {peer} cannot be trusted: {found.verify_message}",
            "if it is your own authority's, name its certificates in $SSL_CERT_FILE",
        )
    if any(isinstance(one, urllib3.exceptions.ProxyError) for one in chain):
        return PassingError(
            f"the proxy in the environment does not lead to {peer}",
            "are $https_proxy, $http_proxy and $no_proxy right?",
            limits.refused,
        )
    if any(isinstance(one, ssl.SSLError | requests.exceptions.SSLError) for one in chain):
        return PassingError(
            f"{peer} does not speak TLS as it should",
            "a registry without TLS has to be configured as such",
            limits.refused,
        )
    if any(isinstance(one, socket.gaierror | urllib3.exceptions.NameResolutionError) for one in chain):
        return PassingError(
            f"the name of {peer} cannot be resolved", "is the name right, and the network up?", limits.refused
        )
    if any(isinstance(one, ConnectionRefusedError) for one in chain):
        return PassingError(f"{peer} refuses connections", "does it run, and on this port?", limits.refused)
    unreachable = (errno.ENETUNREACH, errno.EHOSTUNREACH)
    if any(isinstance(one, OSError) and one.errno in unreachable for one in chain):
        return PassingError(f"{peer} is out of reach", "is the network up?", limits.refused)
    if any(isinstance(one, TimeoutError | urllib3.exceptions.TimeoutError) for one in chain):
        return PassingError(f"{peer} does not answer", "is the network up? try again later", limits.tries)
    return PassingError(
        f"the connection to {peer} broke", "try again later; is something between that ends it?", limits.tries
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that it was made of."""
    pending, seen = [error], set()
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        below = (one.__cause__, one.__context__, getattr(one, "reason", None), *one.args)
        pending += [each for each in below if isinstance(each, BaseException)]


def stopped() -> CoopError:
    """Return the error of a transfer that was ended because another one failed."""
    return CoopError("the download was stopped", None)


def is_loopback(host: str) -> bool:
    """Tell whether a host, without its port, is this machine's own loopback interface."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of an address as the connection is going to take them.

    Raises CoopError for what is no such address, or carries a password.
    """
    try:
        parts = urllib3.util.parse_url(url)
    except urllib3.exceptions.LocationParseError:
        parts = urllib3.util.Url()
    # A backslash is where parsers of addresses disagree about the host.
    odd = "\\" in url or any(char < " " or char == "\x7f" for char in url)
    if odd or parts.scheme not in ("http", "https") or not parts.host or parts.auth:
        raise unusable()
    return parts.scheme, parts.host.lower(), parts.port or (443 if parts.scheme == "https" else 80)


def unusable() -> CoopError:
    """Return the error for what is no address, or none that anybody could connect to."""
    return CoopError("a registry points to an address that cannot be used", None)


@functools.cache
def trust() -> ssl.SSLContext:
    """Return what verifies certificates: by what the environment names, else by the system's authorities."""
    named = next((os.environ[name] for name in _AUTHORITIES if os.environ.get(name)), None)
    try:
        if named is None:
            context = ssl.create_default_context()
            if not context.cert_store_stats()["x509_ca"] and ssl.get_default_verify_paths().capath is None:
                context.load_verify_locations(requests.utils.DEFAULT_CA_BUNDLE_PATH)
        elif os.path.isdir(named):
            context = ssl.create_default_context(capath=named)
        else:
            context = ssl.create_default_context(cafile=named)
    except OSError as error:
        raise CoopError(
            f"the certificates of authorities cannot be read: {named}: {error.strerror or error}",
            f"is one of these right? ${', $'.join(_AUTHORITIES)}",
        ) from None
    return context


def speaks_tls(url: str, seconds: float) -> bool:
    """Tell whether there is TLS at an address; nothing is sent, so nothing has to be verified yet."""
    _, host, port = origin(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host = host.strip("[]")
    try:
        with socket.create_connection((host, port), seconds) as line:
            context.wrap_socket(line, server_hostname=host).close()
    except OSError:
        return False
    return True


def proxies(url: str) -> dict[str, str]:
    """Return the proxies that the environment names for an address; never any for loopback."""
    return {} if is_loopback(origin(url)[1]) else requests.utils.get_environ_proxies(url)
