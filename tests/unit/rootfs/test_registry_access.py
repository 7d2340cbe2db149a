"""Where requests lead, who is told a login, and whom coop trusts."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from coopfile.rootfs import wire
from tests.unit.rootfs.fakeregistry import FAST, FakeRegistry, Handler
from tests.unit.rootfs.images import AMD64, MadeImage
from tests.unit.rootfs.pulls import BIG, BLOB, fails, fetch, guard, image, needs, redirect


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
        ("http://[::1", "cannot be used"),
        ("//[x]y/z", "cannot be used"),
        ("/v2/\xe9", "cannot be used"),
        ("https://\xe9.example/", "cannot be used"),
        (f"https://{'a' * 64}.example/", "cannot be used"),
        ("https://a..example/", "cannot be used"),
    ],
)
def test_a_redirect_to_a_place_that_is_not_safe_is_refused(
    registry: FakeRegistry, tmp_path: Path, target: str, said: str
) -> None:
    """Other schemes, other hosts without TLS, and addresses with passwords are not followed."""
    registry.script("/blobs/", lambda handler: redirect(handler, target))
    assert said in fails(lambda: fetch(registry, tmp_path / "layer")).message


def test_a_redirect_may_have_any_name(registry: FakeRegistry, tmp_path: Path) -> None:
    """Also one that is not ASCII, which servers send as it is."""
    registry.blobs[BLOB.digest] = BIG
    registry.script("/blobs/", lambda handler: redirect(handler, "/é?sig=1".encode().decode("latin-1")))
    registry.script("/%C3%A9?sig=1", lambda handler: handler.give(BIG))
    fetch(registry, tmp_path / "layer")
    assert (tmp_path / "layer").read_bytes() == BIG


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "a..example"])
def test_a_token_server_that_nobody_can_look_up(registry: FakeRegistry, host: str) -> None:
    """It is an error in words."""
    challenge = f'Bearer realm="https://{host}/token"'
    registry.script("/v2/", lambda handler: handler.give(b"{}", 401, WWW_Authenticate=challenge))
    assert "cannot be used" in fails(lambda: image(registry)).message


def test_redirects_in_a_circle_end(registry: FakeRegistry, tmp_path: Path) -> None:
    """After a few."""
    registry.script("/blobs/", lambda handler: redirect(handler, handler.path))
    assert "in a circle" in fails(lambda: fetch(registry, tmp_path / "layer")).message
    assert len(registry.seen) < 10


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
