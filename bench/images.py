"""Images to fetch: made once of Debian's packages, and served by a registry of the bench's own.

The layers stay in the user's cache: making them takes a minute and Debian's mirror.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence

from bench.subjects import UnavailableError, tool
from coopfile.record import Record
from coopfile.rootfs import documents
from coopfile.rootfs.platforms import of_machine

_SUITE = "bookworm"
# What is in each layer beyond those below it.
_PACKAGES = (("python3", "ca-certificates"), ("git", "python3-venv"), ("g++", "make"))
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_MAKING = 900.0  # seconds
_START = 10.0
_TRANSFER = 60.0


class Layer(Record):
    """One layer: the file with its blob, that one's digest and size, and the digest of what is in it."""

    path: str
    digest: str
    size: int
    diff_id: str


class Registry(Record):
    """A registry: ``images`` are their names, the references and the files of their layers."""

    images: tuple[tuple[str, str, tuple[str, ...]], ...]


@contextlib.contextmanager
def registry(directory: str) -> Iterator[Registry]:
    """Run a registry on the loopback interface, in a new directory, that holds the images.

    Raises UnavailableError.
    """
    program = tool("docker-registry")
    layers = _layers()
    os.mkdir(directory)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    configuration = os.path.join(directory, "config.yml")  # YAML is a superset of JSON
    with open(configuration, "w", encoding="utf-8") as file:
        storage = {"filesystem": {"rootdirectory": os.path.join(directory, "data")}}
        settings = {
            "version": "0.1",
            "log": {"level": "error"},
            "storage": storage,
            "http": {"addr": address},
        }
        json.dump(settings, file)
    with open(os.path.join(directory, "log"), "wb") as log:
        process = subprocess.Popen(
            [program, "serve", configuration], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        _wait_until_it_answers(process, address)
        found = []
        for name, count in (("one", 1), ("three", len(layers))):
            _push(f"http://{address}/v2/bench/{name}", layers[:count])
            paths = tuple(layer.path for layer in layers[:count])
            found.append((name, f"{address}/bench/{name}:latest", paths))
        yield Registry(tuple(found))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _wait_until_it_answers(process: subprocess.Popen[bytes], address: str) -> None:
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline and process.poll() is None:
        try:
            _request("GET", f"http://{address}/v2/")
        except UnavailableError:
            time.sleep(0.05)
        else:
            return
    raise UnavailableError("docker-registry did not start")


def _push(place: str, layers: Sequence[Layer]) -> None:
    """Put an image into a repository, as the tag that is taken when none is given."""
    platform = of_machine(os.uname().machine)
    config = json.dumps(
        {
            "os": platform.os,
            "architecture": platform.architecture,
            "config": {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        }
    ).encode()
    for layer in layers:
        with open(layer.path, "rb") as file:
            _put_blob(place, file.read(), layer.digest)
    digest = documents.digest_of("sha256", config)
    _put_blob(place, config, digest)
    descriptors = [{"mediaType": _LAYER, "digest": layer.digest, "size": layer.size} for layer in layers]
    manifest = {
        "schemaVersion": 2,
        "mediaType": documents.OCI_MANIFEST,
        "config": {"mediaType": documents.OCI_CONFIG, "digest": digest, "size": len(config)},
        "layers": descriptors,
    }
    _request("PUT", f"{place}/manifests/latest", json.dumps(manifest).encode(), documents.OCI_MANIFEST)


def _put_blob(place: str, body: bytes, digest: str) -> None:
    where = _request("POST", f"{place}/blobs/uploads/", b"")
    mark = "&" if "?" in where else "?"
    _request("PUT", f"{where}{mark}digest={digest}", body, "application/octet-stream")


def _request(method: str, url: str, body: bytes | None = None, kind: str = "text/plain") -> str:
    """Send a request past every proxy; return where its answer leads."""
    request = urllib.request.Request(url, body, {"Content-Type": kind}, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_TRANSFER) as answer:
            return str(answer.headers.get("Location", ""))
    except (OSError, urllib.error.URLError) as error:
        raise UnavailableError(f"docker-registry: {error}") from None


def _layers() -> tuple[Layer, ...]:
    """Return the layers, made if they are not in the cache."""
    recipe = hashlib.sha256(json.dumps([_SUITE, _PACKAGES, _HOOK]).encode()).hexdigest()[:16]
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    directory = os.path.join(caches, "coop-bench", f"{recipe}-{os.uname().machine}")
    if not os.path.isdir(directory):
        os.makedirs(os.path.dirname(directory), exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="making-", dir=os.path.dirname(directory)) as aside:
            _make(aside)
            with contextlib.suppress(OSError):  # another bench was faster
                os.rename(os.path.join(aside, "done"), directory)
    with open(os.path.join(directory, "layers.json"), encoding="utf-8") as file:
        known = json.load(file)
    return tuple(Layer(os.path.join(directory, name), *rest) for name, *rest in known)


# Packs what is new since the last time; the arguments are the tree, where to, and a
# number and packages for each layer.
_HOOK = r"""
set -e
root=$1 out=$2; shift 2
number=1
while :; do
    chroot "$root" apt-get clean
    (cd "$root" && find . -xdev \( -path './dev/*' -o -path './proc/*' -o -path './sys/*' \
        -o -path './var/lib/apt/lists/*_*' \) -prune -o ${since:+-newercm "$since"} -print0) |
        tar -C "$root" --numeric-owner --no-recursion --null -T - -cf "$out/$number.tar"
    [ $# -gt 0 ] || break
    number=$((number + 1)) since=$out/since
    touch "$since"
    DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -qy --no-install-recommends $1
    shift
done
"""


def _make(directory: str) -> None:
    """Make the layers in ``done`` below a directory. Raises UnavailableError."""
    program, compress = tool("mmdebstrap"), tool("gzip")
    first, *others = (" ".join(packages) for packages in _PACKAGES)
    hook = os.path.join(directory, "hook")
    with open(hook, "w", encoding="utf-8") as file:
        file.write(_HOOK)
    arguments = " ".join(shlex.quote(text) for text in (directory, *others))
    argv = [program, "--quiet", "--variant=minbase", f"--include={first.replace(' ', ',')}"]
    argv += [f'--customize-hook=sh {shlex.quote(hook)} "$1" {arguments}', _SUITE, "/dev/null"]
    _run(*argv)
    done = os.path.join(directory, "done")
    os.mkdir(done)
    made = []
    for number in range(1, len(_PACKAGES) + 1):
        archive = os.path.join(directory, f"{number}.tar")
        diff_id = _digest(archive)
        _run(compress, "-n", archive)
        path = shutil.move(f"{archive}.gz", done)
        made.append((os.path.basename(path), _digest(path), os.path.getsize(path), diff_id))
    with open(os.path.join(done, "layers.json"), "w", encoding="utf-8") as file:
        json.dump(made, file)


def _digest(path: str) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return f"sha256:{found.hexdigest()}"


def _run(*argv: str) -> None:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_MAKING, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{os.path.basename(argv[0])}: {error}") from None
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines() or [f"status {done.returncode}"]
        raise UnavailableError(f"{os.path.basename(argv[0])}: {said[-1][:100]}")
