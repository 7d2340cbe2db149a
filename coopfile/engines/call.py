"""Calls to an engine's command line: one argument per element, no shell, never without a timeout.

The exit status comes first, then standard output in machine formats; standard error is
for messages to people only.
"""

from __future__ import annotations

import os
import signal
import subprocess

from coopfile.errors import CoopError
from coopfile.plan.bind import inside
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

QUICK = 10.0  # seconds for what needs no work of the engine's but a busy machine
MOST_SHOWN = 2000  # characters of an engine's message


def own_environment(environment: Mapping[str, str], writable: Sequence[str]) -> dict[str, str]:
    """Return the environment for an engine's own processes, which run outside every sandbox.

    From PATH goes what a sandboxed command could have put a program into: directories
    in or below ``writable`` (real paths), and those that depend on the current one.
    """
    kept = [
        entry
        for entry in environment.get("PATH", os.defpath).split(":")
        if entry.startswith("/") and not any(inside(os.path.realpath(entry), root) for root in writable)
    ]
    return {**environment, "PATH": ":".join(kept)}


class EngineError(CoopError):
    """An engine did not do what it was asked. ``argv`` is the call, ``said`` its standard error."""

    def __init__(self, message: str, remedy: str | None, argv: Sequence[str], said: str = "") -> None:
        super().__init__(message, remedy)
        self.argv = tuple(argv)
        self.said = said


class Answer(Record):
    """How a call ended; ``out`` and ``said`` are its streams as text."""

    status: int
    out: str
    said: str


class Call:
    """A call under way, which ``answer`` waits for; several may run at once."""

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str] | None = None, stdin: int | None = None
    ) -> None:
        self.argv = tuple(argv)
        try:
            self._process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=None if environment is None else dict(environment),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(f"{argv[0]} cannot be started: {error.strerror}", None, argv) from None

    def answer(self, seconds: float, given: bytes | None = None) -> Answer:
        """Return what came of it; raises EngineError when it takes longer than ``seconds``."""
        status, out, said = self.bytes(seconds, given)
        return Answer(status, out.decode("utf-8", "replace"), said.decode("utf-8", "replace"))

    def bytes(self, seconds: float, given: bytes | None = None) -> tuple[int, bytes, bytes]:
        """Return the exit status and both streams as they are; raises as ``answer``."""
        try:
            out, said = self._process.communicate(given, timeout=seconds)
        except subprocess.TimeoutExpired:
            self.abandon()
            raise EngineError(
                f"{self.argv[0]} {self.argv[1]} did not answer within {seconds:g} s",
                f"is the engine well? try: {self.argv[0]} info",
                self.argv,
            ) from None
        except BaseException:
            self.abandon()
            raise
        return self._process.returncode, out, said

    def abandon(self) -> None:
        """End the call and all that it started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


def ask(
    argv: Sequence[str],
    seconds: float = QUICK,
    environment: Mapping[str, str] | None = None,
    given: bytes | None = None,
) -> Answer:
    """Make a call, give it ``given`` on standard input, and wait for its answer."""
    stdin = None if given is None else subprocess.PIPE
    return Call(argv, environment, stdin).answer(seconds, given)


def ask_bytes(
    argv: Sequence[str], seconds: float = QUICK, environment: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Make a call; return its exit status and what it printed, as it is."""
    status, out, _ = Call(argv, environment).bytes(seconds)
    return status, out


def must(
    what: str,
    argv: Sequence[str],
    seconds: float = QUICK,
    environment: Mapping[str, str] | None = None,
    given: bytes | None = None,
) -> str:
    """Make a call that has to succeed, and return its standard output; ``what`` names it in the error."""
    answer = ask(argv, seconds, environment, given)
    if answer.status != 0:
        raise EngineError(f"{what}: {shown(answer.said)}", None, argv, answer.said)
    return answer.out


def shown(said: str) -> str:
    """Return the end of what an engine said, where the reason is, in one line."""
    text = " ".join(line.strip() for line in said.strip().splitlines() if line.strip())
    return text[-MOST_SHOWN:] or "it gave no reason"
