"""One repository of one registry, spoken to through oras with what that lacks.

oras (0.2) has no timeouts, sleeps two minutes over a refused connection, follows
redirects with its token, and takes whatever arrives. Here requests are bounded, and
what belongs to one registry never leaves it: a client is made for one repository.
"""

from __future__ import annotations

import email.utils
import threading
import time
from contextlib import closing
from urllib.parse import urljoin

import oras.container
import oras.provider
import requests
import urllib3.exceptions

from coopfile.errors import CoopError
from coopfile.rootfs import documents, wire
from coopfile.rootfs.challenge import Challenged
from coopfile.rootfs.wire import Limits, Lines, PassingError, Patience

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from coopfile.language.items import ImageReference
    from coopfile.rootfs.auth import Credential

_HUB, _HUB_HOST = "docker.io", "registry-1.docker.io"
_REDIRECTS = 5
_MOST_TOKEN = 1 << 20
_MOST_ERROR = 64 << 10
_BUSY = (500, 502, 503, 504)


class Client(oras.provider.Registry):  # type: ignore[misc]
    """oras' client for one repository, with bounds; safe to use from several threads.

    ``credential`` is asked at the first challenge. ``insecure`` are registries, as in
    references, that may be spoken to without TLS, as those on the loopback interface
    may; TLS is tried first, and a certificate is verified wherever there is one.
    """

    def __init__(
        self,
        reference: ImageReference,
        credential: Callable[[], Credential | None],
        insecure: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> None:
        self.registry = reference.registry
        self.host = _HUB_HOST if self.registry == _HUB else self.registry
        super().__init__(hostname=self.host)
        self.what = f"{reference.registry}/{reference.repository}"
        self.limits = limits or Limits()
        self.lines = Lines()
        # Not for reading the proxies alone: ~/.netrc would add passwords of its own.
        self.session.trust_env = False
        # requests would look into every redirect, also of those that it is not to follow.
        self.session.get_redirect_target = lambda _: None
        self.session.headers.update({"User-Agent": "coop", "Accept-Encoding": "identity"})
        for scheme in ("http://", "https://"):
            self.session.mount(scheme, wire.Adapter(self.lines))
        self.auth = Challenged(
            self.registry, reference.repository, credential, self._may_be_plain, self._ask_for_token
        )
        # Not parsed by oras, which takes a first part with a dot for a registry.
        self.container = oras.container.Container("image", registry=self.host)
        namespace, _, self.container.repository = reference.repository.rpartition("/")
        self.container.namespace = namespace or None
        self._insecure = frozenset(insecure)
        self._ready = False
        self._lock = threading.Lock()

    def patience(self, seconds: float) -> Patience:
        """Return a count of tries for something that may take this long in all."""
        return Patience(self.limits, self.lines, seconds)

    def close(self) -> None:
        """End every transfer, in whichever thread it is. The client is of no more use."""
        self.lines.close()
        self.session.close()

    def manifest(self, reference: str) -> tuple[str, str, bytes]:
        """Return a manifest: media type and digest as the registry says, and its bytes. Raises CoopError."""
        headers = {"Accept": ", ".join(documents.ACCEPTED)}
        response, body = self._document(lambda: self.container.manifest_url(reference), headers)
        media_type = (response.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
        if media_type in ("text/html", "application/xhtml+xml"):
            raise self._no_registry()
        return media_type, response.headers.get("Docker-Content-Digest") or "", body

    def small_blob(self, digest: str) -> bytes:
        """Return the bytes of a blob, unverified, if they are no more than a document may have."""
        return self._document(lambda: self.container.get_blob_url(digest), {})[1]

    def open_blob(self, digest: str, offset: int = 0) -> requests.Response:
        """Ask, once, for a blob, from an offset if the registry can do that. Raises CoopError."""
        self._prepare()
        url = f"{self.prefix}://{self.container.get_blob_url(digest)}"
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        return self._checked(self.do_request(url, headers=headers, stream=True))

    def pieces(self, response: requests.Response) -> Iterator[bytes]:
        """Yield an answer's body as it arrives; raises PassingError when it breaks."""
        return wire.pieces(response, self.limits, self.lines, self._peer(response.url))

    def do_request(
        self,
        url: str,
        method: str = "GET",
        data: dict[str, Any] | bytes | None = None,
        headers: dict[str, str] | None = None,
        json: dict[str, Any] | None = None,
        stream: bool = True,
    ) -> requests.Response:
        """Send one request, answering challenges and following redirects; raises CoopError.

        Instead of oras' own: the authorization goes to the registry's own origin only.
        It tries once; who reads the body tries again, for that may break too.
        """
        own = wire.origin(url)
        tried = 0
        at = url
        for _ in range(_REDIRECTS + 1):
            home = wire.origin(at) == own
            given = {**(headers or {}), **(self.auth.get_auth_header() if home else {})}
            response = self._send(method, at, given, data, json)
            challenged = response.status_code == 401 or (
                # What some registries say of a token that ran out.
                response.status_code == 403 and "WWW-Authenticate" in response.headers
            )
            if challenged and home:
                self._discard(response)
                tried += 1
                again = tried <= 2 and self.auth.authenticate_request(response, given)[1]
                if not again:
                    raise self.auth.refused()
                at = url
            elif response.is_redirect:
                self._discard(response)
                at = self._target(at, response.headers["location"])
            else:
                return response
        raise CoopError(f"{self.what}: {self.registry} redirects in a circle", None)

    def _send(
        self, method: str, url: str, headers: Mapping[str, str], data: Any = None, json: Any = None
    ) -> requests.Response:
        try:
            response: requests.Response = self.session.request(
                method,
                url,
                data=data,
                json=json,
                headers=dict(headers),
                stream=True,
                allow_redirects=False,
                timeout=(self.limits.connect, self.limits.read),
                proxies=wire.proxies(url),
            )
            return response
        except (requests.exceptions.InvalidSchema, requests.exceptions.InvalidProxyURL) as error:
            raise CoopError(f"the proxy in the environment cannot be used: {error}", None) from None
        except (requests.exceptions.RequestException, OSError) as error:
            raise wire.failure(error, self._peer(url), self.limits, self.lines) from None
        except (ValueError, urllib3.exceptions.HTTPError):  # a host that cannot be looked up, for one
            raise wire.unusable() from None

    def _discard(self, response: requests.Response) -> None:
        """Read a short answer to its end, which keeps the connection for the next request."""
        length = wire.content_length(response)
        with closing(response):
            if length is not None and length <= _MOST_ERROR:
                try:
                    for _ in self.pieces(response):
                        pass
                except PassingError:
                    pass

    def _target(self, at: str, location: str) -> str:
        try:
            target = urljoin(at, location.encode("latin-1").decode())  # headers are read as Latin-1
        except ValueError:
            raise wire.unusable() from None
        if wire.origin(target)[0] != "https" and not (self.prefix == "http" and self._may_be_plain(target)):
            raise CoopError(
                f"{self.registry} redirects to an address without TLS ({wire.origin(target)[1]})",
                "the registry is set up wrong, or not what it seems",
            )
        return target

    def _document(
        self, address: Callable[[], str], headers: dict[str, str]
    ) -> tuple[requests.Response, bytes]:
        """Return an answer and its whole body, tried as often as it makes sense."""
        patience = self.patience(self.limits.answer)
        while True:
            try:
                self._prepare()
                response = self.do_request(f"{self.prefix}://{address()}", headers=headers)
                with closing(self._checked(response)):
                    return response, self._body(response, documents.MOST_DOCUMENT, patience)
            except PassingError as error:
                patience.wait(error)

    def _body(self, response: requests.Response, most: int, patience: Patience) -> bytes:
        body = bytearray()
        for piece in self.pieces(response):
            body += piece
            if len(body) > most:
                raise documents.bad(self.what, f"an answer of {self.registry} has more than {most >> 20} MiB")
            patience.check(self.what)
        length = wire.content_length(response)
        if length is not None and len(body) < length:
            peer = self._peer(response.url)
            raise PassingError(f"the connection to {peer} broke", "try again later", self.limits.tries)
        return bytes(body)

    def _prepare(self) -> None:
        """Find out, once, whether the registry speaks TLS; only where it need not."""
        with self._lock:
            if self._ready:
                return
            self.prefix, url = "https", f"https://{self.host}"
            # Behind a proxy only that could tell, so the configuration counts.
            if self._may_be_plain(url) and (
                wire.proxies(url) or not wire.speaks_tls(url, self.limits.connect)
            ):
                self.prefix = "http"
            self.auth.origin = wire.origin(f"{self.prefix}://{self.host}")
            self._ready = True

    def _may_be_plain(self, url: str) -> bool:
        _, host, port = wire.origin(url)
        if wire.is_loopback(host):
            return True
        names = {f"{host}:{port}"} | ({host} if port in (80, 443) else set())
        return not self._insecure.isdisjoint(names)

    def _own_host(self) -> str:
        return wire.origin(f"https://{self.host}")[1]

    def _ask_for_token(self, url: str, headers: Mapping[str, str], body: bytes | None) -> tuple[int, bytes]:
        patience = self.patience(self.limits.answer)
        while True:
            try:
                with closing(self._send("GET" if body is None else "POST", url, headers, body)) as response:
                    self._passing(response)
                    return response.status_code, self._body(response, _MOST_TOKEN, patience)
            except PassingError as error:
                patience.wait(error)

    def _checked(self, response: requests.Response) -> requests.Response:
        """Return an answer that is a success; raises CoopError for any other."""
        if response.status_code in (200, 206):
            return response
        with closing(response):
            self._passing(response)
            codes, said = self._said(response)
            if response.status_code == 404:
                raise self._not_found(response, codes)
            if response.status_code == 403 or codes & {"DENIED", "UNAUTHORIZED"}:
                raise self.auth.refused()
            raise CoopError(
                f"{self.what}: {self._peer(response.url)} answers with status {response.status_code}{said}",
                "is it a registry, and is the name right?",
            )

    def _passing(self, response: requests.Response) -> None:
        """Raise PassingError for an answer that asks for patience."""
        status = response.status_code
        if status != 429 and status not in _BUSY:
            return
        pause = _retry_after(response.headers.get("Retry-After", ""))
        peer = self._peer(response.url)
        later = "" if pause is None else f" in {pause:.0f} s"
        if status == 429:
            message = f"{peer} allows no more downloads for now"
            remedy = f"try again later{later}, or log in for a higher limit: docker login"
        else:
            message, remedy = f"{peer} is not well (HTTP status {status})", f"try again later{later}"
        raise PassingError(message, remedy, self.limits.tries, pause)

    def _not_found(self, response: requests.Response, codes: set[str]) -> CoopError:
        if not codes and (response.headers.get("Content-Type") or "").startswith("text/html"):
            return self._no_registry()
        return CoopError(
            f"{self.what} has not what was asked for: the tag, the digest or the repository does not exist",
            "check the name and the tag",
        )

    def _no_registry(self) -> CoopError:
        return CoopError(
            f"{self.registry} answers with a web page where a registry would give an image",
            "is this the registry's own name, and is there a page to log in to the network first?",
        )

    def _said(self, response: requests.Response) -> tuple[set[str], str]:
        """Return the codes of a registry's errors, and its first message as it may be shown."""
        try:
            body = b""
            for piece in self.pieces(response):
                body += piece
                if len(body) > _MOST_ERROR:
                    break
            errors = documents.read_object("", body).get("errors")
        except CoopError:
            return set(), ""
        errors = [one for one in errors if isinstance(one, dict)] if isinstance(errors, list) else []
        codes = {str(one.get("code")) for one in errors}
        said = documents.printable(str(errors[0].get("message") or "")) if errors else ""
        return codes, f": {said}" if said else ""

    def _peer(self, url: str) -> str:
        """Return how to call the host of an address; never the rest, which may hold a signature."""
        try:
            scheme, host, port = wire.origin(url)
        except CoopError:
            return self.registry
        if host == self._own_host():
            return self.registry
        return host if port == (443 if scheme == "https" else 80) else f"{host}:{port}"


def _retry_after(text: str) -> float | None:
    """Return the seconds that a Retry-After header asks for, None if it asks for nothing."""
    if text.strip().isdecimal():
        return float(text.strip()[:9])
    try:
        moment = email.utils.parsedate_to_datetime(text)
        return max(0.0, moment.timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
