"""What was blocked: a bounded file of JSON lines for each session, and notes for whoever runs it."""

from __future__ import annotations

import os
import time
from _json import encode_basestring_ascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST_BYTES = 256 * 1024  # of a file, when a run begins; there is one of before
_MOST_LINES = 500  # of one run
_MOST_NOTES = 10
_OLDER = ".1"


class Denials:
    """Takes down what is blocked. ``notes`` is a pipe for lines of text, ``log`` a file or -1."""

    def __init__(self, notes: int, log: int) -> None:
        self._notes = notes
        self._log = log
        self._lines = 0
        self._told: set[str] = set()

    def add(self, host: str, port: int, text: str) -> None:
        """Log one, and note it; ``host`` is empty where the request made no sense."""
        if self._log >= 0 and self._lines < _MOST_LINES:
            self._lines += 1
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            line = (
                f'{{"time": "{now}", "kind": "network", "host": {encode_basestring_ascii(host)}, '
                f'"port": {port}, "text": {encode_basestring_ascii(text)}}}\n'
            )
            _write(self._log, line.encode())
        self.note(text)

    def note(self, text: str) -> None:
        """Have something told after the command's end, once, and not too much of it."""
        if text in self._told or len(self._told) > _MOST_NOTES:
            return
        self._told.add(text)
        if len(self._told) > _MOST_NOTES:
            text = "more was blocked: `coop log` lists it"
        _write(self._notes, text.replace("\n", " ").encode("utf-8", "backslashreplace") + b"\n")


def _write(descriptor: int, data: bytes) -> None:
    try:
        os.write(descriptor, data)
    except OSError:
        pass  # a full disk or a full pipe must not end anybody's connections


def open_log(place: str) -> int:
    """Open a session's file for another run; what it had before is kept once. Raises OSError."""
    os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
    try:
        if os.stat(place).st_size > _MOST_BYTES:
            os.replace(place, place + _OLDER)
    except FileNotFoundError:
        pass
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(place, flags, 0o600)


def read(place: str) -> list[dict[str, Any]]:
    """Return what a session's files hold, the oldest first; damaged lines are left out. Raises OSError."""
    import json

    found = []
    for name in (place + _OLDER, place):
        try:
            with open(name, "rb") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            continue
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and {"time", "kind", "host", "port", "text"} <= entry.keys():
                found.append(entry)
    return found
