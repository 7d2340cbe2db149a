"""Account files for images that do not know the caller's ids: the image's own, and one line more.

Without one, programs that look up who they are (ssh, whoami) fail. The files are
mounted over the image's; nothing in the image is run, and no capability is needed, as
making the user at the start of each run would.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile

from coopfile import wholefile
from coopfile.engines.call import first_bytes, must
from coopfile.engines.guard import remove_all
from coopfile.engines.timeouts import CREATE, QUICK
from coopfile.errors import CoopError
from coopfile.render.container import LABEL_MANAGED, LABEL_OWNER
from coopfile.system import is_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopfile.plan.launch import Launch
    from coopfile.render.facts import Engine

FILES = ("passwd", "group")
_LARGEST = 1 << 20  # bytes of an account file and its tar


def ensure(
    engine: Engine, image: str, launch: Launch, environment: Mapping[str, str], owner: str, state: str
) -> str:
    """Return a directory with ``passwd`` and ``group`` for a launch in an image, made if it is not there.

    It is below coop's own state, which no sandbox and no repository can write.
    """
    what = f"the accounts of {image} cannot be read"
    argv = (engine.program, "image", "inspect", "--format", "{{.Id}}", image)
    identifier = must(what, argv, QUICK, environment).strip()
    key = "\0".join((identifier, launch.user, str(launch.uid), str(launch.gid), launch.home))
    directory = f"{state}/accounts/{hashlib.sha256(key.encode()).hexdigest()[:24]}"
    if all(_is_ours(f"{directory}/{name}") for name in FILES):
        return directory
    texts = _read(engine, image, environment, owner, what)
    lines = {
        "passwd": f"{launch.user}:x:{launch.uid}:{launch.gid}:{launch.user}:{launch.home}:/bin/sh",
        "group": f"{launch.user}:x:{launch.gid}:",
    }
    _write(directory, {name: _with(texts[name], lines[name]) for name in FILES})
    return directory


def _is_ours(path: str) -> bool:
    """Tell whether a file is there that nobody else can have written."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and is_own(status)


def _read(
    engine: Engine, image: str, environment: Mapping[str, str], owner: str, what: str
) -> dict[str, str]:
    """Return the image's account files, from a container that is never started."""
    labels = ("--label", f"{LABEL_MANAGED}=true", "--label", f"{LABEL_OWNER}={owner}")
    create = (engine.program, "create", "--pull", "never", *labels, "--entrypoint", "", image, "true")
    try:
        container = must(what, create, CREATE, environment).strip().rpartition("\n")[2]
        return {name: _copied(engine, container, name, environment) for name in FILES}
    finally:
        remove_all(engine, environment, owner)


def _copied(engine: Engine, container: str, name: str, environment: Mapping[str, str]) -> str:
    argv = (engine.program, "cp", "--follow-link", f"{container}:/etc/{name}", "-")
    data = first_bytes(argv, _LARGEST, QUICK, environment)
    try:  # nothing comes of an image without accounts
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            member = tar.next()
            file = tar.extractfile(member) if member is not None and member.isfile() else None
            return file.read().decode("utf-8", "surrogateescape") if file else ""
    except (tarfile.TarError, OSError):
        return ""


def _with(text: str, line: str) -> str:
    """Return an account file with our line first, and none that has its name or its id."""
    name, _, number = line.split(":")[:3]
    others = [
        other
        for other in text.splitlines()
        if other.split(":")[0] != name and other.split(":")[2:3] != [number]
    ]
    return "\n".join([line, *others, ""])


def _write(directory: str, texts: Mapping[str, str]) -> None:
    try:
        os.makedirs(directory, mode=0o755, exist_ok=True)
        for name, text in texts.items():
            wholefile.write(f"{directory}/{name}", text.encode("utf-8", "surrogateescape"), 0o644)
    except OSError as error:
        raise CoopError(
            f"{directory} cannot be written: {error.strerror}", "is its file system full?"
        ) from None
