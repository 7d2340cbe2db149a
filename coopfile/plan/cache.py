"""Plans that were compiled before, so that a run need not compile them again.

An entry is keyed by everything a plan is made of: the version, the files by their
stamps, the options, the COOP_ variables, the state of the approvals. It is stored with
marshal, which is fast and safe only on bytes that nobody else wrote: entries that
others own or can write are not read, nor any below the workspace, where a sandboxed
command may have written them. A damaged entry is a miss.
"""

from __future__ import annotations

import marshal
import os
import sys
import time
import zlib

from coopfile import __version__
from coopfile.find import approvals
from coopfile.plan.model import PLAN_VERSION, from_data, to_data

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from coopfile.find import Project
    from coopfile.plan.model import Plan

# Who works on coop changes the defaults without changing the version.
_SETTINGS = os.path.dirname(os.path.dirname(__file__)) + "/language/settings.py"
# A file changed this recently may change again without a new time stamp (kernel ticks are up to 10 ms).
_RACY = 50_000_000
_MOST_ENTRIES = 256
_CHECK = 4  # bytes of checksum in front of an entry: a crash may leave it cut or full of zeros


def key(project: Project, options: tuple[Any, ...], environment: Mapping[str, str]) -> tuple[Any, ...]:
    """Return all that a plan depends on, as plain values."""
    places = project.places if project.lock is None else (*project.places, project.lock)
    files = tuple((place.layer, place.path, place.name, place.stamp) for place in places)
    variables = tuple(sorted(item for item in environment.items() if item[0].startswith("COOP_")))
    coop = (__version__, PLAN_VERSION, sys.hexversion, _changed(_SETTINGS))
    return (coop, _changed(approvals(environment)), project.root, files, options, variables)


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def load(directory: str, wanted: tuple[Any, ...]) -> tuple[Plan, str] | None:
    """Return the plan stored for a key, and its digest, or None."""
    if _in_workspace(directory, wanted):
        return None
    found = recall(_path(directory, wanted), wanted)
    return None if found is None else (from_data(found[0]), found[1])


def recall(path: str, wanted: tuple[Any, ...]) -> Any:
    """Return the plain value that an entry holds for a key, or None."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            return None
        data = os.read(descriptor, status.st_size)
    finally:
        os.close(descriptor)
    if data[:_CHECK] != _check(data[_CHECK:]):
        return None
    try:
        stored, value = marshal.loads(data[_CHECK:])
        return value if stored == wanted else None
    except (ValueError, EOFError, TypeError):
        return None  # another Python's


def store(directory: str, under: tuple[Any, ...], plan: Plan, digest: str) -> None:
    """Store a plan and its digest; not being able to is no error."""
    if _in_workspace(directory, under):
        return
    _, approved, _, files, _, _ = under
    newest = max(approved, *(max(stamp[3:]) for *_, stamp in files), 0)
    if time.time_ns() - newest < _RACY:
        return
    remember(_path(directory, under), under, (to_data(plan), digest))


def remember(path: str, under: tuple[Any, ...], value: Any) -> None:
    """Have an entry hold a plain value for a key; not being able to is no error."""
    partial = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.chmod(os.path.dirname(path), 0o700)
        _prune(os.path.dirname(path))
        descriptor = os.open(
            partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            data = marshal.dumps((under, value))
            os.write(descriptor, _check(data) + data)
        finally:
            os.close(descriptor)
        os.replace(partial, path)
    except OSError:
        return


def _check(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(_CHECK, "little")


def _in_workspace(directory: str, wanted: tuple[Any, ...]) -> bool:
    *_, root, _, _, _ = wanted
    return os.path.realpath(directory).startswith(root.rstrip("/") + "/")


def _path(directory: str, wanted: tuple[Any, ...]) -> str:
    """Return the entry's place: one per project and options, whatever its files say."""
    *_, root, _, options, variables = wanted
    name = zlib.crc32(marshal.dumps((root, options, variables)))
    return f"{directory}/plans/{name:08x}"


def _prune(directory: str) -> None:
    names = os.listdir(directory)
    if len(names) > _MOST_ENTRIES:
        for name in names:
            os.unlink(f"{directory}/{name}")
