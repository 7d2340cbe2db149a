"""How the sandbox's own processes tell the caller what went wrong.

One pipe, closed when the last of them is gone. A message is shorter than PIPE_BUF, so
that it arrives whole: kind, text and remedy, separated by NUL, ended by a record separator.
"""

from __future__ import annotations

import errno
import os

from coopfile.errors import CoopError
from coopfile.native import syscalls
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FAILURE = "failure"  # coop could not set the sandbox up
COMMAND = "command"  # the command could not be started; the status says how
NOTE = "note"  # worth telling after the command's end

_FULL = "is the disk full that the project, or coop's own data, is on? coop clean frees some of that"
_END = "\x1e"
_MOST = 1500  # bytes


class Message(Record):
    """What one process reported."""

    kind: str
    text: str
    remedy: str | None = None


def send(descriptor: int, message: Message) -> None:
    """Write one message; a caller that is gone does not matter."""
    fields = [message.kind.encode(), _plain(message.text), _plain(message.remedy or "")]
    try:
        os.write(descriptor, b"\0".join(fields) + _END.encode())
    except OSError:
        pass


def _plain(text: str) -> bytes:
    """Return a text, cut, without the separators: a name from a Coopfile may have any character."""
    plain = text.replace("\0", "\ufffd").replace(_END, "\ufffd")
    return plain.encode("utf-8", "surrogateescape")[:_MOST]


def send_error(descriptor: int, error: BaseException) -> None:
    """Report an exception that ended the set-up of a sandbox."""
    if isinstance(error, CoopError):
        send(descriptor, Message(FAILURE, error.message, error.remedy))
    elif isinstance(error, OSError) and error.errno == errno.ENOSYS:
        text = f"this kernel has no system call {error.filename}: Linux {os.uname().release}"
        send(descriptor, Message(FAILURE, text, "the native back end needs Linux 5.12 or newer"))
    elif isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        text = f"setting up the sandbox failed: {error.strerror}{where}"
        send(descriptor, Message(FAILURE, text, _FULL if full else None))
    else:
        send(descriptor, Message(FAILURE, f"setting up the sandbox failed: {type(error).__name__}: {error}"))


def receive(descriptor: int) -> Iterator[Message]:
    """Read every message until the last writer is gone."""
    for record in syscalls.read_all(descriptor).decode("utf-8", "surrogateescape").split(_END)[:-1]:
        kind, text, remedy = record.split("\0")
        yield Message(kind, text, remedy or None)
