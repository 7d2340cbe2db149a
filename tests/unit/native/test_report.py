"""Messages from the sandbox's processes to the caller."""

from __future__ import annotations

import errno
import os
import select

import pytest

from coopfile.errors import CoopError
from coopfile.native import report
from coopfile.native.report import Message


def exchange(*messages: Message | BaseException) -> list[Message]:
    """Send some messages or exceptions through a pipe and return what arrives."""
    receive, send = os.pipe()
    for message in messages:
        if isinstance(message, Message):
            report.send(send, message)
        else:
            report.send_error(send, message)
    os.close(send)
    try:
        return list(report.receive(receive))
    finally:
        os.close(receive)


@pytest.mark.parametrize("text", ["", "plain", "two\nlines", "ünï", "\udcff"])
@pytest.mark.parametrize("remedy", [None, "do this"])
def test_round_trip(text: str, remedy: str | None) -> None:
    """What is sent arrives: kind, text and remedy, bytes of file names included."""
    message = Message(report.NOTE, text, remedy)
    assert exchange(message) == [message]


def test_several() -> None:
    """Messages stay apart and in order."""
    messages = [Message(report.COMMAND, f"m{number}") for number in range(50)]
    assert exchange(*messages) == messages
    assert exchange() == []


def test_hostile_text() -> None:
    """Separators in a name, which the command may have chosen, cannot forge a message."""
    text = f"evil\0{report.FAILURE}\x1e{report.FAILURE}\0forged\0\x1e"
    received = exchange(Message(report.COMMAND, text))
    assert [message.kind for message in received] == [report.COMMAND]


def test_long_text() -> None:
    """A message is cut so that it is written whole: pipes guarantee it up to PIPE_BUF."""
    for letter in ("x", "ü", "\U0001f600"):
        receive, send = os.pipe()
        report.send(send, Message(report.FAILURE, letter * 100_000, letter * 100_000))
        os.close(send)
        data = os.read(receive, 1 << 20)
        os.close(receive)
        assert len(data) <= select.PIPE_BUF


def test_errors() -> None:
    """Exceptions become failures in words."""
    coop = exchange(CoopError("wrong", "mend it"))
    assert coop == [Message(report.FAILURE, "wrong", "mend it")]
    system = exchange(OSError(errno.EPERM, "Operation not permitted", "mount"))
    assert system == [
        Message(report.FAILURE, "setting up the sandbox failed: Operation not permitted (mount)")
    ]
    (full,) = exchange(OSError(errno.ENOSPC, "No space left on device"))
    assert full.text.endswith("No space left on device") and "disk" in (full.remedy or "")
    (many,) = exchange(OSError(errno.EMFILE, "Too many open files"))
    assert "ulimit -n" in (many.remedy or "")
    (other,) = exchange(KeyError("x"))
    assert other.kind == report.FAILURE and "KeyError" in other.text


def test_reader_gone() -> None:
    """A caller that is gone does not matter to the sender."""
    receive, send = os.pipe()
    os.close(receive)
    report.send(send, Message(report.NOTE, "x"))
    os.close(send)
