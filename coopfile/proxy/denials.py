"""What was blocked: a bounded file of JSON lines for each session, and notes for whoever runs it."""

from __future__ import annotations

import fcntl
import os
import time
from _json import encode_basestring_ascii

from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST_BYTES = 256 * 1024  # of a file, when a run begins; there is one of before
_MOST_OF_ONE = 512 * 1024  # bytes of a file while one run goes on; half of it is kept then
_BURST = 500  # lines of one run at once, ...
_RATE = 1.0  # ... and so many more for each second
_MOST_NOTES = 10
_MOST_RECENT = 30
_OLDER = ".1"
MORE = "more was blocked: `coop log` lists it"


class Denial(Record):
    """A connection that was blocked: ``time`` is UTC as RFC 3339 writes it, ``text`` says why.

    ``host`` is empty and ``port`` 0 where the request made no sense.
    """

    time: str
    host: str
    port: int
    text: str


class Denials:
    """Takes down what is blocked. ``notes`` is a pipe for lines of text, ``log`` a file or -1.

    ``recent`` is what was blocked last, for the sandbox itself.
    """

    def __init__(self, notes: int, log: int) -> None:
        self.recent: list[Denial] = []
        self._notes = notes
        self._log = log
        self._room = float(_BURST)  # for lines, now
        self._since = time.monotonic()
        self._left_out = 0
        self._told: set[str] = set()

    def add(self, host: str, port: int, text: str) -> None:
        """Log one, and note it; ``host`` is empty where the request made no sense."""
        denial = Denial(stamp(), host, port, text)
        self.recent = [*self.recent[1 - _MOST_RECENT :], denial]
        if self._log >= 0:
            self._write(denial)
        self.note(text)

    def note(self, text: str) -> None:
        """Have something told after the command's end, once, and not too much of it."""
        if text in self._told or len(self._told) > _MOST_NOTES:
            return
        self._told.add(text)
        if len(self._told) > _MOST_NOTES:
            text = MORE
        self.tell(text.replace("\n", " "))

    def tell(self, line: str) -> None:
        """Hand on one line."""
        _write(self._notes, line.encode("utf-8", "backslashreplace") + b"\n")

    def _write(self, denial: Denial) -> None:
        """Write a line, if there is room: who floods the log hides nothing that was there before."""
        now = time.monotonic()
        self._room = min(self._room + (now - self._since) * _RATE, float(_BURST))
        self._since = now
        if self._room < 1.0:
            self._left_out += 1
            return
        self._room -= 1.0
        if self._left_out:
            text = f"{self._left_out} more were blocked in this time, and are not listed"
            _write(self._log, _line(Denial(denial.time, "", 0, text)))
            self._left_out = 0
        _write(self._log, _line(denial))
        _shorten(self._log)


def _line(denial: Denial) -> bytes:
    return (
        f'{{"time": "{denial.time}", "kind": "network", "host": {encode_basestring_ascii(denial.host)}, '
        f'"port": {denial.port}, "text": {encode_basestring_ascii(denial.text)}}}\n'
    ).encode()


def _write(descriptor: int, data: bytes) -> None:
    try:
        os.write(descriptor, data)
    except OSError:
        pass  # a full disk or a full pipe must not end anybody's connections


def _shorten(log: int) -> None:
    """Keep the newer half of a file that has become too long, in place: a proxy can open no other."""
    try:
        if os.fstat(log).st_size <= _MOST_OF_ONE:
            return
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)  # another run of the project may be at it
        try:
            size = os.fstat(log).st_size
            kept = os.pread(log, _MOST_OF_ONE // 2, max(size - _MOST_OF_ONE // 2, 0))
            os.ftruncate(log, 0)
            os.write(log, kept.partition(b"\n")[2])
        finally:
            fcntl.flock(log, fcntl.LOCK_UN)
    except OSError:
        return


def stamp(seconds: float | None = None) -> str:
    """Return a time, or now, as entries have it: UTC, to the microsecond, so that texts sort as times do."""
    now = time.time() if seconds is None else seconds
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1_000_000):06d}Z"


def open_log(place: str) -> int:
    """Open a session's file for another run; what it had before is kept once. Raises OSError."""
    os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
    try:
        if os.stat(place).st_size > _MOST_BYTES:
            os.replace(place, place + _OLDER)
    except FileNotFoundError:
        pass
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(place, flags, 0o600)


def since(place: str, began: float) -> tuple[Denial, ...]:
    """Return what a session's files have from a time on, in seconds since the epoch, the oldest first.

    What cannot be read is not there: a command has ended, and its result counts.
    """
    try:
        if os.stat(place).st_mtime < began - 1.0:  # file systems' clocks are late by a tick
            return ()
        found = read(place)
    except OSError:
        return ()
    first = stamp(began)
    return tuple(
        Denial(entry["time"], entry["host"], entry["port"], entry["text"])
        for entry in found
        if entry["time"] >= first
    )


def told(denials: tuple[Denial, ...]) -> tuple[str, ...]:
    """Return lines for people about what was blocked: each text once, and not too many."""
    texts = tuple(dict.fromkeys(denial.text for denial in denials))
    return texts if len(texts) <= _MOST_NOTES else (*texts[:_MOST_NOTES], MORE)


def read(place: str) -> list[dict[str, Any]]:
    """Return what a session's files hold, the oldest first; damaged lines are left out. Raises OSError."""
    from coopfile import jsonlines

    return jsonlines.read((place + _OLDER, place), 2 * _MOST_OF_ONE, _is_entry)


def _is_entry(entry: dict[str, Any]) -> bool:
    kinds = (("time", str), ("kind", str), ("host", str), ("port", int), ("text", str))
    return all(isinstance(entry.get(name), kind) for name, kind in kinds)
