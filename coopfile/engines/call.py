"""Calls to an engine's command line: one argument per element, no shell, never without a timeout.

The exit status comes first, then standard output in machine formats; standard error is
for messages to people only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections import deque

from coopfile.engines.processes import descendants, is_at_work, started
from coopfile.engines.timeouts import CLEANS_UP, QUICK
from coopfile.errors import CoopError
from coopfile.native.links import resolve
from coopfile.plan.launch import inside
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import IO

MOST_SHOWN = 2000  # characters of an engine's message
MOST_ANSWERED = 64 << 20  # bytes of either stream: a list of all that a session has changed can be long
# Files and directories by which engines are told what to start, and whom to trust.
_TRUSTED = (
    "CONTAINERS_CONF",
    "CONTAINERS_CONF_OVERRIDE",
    "CONTAINERS_REGISTRIES_CONF",
    "CONTAINERS_STORAGE_CONF",
    "CONTAINER_HOST",
    "DOCKER_CERT_PATH",
    "DOCKER_CONFIG",
    "DOCKER_HOST",
    "REGISTRY_AUTH_FILE",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
)
_ADDRESSES = ("CONTAINER_HOST", "DOCKER_HOST")
# The variables that tell which engine is meant, and where it is.
_NAMES_ONE = ("CONTAINER_CONNECTION", "CONTAINER_SSHKEY", "DOCKER_CONTEXT", "DOCKER_TLS", "DOCKER_TLS_VERIFY")
REACHED_BY = ("HOME", "PATH", *_NAMES_ONE, *_TRUSTED)
# What engines read: the variable that says below which directory, else which one of the home's it is, and
# what there. HOME_PROTECT guards those of the home where `files.write` holds them.
_CONFIGURATION = (
    ("DOCKER_CONFIG", ".docker", ""),
    ("DOCKER_CERT_PATH", ".docker", ""),
    ("XDG_CONFIG_HOME", ".config", "/containers"),
    ("XDG_DATA_HOME", ".local/share", "/containers"),
    ("XDG_DATA_HOME", ".local/share", "/docker"),
    ("XDG_RUNTIME_DIR", "", "/containers"),
    ("XDG_RUNTIME_DIR", "", "/libpod"),
)
# The host's service manager's business with this process, which Podman would hand on.
_NOT_THEIRS = ("NOTIFY_SOCKET", "LISTEN_")
_LINES_KEPT = 100
_LINE_KEPT = 4000  # bytes
_LOOKS, _MOMENT = 5, 0.01  # how often, and every how many seconds, what a late call does is looked at
_LOOK = 0.1  # seconds between such looks


def own_environment(environment: Mapping[str, str], writable: Sequence[str]) -> dict[str, str]:
    """Return the environment for an engine's own processes, which run outside every sandbox.

    From PATH goes what a sandboxed command could have put a program into: directories
    in or below ``writable`` (real paths), and those that depend on the current one.
    Raises CoopError where an engine's configuration would come from there.
    """
    kept = {name: value for name, value in environment.items() if not name.startswith(_NOT_THEIRS)}
    entries = environment.get("PATH", os.defpath).split(":")
    kept["PATH"] = ":".join(filter(None, (_out_of_reach(entry, writable) for entry in entries)))
    for name in _TRUSTED:
        value = environment.get(name, "")
        if not value:
            continue
        socket = value.startswith("unix://")
        real = _out_of_reach(value[len("unix://") :] if socket else value, writable)
        if real is None and (socket or name not in _ADDRESSES):
            raise CoopError(
                f"{name} is {value}, where a sandboxed command could change what engines are told",
                f"set {name} to an absolute path outside the workspace and files.write, or unset it",
            )
        if real is not None:
            kept[name] = f"unix://{real}" if socket else real
    for path in _configuration(kept):
        for root in writable:
            if inside(root, path):
                raise CoopError(
                    f"files.write: {root} tells container engines what to run on the host",
                    "leave it out, or use the native back end",
                )
    return kept


def _configuration(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the real paths of directories that engines are configured by, there or not."""
    home = environment.get("HOME", "")
    for variable, default, below in _CONFIGURATION:
        base = environment.get(variable) or (f"{home}/{default}" if home and default else "")
        if base.startswith("/"):
            yield os.path.realpath(base + below)


def _out_of_reach(path: str, writable: Sequence[str]) -> str | None:
    """Return where a path leads, without links; None if a sandboxed command could change that."""
    if not path.startswith("/"):
        return None
    try:
        real = resolve(path, writable)
    except CoopError:
        return None  # through a link that the sandbox can write
    return None if any(inside(place, root) for place in (real, path) for root in writable) else real


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


class Output:
    """What a call prints, to be read in pieces until some time; it is never all in memory."""

    def __init__(self, descriptor: int, deadline: float, late: EngineError) -> None:
        """``deadline`` is of the monotonic clock, and ``late`` is raised after it."""
        self._descriptor, self._deadline, self._late = descriptor, deadline, late

    def read(self, most: int) -> bytes:
        """Return some bytes, at most so many; none at the end."""
        left = max(self._deadline - time.monotonic(), 0.0)
        if not readable(self._descriptor, left):
            raise self._late
        return os.read(self._descriptor, most)


class Call:
    """A call under way, which ``answer`` waits for; several may run at once."""

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str] | None = None,
        stdin: int | None = None,
        *,
        merged: bool = False,
        held: Sequence[int] = (),
    ) -> None:
        """Start it; ``merged`` sends standard error to the output, ``held`` are descriptors to keep open."""
        self.argv = tuple(argv)
        try:
            self._process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if merged else subprocess.PIPE,
                env=None if environment is None else dict(environment),
                cwd="/",
                start_new_session=True,
                pass_fds=tuple(held),
            )
        except OSError as error:
            raise EngineError(f"{argv[0]} cannot be started: {error.strerror}", None, argv) from None

    def answer(self, seconds: float, *, patience: float = 0.0) -> Answer:
        """Return what came of it; raises EngineError when it takes longer than ``seconds``, or says too much.

        One that is at work then gets up to ``patience`` seconds more.
        """
        found: dict[int, bytearray] = {}
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                found[stream.fileno()] = bytearray()
        try:
            self._wait(found, seconds, patience)
        except BaseException:
            self.abandon()
            raise
        out, said, *_ = (*(text.decode("utf-8", "replace") for text in found.values()), "")
        self._close()
        return Answer(self._process.returncode, out, said)

    def _wait(self, found: dict[int, bytearray], seconds: float, patience: float) -> None:
        """Read its streams and wait for its end; patience is for one that is late as the machine is slow."""
        end = time.monotonic() + seconds
        latest = end + patience
        unread = set(found)
        while True:
            try:
                self._read(found, unread, end)
                self._process.wait(max(end - time.monotonic(), 0.0))
                return
            except subprocess.TimeoutExpired:
                if time.monotonic() >= latest or not self._is_at_work():
                    raise self._silent(seconds) from None
                end = time.monotonic() + _LOOK

    def _read(self, found: dict[int, bytearray], unread: set[int], end: float) -> None:
        """Read streams to their ends. A sandboxed command can write to one that leads into its container."""
        while unread:
            waiting = select.poll()
            for descriptor in unread:
                waiting.register(descriptor, select.POLLIN)
            left = end - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(self.argv, left)
            for descriptor, _ in waiting.poll(left * 1000):
                piece = os.read(descriptor, 1 << 16)
                if not piece:
                    unread.remove(descriptor)
                found[descriptor] += piece
                if len(found[descriptor]) > MOST_ANSWERED:
                    text = f"{self._shown()} said more than {MOST_ANSWERED >> 20} MiB"
                    raise EngineError(text, None, self.argv)

    def _is_at_work(self) -> bool:
        """Tell whether it mostly runs, or waits for a processor or a disk: one that hangs sleeps."""
        busy = 0
        for _ in range(_LOOKS):
            busy += any(map(is_at_work, (self._process.pid, *descendants(self._process.pid))))
            time.sleep(_MOMENT)
        return 2 * busy > _LOOKS

    def follow(self, seconds: float, show: Callable[[str], None] | None) -> tuple[int, list[str]]:
        """Show each line as it comes; return the exit status and the last lines. Raises as ``answer``.

        For a call whose streams are merged.
        """
        stream = self._process.stdout
        assert stream is not None
        deadline = time.monotonic() + seconds
        last: deque[str] = deque(maxlen=_LINES_KEPT)
        pending = b""
        try:
            while True:
                if not readable(stream.fileno(), max(deadline - time.monotonic(), 0.0)):
                    raise self._silent(seconds)
                chunk = os.read(stream.fileno(), 1 << 16)
                *whole, pending = (pending + (chunk or b"\n" * bool(pending))).split(b"\n")
                pending = pending[-_LINE_KEPT:]
                for line in whole:
                    text = line[-_LINE_KEPT:].decode("utf-8", "replace").rstrip("\r")
                    last.append(text)
                    if show is not None:
                        show(text)
                if not chunk:
                    status = self._process.wait()
                    stream.close()
                    return status, list(last)
        except BaseException:
            self.abandon(CLEANS_UP)
            raise

    @contextlib.contextmanager
    def output(self, seconds: float) -> Iterator[Output]:
        """Yield the output to be read as it comes, and end the call. Reading raises as ``answer``."""
        stream = self._process.stdout
        assert stream is not None
        try:
            yield Output(stream.fileno(), time.monotonic() + seconds, self._silent(seconds))
        finally:
            self.abandon()

    def _silent(self, seconds: float) -> EngineError:
        program = os.path.basename(self.argv[0])
        return EngineError(
            f"{self._shown()} did not answer within {seconds:g} s",
            f"is {program} well? try: {program} info",
            self.argv,
        )

    def _shown(self) -> str:
        program, verb, *_ = (*map(os.path.basename, self.argv), "")
        return f"`{program} {verb}`"

    def abandon(self, grace: float = 0.0) -> None:
        """End the call and all that it started; ``grace`` is how long it may take to clean up, in seconds."""
        # A build's own processes are in other groups, and Podman may end before it has ended them.
        below = {pid: started(pid) for pid in descendants(self._process.pid)} if grace else {}
        if grace and self._signal(signal.SIGTERM):
            end = time.monotonic() + grace
            # Rootless Podman is two processes; the second cleans up when the first has ended.
            while time.monotonic() < end and self._signal(0):
                self._process.poll()
                time.sleep(0.05)
        self._signal(signal.SIGKILL)
        for pid, start in below.items():
            if start and started(pid) == start:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._close()

    def _close(self) -> None:
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _signal(self, number: int) -> bool:
        """Send a signal to all that the call started; tell whether anything is left to get it."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        return True


def ask(
    argv: Sequence[str],
    seconds: float = QUICK,
    environment: Mapping[str, str] | None = None,
    given: bytes | None = None,
    held: Sequence[int] = (),
) -> Answer:
    """Make a call, give it ``given`` on standard input, and wait for its answer; ``held`` is as in Call."""
    if given is None:
        return Call(argv, environment, held=held).answer(seconds)
    with file_of(given) as file:
        return Call(argv, environment, file.fileno(), held=held).answer(seconds)


def file_of(data: bytes) -> IO[bytes]:
    """Return an open file without a name that holds some bytes; in memory where the system can."""
    made = getattr(os, "memfd_create", None)
    if made:
        file: IO[bytes] = os.fdopen(made("input"), "w+b")
    else:
        import tempfile

        file = tempfile.TemporaryFile()  # noqa: SIM115
    file.write(data)
    file.seek(0)
    return file


def first_bytes(
    argv: Sequence[str], most: int, seconds: float = QUICK, environment: Mapping[str, str] | None = None
) -> bytes:
    """Make a call and return what it prints, as it is, up to ``most`` bytes; it need not succeed."""
    found = b""
    with Call(argv, environment).output(seconds) as output:
        while len(found) < most and (piece := output.read(most - len(found))):
            found += piece
    return found


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


def readable(descriptor: int, seconds: float | None) -> bool:
    """Wait until something can be read, or the end; tell whether it can within so many seconds."""
    waiting = select.poll()  # select(2) takes no descriptor from 1024 on
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(None if seconds is None else seconds * 1000))


def is_text(text: str) -> bool:
    """Tell whether a text has no byte that was not UTF-8 (a lone surrogate, PEP 383)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
