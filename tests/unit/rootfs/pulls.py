"""Asking a registry of tests for images and blobs, and having it ask for tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coopfile.errors import CoopError
from coopfile.rootfs.model import Descriptor
from tests.unit.rootfs.fakeregistry import FakeRegistry, Handler, big
from tests.unit.rootfs.images import AMD64, LAYER, sha256

BIG = big(3 << 20)
BLOB = Descriptor(LAYER, sha256(BIG), len(BIG))


def fetch(registry: FakeRegistry, path: Path, blob: Descriptor = BLOB, **more: Any) -> list[int]:
    """Fetch a blob; return what was told."""
    told: list[int] = []
    source = registry.source(**more)
    try:
        source.fetch(blob, str(path), told.append)
    finally:
        source.close()
    return told


def image(registry: FakeRegistry, reference: str = "team/app:latest", **more: Any) -> Any:
    """Resolve an image for linux/amd64."""
    source = registry.source(reference, **more)
    try:
        return source.image(AMD64)
    finally:
        source.close()


def fails(call: Callable[[], Any]) -> CoopError:
    """Return the error that a call has to end in."""
    with pytest.raises(CoopError) as error:
        call()
    assert error.value.message
    return error.value


def redirect(handler: Handler, target: str) -> None:
    """Send somewhere else."""
    handler.give(b"", 307, Location=target)


def needs(token: str, then: Callable[[Handler], None], status: int = 401) -> Callable[[Handler], None]:
    """Return an answer for who has a token; others are sent to this registry's own /token."""

    def answer(handler: Handler) -> None:
        if handler.headers.get("Authorization") == f"Bearer {token}":
            then(handler)
        else:
            address = handler.server.registry.address
            challenge = f'Bearer realm="http://{address}/token?x=1",service="here, there",scope="evil:push"'
            handler.give(b"{}", status, WWW_Authenticate=challenge)

    return answer


def guard(registry: FakeRegistry, token: str, status: int = 401) -> None:
    """Make a registry ask for a token, and give it to everybody."""
    registry.script("/token", lambda handler: handler.give(json.dumps({"token": token}).encode()))
    registry.script("/v2/", needs(token, registry.serve, status))
