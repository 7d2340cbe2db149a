"""Images made on the spot from this machine's busybox, without a network."""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.engines.cell import UnusableError

_EPOCH = 1_700_000_000
_SLOW = 600.0  # seconds that a whole distribution may take to come over the network

# dpkg syncs every file, which takes a minute on some disks.
_IN_MEMORY = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o mode=755 tmpfs "$TMPDIR"; exec "$@"', "sh")

_PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
_GROUP = "root:x:0:\nnogroup:x:65534:\n"

IMAGES: dict[str, tuple[str, ...]] = {
    "busybox": (),
    "empty": (),
    "nobody": ("USER nobody",),
    "entrypoint": ('ENTRYPOINT ["/bin/echo", "entrypoint"]', 'CMD ["of the image"]'),
    "volume": ("VOLUME /data",),
    "workdir": ("WORKDIR /of/the/image",),
    "env": ("ENV HOME=/image", "ENV PATH=/image/bin", "ENV LD_PRELOAD=/image/evil.so", "ENV IMAGE=yes"),
    "no-shell": (),
    "no-passwd": (),
}
"""The images by name, and what of their configuration is unusual, as Dockerfile lines.

``empty`` has no file at all; ``no-shell`` has busybox but neither sh nor ash;
``no-passwd`` has no /etc. ``volume`` has a file in its volume.
"""


@cache
def busybox() -> str:
    """Return the path of a busybox that needs no libraries."""
    program = shutil.which("busybox")
    if program is None:
        raise UnusableError("busybox is not installed")
    with open(program, "rb") as file:
        if b"/ld-linux" in file.read(4096):
            raise UnusableError("busybox is not static; install busybox-static")
    return program


@cache
def root_file_system(name: str) -> bytes:
    """Return the files of an image as a tar archive."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as archive:
        if name != "empty":
            _fill(archive, name)
    return output.getvalue()


def debian(directory: Path) -> Path:
    """Return a small Debian as a tar file, made once in a directory, from the network; others wait for it."""
    with open(directory / "debian.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _debian(directory)


def _debian(directory: Path) -> Path:
    made, failed = directory / "debian.tar", directory / "debian.failed"
    if failed.exists():
        raise UnusableError(failed.read_text())
    if not made.exists():
        if shutil.which("mmdebstrap") is None:
            raise UnusableError("mmdebstrap is not installed")
        partial = directory / "debian.partial.tar"
        work = directory / "debian"
        work.mkdir(exist_ok=True)
        options = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "locale", "man")]
        argv = ["mmdebstrap", "--quiet", "--variant=minbase", *options, _codename(), str(partial)]
        done = subprocess.run(
            [*_IN_MEMORY, *argv] if os.geteuid() == 0 else argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, "TMPDIR": str(work)},
            timeout=_SLOW,
            check=False,
        )
        shutil.rmtree(work, ignore_errors=True)
        if done.returncode:
            reason = done.stderr.decode("utf-8", "replace").strip().splitlines()[-3:]
            failed.write_text(f"mmdebstrap made no Debian: {'; '.join(reason)}")
            raise UnusableError(failed.read_text())
        partial.rename(made)
    return made


def _codename() -> str:
    """Return the release of this machine's own Debian, whose keys it has."""
    lines = Path("/etc/os-release").read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return values.get("VERSION_CODENAME", "stable") if values.get("ID") == "debian" else "stable"


def _fill(archive: tarfile.TarFile, name: str) -> None:
    def add(path: str, kind: bytes, mode: int, content: bytes = b"", target: str = "") -> None:
        member = tarfile.TarInfo(path)
        member.type, member.mode, member.mtime = kind, mode, _EPOCH
        member.size, member.linkname = len(content), target
        archive.addfile(member, io.BytesIO(content))

    for directory in ("bin", "root", "home"):
        add(directory, tarfile.DIRTYPE, 0o755)
    add("tmp", tarfile.DIRTYPE, 0o1777)
    _add_programs(add, without=("sh", "ash", "hush", "bash") if name == "no-shell" else ())
    if name != "no-passwd":
        add("etc", tarfile.DIRTYPE, 0o755)
        add("etc/passwd", tarfile.REGTYPE, 0o644, _PASSWD.encode())
        add("etc/group", tarfile.REGTYPE, 0o644, _GROUP.encode())
    if name == "volume":
        add("data", tarfile.DIRTYPE, 0o777)
        add("data/of-the-image", tarfile.REGTYPE, 0o644, b"of the image\n")


def _add_programs(add: Callable[..., None], without: tuple[str, ...]) -> None:
    add("bin/busybox", tarfile.REGTYPE, 0o755, Path(busybox()).read_bytes())
    listed = subprocess.run([busybox(), "--list"], capture_output=True, text=True, check=True, timeout=60)
    for program in listed.stdout.split():
        if program != "busybox" and program not in without:
            add(f"bin/{program}", tarfile.SYMTYPE, 0o777, target="busybox")
