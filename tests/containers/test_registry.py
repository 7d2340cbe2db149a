"""Images from a real registry and from real archives, as podman writes them and as the tests push them."""

from __future__ import annotations

import base64
import ctypes
import gzip
import http.client
import io
import json
import os
import shutil
import socket
import socketserver
import ssl
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from coopfile.errors import CoopError
from coopfile.language.items import ImageReference
from coopfile.rootfs import documents, wire
from coopfile.rootfs.download import fetch_all
from coopfile.rootfs.local import open_local
from coopfile.rootfs.model import Descriptor
from coopfile.rootfs.platforms import of_machine
from coopfile.rootfs.registry import RegistrySource
from tests.engines.daemons import READY, start
from tests.engines.registry import free_port
from tests.sandboxes import Workshop, plain_environment, wait_until
from tests.unit.rootfs.images import AMD64, LAYER, MadeImage, descriptor, index, of, sha256

pytestmark = pytest.mark.xdist_group("registry")  # so that one is started
HERE = of_machine(os.uname().machine)
LOGIN = base64.b64encode(b"me:s3cret").decode()


class Served:
    """A docker-registry on the loopback interface; ``sections`` add to its configuration."""

    def __init__(self, base: Path, sections: dict[str, Any], tls: bool = False) -> None:
        program = shutil.which("docker-registry")
        if program is None:
            pytest.skip("docker-registry is not installed")
        self.base = base
        self.tls = tls
        self.address = f"127.0.0.1:{free_port()}"
        http_section = {"addr": self.address, **sections.pop("http", {})}
        configuration = base / "config.yml"  # YAML is a superset of JSON
        storage = {"filesystem": {"rootdirectory": str(base / "data")}, "delete": {"enabled": True}}
        log = {"level": "warn", "accesslog": {"disabled": True}}
        configuration.write_text(
            json.dumps({"version": "0.1", "log": log, "storage": storage, "http": http_section, **sections})
        )
        argv = ["setpriv", "--pdeathsig", "KILL", program, "serve", str(configuration)]
        self._process = start(argv, plain_environment(base), base / "log")
        if not wait_until(self._answers, READY):
            self.close()
            pytest.fail(f"docker-registry did not start: {(base / 'log').read_text()}")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(READY)

    def _answers(self) -> bool:
        try:
            self._request("GET", "/v2/")
        except OSError:
            return False
        return True

    def _request(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
        host, _, port = self.address.rpartition(":")
        connection: http.client.HTTPConnection = http.client.HTTPConnection(host, int(port), timeout=60)
        if self.tls:
            context = ssl.create_default_context(cafile=str(self.base / "certificate.pem"))
            connection = http.client.HTTPSConnection(host, int(port), timeout=60, context=context)
        with closing(connection):
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, {"Authorization": f"Basic {LOGIN}", **given})
            answer = connection.getresponse()
            answer.read()
            return answer.status, answer.headers.get("Location", "")

    def blob(self, body: bytes, repository: str = "team/app") -> None:
        """Push a blob."""
        status, location = self._request("POST", f"/v2/{repository}/blobs/uploads/")
        assert status == 202
        parts = urlsplit(location)
        path = f"{parts.path}?{parts.query}&digest={sha256(body)}"
        assert self._request("PUT", path, body, Content_Type="application/octet-stream")[0] == 201

    def manifest(self, body: bytes, media_type: str, tag: str, repository: str = "team/app") -> None:
        """Push a manifest or an index."""
        path = f"/v2/{repository}/manifests/{tag}"
        assert self._request("PUT", path, body, Content_Type=media_type)[0] == 201

    def push(self, image: MadeImage, tag: str) -> MadeImage:
        """Push an image."""
        for body in image.blobs.values():
            self.blob(body)
        self.manifest(image.manifest, image.media_type, tag)
        return image

    def source(self, tag: str, repository: str = "team/app", **environment: str) -> RegistrySource:
        """Return coop's source of an image here; a digest in place of a tag begins with sha256:."""
        pinned = tag.startswith("sha256:")
        reference = ImageReference(self.address, repository, None if pinned else tag, tag if pinned else None)
        return RegistrySource(reference, environment)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Yield a registry for everybody."""
    made = Served(tmp_path_factory.mktemp("registry"), {})
    yield made
    made.close()


def pulled(source: Any, directory: Path, platform: Any = AMD64) -> list[bytes]:
    """Return the layers of a source's image, fetched as a store would."""
    directory.mkdir()
    with closing(source):
        image = source.image(platform)
        paths = fetch_all(source, image.layers, str(directory))
    return [Path(paths[layer.digest]).read_bytes() for layer in image.layers]


def test_what_was_pushed_is_pulled(served: Served, tmp_path: Path) -> None:
    """By tag, by digest, and as an index for the platform that is asked for."""
    intel, arm = (
        served.push(MadeImage(name=b"intel"), "intel"),
        served.push(MadeImage("linux/arm64", b"arm"), "arm"),
    )
    body = index(
        arm.entry({"os": "linux", "architecture": "arm64", "variant": "v8"}),
        intel.entry({"os": "linux", "architecture": "amd64"}),
    )
    served.manifest(body, documents.OCI_INDEX, "both")
    assert pulled(served.source("intel"), tmp_path / "tag") == [intel.layer]
    assert pulled(served.source(sha256(intel.manifest)), tmp_path / "digest") == [intel.layer]
    assert pulled(served.source("both"), tmp_path / "index") == [intel.layer]
    assert pulled(served.source("both"), tmp_path / "arm", of_machine("aarch64")) == [arm.layer]
    with closing(served.source("both")) as source:
        assert source.image(AMD64).digest == sha256(body)


def test_what_is_not_there_is_told(served: Served) -> None:
    """A missing tag and a missing repository are the same to who asks."""
    for source in (served.source("nope"), served.source("v1", "no/such")):
        with closing(source), pytest.raises(CoopError, match="does not exist"):
            source.image(AMD64)


def test_a_layer_that_rotted_in_the_registry_is_refused(served: Served, tmp_path: Path) -> None:
    """The registry gives it away as it is; coop does not take it."""
    image = served.push(MadeImage(name=b"rotten"), "rotten")
    digits = sha256(image.layer)[7:]
    data = next(served.base.glob(f"data/**/sha256/{digits[:2]}/{digits}/data"))
    data.write_bytes(image.layer[:-1] + bytes([image.layer[-1] ^ 1]))
    with pytest.raises(CoopError, match="has the digest"):
        pulled(served.source("rotten"), tmp_path / "out")
    assert os.listdir(tmp_path / "out") == []


def test_a_download_goes_on_when_the_connection_breaks(served: Served, tmp_path: Path) -> None:
    """A proxy in between cuts every connection after a while; the real registry's ranges mend it."""
    body = os.urandom(12 << 20)
    served.blob(body)
    with Breaking(served.address, 5 << 20) as breaking:
        source = RegistrySource(ImageReference(breaking.address, "team/app", "v1"), {})
        told: list[int] = []
        with closing(source):
            blob = Descriptor(LAYER, sha256(body), len(body))
            source.fetch(blob, str(tmp_path / "layer"), told.append)
    assert (tmp_path / "layer").read_bytes() == body
    assert sum(told) == len(body)
    assert min(told) > 0, "it never started again"
    assert breaking.cut >= 2


class Breaking:
    """A relay to another address that cuts every connection after so many bytes of answers."""

    def __init__(self, target: str, most: int) -> None:
        self.cut = 0
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                host, _, port = target.rpartition(":")
                with socket.create_connection((host, int(port))) as there:
                    back = threading.Thread(
                        target=self.pump, args=(self.request, there, 1 << 60), daemon=True
                    )
                    back.start()
                    if self.pump(there, self.request, most):
                        outer.cut += 1
                    self.request.shutdown(socket.SHUT_RDWR)

            @staticmethod
            def pump(source: Any, target: Any, most: int) -> bool:
                sent = 0
                try:
                    while piece := source.recv(65536):
                        target.sendall(piece)
                        sent += len(piece)
                        if sent >= most:
                            return True
                except OSError:
                    pass
                return False

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Breaking:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def test_many_layers_come_side_by_side(served: Served, tmp_path: Path) -> None:
    """Twenty layers arrive whole, and in the order of the image."""
    bodies = [os.urandom(200_000) for _ in range(20)]
    image = MadeImage()
    image.layers = [descriptor(body, LAYER) for body in bodies]
    image.config["rootfs"]["diff_ids"] = [sha256(body) for body in bodies]
    for body in bodies:
        served.blob(body)
    served.push(image, "many")
    assert pulled(served.source("many"), tmp_path / "out") == bodies


def _htpasswd() -> str:
    """Return a line of htpasswd for me:s3cret, with bcrypt, as docker-registry wants it."""
    try:
        library = ctypes.CDLL("libcrypt.so.1")
    except OSError:
        pytest.skip("libcrypt is needed to make a password file")
    library.crypt.restype = ctypes.c_char_p
    digest = library.crypt(b"s3cret", b"$2y$05$abcdefghijklmnopqrstuu")
    if not digest or not digest.startswith(b"$2y$"):
        pytest.skip("libcrypt has no bcrypt")
    return f"me:{digest.decode()}\n"


@pytest.fixture
def start_served(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Yield what starts a registry with more configuration; each is ended with the test."""
    made: list[Served] = []

    def begin(sections: dict[str, Any], tls: bool = False) -> Served:
        made.append(Served(tmp_path, sections, tls))
        return made[-1]

    yield begin
    for one in made:
        one.close()


def test_a_registry_with_a_login_opens_to_who_has_it(
    start_served: Callable[..., Served], tmp_path: Path
) -> None:
    """With podman's file, docker's file, and not without; a wrong password is told and not shown."""
    (tmp_path / "htpasswd").write_text(_htpasswd())
    served = start_served({"auth": {"htpasswd": {"realm": "x", "path": str(tmp_path / "htpasswd")}}})
    image = served.push(MadeImage(), "v1")

    def environment(login: str) -> dict[str, str]:
        path = tmp_path / "docker/config.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"auths": {served.address: {"auth": login}}}))
        return {"DOCKER_CONFIG": str(path.parent)}

    assert pulled(served.source("v1", **environment(LOGIN)), tmp_path / "in") == [image.layer]
    for given in ({}, environment(base64.b64encode(b"me:wrong-s3cret").decode())):
        with closing(served.source("v1", **given)) as source, pytest.raises(CoopError) as error:
            source.image(AMD64)
        assert f"podman login {served.address}" in str(error.value.remedy)
        assert "s3cret" not in error.value.message


def test_a_registry_with_tls_is_spoken_to_with_tls(
    start_served: Callable[..., Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its authority has to be known; then everything is as elsewhere."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is needed to make a certificate")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    argv += ["-days", "2", "-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.1"]
    argv += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    tls = {"certificate": str(certificate), "key": str(key)}
    served = start_served({"http": {"tls": tls}}, tls=True)
    image = served.push(MadeImage(), "v1")
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    wire.trust.cache_clear()
    with closing(served.source("v1")) as source, pytest.raises(CoopError, match="cannot be trusted"):
        source.image(AMD64)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    wire.trust.cache_clear()
    assert pulled(served.source("v1"), tmp_path / "out") == [image.layer]
    wire.trust.cache_clear()


class Podman:
    """podman with a store of its own, for images only; the machine's locks and state are left alone."""

    def __init__(self, base: Path) -> None:
        self._base = base
        tmp = json.dumps(str(base / "tmp"))
        (base / "containers.conf").write_text(f'[engine]\nlock_type = "file"\ntmp_dir = {tmp}\n')
        self._argv = ["podman", "--root", str(base / "store"), "--runroot", str(base / "run")]
        self._argv += ["--storage-driver", "vfs"]

    def run(self, *argv: str) -> None:
        """Run a command that has to succeed."""
        configuration = str(self._base / "containers.conf")
        environment = {**plain_environment(self._base), "CONTAINERS_CONF": configuration}
        done = subprocess.run(
            [*self._argv, *argv], capture_output=True, text=True, timeout=120, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def podman(workshop: Workshop) -> Podman:
    """Return a podman whose store has localhost/one:v1, with a user and a directory."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    if os.geteuid() != 0:
        pytest.skip("podman's store is made as root here")
    base = workshop.base / "podman"  # podman takes no long path
    base.mkdir()
    with tarfile.open(base / "root.tar", "w") as tar:
        member = tarfile.TarInfo("hello")
        member.size = 100_000
        tar.addfile(member, io.BytesIO(os.urandom(100_000)))
    made = Podman(base)
    made.run(
        *("import", "--change", "USER 1000:1000", "--change", "WORKDIR /srv", "--change", "ENV A=b"),
        *(str(base / "root.tar"), "localhost/one:v1"),
    )
    return made


@pytest.mark.parametrize(
    ("form", "transport"),
    [("docker-archive", "docker-archive"), ("oci-archive", "oci-archive"), ("oci-dir", "oci")],
)
@pytest.mark.parametrize("name", ["", "localhost/one:v1"])
def test_what_podman_saves_is_an_image(
    podman: Podman, tmp_path: Path, form: str, transport: str, name: str
) -> None:
    """In each of its formats, with the config that it was given."""
    podman.run("save", "--format", form, "-o", str(tmp_path / "saved"), "localhost/one:v1")
    with closing(open_local(transport, str(tmp_path / "saved"), name)) as source:
        image = source.image(HERE)
        assert (image.config.user, image.config.directory) == ("1000:1000", "/srv")
        assert ("A", "b") in image.config.environment
        (tmp_path / "out").mkdir()
        paths = fetch_all(source, image.layers, str(tmp_path / "out"))
    for layer, diff_id in zip(image.layers, image.config.diff_ids, strict=True):
        assert unpacked(paths[layer.digest]) == diff_id


@pytest.mark.parametrize("form", ["oci", "v2s2"])
def test_what_podman_pushes_is_an_image(served: Served, podman: Podman, tmp_path: Path, form: str) -> None:
    """In OCI's format and in Docker's."""
    target = f"docker://{served.address}/podman/one:{form}"
    podman.run("push", "--tls-verify=false", "--format", form, "localhost/one:v1", target)
    (tmp_path / "out").mkdir()
    with closing(served.source(form, "podman/one")) as source:
        image = source.image(HERE)
        paths = fetch_all(source, image.layers, str(tmp_path / "out"))
    assert image.manifest.media_type == (
        documents.OCI_MANIFEST if form == "oci" else documents.DOCKER_MANIFEST
    )
    for layer, diff_id in zip(image.layers, image.config.diff_ids, strict=True):
        assert unpacked(paths[layer.digest]) == diff_id


def unpacked(path: str) -> str:
    """Return the digest of a layer without its compression."""
    body = Path(path).read_bytes()
    return sha256(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)


def test_a_registry_that_stops_in_the_middle_is_told_soon(
    start_served: Callable[..., Served], tmp_path: Path
) -> None:
    """A killed registry is an error within seconds, and leaves nothing."""
    served = start_served({})
    body = os.urandom(32 << 20)
    served.blob(body)
    source = served.source("v1")
    begun: list[float] = []

    def stop(count: int) -> None:
        if not begun:
            begun.append(time.monotonic())
            served.close()

    (tmp_path / "out").mkdir()
    with closing(source), pytest.raises(CoopError, match=r"refuses connections|broke"):
        source.fetch(of(descriptor(body, LAYER)), str(tmp_path / "out/layer"), stop)
    assert time.monotonic() - begun[0] < 50
    assert os.listdir(tmp_path / "out") == []
