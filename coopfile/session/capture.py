"""A command's three streams while it runs: input that is fed, output of which the end is kept.

Nothing here waits for a stream: a command that floods, closes or never reads them is waited for as
any other, and what a process in the background still holds open when the command has ended is left.
"""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import termios
import time

from coopfile.errors import CoopError
from coopfile.session import forking
from coopfile.session.model import LONGEST_WAIT, SessionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from coopfile.session.model import Ended, Running

    class HasFileno(Protocol):
        """An open file, a socket, anything with a descriptor."""

        def fileno(self) -> int:
            """Return the descriptor."""

    Input = bytes | bytearray | memoryview | int | HasFileno | None
    Target = int | HasFileno | None

# After a command's time the session asks it to end, waits two seconds, and kills it; the kernel may
# take a while for that. Later than this the session itself is not well.
LATE = 30.0
_CHUNK = 1 << 16  # bytes at once: what a pipe holds
_STREAMS = ("stdout", "stderr")


class Output:
    """The end of what comes in two streams: together at most ``most`` bytes, of each up to half at least.

    While it is gathered it takes no more memory than that and one read.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept = (bytearray(), bytearray())
        self._cut = [0, 0]

    def add(self, which: int, data: bytes) -> None:
        """Take in what came in stream 0 or 1."""
        mine, other = self._kept[which], self._kept[1 - which]
        mine += data
        excess = len(mine) + len(other) - self._most
        if excess > 0:
            longer = which if len(mine) > len(other) else 1 - which
            first = min(excess, abs(len(mine) - len(other)))
            self._trim(longer, first)
            self._trim(which, excess - first - (excess - first) // 2)
            self._trim(1 - which, (excess - first) // 2)

    def taken(self) -> tuple[tuple[bytes, bytes], tuple[int, int]]:
        """Return the end of each stream, and how many bytes came before it."""
        return (bytes(self._kept[0]), bytes(self._kept[1])), (self._cut[0], self._cut[1])

    def _trim(self, which: int, count: int) -> None:
        # Taking bytes from the front of a bytearray moves nothing.
        del self._kept[which][:count]
        self._cut[which] += count


class Streams:
    """The three descriptors of one command, and the other ends of those that are pipes."""

    def __init__(self, stdin: Input, stdout: Target, stderr: Target, most: int) -> None:
        """Take what `Session.exec` takes. Raises CoopError."""
        self.output = Output(most)
        self.sink: int | None = None
        """Where standard input is to be written to, until it is all written."""
        self.sources: dict[int, int] = {}
        """What can be read, until it ends: 0 for standard output, 1 for standard error."""
        self._theirs: list[int] = []
        self._left = memoryview(b"")
        forking.track(self)
        try:
            first = self._input(stdin)
            second = self._target(stdout, 0)
            merged = isinstance(stderr, int) and stderr == subprocess.STDOUT
            self.given = (first, second, second if merged else self._target(stderr, 1))
        except OSError as error:
            self.close()
            raise SessionError(
                f"no streams can be made for the command: {error.strerror}",
                "close files, or raise the limit of descriptors (ulimit -n)",
            ) from None
        except BaseException:
            self.close()
            raise

    def begun(self) -> None:
        """Give up the command's own ends, which it has now."""
        while self._theirs:
            os.close(self._theirs.pop())

    @property
    def open(self) -> tuple[int, ...]:
        """Our ends that are still open."""
        return (*self.sources, *(() if self.sink is None else (self.sink,)))

    def feed(self, sink: int) -> bool:
        """Write of the input what there is room for; tell whether that was the last."""
        try:
            self._left = self._left[os.write(sink, self._left[:_CHUNK]) :]
        except BlockingIOError:
            return False
        except BrokenPipeError:
            return True  # nobody reads it any more
        return not self._left

    def take(self, source: int, most: int = _CHUNK) -> bool:
        """Read what there is, up to ``most`` bytes; tell whether the stream has ended."""
        try:
            data = os.read(source, most)
        except BlockingIOError:
            return False
        self.output.add(self.sources[source], data)
        return not data

    def shut(self, descriptor: int) -> None:
        """Close one of our ends."""
        if descriptor == self.sink:
            self.sink = None
        else:
            del self.sources[descriptor]
        os.close(descriptor)

    def drain(self) -> None:
        """Read what the streams hold at this moment, whoever writes on."""
        for source in self.sources:
            held = bytearray(4)
            fcntl.ioctl(source, termios.FIONREAD, held)
            left = int.from_bytes(held, "little")
            while left > 0:
                self.take(source, min(left, _CHUNK))
                left -= _CHUNK

    def close(self) -> None:
        """Close all that is not the caller's. May be called twice."""
        self.begun()
        for descriptor in self.open:
            self.shut(descriptor)

    def forked(self) -> None:
        """Let a child have none of these pipes: a command's input ends when nobody can write to it."""
        forking.let_go((*self._theirs, *self.open))

    def _input(self, stdin: Input) -> int:
        if stdin is None or (isinstance(stdin, int) and stdin == subprocess.DEVNULL):
            return self._null(os.O_RDONLY)
        if not isinstance(stdin, bytes | bytearray | memoryview):
            return _descriptor(stdin, "stdin", "bytes, a file, or a descriptor")
        ours = self._pipe(1)
        self._left = memoryview(bytes(stdin))
        self.sink = ours
        return self._theirs[-1]

    def _target(self, target: Target, which: int) -> int:
        if target is None or (isinstance(target, int) and target == subprocess.PIPE):
            self.sources[self._pipe(0)] = which
            return self._theirs[-1]
        if isinstance(target, int) and target == subprocess.DEVNULL:
            return self._null(os.O_WRONLY)
        return _descriptor(target, _STREAMS[which], "a file or a descriptor")

    def _pipe(self, ours: int) -> int:
        """Make a pipe; return our end, 0 or 1 of it, which does not block."""
        ends = os.pipe()
        self._theirs.append(ends[1 - ours])
        os.set_blocking(ends[ours], False)
        return ends[ours]

    def _null(self, flags: int) -> int:
        self._theirs.append(os.open(os.devnull, flags | os.O_CLOEXEC))
        return self._theirs[-1]


def attend(running: Running, streams: Streams, timeout: float | None) -> Ended:
    """Wait for a command's end while its streams flow. Raises SessionGone, SessionError.

    The session ends what takes longer than ``timeout`` seconds.
    """
    end = running.fileno()
    poll = select.poll()
    poll.register(end, select.POLLIN)
    for source in streams.sources:
        poll.register(source, select.POLLIN)
    if streams.sink is not None:
        poll.register(streams.sink, select.POLLOUT)
    deadline = None if timeout is None else time.monotonic() + timeout + LATE
    over = False
    while not over:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise silent(timeout or 0.0)
        for descriptor, _ in poll.poll(None if left is None else min(left, LONGEST_WAIT) * 1000):
            if descriptor == end:
                over = True
            elif streams.feed(descriptor) if descriptor == streams.sink else streams.take(descriptor):
                poll.unregister(descriptor)
                streams.shut(descriptor)
    ended = running.wait()
    streams.drain()
    return ended


def silent(timeout: float) -> SessionError:
    """Return the error for a session that does not end a command whose time is over."""
    return SessionError(
        f"the session has not ended a command within {LATE:g} s after its time of {timeout:g} s",
        "coop stop ends the session",
    )


def _descriptor(given: object, name: str, kinds: str) -> int:
    try:
        number = given if isinstance(given, int) else given.fileno()  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        number = -1  # no file, one in memory, or a closed one
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise CoopError(f"{name} is {_article(given)}, which has no descriptor", f"it may be {kinds}")
    try:
        os.fstat(number)
    except (OSError, OverflowError):
        raise CoopError(
            f"{name} is the descriptor {number}, which is not open", f"it may be {kinds}"
        ) from None
    return number


def _article(given: object) -> str:
    kind = type(given).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"
