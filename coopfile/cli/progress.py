"""How far a build is: bars on a terminal, plain lines elsewhere.

What is finished is a line for good. On a terminal the rows below it show what is under
way; a thread draws them, so that time goes on while a command is silent. The cursor
always stands below the rows: whatever ends coop, the terminal is as it has to be.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
import unicodedata
from contextlib import contextmanager

from coopfile.cli import output
from coopfile.record import Record
from coopfile.rootfs.progress import BUILDING, KEPT, Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self

_INTERVAL = 0.1  # seconds between two drawings
_WIDEST = 100  # columns of a command, and of the rows
_BAR = 24  # columns
_ROWS = 8  # of the terminal, at most
_LONGEST = 1 << 12  # bytes of a line of output that are waited for
# ECMA-48: control sequences, and the strings that terminals know, such as titles.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")


@contextmanager
def showing(quiet: int, verbose: int) -> Iterator[Progress]:
    """Give what shows the progress of a build on standard error; at the end nothing moves any more."""
    if quiet:
        yield Progress()
        return
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield Lines(_write, verbose=verbose > 0)
        return
    utf8 = (sys.stderr.encoding or "").lower().replace("-", "") == "utf8"
    color = output.wants_color(None, sys.stderr)
    with Rows(_write, _terminal_size, verbose=verbose > 0, color=color, utf8=utf8) as rows:
        yield rows


def tidy(line: bytes) -> str:
    """Return a line of a command's output without what a terminal would act on."""
    text = line.rstrip(b"\r\n").rpartition(b"\r")[2].decode("utf-8", "surrogateescape")
    return output.safe(_SEQUENCE.sub("", text).expandtabs().rstrip())


def clip(text: str, columns: int) -> str:
    """Return as much of a text without control characters as there is room for in so many columns."""
    used = end = 0
    for index, char in enumerate(text):
        used += _columns(char)
        if used > columns:
            return text[:end] + "…" * (columns > 0)
        if used < columns:
            end = index + 1  # leaves a column for the sign
    return text


def duration(seconds: float) -> str:
    """Return a time for people: ``0.4 s``, ``12 s``, ``2 min 05 s``; whole seconds are shown as such."""
    if seconds < 9.95 and isinstance(seconds, float):
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def megabytes(size: float) -> str:
    """Return a size for people."""
    return f"{size / 1e6:.1f} MB"


class _Transfer(Record):
    """A layer on its way: since when, and how many of its bytes are there."""

    title: str
    started: float
    done: int
    size: int


class _Stage(Record):
    """A stage being built: since when, its command, and the last that it said."""

    title: str
    started: float
    command: str = ""
    said: str = ""


class Lines(Progress):
    """Says in a line each what is finished and which command has begun.

    ``write`` gets whole lines; with ``verbose`` also those that the commands print.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        verbose: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._verbose = verbose
        self._clock = clock
        self._lock = threading.RLock()
        self._transfers: dict[tuple[str, int], _Transfer] = {}
        self._stage: _Stage | None = None
        self._partial = b""

    def note(self, text: str) -> None:
        """Say it."""
        self._say(f"coop: {output.safe(text)}")

    def downloading(self, layer: int, layers: int, done: int, size: int) -> None:
        """Say it of a whole layer."""
        self._transfer("fetched", layer, layers, done, size)

    def unpacking(self, layer: int, layers: int, done: int, size: int) -> None:
        """Say it of a whole layer."""
        self._transfer("unpacked", layer, layers, done, size)

    def stage(self, key: str, number: int, stages: int, state: str) -> None:
        """Say what a stage has become."""
        title = f"{key} ({number} of {stages})"
        with self._lock:
            self._end_line()
            if state == BUILDING:
                self._stage = _Stage(title, self._clock())
                return
            started = self._stage.started if self._stage else self._clock()
            took = "" if state == KEPT else f" in {duration(self._clock() - started)}"
            self._stage = None
            self.note(f"{title}: {state}{took}")

    def command(self, stage: str, number: int, commands: int, command: str) -> None:
        """Say it."""
        of = f" {number}/{commands}" if commands > 1 else ""
        text = clip(output.safe(" ".join(command.split())), _WIDEST)
        with self._lock:
            self._end_line()
            if self._stage is not None:
                self._stage = self._stage.replace(command=f"{of} {text}".strip(), said="")
            self._say(f"coop: {stage}{of}: {text}")

    def output(self, data: bytes) -> None:
        """Take it in lines."""
        with self._lock:
            *lines, self._partial = (self._partial + data).split(b"\n")
            # Of lines that nobody reads only the last one counts: a command may print very many.
            for line in lines if self._verbose else [line for line in lines if line.strip()][-1:]:
                self._line(line)
            if len(self._partial) > _LONGEST:
                self._end_line()

    def _end_line(self) -> None:
        if self._partial:
            self._line(self._partial)
            self._partial = b""

    def _line(self, line: bytes) -> None:
        text = tidy(line)
        if self._stage is not None and text:
            self._stage = self._stage.replace(said=text)
        if self._verbose:
            self._say(f"  {text}")

    def _transfer(self, verb: str, layer: int, layers: int, done: int, size: int) -> None:
        title = f"layer {layer} of {layers}"
        with self._lock:
            now = self._clock()
            before = self._transfers.get((verb, layer))
            started = now if before is None else before.started
            self._transfers[verb, layer] = _Transfer(title, started, done, size)
            if done >= size and (before is None or before.done < size):
                self._say(f"coop: {title}: {verb} {megabytes(size)} in {duration(now - started)}")

    def _say(self, line: str) -> None:
        with self._lock:
            self._write(line + "\n")


class Rows(Lines):
    """The same lines on a terminal, and below them what is under way, while the block lasts.

    ``size`` returns the terminal's columns and rows.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        size: Callable[[], tuple[int, int]],
        *,
        verbose: bool = False,
        color: bool = False,
        utf8: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(write, verbose=verbose, clock=clock)
        self._size = size
        self._color = color
        self._filled, self._empty = "█░" if utf8 else "#."
        self._lines: list[str] = []
        self._drawn: list[str] = []
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.resume()
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()

    def resume(self) -> None:
        """Begin to draw."""
        self._closing.clear()
        self._thread = threading.Thread(target=self._keep_drawing, daemon=True)
        # The thread takes no signal: they are for who waits for the build, which has them blocked.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def pause(self) -> None:
        """Say what there is to say, take the rows away, and leave the terminal to others."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._end_line()
            self._draw([])

    def draw(self) -> None:
        """Write new lines, and the rows as they are now below them; nothing if nothing has changed."""
        with self._lock:
            self._draw(self._rows())

    def _keep_drawing(self) -> None:
        while not self._closing.wait(_INTERVAL):
            self.draw()

    def _say(self, line: str) -> None:
        with self._lock:
            self._lines.append(line)

    def _draw(self, rows: list[str]) -> None:
        if not self._lines and rows == self._drawn:
            return
        up = f"\x1b[{len(self._drawn)}A" if self._drawn else ""
        text = "".join(f"{line}\n" for line in (*self._lines, *rows))
        self._lines, self._drawn = [], rows
        self._write(f"{up}\r\x1b[J{text}")

    def _rows(self) -> list[str]:
        columns, height = self._size()
        width = min(columns - 1, _WIDEST)
        rows = [
            clip(f"  {item.title}  {self._bar(item)}  {_VERBS[verb]} {_amount(item)}", width)
            for (verb, _), item in self._transfers.items()
            if item.done < item.size
        ]
        if self._stage is not None:
            took = duration(int(self._clock() - self._stage.started))
            rows.append(clip(f"  {self._stage.title}  {took}  {self._stage.command}".rstrip(), width))
            said = tidy(self._partial) or self._stage.said
            rows += [output.paint(clip(f"    {said}", width), "dim", self._color)] if said else []
        return rows[-max(min(_ROWS, height - 1), 0) :] if height > 1 else []

    def _bar(self, item: _Transfer) -> str:
        filled = _BAR * item.done // item.size
        return self._filled * filled + self._empty * (_BAR - filled)


_VERBS = {"fetched": "fetching", "unpacked": "unpacking"}


def _amount(item: _Transfer) -> str:
    return f"{item.done / 1e6:.1f} of {megabytes(item.size)}"


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _terminal_size() -> tuple[int, int]:
    try:
        size = os.get_terminal_size(2)
    except OSError:
        return 80, 24
    return size.columns or 80, size.lines or 24


def _write(text: str) -> None:
    """Write to standard error, past its buffer: a build forks while the thread may hold the buffer's lock."""
    data = text.encode(sys.stderr.encoding or "utf-8", "backslashreplace")
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        return  # a build is not given up because nobody looks
