"""The audit log: what was run for whom, as JSON lines of one file for each project, bounded by rotation.

It lies in coop's own state, which no sandbox sees. Values that the plan takes from the host's
environment are never in it, wherever in a command they stand.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping

from coopfile.errors import CoopError
from coopfile.find import directories
from coopfile.plan.sessions import project_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from coopfile.plan.model import Plan

_MOST_BYTES = 1 << 20  # of a file; there are this many:
_FILES = 4
_LONGEST = 4096  # characters of a command
_SHORT = 4  # characters; a value with fewer counts where it stands alone

FIELDS = (
    "time",
    "kind",
    "identity",
    "user",
    "trust",
    "place",
    "tool",
    "command",
    "plan",
    "backend",
    "decision",
    "result",
    "duration",
)


class Audit:
    """Writes what was called. Safe from several threads and processes."""

    def __init__(self, path: str, secrets: Mapping[str, str]) -> None:
        """``secrets`` are values that must not be written, by the names that stand for them instead."""
        self._path = path
        self._secrets = sorted(secrets.items(), key=lambda item: len(item[1]), reverse=True)

    def open(self) -> int:
        """Open the file for one call, before it is made: what cannot be written down is not to happen.

        Raises CoopError.
        """
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            return _opened(self._path)
        except OSError as error:
            raise CoopError(
                f"the audit log cannot be written: {self._path}: {error.strerror}",
                "without it no tool is run",
            ) from None

    def write(self, descriptor: int, **facts: object) -> None:
        """Write one call; facts are of ``FIELDS``, and None where there are none. Raises OSError."""
        facts.setdefault("time", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        facts.setdefault("kind", "call")
        entry = {name: self._clean(facts.get(name)) for name in FIELDS}
        os.write(descriptor, json.dumps(entry).encode() + b"\n")  # one call: lines do not mix

    def _clean(self, fact: object) -> object:
        if not isinstance(fact, str):
            return fact
        text = self.without_secrets(fact)
        return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"

    def without_secrets(self, text: str) -> str:
        """Return a text in which secrets are replaced by their names."""
        for name, value in self._secrets:
            if len(value) >= _SHORT:
                text = text.replace(value, f"<{name}>")
            elif value:
                text = _replace_alone(text, value, f"<{name}>")
        return text


def for_project(plan: Plan, root: str, environment: Mapping[str, str]) -> Audit:
    """Return the log of a project."""
    secrets = {
        variable.name: environment.get(variable.host, "")
        for variable in plan.env
        if variable.host is not None
    }
    return Audit(path(root, environment), {name: value for name, value in secrets.items() if value})


def path(root: str, environment: Mapping[str, str]) -> str:
    """Return where the log of a project is, whoever calls."""
    return f"{directories(environment).state}/audit/{project_id(root, None)}.jsonl"


def read(place: str) -> list[dict[str, Any]]:
    """Return what the files of a log hold, the oldest first; damaged lines are left out. Raises OSError."""
    found = []
    for name in (*(f"{place}.{number}" for number in range(_FILES - 1, 0, -1)), place):
        try:
            with open(name, "rb") as file:
                lines = file.read(2 * _MOST_BYTES).splitlines()
        except FileNotFoundError:
            continue
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and set(FIELDS) <= entry.keys():
                found.append(entry)
    return found


def _opened(place: str) -> int:
    while True:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(place, flags, 0o600)
        try:
            if os.fstat(descriptor).st_size < _MOST_BYTES:
                return descriptor
            _rotate(place, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _rotate(place: str, descriptor: int) -> None:
    """Move the files on by one, unless another process has just done it."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        if not os.path.samestat(os.fstat(descriptor), os.stat(place)):
            return
    except FileNotFoundError:
        return
    for number in range(_FILES - 1, 0, -1):
        older = place if number == 1 else f"{place}.{number - 1}"
        try:
            os.replace(older, f"{place}.{number}")
        except FileNotFoundError:
            pass


def _replace_alone(text: str, value: str, name: str) -> str:
    import re

    return re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", name, text)
