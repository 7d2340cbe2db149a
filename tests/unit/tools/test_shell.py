"""What a model is told of a command's end."""

from __future__ import annotations

from typing import Any

import coopfile
from coopfile.record import Record
from coopfile.tools import rules, shell


class Blocked(Record):
    """What a session tells of a connection that was blocked."""

    text: str


class Telling(Record):
    """A result with blocked connections, as sessions with a proxy give it."""

    timed_out: bool
    signal: int | None
    status: int
    notes: tuple[str, ...]
    text: str
    error_text: str
    stderr: bytes
    cut_stdout: int
    cut_stderr: int
    denials: tuple[Blocked, ...]


def test_blocked_connections(project: object) -> None:
    """Each is told once, on a line of its own, with nothing in it that a terminal acts on."""
    denials = tuple(map(Blocked, ("x.org:443 is not listed", "x.org:443 is not listed", "bad \x1b[2J")))
    result: Any = Telling(False, None, 7, (), "", "failed", b"failed", 0, 0, denials)
    assert shell.told(result, coopfile.compile(), "/somewhere") == (
        "[stderr]\nfailed\n[exit status 7]\n[blocked: x.org:443 is not listed]\n[blocked: bad \\x1b[2J]"
    )


def test_only_what_is_known_is_told(project: object) -> None:
    """Of what a command printed at the end, each path once; nothing of a rule that there is not."""
    printed = "".join(
        f"{line}\n"
        for line in (
            *("sh: 1: cannot create .git/config: Read-only file system",) * 2,
            "mkdir: cannot create directory \u2018src\u2019: Permission denied",
            "touch: cannot touch '.git/hooks/a\x1b': Read-only file system",
            ": Read-only file system",
            "Read-only file system: ''",
        )
    )
    (text,) = rules.refusals(coopfile.compile(), printed, "/somewhere")
    assert text.startswith(".git/config may not be written (")
    many = "".join(f"touch: cannot touch '.git/hooks/{n}': Read-only file system\n" for n in range(10_000))
    assert len(rules.refusals(coopfile.compile(), many, "/somewhere")) == 3
