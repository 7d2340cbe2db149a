"""What a build shows: bars that leave the terminal as it was, plain lines without control characters."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import threading
from pathlib import Path

import pexpect
import pytest

from coopfile.cli import progress
from coopfile.cli.progress import Lines, Rows, clip, duration, tidy
from coopfile.rootfs.progress import BUILDING, BUILT, KEPT, Progress

ROOT = Path(progress.__file__).parents[2]
HOSTILE = b"\x1b[2J\x1b]0;title\x07\x9b31m\x1bPq\x1b\\a\tb\x00\xe2\x80\xaeb\xff\r\n"


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


class Screen:
    """What a terminal shows of what was written: the sequences that coop uses, and no others."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.size = (columns, rows)
        self.lines = [""]
        self.row = self.column = 0
        self.writes = 0

    def write(self, text: str) -> None:
        """Act on a text as a terminal does."""
        self.writes += 1
        for part in re.findall(r"\x1b\[\d*[A-Za-z]|\r|\n|[^\x1b\r\n]+|.", text):
            if part == "\r":
                self.column = 0
            elif part == "\n":
                self.row, self.column = self.row + 1, 0
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif part.endswith("A") and part[0] == "\x1b":
                self.row -= int(part[2:-1])
                assert self.row >= 0, "above the first line"
            elif part == "\x1b[J":
                self.lines[self.row] = self.lines[self.row][: self.column]
                del self.lines[self.row + 1 :]
            elif part[0] != "\x1b":
                assert part.isprintable(), ascii(part)
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + part + line[self.column + len(part) :]
                self.column += len(part)
            else:
                assert re.fullmatch(r"\x1b\[[0-9]m", part), f"not a sequence of coop's: {part!a}"

    def __call__(self) -> tuple[int, int]:
        """Return columns and rows."""
        return self.size

    @property
    def shown(self) -> list[str]:
        """The lines, without the empty one on which the cursor waits."""
        assert (self.row, self.column) == (len(self.lines) - 1, 0), "the cursor is below everything"
        return self.lines[:-1]


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands still."""
    return Clock()


@pytest.fixture
def screen() -> Screen:
    """Return an empty terminal."""
    return Screen()


@pytest.fixture
def rows(screen: Screen, clock: Clock) -> Rows:
    """Return rows on the screen, drawn when the test says so."""
    return Rows(screen.write, screen, clock=clock)


def build(shown: Progress, clock: Clock) -> None:
    """Tell of a small build from its beginning to its end."""
    shown.note("fetching")
    shown.stage("image", 1, 3, BUILDING)
    shown.downloading(1, 2, 0, 2_000_000)
    clock.now += 1.5
    shown.downloading(1, 2, 2_000_000, 2_000_000)
    shown.unpacking(1, 2, 0, 2_000_000)
    shown.unpacking(1, 2, 2_000_000, 2_000_000)
    shown.stage("image", 1, 3, BUILT)
    shown.stage("packages.apt", 2, 3, KEPT)
    shown.stage("setup.run", 3, 3, BUILDING)
    shown.command("setup.run", 1, 2, "make\n  all")
    shown.output(b"compi")
    shown.output(b"ling\nlinking")
    clock.now += 65
    shown.command("setup.run", 2, 2, "make install")
    shown.stage("setup.run", 3, 3, BUILT)


SAID = [
    "coop: fetching",
    "coop: layer 1 of 2: fetched 2.0 MB in 1.5 s",
    "coop: layer 1 of 2: unpacked 2.0 MB in 0.0 s",
    "coop: image (1 of 3): built in 1.5 s",
    "coop: packages.apt (2 of 3): kept",
    "coop: setup.run 1/2: make all",
    "coop: setup.run 2/2: make install",
    "coop: setup.run (3 of 3): built in 1 min 05 s",
]


def test_lines(clock: Clock) -> None:
    """Without a terminal a build is a line for each layer, command and stage."""
    said: list[str] = []
    build(Lines(said.append, clock=clock), clock)
    assert said == [f"{line}\n" for line in SAID]


def test_verbose_lines(clock: Clock) -> None:
    """With -v everything that the commands print is there too, also a last line without an end."""
    said: list[str] = []
    build(Lines(said.append, verbose=True, clock=clock), clock)
    command = SAID.index("coop: setup.run 1/2: make all") + 1
    assert "".join(said).splitlines() == [*SAID[:command], "  compiling", "  linking", *SAID[command:]]


def test_at_its_end_the_terminal_has_the_same_lines(rows: Rows, screen: Screen, clock: Clock) -> None:
    """However often it was drawn meanwhile, the lines stay and the rows are gone."""
    draws = screen.writes
    with rows:
        build(rows, clock)
        rows.draw()
        assert screen.writes > draws
    assert screen.shown == SAID


def test_rows_are_drawn_in_place(rows: Rows, screen: Screen, clock: Clock) -> None:
    """A layer's bar grows in its row; new lines push the rows down; a finished one leaves."""
    rows.note("one")
    rows.downloading(1, 3, 0, 4_000_000)
    rows.downloading(2, 3, 1_000_000, 4_000_000)
    rows.draw()
    assert screen.shown == [
        "coop: one",
        f"  layer 1 of 3  {'░' * 24}  fetching 0.0 of 4.0 MB",
        f"  layer 2 of 3  {'█' * 6}{'░' * 18}  fetching 1.0 of 4.0 MB",
    ]
    rows.downloading(1, 3, 3_000_000, 4_000_000)
    rows.downloading(2, 3, 4_000_000, 4_000_000)
    rows.draw()
    assert screen.shown[1:] == [
        "coop: layer 2 of 3: fetched 4.0 MB in 0.0 s",
        f"  layer 1 of 3  {'█' * 18}{'░' * 6}  fetching 3.0 of 4.0 MB",
    ]


def test_a_command_shows_its_time_and_its_last_line(rows: Rows, screen: Screen, clock: Clock) -> None:
    """What a command prints passes by in one row."""
    rows.stage("setup.run", 2, 2, BUILDING)
    rows.command("setup.run", 1, 1, "make")
    rows.output(b"first\nsecond\n\n10%\r20%\r\nnot yet")
    clock.now += 72.4
    rows.draw()
    assert screen.shown[-2:] == ["  setup.run (2 of 2)  1 min 12 s  make", "    not yet"]
    rows.output(b"\r\n")
    rows.output(b"\x1b[0m\n \n30%\r40%\r")
    rows.draw()
    assert screen.shown[-1] == "    40%"


def test_nothing_is_written_while_nothing_changes(rows: Rows, screen: Screen, clock: Clock) -> None:
    """A terminal that shows what there is is left alone."""
    rows.downloading(1, 1, 1, 4)
    rows.draw()
    written = screen.writes
    rows.draw()
    assert screen.writes == written


@pytest.mark.parametrize(("columns", "height"), [(20, 24), (1, 24), (80, 3), (80, 1)])
def test_rows_fit_the_terminal(clock: Clock, columns: int, height: int) -> None:
    """No row wraps, and the rows leave a line for the cursor: else what scrolled away stays."""
    screen = Screen(columns, height)
    rows = Rows(screen.write, screen, clock=clock)
    for layer in range(1, 30):
        rows.downloading(layer, 30, 1, 4)
    rows.stage("setup.run", 1, 1, BUILDING)
    rows.output("語".encode() * 500 + b"\n")
    rows.draw()
    assert len(screen.shown) < height or not screen.shown
    assert all(sum(2 if char == "語" else 1 for char in line) < columns for line in screen.shown)


@pytest.mark.parametrize("verbose", [False, True])
def test_control_characters_never_reach_the_terminal(clock: Clock, verbose: bool) -> None:
    """Whatever commands, stages and their output hold, a terminal gets text and coop's own sequences."""
    screen = Screen()
    rows = Rows(screen.write, screen, verbose=verbose, clock=clock, color=True)
    evil = HOSTILE.decode("latin-1")
    with rows:
        rows.note(evil)
        rows.stage("setup.run", 1, 1, BUILDING)
        rows.command("setup.run", 1, 1, evil)
        rows.output(HOSTILE + HOSTILE[:3])
        rows.draw()
        rows.output(HOSTILE * 500)
    assert ("b\\x00" in "".join(screen.shown[2:])) == verbose
    plain: list[str] = []
    lines = Lines(plain.append, verbose=verbose)
    lines.output(HOSTILE)
    lines.note(evil)
    assert all(line[:-1].isprintable() for line in plain)


def test_tidy() -> None:
    """Colours vanish, tabs are blanks, the rest of what a terminal acts on is spelt out."""
    assert tidy(b"\x1b[1;31merror\x1b[0m:\tno\r\n") == "error:  no"
    assert tidy(HOSTILE) == r"\x9b31ma   b\x00\u202eb\xff"
    assert tidy(b"\x1b") == r"\x1b"


def test_a_line_without_end_is_not_waited_for(clock: Clock) -> None:
    """What never ends its line takes no more memory than a long line."""
    said: list[str] = []
    lines = Lines(said.append, verbose=True, clock=clock)
    for _ in range(100):
        lines.output(b"x" * 1000)
    assert sum(map(len, said)) > 90_000


def test_clip() -> None:
    """A text is cut to columns, of which some characters take two and some none."""
    assert clip("abc", 3) == "abc" and clip("abcd", 3) == "ab…"
    assert clip("日本語", 6) == "日本語" and clip("日本語", 5) == "日本…" and clip("日本語", 4) == "日…"
    assert clip("e\u0301x", 2) == "e\u0301x" and clip("abc", 1) == "…" and clip("abc", 0) == ""


def test_duration() -> None:
    """Tenths count for what is short only, and no minute has sixty seconds."""
    assert [duration(seconds) for seconds in (0.04, 9.94, 9.96, 59.6, 125)] == [
        "0.0 s",
        "9.9 s",
        "10 s",
        "1 min 00 s",
        "2 min 05 s",
    ]


def test_from_many_threads(rows: Rows, screen: Screen) -> None:
    """Layers that arrive at once neither lose a line nor tear one."""

    def fetch(layer: int) -> None:
        for done in range(0, 101, 4):
            rows.downloading(layer, 8, done, 100)

    with rows:
        threads = [threading.Thread(target=fetch, args=(layer,)) for layer in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(line[:18] for line in screen.shown) == [f"coop: layer {n} of 8" for n in range(1, 9)]


def test_the_drawing_thread_takes_no_signals(rows: Rows) -> None:
    """A signal for the process waits for the thread that asks for it."""
    before = set(os.listdir("/proc/self/task"))
    with rows:
        (drawing,) = set(os.listdir("/proc/self/task")) - before
        status = Path(f"/proc/self/task/{drawing}/status").read_text()
    blocked = int(dict(line.split(":\t") for line in status.splitlines())["SigBlk"], 16)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        assert blocked & 1 << number - 1, signal.Signals(number)


SHOW = """
import sys
from coopfile.cli.progress import showing
try:
    with showing(*map(int, sys.argv[1:])) as shown:
        shown.stage("setup.run", 1, 1, "building")
        shown.command("setup.run", 1, 1, "make")
        shown.output(b"\\x1b[31mworking\\n")
        sys.stdin.readline()
        shown.stage("setup.run", 1, 1, "kept")
except KeyboardInterrupt:
    print("interrupted")
"""


def show(*counts: int, **environment: str) -> tuple[pexpect.spawn[str], io.StringIO]:
    """Start a small build under a terminal of its own; return it, and what the terminal gets."""
    variables = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), **environment}
    argv = ["-c", SHOW, *map(str, counts)]
    child = pexpect.spawn(sys.executable, argv, env=variables, encoding="utf-8", timeout=60, echo=False)
    child.logfile_read = io.StringIO()
    return child, child.logfile_read


@pytest.mark.parametrize(
    ("ending", "last"), [("line", "coop: setup.run (1 of 1): kept"), ("interrupt", "interrupted")]
)
def test_on_a_real_terminal(ending: str, last: str, screen: Screen) -> None:
    """The rows are there while a command works, and gone at its end and on ^C."""
    child, written = show(0, 0, TERM="xterm", NO_COLOR="1")
    child.expect("    working")
    child.kill(signal.SIGINT) if ending == "interrupt" else child.sendline("")
    child.expect(pexpect.EOF)
    screen.write(written.getvalue())
    assert screen.shown == ["coop: setup.run: make", last]


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {}])
def test_on_a_terminal_that_cannot(environment: dict[str, str]) -> None:
    """A dumb terminal, or one that nobody named, gets plain lines."""
    child, written = show(0, 1, **environment)
    child.expect("working")
    child.sendline("")
    child.expect(pexpect.EOF)
    assert written.getvalue().splitlines() == [
        "coop: setup.run: make",
        "  working",
        "coop: setup.run (1 of 1): kept",
    ]


def test_quiet() -> None:
    """With -q there is nothing at all."""
    child, written = show(1, 1, TERM="xterm")
    child.sendline("")
    child.expect(pexpect.EOF)
    assert written.getvalue() == ""
