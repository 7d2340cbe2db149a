"""Answering a registry's challenge: which token, from whom, and what may be sent there.

A credential goes to the registry it is for, or to the token server that this registry
named over TLS, and only over TLS or the loopback interface.
"""

from __future__ import annotations

import json
import re
import threading
from base64 import b64encode
from urllib.parse import urlencode, urlsplit

import oras.auth.base

from coopfile.errors import CoopError
from coopfile.rootfs.wire import is_loopback, origin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import requests

    from coopfile.rootfs.auth import Credential

    Ask = Callable[[str, Mapping[str, str], bytes | None], tuple[int, bytes]]
    """Send a request (a POST if there is a body) without following redirects; status and body."""

_PIECE = re.compile(r'([^\s=,"]+)(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*)))?')
_TOKEN = re.compile(r"[\x21-\x7e]+", re.ASCII)


def challenges(header: str) -> dict[str, dict[str, str]]:
    """Return the parameters of every scheme in a WWW-Authenticate header; names are in lower case."""
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for name, quoted, plain in _PIECE.findall(header[:8192]):
        lower = name.lower()
        if lower in ("bearer", "basic") and not quoted and not plain:
            current = found.setdefault(lower, {})
        else:
            current.setdefault(lower, re.sub(r"\\(.)", r"\1", quoted) or plain)
    return found


class Challenged(oras.auth.base.AuthBackend):  # type: ignore[misc]
    """What a client of one repository of one registry shows when it is asked who it is.

    ``registry`` is the registry's name for people, ``secure`` tells that it is spoken
    to over TLS, ``may_be_plain`` whether a host may be without; ``credential`` looks
    the credential up, at the first challenge and once.
    """

    def __init__(
        self,
        registry: str,
        repository: str,
        credential: Callable[[], Credential | None],
        may_be_plain: Callable[[str], bool],
        ask: Ask,
    ) -> None:
        super().__init__()
        self.origin = ("https", "", 443)
        self._registry = registry
        self._repository = repository
        self._find = credential
        self._may_be_plain = may_be_plain
        self._ask = ask
        self._found: tuple[Credential | None] | None = None
        self._authorization = ""
        self._lock = threading.Lock()

    @property
    def credential(self) -> Credential | None:
        """The credential, None if there is none. Raises CoopError."""
        if self._found is None:
            self._found = (self._find(),)
        return self._found[0]

    def load_configs(self, container: object, configs: object = None) -> None:
        """Do nothing: ``auth.find`` knows more files and more of their rules."""

    def get_auth_header(self) -> dict[str, str]:
        """Return the header that the registry accepted last."""
        return {"Authorization": self._authorization} if self._authorization else {}

    def authenticate_request(
        self, original: requests.Response, headers: dict[str, str], refresh: bool = False
    ) -> tuple[dict[str, str], bool]:
        """Return the headers for another try, and whether there is any use in one. Raises CoopError."""
        sent = str(original.request.headers.get("Authorization") or "")
        with self._lock:
            if self._authorization in ("", sent):  # else another thread has been here meanwhile
                asked = challenges(original.headers.get("WWW-Authenticate") or "")
                self._authorization = self._answer(asked, sent)
            return {**headers, **self.get_auth_header()}, bool(self._authorization)

    def _answer(self, asked: dict[str, dict[str, str]], sent: str) -> str:
        """Return what to send, empty if nothing would help."""
        credential = self.credential
        if credential is not None and credential.bearer:
            given = f"Bearer {credential.bearer}"
        elif "bearer" in asked:
            return f"Bearer {self._token(asked['bearer'], credential)}"
        elif "basic" in asked and credential is not None and credential.user:
            given = _basic(credential)
        else:
            return ""
        if given == sent:
            return ""
        self._guard(self.origin, self._registry)
        return given

    def _token(self, asked: dict[str, str], credential: Credential | None) -> str:
        realm = asked.get("realm", "")
        at = self._checked(realm)
        # Not the scope that the registry asks for: it could be one for writing.
        fields = {"scope": f"repository:{self._repository}:pull"}
        if asked.get("service"):
            fields["service"] = asked["service"]
        headers = {"Accept": "application/json"}
        body = None
        if credential is not None:
            # Without TLS somebody on the way could name a token server of their own.
            self._guard(self.origin, self._registry)
            self._guard(at, at[1])
            if credential.identity:
                fields |= {"grant_type": "refresh_token", "refresh_token": credential.identity}
                body = urlencode({**fields, "client_id": "coop"}).encode()
                headers["Content-Type"] = "application/x-www-form-urlencoded"
            else:
                fields["account"] = credential.user
                headers["Authorization"] = _basic(credential)
        if body is None:
            realm += ("&" if urlsplit(realm).query else "?") + urlencode(fields)
        status, answer = self._ask(realm, headers, body)
        return self._read(status, answer, at[1])

    def _checked(self, realm: str) -> tuple[str, str, int]:
        """Return where a token server is; raises CoopError if the registry may not send us there."""
        try:
            at = origin(realm)
        except CoopError:
            at = ("", "", 0)
        plain = at[0] == "http" and self.origin[0] == "http" and self._may_be_plain(realm)
        if (at[0] != "https" and not plain) or "#" in realm:
            raise CoopError(
                f"{self._registry} asks for a token from an address that is not safe to ask",
                "a token server has an https:// address; is this the right registry?",
            )
        return at

    def _guard(self, at: tuple[str, str, int], name: str) -> None:
        if at[0] != "https" and not is_loopback(at[1]):
            raise CoopError(
                f"{name} asks for a login over plain HTTP, where everybody on the way could read it",
                "give the registry TLS, or take its login away",
            )

    def _read(self, status: int, answer: bytes, host: str) -> str:
        if status in (401, 403):
            raise self.refused()
        try:
            content = json.loads(answer) if status == 200 else None
        except (ValueError, RecursionError):
            content = None
        token = (content.get("token") or content.get("access_token")) if isinstance(content, dict) else None
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise CoopError(
                f"{host} gave no token for {self._registry} (HTTP status {status})", "try again later"
            )
        return token

    def refused(self) -> CoopError:
        """Return the error for a repository that does not open with what we have."""
        name, credential = f"{self._registry}/{self._repository}", self.credential
        login = f"docker login {'' if self._registry == 'docker.io' else self._registry}".rstrip()
        hint = f"{login}, or podman login {self._registry}"
        if credential is None:
            return CoopError(f"{name} does not exist, or needs a login", f"check the name, or log in: {hint}")
        return CoopError(
            f"{name} does not exist, or the login from {credential.origin} does not open it",
            f"check the name, or log in again: {hint}",
        )


def _basic(credential: Credential) -> str:
    return "Basic " + b64encode(f"{credential.user}:{credential.password}".encode()).decode()
