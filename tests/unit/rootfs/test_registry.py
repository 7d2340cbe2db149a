"""Registries that misbehave: everything arrives verified, or an error says what is wrong."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coopfile.errors import CoopError
from coopfile.rootfs import documents, wire
from coopfile.rootfs.download import fetch_all
from coopfile.rootfs.model import Descriptor
from tests.unit.rootfs.fakeregistry import FAST, FakeRegistry, Handler, big
from tests.unit.rootfs.images import AMD64, LAYER, MadeImage, descriptor, index, of, sha256

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


def test_an_image_is_found_by_tag_and_by_digest(registry: FakeRegistry, tmp_path: Path) -> None:
    """Both name the same image, and its layers arrive as they are."""
    made = registry.add(MadeImage(), "v1")
    by_tag = image(registry, "team/app:v1")
    by_digest = image(registry, f"team/app@{sha256(made.manifest)}")
    assert by_tag.layers == by_digest.layers == (of(made.layers[0]),)
    assert by_tag.digest == by_digest.digest == sha256(made.manifest)
    fetch(registry, tmp_path / "layer", by_tag.layers[0])
    assert (tmp_path / "layer").read_bytes() == made.layer
    assert os.listdir(tmp_path) == ["layer"]


@pytest.mark.parametrize("repository", ["app", "team/app", "my.org/team/app", "a/b/c/d"])
def test_repositories_are_asked_for_as_they_are(registry: FakeRegistry, repository: str) -> None:
    """A first part with a dot is not taken for a registry."""
    registry.add(MadeImage())
    image(registry, f"{repository}:latest")
    assert registry.seen[0][0] == f"/v2/{repository}/manifests/latest"


def test_docker_hub_is_where_docker_has_it() -> None:
    """docker.io is the name, registry-1.docker.io the address."""
    from coopfile.language.items import ImageReference
    from coopfile.rootfs.client import Client

    client = Client(ImageReference("docker.io", "library/debian", "12"), lambda: None)
    assert client.container.manifest_url("12") == "registry-1.docker.io/v2/library/debian/manifests/12"
    assert client.what == "docker.io/library/debian"
    client.close()


def test_an_index_from_a_registry_is_followed(registry: FakeRegistry) -> None:
    """The image of the platform is taken; the digest is the index's."""
    arm, intel = registry.add(MadeImage("linux/arm64", b"arm")), registry.add(MadeImage(name=b"intel"))
    body = index(
        arm.entry({"os": "linux", "architecture": "arm64"}),
        intel.entry({"os": "linux", "architecture": "amd64"}),
    )
    registry.put(body, documents.OCI_INDEX)
    found = image(registry)
    assert (found.digest, found.manifest.digest) == (sha256(body), sha256(intel.manifest))


def test_a_manifest_that_is_not_its_digest_is_refused(registry: FakeRegistry) -> None:
    """For a digest that was asked for, one that an index named, and one that the registry promised."""
    made = registry.add(MadeImage())
    other = MadeImage(User="1000:1001")
    registry.manifests[sha256(made.manifest)] = (made.media_type, other.manifest)
    assert "has the digest" in fails(lambda: image(registry, f"team/app@{sha256(made.manifest)}")).message
    registry.put(index(made.entry({"os": "linux", "architecture": "amd64"})), documents.OCI_INDEX)
    assert "has the digest" in fails(lambda: image(registry)).message
    registry.script(
        "/manifests/",
        lambda handler: handler.give(other.manifest, Docker_Content_Digest=f"sha256:{'0' * 64}"),
    )
    assert "has the digest" in fails(lambda: image(registry)).message


def test_a_config_that_is_not_its_digest_is_refused(registry: FakeRegistry) -> None:
    """The same size does not help it."""
    made = registry.add(MadeImage())
    registry.blobs[sha256(made.config_bytes)] = made.config_bytes.replace(b"/srv", b"/etc")
    assert "has the digest" in fails(lambda: image(registry)).message


def test_a_flipped_byte_of_a_layer_is_refused(registry: FakeRegistry, tmp_path: Path) -> None:
    """Nothing is left at the path, nor beside it."""
    registry.blobs[BLOB.digest] = BIG[:-1] + b"\0"
    error = fails(lambda: fetch(registry, tmp_path / "layer"))
    assert "has the digest" in error.message
    assert error.remedy
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("size", [len(BIG) - 1, len(BIG) + 1, 0])
def test_a_layer_of_another_size_is_refused_at_once(
    registry: FakeRegistry, tmp_path: Path, size: int
) -> None:
    """Its length tells before its content is read, and it is not tried again."""
    registry.blobs[BLOB.digest] = (BIG + b"more")[:size]
    assert f"has {size} bytes" in fails(lambda: fetch(registry, tmp_path / "layer")).message
    assert len(registry.asked("/blobs/")) == 1
    assert os.listdir(tmp_path) == []


def test_an_endless_layer_is_cut_off(registry: FakeRegistry, tmp_path: Path) -> None:
    """Without a length, no more is read than the layer may have."""
    sent = 0

    def endless(handler: Handler) -> None:
        nonlocal sent
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True
        while sent < 1 << 30:
            handler.wfile.write(BIG)
            sent += len(BIG)

    registry.script("/blobs/", endless)
    assert "bytes where the image says" in fails(lambda: fetch(registry, tmp_path / "layer")).message
    assert sent < 64 << 20
    assert os.listdir(tmp_path) == []


def test_an_endless_manifest_is_cut_off(registry: FakeRegistry) -> None:
    """A document has a bound of its own."""
    sent = 0

    def endless(handler: Handler) -> None:
        nonlocal sent
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True
        while sent < 1 << 28:
            handler.wfile.write(b" " * (1 << 20))
            sent += 1 << 20

    registry.script("/manifests/", endless)
    assert "more than 4 MiB" in fails(lambda: image(registry)).message
    assert sent < 64 << 20


def test_a_broken_download_goes_on_where_it_broke(registry: FakeRegistry, tmp_path: Path) -> None:
    """Only the rest is asked for, and the whole is verified."""
    registry.blobs[BLOB.digest] = BIG
    registry.script(
        "/blobs/",
        lambda handler: handler.part(BIG, len(BIG), 1000),
        lambda handler: handler.part(BIG, len(BIG), 2_000_000),
        registry.serve,
    )
    told = fetch(registry, tmp_path / "layer")
    assert (tmp_path / "layer").read_bytes() == BIG
    assert [asked.get("Range") for asked in registry.asked("/blobs/")] == [
        None,
        "bytes=1000-",
        "bytes=2000000-",
    ]
    assert sum(told) == len(BIG)


def test_a_registry_without_ranges_sends_all_of_it_again(registry: FakeRegistry, tmp_path: Path) -> None:
    """What was there is forgotten, also in the count of bytes."""
    registry.script(
        "/blobs/", lambda handler: handler.part(BIG, len(BIG), 1000), lambda handler: handler.give(BIG)
    )
    told = fetch(registry, tmp_path / "layer")
    assert (tmp_path / "layer").read_bytes() == BIG
    assert -1000 in told
    assert sum(told) == len(BIG)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("bytes 0-9/3145728", "another part"),
        ("bytes 999-3145727/3145728", "another part"),
        ("bytes 1000-1009/1010", "has 1010 bytes"),
        ("x", "another part"),
        ("", "another part"),
    ],
)
def test_another_range_than_asked_for_is_refused(
    registry: FakeRegistry, tmp_path: Path, answer: str, said: str
) -> None:
    """A part from elsewhere is an error, not written."""
    registry.script(
        "/blobs/",
        lambda handler: handler.part(BIG, len(BIG), 1000),
        lambda handler: handler.give(BIG[:10], 206, Content_Range=answer),
    )
    assert said in fails(lambda: fetch(registry, tmp_path / "layer")).message
    assert os.listdir(tmp_path) == []


def test_a_download_that_breaks_again_and_again_ends(registry: FakeRegistry, tmp_path: Path) -> None:
    """After some tries without progress the error says how far it came."""
    registry.script("/blobs/", lambda handler: handler.part(BIG, len(BIG), 1000))
    error = fails(lambda: fetch(registry, tmp_path / "layer"))
    assert "broke" in error.message
    assert len(registry.asked("/blobs/")) == FAST.tries
    assert os.listdir(tmp_path) == []


def test_progress_earns_more_tries(registry: FakeRegistry, tmp_path: Path) -> None:
    """A connection that breaks after every MiB brings the layer in the end."""
    blob = big(5 << 20)
    step = 1 << 20
    registry.script(
        "/blobs/", lambda handler: handler.part(blob, len(blob), min(len(blob), handler.start + step))
    )
    fetch(registry, tmp_path / "layer", Descriptor(LAYER, sha256(blob), len(blob)))
    assert (tmp_path / "layer").read_bytes() == blob
    assert len(registry.asked("/blobs/")) == 5 > FAST.tries


def trickle(handler: Handler) -> None:
    """Send a byte now and then, always in time for the socket's own timeout."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(BIG)))
    handler.end_headers()
    for byte in BIG:
        handler.wfile.write(bytes([byte]))
        handler.wfile.flush()
        time.sleep(0.05)


@pytest.mark.parametrize("part", ["/blobs/", "/manifests/"])
def test_a_trickle_counts_as_broken(registry: FakeRegistry, tmp_path: Path, part: str) -> None:
    """Bytes in time for the socket are still too few."""
    registry.script(part, trickle)
    start = time.monotonic()
    error = fails(lambda: image(registry) if part == "/manifests/" else fetch(registry, tmp_path / "layer"))
    assert "sends less than 2000 bytes in 0.25 s" in error.message
    assert time.monotonic() - start < 5


def test_a_head_that_trickles_is_cut_off(registry: FakeRegistry) -> None:
    """An answer that never gets to its body ends in time, too."""

    def head(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for number in range(60):
            handler.wfile.write(f"X-{number}: y\r\n".encode())
            handler.wfile.flush()
            time.sleep(0.1)

    registry.script("/manifests/", head)
    start = time.monotonic()
    fails(lambda: image(registry))
    assert time.monotonic() - start < 5


def test_a_registry_that_says_nothing_is_given_up(registry: FakeRegistry) -> None:
    """Each try has a timeout, and there are few."""
    registry.script("/manifests/", lambda handler: time.sleep(1))
    assert "does not answer" in fails(lambda: image(registry)).message
    assert len(registry.asked("/manifests/")) == FAST.tries


def busy(status: int, **headers: str) -> Callable[[Handler], None]:
    """Return an answer that asks for patience."""
    return lambda handler: handler.give(b"{}", status, **headers)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_a_busy_registry_is_asked_again(registry: FakeRegistry, tmp_path: Path, status: int) -> None:
    """Documents and blobs alike; the answer after that counts."""
    made = registry.add(MadeImage())
    registry.script("/manifests/", busy(status), busy(status), registry.serve)
    registry.script("/blobs/", busy(status), registry.serve)
    found = image(registry)
    fetch(registry, tmp_path / "layer", found.layers[0])
    assert (tmp_path / "layer").read_bytes() == made.layer


def test_retry_after_is_honoured(registry: FakeRegistry) -> None:
    """The pause is as long as the registry asks for."""
    registry.add(MadeImage())
    registry.script("/manifests/", busy(429, Retry_After="1"), registry.serve)
    start = time.monotonic()
    image(registry)
    assert 1 <= time.monotonic() - start < 3


@pytest.mark.parametrize("pause", ["3", "3600", "Fri, 31 Dec 2100 23:59:59 GMT", "9" * 5000])
def test_a_long_retry_after_is_told_and_not_waited_for(registry: FakeRegistry, pause: str) -> None:
    """The limit of downloads is an error with what helps."""
    registry.script("/manifests/", busy(429, Retry_After=pause))
    start = time.monotonic()
    error = fails(lambda: image(registry))
    assert "allows no more downloads" in error.message
    assert "log in" in str(error.remedy)
    assert time.monotonic() - start < 1
    assert len(registry.asked("/manifests/")) == 1


@pytest.mark.parametrize("pause", ["soon", "-5", "", "1e9", "Fri, 99 Dec"])
def test_a_strange_retry_after_is_ignored(registry: FakeRegistry, pause: str) -> None:
    """What is no time is as if it were not there."""
    registry.add(MadeImage())
    registry.script("/manifests/", busy(503, Retry_After=pause), registry.serve)
    image(registry)


def test_a_refused_connection_is_told_at_once(registry: FakeRegistry) -> None:
    """Not after two minutes."""
    registry.close()
    start = time.monotonic()
    error = fails(lambda: image(registry))
    assert error.message == f"{registry.address} refuses connections"
    assert time.monotonic() - start < 2
    registry.close = lambda: None  # type: ignore[method-assign]


def test_an_unknown_host_is_told_as_such() -> None:
    """The name of the registry is in the message."""
    from coopfile.language.items import ImageReference
    from coopfile.rootfs.registry import RegistrySource

    source = RegistrySource(ImageReference("registry.invalid", "app", "1"), {}, limits=FAST)
    error = fails(lambda: source.image(AMD64))
    assert "registry.invalid" in error.message
    source.close()


def test_what_does_not_exist_is_told_as_such(registry: FakeRegistry) -> None:
    """A missing tag is not tried again."""
    assert "does not exist" in fails(lambda: image(registry, "team/app:nope")).message
    assert len(registry.seen) == 1


@pytest.mark.parametrize("status", [200, 404, 403])
def test_a_web_page_is_not_a_registry(registry: FakeRegistry, status: int) -> None:
    """Pages of captive portals and of mistyped names are recognised; their text is not shown."""
    registry.script(
        "/manifests/", lambda handler: handler.give(b"<html>\x1b[2J</html>", status, Content_Type="text/html")
    )
    error = fails(lambda: image(registry))
    if status != 403:
        assert "answers with a web page" in error.message
    assert "\x1b" not in error.message


def test_other_errors_show_what_the_registry_says(registry: FakeRegistry) -> None:
    """In one line, without what a terminal would act upon."""
    body = json.dumps({"errors": [{"code": "TEAPOT", "message": "short and\x1b[2J\nstout"}]}).encode()
    registry.script("/manifests/", lambda handler: handler.give(body, 418))
    assert fails(lambda: image(registry)).message.endswith("with status 418: short and [2J stout")


def test_an_image_in_the_old_format_is_refused(registry: FakeRegistry) -> None:
    """Schema 1 has no digests of configs; it is named."""
    registry.put(b'{"schemaVersion": 1}', "application/vnd.docker.distribution.manifest.v1+prettyjws")
    assert "old format" in fails(lambda: image(registry)).message


def test_a_redirect_leads_to_the_blob(make_registry: Callable[[], FakeRegistry], tmp_path: Path) -> None:
    """Another host gets no authorization; a broken download is asked for at the registry again."""
    registry, storage = make_registry(), make_registry()
    storage.blobs[BLOB.digest] = BIG
    guard(registry, "t0ken-a")
    registry.script(
        "/blobs/",
        needs(
            "t0ken-a",
            lambda handler: redirect(handler, f"http://{storage.address}/x/blobs/{BLOB.digest}?sig=1"),
        ),
    )
    storage.script("/blobs/", lambda handler: handler.part(BIG, len(BIG), 2_000_000), storage.serve)
    fetch(registry, tmp_path / "layer")
    assert (tmp_path / "layer").read_bytes() == BIG
    assert len(storage.seen) == 2
    assert not any("Authorization" in headers for _, headers in storage.seen)
    assert any("Authorization" in headers for headers in registry.asked("/blobs/"))


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("http://192.0.2.1/blob", "redirects to an address without TLS"),
        ("http://registry.example/blob", "redirects to an address without TLS"),
        ("ftp://127.0.0.1/blob", "cannot be used"),
        ("file:///etc/passwd", "cannot be used"),
        ("http://u:p@127.0.0.1/x", "cannot be used"),
        ("https:///x", "cannot be used"),
    ],
)
def test_a_redirect_to_a_place_that_is_not_safe_is_refused(
    registry: FakeRegistry, tmp_path: Path, target: str, said: str
) -> None:
    """Other schemes, other hosts without TLS, and addresses with passwords are not followed."""
    registry.script("/blobs/", lambda handler: redirect(handler, target))
    assert said in fails(lambda: fetch(registry, tmp_path / "layer")).message


def test_redirects_in_a_circle_end(registry: FakeRegistry, tmp_path: Path) -> None:
    """After a few."""
    registry.script("/blobs/", lambda handler: redirect(handler, handler.path))
    assert "in a circle" in fails(lambda: fetch(registry, tmp_path / "layer")).message
    assert len(registry.seen) < 10


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


def logins(tmp_path: Path, *addresses: str, **entry: str) -> dict[str, str]:
    """Return an environment whose credentials are for some registries."""
    given = entry or {"auth": base64.b64encode(b"me:s3cret").decode()}
    path = tmp_path / "auth.json"
    path.write_text(json.dumps({"auths": dict.fromkeys(addresses, given)}))
    return {"REGISTRY_AUTH_FILE": str(path)}


def test_a_token_is_fetched_for_pulling_and_used(registry: FakeRegistry) -> None:
    """The scope is coop's own, whatever the challenge asks for; anonymous where there is no login."""
    registry.add(MadeImage())
    guard(registry, "t0ken")
    image(registry)
    asked = next(path for path, _ in registry.seen if path.startswith("/token"))
    assert asked == "/token?x=1&scope=repository%3Ateam%2Fapp%3Apull&service=here%2C+there"
    assert len(registry.asked("/token")) == 1
    assert "Authorization" not in registry.asked("/token")[0]


def test_a_login_goes_to_the_token_server_only(registry: FakeRegistry, tmp_path: Path) -> None:
    """The registry itself sees the token and not the password."""
    registry.add(MadeImage())
    guard(registry, "t0ken")
    image(registry, environment=logins(tmp_path, registry.address))
    assert registry.asked("/token")[0]["Authorization"].startswith("Basic ")
    assert all(
        headers.get("Authorization", "Bearer ").startswith("Bearer ") for headers in registry.asked("/v2/")
    )


def test_an_identity_token_is_exchanged(registry: FakeRegistry, tmp_path: Path) -> None:
    """It goes into a POST as a refresh token."""
    registry.add(MadeImage())
    guard(registry, "t0ken")
    bodies = []

    def exchange(handler: Handler) -> None:
        bodies.append(handler.rfile.read(int(handler.headers["Content-Length"])))
        handler.give(b'{"access_token": "t0ken"}')

    registry.script("/token", exchange)
    image(registry, environment=logins(tmp_path, registry.address, identitytoken="refr&sh"))
    assert b"grant_type=refresh_token&refresh_token=refr%26sh" in bodies[0]
    assert registry.asked("/token")[0].get("Authorization") is None


def test_a_login_of_one_registry_never_reaches_another(
    make_registry: Callable[[], FakeRegistry], tmp_path: Path
) -> None:
    """Neither as a token, nor as a password, though both run at one address but for the port."""
    first, second = make_registry(), make_registry()
    environment = logins(tmp_path, first.address)
    for registry, token in ((first, "t0ken-a"), (second, "t0ken-b")):
        registry.add(MadeImage())
        guard(registry, token)
        image(registry, environment=environment)
    assert first.asked("/token")[0]["Authorization"].startswith("Basic ")
    shown = [headers.get("Authorization") for _, headers in second.seen]
    assert set(shown) == {None, "Bearer t0ken-b"}


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_that_ran_out_is_fetched_again(registry: FakeRegistry, tmp_path: Path, status: int) -> None:
    """Once, and the download goes on; some registries say 403."""
    made = registry.add(MadeImage())
    guard(registry, "old")
    source = registry.source()
    found = source.image(AMD64)
    guard(registry, "new", status)
    source.fetch(found.layers[0], str(tmp_path / "layer"))
    source.close()
    assert (tmp_path / "layer").read_bytes() == made.layer


@pytest.mark.parametrize(
    "realm",
    [
        "http://192.0.2.1/token",
        "ftp://127.0.0.1/token",
        "http://u:p@127.0.0.1/token",
        "/token",
        "",
        "https://",
        "javascript:x",
    ],
)
def test_a_realm_that_is_not_safe_is_not_asked(registry: FakeRegistry, tmp_path: Path, realm: str) -> None:
    """Other hosts without TLS, other schemes and no addresses at all are errors."""
    registry.script(
        "/v2/", lambda handler: handler.give(b"", 401, WWW_Authenticate=f'Bearer realm="{realm}"')
    )
    environment = logins(tmp_path, registry.address)
    assert "not safe to ask" in fails(lambda: image(registry, environment=environment)).message


@pytest.mark.parametrize("status", [401, 403])
def test_a_login_that_is_refused_is_told_without_showing_it(
    registry: FakeRegistry, tmp_path: Path, status: int
) -> None:
    """The file and the command to run are in the error, the password nowhere."""
    guard(registry, "t0ken")
    registry.script("/token", lambda handler: handler.give(b'{"details": "s3cret"}', status))
    environment = logins(tmp_path, registry.address)
    error = fails(lambda: image(registry, environment=environment))
    assert environment["REGISTRY_AUTH_FILE"] in error.message
    assert f"podman login {registry.address}" in str(error.remedy)
    assert "s3cret" not in error.message + str(error.remedy)


@pytest.mark.parametrize("challenge", ['Bearer realm="TOKEN"', 'Basic realm="x"', "Negotiate", ""])
def test_without_a_login_the_error_tells_how_to_log_in(registry: FakeRegistry, challenge: str) -> None:
    """Also when the token that everybody gets does not open the repository."""
    header = challenge.replace("TOKEN", f"http://{registry.address}/token")
    registry.script("/token", lambda handler: handler.give(b'{"token": "useless"}'))
    registry.script("/v2/", lambda handler: handler.give(b"", 401, WWW_Authenticate=header))
    error = fails(lambda: image(registry))
    assert "does not exist, or needs a login" in error.message
    assert f"podman login {registry.address}" in str(error.remedy)
    assert len(registry.asked("/v2/")) <= 3


def test_basic_logins_are_used_where_the_registry_asks_for_them(
    registry: FakeRegistry, tmp_path: Path
) -> None:
    """Once they are wrong there is no second try."""
    registry.add(MadeImage())
    wanted = "Basic " + base64.b64encode(b"me:s3cret").decode()

    def answer(handler: Handler) -> None:
        if handler.headers.get("Authorization") == wanted:
            registry.serve(handler)
        else:
            handler.give(b"", 401, WWW_Authenticate='Basic realm="registry"')

    registry.script("/v2/", answer)
    image(registry, environment=logins(tmp_path, registry.address))
    environment = logins(tmp_path, registry.address, auth=base64.b64encode(b"me:wrong").decode())
    registry.seen.clear()
    assert "does not open it" in fails(lambda: image(registry, environment=environment)).message
    assert len(registry.seen) == 2


@pytest.mark.parametrize("token", ['"a b"', '"a\\r\\nX: y"', "1", "null", '""', '"\\u0101"'])
def test_a_token_that_is_none_is_refused(registry: FakeRegistry, token: str) -> None:
    """Nothing gets into a header that does not belong there."""
    guard(registry, "t0ken")
    registry.script("/token", lambda handler: handler.give(f'{{"token": {token}}}'.encode()))
    assert "gave no token" in fails(lambda: image(registry)).message


def test_a_token_server_does_not_lead_elsewhere(
    make_registry: Callable[[], FakeRegistry], tmp_path: Path
) -> None:
    """A redirect of the token server is not followed: the password stays."""
    registry, other = make_registry(), make_registry()
    guard(registry, "t0ken")
    registry.script("/token", lambda handler: redirect(handler, f"http://{other.address}/token"))
    environment = logins(tmp_path, registry.address)
    assert "gave no token" in fails(lambda: image(registry, environment=environment)).message
    assert other.seen == []


def test_netrc_and_cookies_do_not_reach_a_registry(
    registry: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other stores of passwords are left alone."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password s3cret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    made = registry.add(MadeImage())
    registry.script(
        "/manifests/",
        lambda handler: handler.give(made.manifest, Content_Type=made.media_type, Set_Cookie="a=b"),
    )
    image(registry)
    assert len(registry.seen) == 2
    assert not any({"Authorization", "Cookie"} & set(headers) for _, headers in registry.seen)


def test_a_proxy_is_not_asked_for_the_loopback_interface(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """$http_proxy is for other hosts."""
    registry.add(MadeImage())
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    image(registry)


def test_a_proxy_is_asked_for_other_hosts(registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that is configured as plain is reached through $http_proxy."""
    from coopfile.language.items import ImageReference
    from coopfile.rootfs.registry import RegistrySource

    registry.add(MadeImage())
    monkeypatch.setenv("http_proxy", f"http://{registry.address}")
    monkeypatch.setenv("https_proxy", f"http://{registry.address}")
    reference = ImageReference("registry.example:5000", "app", "latest")
    source = RegistrySource(reference, {}, ("registry.example:5000",), FAST)
    source.image(AMD64)
    source.close()
    assert registry.seen[-1][0].startswith("http://registry.example:5000/v2/app/")
    secure = RegistrySource(reference, {}, (), FAST)
    fails(lambda: secure.image(AMD64))
    secure.close()


def test_a_password_is_not_sent_to_a_plain_registry(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Plain HTTP beyond the loopback interface is for who needs no login, wherever its tokens are from."""
    from coopfile.language.items import ImageReference
    from coopfile.rootfs.registry import RegistrySource

    monkeypatch.setenv("http_proxy", f"http://{registry.address}")
    monkeypatch.setenv("https_proxy", f"http://{registry.address}")
    reference = ImageReference("registry.example:5000", "app", "latest")
    for challenge in ('Basic realm="x"', 'Bearer realm="https://tokens.example/"'):
        registry.script("/v2/", lambda handler: handler.give(b"", 401, WWW_Authenticate=challenge))  # noqa: B023
        source = RegistrySource(
            reference, logins(tmp_path, "registry.example:5000"), ("registry.example:5000",), FAST
        )
        assert "over plain HTTP" in fails(lambda: source.image(AMD64)).message  # noqa: B023
        source.close()
    assert not any("Authorization" in headers for _, headers in registry.seen)


def test_all_blobs_are_fetched_side_by_side_and_each_once(registry: FakeRegistry, tmp_path: Path) -> None:
    """Four at a time; a layer that an image has twice is fetched once."""
    bodies = [bytes([number]) * 1000 for number in range(6)]
    together = threading.Barrier(4, timeout=5)

    def meet(handler: Handler) -> None:
        together.wait()
        registry.serve(handler)

    registry.blobs.update({sha256(body): body for body in bodies[:4]})
    registry.script("/blobs/", meet)
    blobs = [of(descriptor(body, LAYER)) for body in bodies[:4]]
    told: dict[str, int] = {}
    whole: list[str] = []
    source = registry.source()
    paths = fetch_all(
        source,
        [*blobs, blobs[0]],
        str(tmp_path),
        lambda blob, count: told.update({blob.digest: told.get(blob.digest, 0) + count}),
        lambda blob, path: whole.append(Path(path).read_bytes().decode()),
    )
    source.close()
    assert {digest: sha256(Path(path).read_bytes()) for digest, path in paths.items()} == {
        digest: digest for digest in paths
    }
    assert told == {blob.digest: 1000 for blob in blobs}
    assert len(registry.asked("/blobs/")) == len(whole) == 4


def test_the_first_error_ends_all_downloads(registry: FakeRegistry, tmp_path: Path) -> None:
    """A wrong digest is told while another transfer still hangs, and that leaves nothing either."""
    wrong = b"w" * 1000
    registry.blobs[sha256(wrong)] = b"x" * 1000
    slow = FAST.replace(read=60.0, slow=60.0)
    hung = threading.Event()

    def hang(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(BIG)))
        handler.end_headers()
        handler.wfile.write(BIG[:1000])
        handler.wfile.flush()
        hung.set()
        time.sleep(5)

    def late(handler: Handler) -> None:
        hung.wait(5)
        registry.serve(handler)

    registry.script(BLOB.digest, hang)
    registry.script(sha256(wrong), late)
    source = registry.source(limits=slow)
    start = time.monotonic()
    error = fails(lambda: fetch_all(source, [BLOB, of(descriptor(wrong, LAYER))], str(tmp_path)))
    assert "has the digest" in error.message
    assert time.monotonic() - start < 3
    assert os.listdir(tmp_path) == []
    source.close()


def test_an_interrupt_ends_all_downloads(registry: FakeRegistry, tmp_path: Path) -> None:
    """Control-C does not wait for transfers that hang."""

    def hang(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(BIG)))
        handler.end_headers()
        handler.wfile.write(BIG[:1000])
        handler.wfile.flush()
        time.sleep(5)

    registry.script("/blobs/", hang)
    source = registry.source(limits=FAST.replace(read=60.0, slow=60.0))
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        fetch_all(source, [BLOB], str(tmp_path), lambda blob, count: os.kill(os.getpid(), signal.SIGINT))
    assert time.monotonic() - start < 3
    assert os.listdir(tmp_path) == []
    source.close()


def test_a_full_disk_is_told_as_such(registry: FakeRegistry) -> None:
    """The path and the reason are in the error."""
    registry.blobs[BLOB.digest] = BIG
    error = fails(lambda: fetch(registry, Path("/proc/self/layer")))
    assert "cannot be stored" in error.message


def test_sha512_is_a_digest_too(registry: FakeRegistry, tmp_path: Path) -> None:
    """The specification has two algorithms; both are checked."""
    digest = documents.digest_of("sha512", BIG)
    registry.blobs[digest] = BIG
    fetch(registry, tmp_path / "layer", Descriptor(LAYER, digest, len(BIG)))
    registry.blobs[digest] = BIG[:-1] + b"\0"
    fails(lambda: fetch(registry, tmp_path / "other", Descriptor(LAYER, digest, len(BIG))))
    assert os.listdir(tmp_path) == ["layer"]


def test_a_connection_is_used_again(registry: FakeRegistry, tmp_path: Path) -> None:
    """For the token, documents, redirects and blobs; the first one asks for TLS."""
    made = registry.add(MadeImage())
    guard(registry, "t0ken")
    registry.script("/blobs/", lambda handler: redirect(handler, handler.path.replace("/blobs/", "/stored/")))
    registry.script("/stored/", lambda handler: handler.give(made.blobs[handler.path.rpartition("/")[2]]))
    source = registry.source()
    found = source.image(AMD64)
    source.fetch(found.layers[0], str(tmp_path / "layer"))
    source.close()
    assert len(registry.seen) == 7
    assert registry.connections == 2


def test_registries_cost_nothing_until_one_is_asked() -> None:
    """oras and requests are imported with the first source of theirs."""
    script = "import sys, coopfile.rootfs.registry, coopfile.rootfs.local, coopfile.rootfs.download\n"
    script += "print(*{'oras', 'requests', 'urllib3', 'jsonschema', 'ssl'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "\n"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Return a new key and its certificate for 127.0.0.1, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is needed to make a certificate")
    path = tmp_path / "certificate.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    argv += ["-days", "2", "-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.1"]
    argv += ["-keyout", str(tmp_path / "key.pem"), "-out", str(path)]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    path.write_bytes(path.read_bytes() + (tmp_path / "key.pem").read_bytes())
    return path


@pytest.mark.parametrize("trusted", [True, False])
def test_certificates_are_verified_on_the_loopback_interface_too(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    """A registry that speaks TLS is never spoken to without, however its certificate is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    wire.trust.cache_clear()
    registry = FakeRegistry(context)
    try:
        registry.add(MadeImage())
        if trusted:
            assert image(registry).layers
        else:
            assert "cannot be trusted: self-signed" in fails(lambda: image(registry)).message
            assert registry.seen == []
    finally:
        registry.close()
        wire.trust.cache_clear()


def test_certificates_that_are_not_there_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong $SSL_CERT_FILE is named, and trusts nobody."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent/authorities.pem")
    wire.trust.cache_clear()
    error = fails(lambda: wire.trust())
    assert "/nonexistent/authorities.pem" in error.message
    wire.trust.cache_clear()
