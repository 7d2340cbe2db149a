"""Do a real job in a root file system that coop builds, as a user without rights.

``python scripts/realjob.py``: a Debian from mmdebstrap as an OCI layout, packages of Debian's,
a set-up step and a kept directory; then the tests of a project from PyPI run in it. Prints how
long each part took. Needs root for mmdebstrap, Debian's mirror and PyPI; exits with 1 when
something is not as it has to be.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from coopfile.rootfs.platforms import of_machine
from coopfile.rootfs.tree import fingerprint
from tests.sandboxes import Project, Workshop
from tests.unit.rootfs.images import MadeImage, index, layout_files

SUITE = "bookworm"
SUBJECT = "more-itertools"
LIMIT = 900.0  # seconds for each part
COOPFILE = """coop = 1

[base]
image = "oci:{layout}"

[packages]
apt = ["git", "ripgrep", "python3-venv"]

[setup]
network = "host"
run = ["python3 -m venv /opt/venv", "/opt/venv/bin/python --version && git --version && rg --version"]

[session]
persist = [".cache"]
"""
# Each ends with status 0 or the job has failed.
WORK = (
    ("the project's tests, inside", "PYTHONDONTWRITEBYTECODE=1 /opt/venv/bin/python -m unittest -q"),
    (
        "git",
        "git init -q /tmp/r; cd /tmp/r; git -c user.name=x -c user.email=x@y commit -q --allow-empty -m x",
    ),
    ("ripgrep, a kept note", "rg -c def more_itertools/recipes.py > ~/.cache/note"),
    ("the note, the next time", "test -s ~/.cache/note && rm -r /usr/bin/git /opt/venv"),
    ("what was removed, again", "git --version && /opt/venv/bin/python --version"),
    ("no network", "! python3 -c 'import socket; socket.create_connection((\"1.1.1.1\", 53), 3)'"),
)


class JobError(Exception):
    """What was not as it has to be."""


def main() -> int:
    """Do the job and print what it took."""
    if os.geteuid() != 0:
        print("mmdebstrap and becoming another user take root", file=sys.stderr)
        return 1
    workshop = Workshop()
    try:
        project = Project(workshop.actor("user"))
        with tempfile.TemporaryDirectory(prefix="coop-realjob-") as aside:
            os.chmod(aside, 0o755)
            _job(project, Path(aside))
    except JobError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    finally:
        workshop.close()
    return 0


def _job(project: Project, aside: Path) -> None:
    archive = aside / "debian.tar"
    debian = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=ca-certificates", SUITE, str(archive)]
    _timed("mmdebstrap", debian)
    layout = _layout(archive, aside / "layout")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    _timed("pip download", [*pip, "--dest", str(aside), SUBJECT])
    _unpack(next(aside.glob("*.tar.gz")), project)
    project.write("Coopfile", COOPFILE.format(layout=layout))

    coop = [*project.actor.prefix, *project.actor.coop]
    place = ["-C", str(project.directory)]
    _timed("", [*coop, "allow", "--quiet", *place], project)
    print(_timed("coop init", [*coop, "init", *place], project), end="")
    stages = sorted((project.home / ".local/share/coop/rootfs/stages").iterdir())
    before = [fingerprint(str(stage / "fs")) for stage in stages]
    if len(stages) != 3:
        raise JobError(f"{len(stages)} stages")
    _timed("coop init, all there", [*coop, "init", *place], project)
    outside = ["/usr/bin/env", "PYTHONDONTWRITEBYTECODE=1", "/usr/bin/python3", "-m", "unittest", "-q"]
    _timed("the project's tests, outside", [*project.actor.prefix, *outside], project)
    for what, script in WORK:
        _timed(what, [*coop, "run", *place, "--", "sh", "-ec", script], project)
    if [fingerprint(str(stage / "fs")) for stage in stages] != before:
        raise JobError("a layer has changed")


def _timed(what: str, argv: Sequence[str], project: Project | None = None) -> str:
    """Run a command of the job and say what it took; return what it said."""
    started = time.monotonic()
    try:
        done = subprocess.run(
            argv,
            cwd=project.directory if project else None,
            env=project.environment if project else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JobError(f"{what}: {error}") from None
    if done.returncode != 0:
        raise JobError(f"{what}: status {done.returncode}\n{done.stdout}")
    if what:
        print(f"{time.monotonic() - started:8.2f} s  {what}", flush=True)
    return done.stdout


def _layout(archive: Path, place: Path) -> Path:
    """Write an OCI layout of one image with one layer."""
    image = MadeImage(str(of_machine(os.uname().machine)), User="", WorkingDir="", Env=[])
    layer = subprocess.run(["gzip", "-c", str(archive)], stdout=subprocess.PIPE, check=True).stdout
    image.hold(archive.read_bytes(), layer)
    for name, content in layout_files(index(image.entry(None)), image).items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return place


def _unpack(archive: Path, project: Project) -> None:
    """Put a source distribution's files into the project's directory, as its owner's."""
    with tarfile.open(archive) as opened:
        for member in opened:
            name = member.name.partition("/")[2]
            content = opened.extractfile(member) if member.isfile() else None
            if content is not None and ".." not in Path(name).parts:
                project.write(name, content.read(), member.mode & 0o755)


if __name__ == "__main__":
    sys.exit(main())
