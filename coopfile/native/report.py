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
WEAKENING = "weakening"  # what is weaker than the plan: key and words, divided by a colon; how to have it
READY = "ready"  # a session takes requests

_FULL = "is the disk full that the project, or coop's own data, is on? coop clean frees some of that"
FILES = "raise the limit of open files: ulimit -n"
_SHORT = "this user, or the machine, has too many processes, or too little memory: end some"
_END = "\x1e"
END = _END.encode()
_MOST = 1500  # bytes
NOW_READY = READY.encode() + b"\0\0" + END  # the message, made once: who sends it writes to little memory


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


def is_read(descriptor: int) -> bool:
    """Tell whether anybody can still read what is sent to a pipe."""
    import select

    waiting = select.poll()
    waiting.register(descriptor, 0)
    return not waiting.poll(0)


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
        remedies = {
            **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), _FULL),
            **dict.fromkeys((errno.EAGAIN, errno.ENOMEM), _SHORT),
            errno.EMFILE: FILES,
        }
        text = f"setting up the sandbox failed: {error.strerror}{where}"
        send(descriptor, Message(FAILURE, text, remedies.get(error.errno or 0)))
    else:
        send(descriptor, Message(FAILURE, f"setting up the sandbox failed: {type(error).__name__}: {error}"))


def receive(descriptor: int, most: int | None = None) -> Iterator[Message]:
    """Read every message until the last writer is gone, or at most so many bytes of a file."""
    data = syscalls.read_all(descriptor) if most is None else os.read(descriptor, most)
    for record in data.split(END)[:-1]:
        yield parse(record)


def parse(record: bytes) -> Message:
    """Return the message of one record, which has no separator any more."""
    kind, text, remedy = record.decode("utf-8", "surrogateescape").split("\0")
    return Message(kind, text, remedy or None)
