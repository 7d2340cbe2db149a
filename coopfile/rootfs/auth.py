"""Credentials for registries, from where docker and podman keep them.

The files are $REGISTRY_AUTH_FILE alone if it is set; otherwise $DOCKER_CONFIG's
config.json, podman's auth.json of the login session and of the user, and
~/.docker/config.json. The keys follow containers-auth.json(5) and docker's own rules.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import shutil
import signal
import subprocess

from coopfile import wholefile
from coopfile.errors import CoopError
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

HUB = "docker.io"
# What docker login writes for its own registry, and what has been written for it since.
_HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", "docker.io", "registry-1.docker.io")
_HELPER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)
_HELPER_SECONDS = 60.0  # it may ask for a passphrase
_MOST_FILE = 4 << 20
_MOST_ANSWER = 1 << 20
_IS_TOKEN = "<token>"  # the user name that helpers give with an identity token


class Credential(Record):
    """What opens a registry: a user and a password, or one of two kinds of token.

    ``identity`` is an OAuth2 refresh token, ``bearer`` goes to the registry as it is.
    ``origin`` says where it was found. Never shown but for that.
    """

    origin: str
    user: str = ""
    password: str = ""
    identity: str = ""
    bearer: str = ""

    def __repr__(self) -> str:
        return f"Credential(origin={self.origin!r}, …)"


def find(registry: str, repository: str, environment: Mapping[str, str]) -> Credential | None:
    """Return the credential for a repository of a registry, None if there is none.

    ``environment`` names the files and gives PATH for credential helpers, which run
    outside every sandbox: it is that of ``own_environment``. Raises CoopError for a
    file that cannot be read, and for a helper that fails.
    """
    for path in _files(environment):
        content = _read(path)
        if content is not None:
            found = _in_file(path, content, registry, repository, environment)
            if found is not None:
                return found
    return None


def _files(environment: Mapping[str, str]) -> Iterator[str]:
    alone = environment.get("REGISTRY_AUTH_FILE")
    if alone:
        yield alone
        return
    home = environment.get("HOME", "")
    docker = environment.get("DOCKER_CONFIG")
    runtime = environment.get("XDG_RUNTIME_DIR")
    config = environment.get("XDG_CONFIG_HOME") or (os.path.join(home, ".config") if home else "")
    if docker:
        yield os.path.join(docker, "config.json")
    if runtime:
        yield os.path.join(runtime, "containers/auth.json")
    if config:
        yield os.path.join(config, "containers/auth.json")
    if home and not docker:
        yield os.path.join(home, ".docker/config.json")


def _read(path: str) -> dict[str, Any] | None:
    """Return the content of a file of credentials, None if there is no such file."""
    try:
        body = wholefile.read(path, _MOST_FILE)
    except OSError as error:
        raise _unusable(path, error.strerror or "it cannot be read") from None
    if body is None:
        return None
    if not body.strip():
        return {}
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise _unusable(path, "it is not a JSON object")
    for key in ("auths", "credHelpers"):
        if not isinstance(content.get(key), dict | None):
            raise _unusable(path, f"{key} is not an object")
    return content


def _in_file(
    path: str, content: dict[str, Any], registry: str, repository: str, environment: Mapping[str, str]
) -> Credential | None:
    servers = _HUB_KEYS if registry == HUB else (registry,)
    helpers = content.get("credHelpers") or {}
    for server in servers:
        if helpers.get(server):
            return _from_helper(path, helpers[server], server, environment)
    key, entry = _entry(content.get("auths") or {}, registry, repository, servers)
    found = _decoded(path, key, entry)
    store = content.get("credsStore")
    if found is None and store:
        return _from_helper(path, store, servers[0], environment)
    return found


def _entry(
    auths: dict[str, Any], registry: str, repository: str, servers: tuple[str, ...]
) -> tuple[str, Any]:
    """Return the key and the value that fit best: the longest exact one, then any spelling of its host."""
    parts = repository.split("/")
    exact = [f"{registry}/{'/'.join(parts[:count])}" for count in range(len(parts), 0, -1)]
    for key in (*exact, registry, *servers):
        if key in auths:
            return key, auths[key]
    for key, value in auths.items():
        if _host(key) in servers:
            return key, value
    return "", None


def _host(key: str) -> str:
    """Return the registry of an old key, which was an address: https://host/v1/."""
    scheme, found, rest = key.partition("://")
    if not found or scheme not in ("http", "https"):
        return ""
    host, _, path = rest.partition("/")
    return host if path.strip("/") in ("", "v1", "v2") else ""


def _decoded(path: str, key: str, entry: object) -> Credential | None:
    if entry is None:
        return None
    if not isinstance(entry, dict):
        raise _unusable(path, f"the entry of {key} is not an object")
    fields = {name: entry.get(name) or "" for name in ("auth", "username", "password")}
    tokens = {name: entry.get(name) or "" for name in ("identitytoken", "registrytoken")}
    if not all(isinstance(value, str) for value in (*fields.values(), *tokens.values())):
        raise _unusable(path, f"the entry of {key} is not made of strings")
    user, password = fields["username"], fields["password"]
    if fields["auth"]:
        try:
            text = base64.b64decode(fields["auth"], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise _unusable(path, f"auth of {key} is not base64") from None
        user, colon, password = text.partition(":")
        if not colon:
            raise _unusable(path, f"auth of {key} has no colon between a user and a password")
        password = password.strip("\0")
    if not (user or any(tokens.values())):
        return None
    return Credential(path, user, password, tokens["identitytoken"], tokens["registrytoken"])


def _from_helper(path: str, name: object, server: str, environment: Mapping[str, str]) -> Credential | None:
    """Ask a credential helper; None when it knows nothing of the server."""
    if not isinstance(name, str) or not _HELPER.fullmatch(name):
        raise _unusable(path, "it names a credential helper that can be none")
    helper = f"docker-credential-{name}"
    program = shutil.which(helper, path=environment.get("PATH", os.defpath))
    if program is None:
        raise CoopError(
            f"{path} names the credential helper {helper}, which is not installed",
            f"install it, or take it out of {path}",
        )
    status, answer = _call(program, helper, server.encode(), environment)
    if status != 0:
        if b"credentials not found" in answer:  # what docker's own client looks for
            return None
        raise _helper_failed(helper, server, f"failed with exit status {status}")
    try:
        content = json.loads(answer)
        user, secret = content["Username"], content["Secret"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise _helper_failed(helper, server, "gave no credentials that can be read") from None
    if not isinstance(user, str) or not isinstance(secret, str):
        raise _helper_failed(helper, server, "gave no credentials that can be read")
    if user == _IS_TOKEN:
        return Credential(helper, identity=secret)
    return Credential(helper, user, secret) if user or secret else None


def _call(program: str, helper: str, given: bytes, environment: Mapping[str, str]) -> tuple[int, bytes]:
    # Standard error may hold what is secret, too: it is shown to nobody.
    try:
        process = subprocess.Popen(
            [program, "get"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise _helper_failed(helper, given.decode(), f"cannot be started: {error.strerror}") from None
    with process:
        try:
            answer, _ = process.communicate(given, timeout=_HELPER_SECONDS)
        except subprocess.TimeoutExpired:
            raise _helper_failed(
                helper, given.decode(), f"did not answer within {_HELPER_SECONDS:g} s"
            ) from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
    if len(answer) > _MOST_ANSWER:
        raise _helper_failed(helper, given.decode(), "gave far too much")
    return process.returncode, answer


def _helper_failed(helper: str, server: str, why: str) -> CoopError:
    return CoopError(f"the credential helper {helper} {why}", f"try it: echo {server} | {helper} get")


def _unusable(path: str, why: str) -> CoopError:
    return CoopError(
        f"the credentials in {path} cannot be used: {why}", "mend it, or log in again with docker or podman"
    )
