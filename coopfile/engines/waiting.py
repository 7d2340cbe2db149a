"""A container that waits for commands, as the process sees it that keeps it: what it does to one."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time

from coopfile.engines import inside
from coopfile.engines.call import EngineError, ask, readable, shown
from coopfile.engines.inspect import state_of, unmade
from coopfile.engines.timeouts import CREATE, QUICK, STARTS
from coopfile.render import apple, docker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coopfile.render.docker import Argv
    from coopfile.render.facts import Engine

_LARGEST = 1 << 16  # bytes of what is said before it is ready
_PAUSE = 0.5  # seconds between two reads of what nobody should be writing
_NO_SHELL = (
    "the image may have no /bin/sh, which sessions on container engines need: coop run does without, "
    "and so does the native back end"
)


class Waiting:
    """The container, from its making to its end.

    ``identifier`` is what its engine calls it; it is ``doubtful`` when the engine was asked for it and
    did not answer, so that it may come later. ``began`` tells it from one that was started again.
    """

    def __init__(self, engine: Engine, runtime: str | None, environment: Mapping[str, str]) -> None:
        self.engine = engine
        self.identifier = ""
        self.doubtful = False
        self._runtime = runtime
        self._environment = environment
        self._attached: subprocess.Popen[bytes] | None = None
        self._own: tuple[int, ...] = ()
        self.began = ""

    def create(self, creates: Sequence[tuple[str, Argv]]) -> None:
        """Make it by the first argv whose name nobody else's container has. Raises EngineError."""
        for name, argv in creates:
            self.doubtful = True
            answer = ask(argv, CREATE, self._environment)
            self.doubtful = False
            if answer.status == 0 and answer.out.strip():
                self.identifier = answer.out.strip().splitlines()[-1]
                return
            taken = "already in use" in answer.said or "already exists" in answer.said
            if not taken or name not in answer.said:
                break
        raise unmade(self.engine, argv, answer.said)

    def start(self, ready: str) -> int:
        """Start it, and wait until it says that it is ready; return what can be read when it has ended.

        Raises EngineError.
        """
        name = self.engine.name
        argv = (
            apple.attach(self.engine, self.identifier)
            if name == "apple"
            else docker.attach(self.engine, self._runtime, self.identifier)
        )
        try:
            self._attached = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(self._environment),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(f"{argv[0]} cannot be started: {error.strerror}", None, argv) from None
        said, told = self._read_until(ready)
        *own, self.began = told or ("",)
        self._own = tuple(map(int, own))
        if not told:
            if self._attached.poll() is None:
                raise EngineError(
                    f"{name} did not start the container in time", f"is it well? try: {name} info", argv
                )
            why = shown(said)
            remedy = _NO_SHELL if inside.SHELL in why or "executable" in why else None
            raise EngineError(f"{name} could not start the container: {why}", remedy, argv, said)
        # Nothing more is to come; but it can, from a command that reaches for it, and must hold up nobody.
        threading.Thread(target=self._drain, daemon=True).start()
        return os.pidfd_open(self._attached.pid)

    def within(self, argv: Argv, seconds: float = QUICK) -> str | None:
        """Run a command of coop's own in it; return what that prints, None if it fails."""
        execution = docker.Execution(argv)
        try:
            answer = ask(
                within(self.engine, self._runtime, self.identifier, execution), seconds, self._environment
            )
        except EngineError:
            return None
        return answer.out if answer.status == 0 else None

    def usage(self) -> tuple[int, int] | None:
        """Return how many processes there are, but coop's own, and their memory in bytes."""
        words = (self.within(inside.counting((1, *self._own))) or "").split()
        if len(words) != 2:
            return None
        processes, memory = map(inside.told_number, words)
        return None if processes is None or memory is None else (processes, memory * 1024)

    def is_same(self) -> bool | None:
        """Tell whether it has not been started again, which not every engine's own process ends for.

        None when it does not tell, for it is ending, or has no room for another process.
        """
        found = self.within(inside.since())
        return None if found is None else found.strip() == self.began

    def runs(self) -> bool | None:
        """Tell whether it runs, as far as its engine knows; None when that does not tell."""
        if self.engine.name == "apple":
            return None
        try:
            return state_of(self.engine, self.identifier, self._environment).get("Status") == "running"
        except EngineError as error:
            return False if "o such container" in error.said else None

    def why(self) -> str:
        """Return why it has ended, as far as its engine tells."""
        if self.engine.name == "apple":
            return ""
        try:
            state = state_of(self.engine, self.identifier, self._environment)
        except EngineError:
            return "somebody removed its container"
        if state.get("OOMKilled"):
            return "it ran out of memory: limits.memory"
        return "somebody stopped its container, or a command in it did"

    def close(self) -> None:
        """Let go of it: its input ends."""
        if self._attached is not None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(self._attached.pid, number)
                except ProcessLookupError:
                    pass
                try:
                    self._attached.wait(1.0)
                    break
                except subprocess.TimeoutExpired:
                    continue

    def _read_until(self, ready: str) -> tuple[str, list[str]]:
        """Return what is said until it is ready, and what it tells then; nothing if it is not."""
        assert self._attached is not None and self._attached.stdout is not None
        descriptor = self._attached.stdout.fileno()
        end = time.monotonic() + STARTS
        said = b""
        while len(said) < _LARGEST:
            left = end - time.monotonic()
            if left <= 0 or not readable(descriptor, left):
                break
            chunk = os.read(descriptor, 4096)
            if not chunk:
                try:
                    self._attached.wait(max(end - time.monotonic(), 0.0))
                except subprocess.TimeoutExpired:
                    pass
                break
            said += chunk
            for line in said.decode("utf-8", "replace").split("\n")[:-1]:
                words = line.split()
                if words[:1] == [ready] and all(word.isdecimal() for word in words[1:]):
                    return "", words[1:]
        return said.decode("utf-8", "replace"), []

    def _drain(self) -> None:
        assert self._attached is not None and self._attached.stdout is not None
        while os.read(self._attached.stdout.fileno(), _LARGEST):
            time.sleep(_PAUSE)


def within(engine: Engine, runtime: str | None, identifier: str, execution: docker.Execution) -> Argv:
    """Return the argv that runs a command in a container of an engine."""
    if engine.name == "apple":
        return apple.within(engine, identifier, execution)
    return docker.within(engine, runtime, identifier, execution)
