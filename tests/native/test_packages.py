"""Packages of a real Debian, from a repository on the loopback interface, as root and unprivileged."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import stat
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from coopfile.rootfs.platforms import of_machine
from coopfile.rootfs.store import Store
from tests.sandboxes import Project
from tests.unit.rootfs.fakeregistry import FakeRegistry
from tests.unit.rootfs.images import LAYER, MadeImage, descriptor, sha256

pytestmark = pytest.mark.xdist_group("debian")  # it is made once, and unpacked in one process

CONTROL = """Package: coop-probe
Version: {version}
Architecture: all
Maintainer: nobody <nobody@example.org>
Description: what maintainers' scripts do
"""
# What keeps dpkg from working where there is one id only: owners, set-id bits, devices, services.
POSTINST = """#!/bin/sh
set -e
install -d -o www-data -g www-data -m 2750 /var/lib/coop-probe
install -o www-data -g adm -m 4755 /bin/true /usr/bin/coop-probe-true
chown --no-dereference daemon:daemon /var/lib/coop-probe/.. /etc/coop-probe
mknod /var/lib/coop-probe/null c 1 3
invoke-rc.d coop-probe start || true
id -u > /var/lib/coop-probe/id
"""
# As Debian's own container images have it.
DOCKER_CLEAN = """DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };
APT::Update::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };
Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";
"""


class Repository:
    """An apt repository on the loopback interface, and what was asked of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.seen: list[str] = []
        handler = partial(_Handler, directory=str(directory), seen=self.seen)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def source(self) -> str:
        """Its line for sources.list."""
        return f"deb [trusted=yes] http://127.0.0.1:{self._server.server_port}/ ./\n"

    def offer(self, version: str) -> None:
        """Hold one version of coop-probe and no other."""
        for old in self.directory.iterdir():
            old.unlink()
        tree = self.directory.parent / f"coop-probe-{version}"
        for path, content, mode in (
            ("DEBIAN/control", CONTROL.format(version=version), 0o644),
            ("DEBIAN/postinst", POSTINST, 0o755),
            ("etc/coop-probe", version, 0o644),
        ):
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(content)
            (tree / path).chmod(mode)
        package = self.directory / f"coop-probe_{version}_all.deb"
        argv = ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(package)]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, timeout=60)
        body = package.read_bytes()
        facts = f"Filename: ./{package.name}\nSize: {len(body)}\nSHA256: {hashlib.sha256(body).hexdigest()}\n"
        packages = f"{CONTROL.format(version=version)}{facts}\n".encode()
        (self.directory / "Packages").write_bytes(packages)
        sums = f"SHA256:\n {hashlib.sha256(packages).hexdigest()} {len(packages)} Packages\n"
        (self.directory / "Release").write_text(f"Date: Sat, 21 Nov 2026 00:00:00 UTC\n{sums}")

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *arguments: Any, seen: list[str], **named: Any) -> None:
        self.seen = seen
        super().__init__(*arguments, **named)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Keep the path, and the peace."""
        self.seen.append(self.path)


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    """Yield a repository that holds what a test has it offer."""
    directory = tmp_path_factory.mktemp("apt") / "repository"
    directory.mkdir()
    made = Repository(directory)
    yield made
    made.close()


@pytest.fixture(scope="session")
def registry(debian: Path, repository: Repository) -> Iterator[FakeRegistry]:
    """Yield a registry that holds Debian, with the repository as its only source."""
    whole = debian.read_bytes()
    layer = gzip.compress(whole, 1, mtime=0)
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, text in (
            ("etc/apt/sources.list", repository.source),
            ("etc/apt/apt.conf.d/docker-clean", DOCKER_CLEAN),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    image = MadeImage(str(of_machine(os.uname().machine)), Env=["PATH=/usr/sbin:/usr/bin:/sbin:/bin"])
    image.layers = [descriptor(layer, LAYER)]
    image.tar, image.layer = raw.getvalue(), gzip.compress(raw.getvalue(), mtime=0)
    image.layers.append(descriptor(image.layer, LAYER))
    image.config["rootfs"]["diff_ids"] = [sha256(whole), sha256(image.tar)]
    found = FakeRegistry()
    found.add(image, "1")
    found.blobs[image.layers[0]["digest"]] = layer
    yield found
    found.close()


@pytest.fixture
def packaged(project: Project, registry: FakeRegistry, repository: Repository) -> Project:
    """Return an approved project that asks for the package, on a store that has the image once for all."""
    repository.offer("1.0")
    project.environment["XDG_DATA_HOME"] = f"{project.actor.base}/packages"
    project.coopfile(
        f'[base]\nimage = "{registry.address}/team/app:1"\n'
        '[packages]\napt = ["coop-probe"]\n[setup]\nnetwork = "host"\n'
    )
    return project


def layer(project: Project) -> Path:
    """Return the layer of the packages that the project uses."""
    store = Store(f"{project.environment['XDG_DATA_HOME']}/coop/rootfs")
    root = store.root(str(project.directory))
    assert root is not None
    stage = store.stage(root.stages[1])
    assert stage is not None
    return Path(stage.fs)


def test_apt(packaged: Project, repository: Repository) -> None:
    """apt-get installs what needs owners, set-id bits and devices; downloads are kept outside the layer."""
    before = len(repository.seen)
    result = packaged.coop("init")
    assert result.status == 0, result
    script = "cat /etc/coop-probe /var/lib/coop-probe/id; dpkg-query -W -f '${db:Status-Status}' coop-probe"
    assert packaged.output(script) == "1.00\ninstalled"
    found = layer(packaged)
    about = json.loads((found.parent / "stage.json").read_text())["about"]
    assert about["versions"] == {"coop-probe": "1.0"}
    left = {str(path.relative_to(found)) for path in found.rglob("*") if path.is_file()}
    assert not {path for path in left if path.endswith((".deb", ".bin")) or "apt/lists" in path}, left
    for path in found.rglob("*"):
        status = path.lstat()
        assert status.st_uid == packaged.actor.uid
        assert not (stat.S_ISREG(status.st_mode) and status.st_mode & 0o6000), path
    assert (found / "usr/bin/coop-probe-true").exists()
    for own in ("etc/hosts", "etc/hostname", "etc/resolv.conf", "usr/sbin/policy-rc.d", "run/coop"):
        assert not os.path.lexists(found / own), own

    def downloads() -> int:
        return len([path for path in repository.seen[before:] if path.endswith(".deb")])

    assert downloads() == 1
    assert packaged.coop("rebuild").status == 0
    assert downloads() == 1, "what has been downloaded is taken from the cache"
    repository.offer("2.0")
    assert packaged.coop("rebuild", "--upgrade").status == 0
    assert packaged.output("cat /etc/coop-probe") == "2.0" and downloads() == 2


def test_no_such_package(packaged: Project) -> None:
    """What apt says of a package that is not there is shown."""
    packaged.coopfile((packaged.directory / "Coopfile").read_text().replace("coop-probe", "coop-nothing"))
    result = packaged.coop("init")
    assert result.status == 125 and "Unable to locate package coop-nothing" in result.err, result
    assert "packages.apt" in result.err
