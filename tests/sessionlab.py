"""Sessions driven from outside: programs of an actor's that do with one what a test tells them.

A ``Caller`` is such a program; it can be killed like any other. It speaks lines of JSON, so that
what goes wrong in it comes back as it was: a refusal with words and a remedy, or a traceback, which
fails the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes import (
    DEADLINE,
    Project,
    Workshop,
    abandoned_cgroups,
    alive,
    cgroup_directories,
    descendants,
    kill,
    mounts,
    wait_gone,
    wait_until,
)
from tests.sessionseen import (
    HELPER,
    MONITOR,
    children,
    first_of,
    holder,
    is_keeper,
    is_own,
    monitor_of,
    of_session,
    parent_of,
    session_of,
    title,
)

_DRIVER = r"""
import json, os, socket, sys, traceback
sys.path.insert(0, sys.argv[1])
import coopfile
from coopfile.errors import CoopError
from coopfile.find import find
from coopfile.session import lifecycle, store
from coopfile.session.model import Command, Spec

lives, running, outputs, kept = {}, {}, {}, []

def open_session(name, overrides, ttl, leased):
    plan = coopfile.compile(".", overrides=overrides)
    project = find(".", None, os.environ)
    opened = lifecycle.open_session(Spec(name, plan, project, dict(os.environ), ttl, leased))
    lives[name] = opened.live
    weakenings = [[item.key, item.text] for item in opened.weakenings]
    return {"fresh": opened.fresh, "directory": opened.directory, "weakenings": weakenings}

def place(name, overrides):
    plan = coopfile.compile(".", overrides=overrides)
    return lifecycle.place(Spec(name, plan, find(".", None, os.environ), dict(os.environ)))

def stream(kind, number):
    kind, _, path = kind.partition(":")
    if kind == "null":
        return os.open("/dev/null", os.O_RDWR)
    if kind == "memory":
        return os.memfd_create("stream")
    if kind == "file":
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    if kind in ("directory", "directory-path"):
        return os.open(path, os.O_RDONLY if kind == "directory" else os.O_PATH)
    reading, writing = os.pipe()
    mine, theirs = (writing, reading) if number == 0 else (reading, writing)
    if kind == "closed":
        os.close(mine)
    else:
        kept.append(mine)  # a pipe that nobody reads or writes
    return theirs

def begin(name, argv, environment, directory, timeout, terminal, streams):
    size = None if terminal is None else tuple(terminal)
    command = Command(tuple(argv), tuple(environment.items()), directory, timeout, size)
    given = [] if size else [stream(kind, number) for number, kind in enumerate(streams)]
    try:
        found = lives[name].begin(command, given)
    except BaseException:
        for descriptor in given:
            os.close(descriptor)
        raise
    number = len(outputs)
    running[number], outputs[number] = found, given
    return number

def wait(number):
    ended = running.pop(number).wait()
    texts = []
    for descriptor in outputs[number]:
        size = os.fstat(descriptor).st_size
        texts.append(os.pread(descriptor, size, 0).decode("utf-8", "surrogateescape") if size else "")
        os.close(descriptor)
    fields = {name: getattr(ended, name) for name in ended._fields}
    return {**fields, "out": texts[1] if texts else "", "err": texts[2] if texts else ""}

def terminal(number, feed, until):
    descriptor = running[number].terminal
    os.set_blocking(descriptor, True)
    os.write(descriptor, feed.encode())
    data = b""
    while until.encode() not in data:
        data += os.read(descriptor, 4096)
    return data.decode()

def end(name):
    directory = place(name, None)
    state = store.read(directory) or store.salvaged(directory, name)
    return lifecycle.stop(directory, state)

def connect(path, times):
    directory = os.open(os.path.dirname(path), os.O_PATH)  # the path itself may be too long
    for _ in range(times):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
        kept.append(connection)
    os.close(directory)

def brief_helper(seconds, patch="pass"):
    from coopfile.session import helper
    begin = "from coopfile.session.zygote"
    patch = f"from coopfile.session import zygote; zygote._IDLE = {seconds}; {patch}; "
    helper._PROGRAM = helper._PROGRAM.replace(begin, patch + begin)

def repeat(name, argv, times, together):
    statuses = []
    for _ in range(times // together):
        numbers = [begin(name, argv, {}, None, None, None, ["null"] * 3) for _ in range(together)]
        statuses += [wait(number)["status"] for number in numbers]
    return statuses

def status(names):
    return {name: len(os.listdir("/proc/self/fd")) if name == "descriptors" else None for name in names}

actions = {
    "open": open_session, "place": place, "begin": begin, "wait": wait, "terminal": terminal,
    "repeat": repeat, "status": status, "end": end, "connect": connect, "brief_helper": brief_helper,
    "signal": lambda number, signal: running[number].signal(signal),
    "close": lambda number: running.pop(number).close(),
    "usage": lambda name: list(map(lives[name].usage().__getattribute__, ("processes", "memory"))),
    "stop": lambda name: lives.pop(name).stop(),
    "release": lambda name: lives[name].release(),
}
for line in sys.stdin:
    asked = json.loads(line)
    try:
        answer = {"value": actions[asked.pop("do")](**asked)}
    except CoopError as error:
        answer = {"refused": [type(error).__name__, error.message, error.remedy],
                  "begun": getattr(error, "begun", None)}
    except BaseException:
        answer = {"traceback": traceback.format_exc()}
    print(json.dumps(answer), flush=True)
"""

_CAPTURED = ("null", "memory", "memory")


class Refused(Exception):
    """What coop refuses: the kind of error, its words and its remedy. ``begun`` is SessionGone's."""

    def __init__(self, kind: str, message: str, remedy: str | None, begun: bool | None) -> None:
        super().__init__(f"{kind}: {message} ({remedy})")
        self.kind = kind
        self.message = message
        self.remedy = remedy
        self.begun = begun


class Done:
    """How a command ended, and what it wrote: ``model.Ended`` and its streams."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.status: int = fields["status"]
        self.signal: int | None = fields["signal"]
        self.timed_out: bool = fields["timed_out"]
        self.duration: float = fields["duration"]
        self.notes: list[str] = fields["notes"]
        self.out: str = fields["out"]
        self.err: str = fields["err"]

    def __repr__(self) -> str:
        return f"Done({vars(self)})"


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Give a name of a socket that connect(2) takes however long its path is: an address has 108 bytes."""
    directory = os.open(path.parent, os.O_PATH)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


class Caller:
    """A program of the actor's that uses sessions of the project; ``pid`` is its own."""

    def __init__(self, sessions: Sessions, argv: Sequence[str], cwd: Path, **how: Any) -> None:
        self._sessions = sessions
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=cwd,
            env=sessions.project.environment,
            start_new_session=True,
            **how,
        )
        self.pid = self._process.pid

    def ask(self, do: str, **what: Any) -> None:
        """Tell it to do something; ``answer`` waits until that is done."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **what}).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Return what came of it. Raises Refused."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], DEADLINE)
        assert ready, "it does not answer"
        line = self._process.stdout.readline()
        assert line, f"it has ended: {self._process.wait(DEADLINE)}"
        found = json.loads(line)
        assert "traceback" not in found, found["traceback"]
        if "refused" in found:
            kind, message, remedy = found["refused"]
            raise Refused(kind, message, remedy, found["begun"])
        return found["value"]

    def do(self, do: str, **what: Any) -> Any:
        """Have something done. Raises Refused."""
        self.ask(do, **what)
        return self.answer()

    def open(
        self,
        name: str = "default",
        *,
        ttl: float | None = None,
        leased: bool = False,
        overrides: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        """Open a session; return whether it is ``fresh``, its ``directory`` and its ``weakenings``."""
        found: dict[str, Any] = self.do("open", name=name, ttl=ttl, leased=leased, overrides=overrides)
        self._sessions.note(name, found["directory"])
        return found

    def begin(
        self,
        *argv: str,
        name: str = "default",
        environment: Mapping[str, str] | None = None,
        directory: str | None = None,
        timeout: float | None = None,
        terminal: tuple[int, int] | None = None,
        streams: Sequence[str] = _CAPTURED,
    ) -> int:
        """Start a command; return what ``wait`` takes. ``streams`` are kinds that the driver knows."""
        number: int = self.do(
            "begin",
            name=name,
            argv=argv,
            environment=dict(environment or {}),
            directory=directory,
            timeout=timeout,
            terminal=terminal,
            streams=streams,
        )
        return number

    def wait(self, number: int) -> Done:
        """Wait for the end of a command."""
        return Done(self.do("wait", number=number))

    def run(self, *argv: str, **how: Any) -> Done:
        """Run a command and wait for its end; takes what ``begin`` takes."""
        return self.wait(self.begin(*argv, **how))

    def shell(self, script: str, **how: Any) -> Done:
        """Run a shell script and wait for its end."""
        return self.run("sh", "-c", script, **how)

    def python(self, script: str, *arguments: str, **how: Any) -> Done:
        """Run a Python program in the session with the host's own interpreter."""
        return self.run("/usr/bin/python3", "-I", "-c", script, *arguments, **how)

    def usage(self, name: str = "default") -> tuple[int, int]:
        """Return processes and memory of a session."""
        processes, memory = self.do("usage", name=name)
        return processes, memory

    def stop(self, name: str = "default") -> None:
        """End a session."""
        self.do("stop", name=name)

    def interrupt(self) -> None:
        """Interrupt what it does, as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill it, as kill -9 does, and wait until it is gone."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        """End it."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._process.wait(DEADLINE)


class Sessions:
    """The sessions of one project: what calls them, and what of them is on the host."""

    def __init__(self, project: Project, library: Path) -> None:
        self.project = project
        self.data = self._place("XDG_DATA_HOME", ".local/share")
        """Where coop keeps what outlives processes."""
        self.state = self._place("XDG_STATE_HOME", ".local/state")
        """Where coop keeps what is of use to processes that run."""
        self.library = library
        self._callers: list[Caller] = []
        self._directories: dict[str, Path] = {}
        self._known: set[int] = set()
        self._helpers: set[int] = set()
        self._monitors: set[int] = set()
        self._tree: dict[str, tuple[Any, ...]] | None = None
        self._mounts = mounts()
        self._cgroups = cgroup_directories()

    def _place(self, variable: str, default: str) -> Path:
        return Path(self.project.environment.get(variable, self.project.home / default)) / "coop"

    def caller(self, cwd: Path | None = None, wrap: Sequence[str] = (), **how: Any) -> Caller:
        """Start a program of the actor's in the project, or in ``cwd``; ``wrap`` goes before its argv."""
        python = self.project.actor.coop[0]
        # What is left open when it ends is none of coop's.
        options = ["-I", "-W", "error", "-W", "ignore::ResourceWarning"]
        driver = [python, *options, "-c", _DRIVER, str(self.library)]
        argv = [*(self.project.unshared or self.project.actor.prefix), *wrap, *driver]
        made = Caller(self, argv, cwd or self.project.directory, **how)
        self._callers.append(made)
        return made

    def opened(self, name: str = "default", **how: Any) -> Caller:
        """Return a program that has a session open."""
        made = self.caller()
        made.open(name, **how)
        return made

    def directory(self, name: str = "default") -> Path:
        """Return the directory of a session that has been opened."""
        return self._directories[name]

    def first(self, name: str = "default") -> int:
        """Return the number of PID 1 as the host counts, or of the keeper of a session on an engine."""
        # The kernel's list of locks is read in pieces, and may miss one while it changes.
        found = wait_until(lambda: first_of(self.directory(name)), 2)
        assert found, "the session does not run"
        return int(found)

    def monitor(self, name: str = "default") -> int:
        """Return the number of the process that keeps a session, perhaps with others."""
        found = monitor_of(self.first(name))
        assert found is not None, "the session is ending"
        return found

    def supervisors(self, name: str = "default") -> list[int]:
        """Return the numbers of those of PID 1's children that are coop's own."""
        return [pid for pid in children(self.first(name)) if is_own(pid)]

    def commands(self, name: str = "default") -> list[int]:
        """Return the numbers of a session's processes that are none of coop's own."""
        return [pid for pid in descendants(self.first(name)) if session_of(pid) not in ("1", None)]

    def processes(self, name: str = "default") -> list[int]:
        """Return the numbers of all processes of a session; ``left`` looks for them from then on."""
        found = of_session(self.directory(name))
        self._known.update(found)
        return found

    def note(self, name: str, directory: str) -> None:
        """Know a session that has just been opened, and its processes."""
        self._directories[name] = self.data / "sessions" / Path(directory).name
        self._known.update(of_session(self._directories[name]))
        first = first_of(self._directories[name])
        monitor = None if first is None else monitor_of(first)
        if monitor is not None:
            self._monitors.add(monitor)
            helper = parent_of(monitor, HELPER)
            self._helpers.update(() if helper is None else (helper,))

    def helpers(self) -> list[int]:
        """Return the numbers of the processes that have made this project's sessions, and live."""
        return [pid for pid in alive(sorted(self._helpers)) if title(pid) == HELPER]

    def watch_workspace(self) -> None:
        """Have ``left`` compare the workspace with what it is now."""
        self._tree = self.project.tree()

    def left(self) -> list[object]:
        """Return what is left on the host of sessions that have ended; waits a moment for it to be gone."""
        wait_until(lambda: not self._left(), 15)
        return self._left()

    def _left(self) -> list[object]:
        found: list[object] = [("process", pid) for pid in alive(sorted(self._known))]
        sessions = self.data / "sessions"
        found += [("socket", path) for path in (sessions.glob("*/socket") if sessions.is_dir() else ())]
        running = self.state / "running"
        entries = running.iterdir() if running.is_dir() else ()
        # One that nobody has locked is of somebody who was killed, and goes with the next that looks.
        found += [("running", path) for path in entries if path.name != "starting" and holder(path)]
        if self._tree is not None and self.project.tree() != self._tree:
            found.append(("workspace", sorted(set(self.project.tree()) ^ set(self._tree))))
        if mounts() != self._mounts:
            found.append(("mounts", sorted(set(mounts().split("\n")) ^ set(self._mounts.split("\n")))))
        groups = abandoned_cgroups(self._cgroups)  # of others, who are killed by tests at the same time, too
        known = {str(pid) for pid in self._monitors} | {f"{pid}.scope" for pid in self._known}
        return found + [("cgroup", path) for path in groups if path.rpartition("-")[2] in known]

    def close(self) -> None:
        """End everything, whatever state it is in."""
        for caller in self._callers:
            caller.close()
        kill(*self.helpers())
        sessions = self.data / "sessions"
        for path in sessions.glob("*/alive") if sessions.is_dir() else ():
            first = first_of(path.parent)
            if first is not None:
                self._monitors.add(monitor_of(first) or first)
        for monitor in alive(sorted(self._monitors)):
            if title(monitor) != MONITOR and not is_keeper(monitor):
                continue  # it has ended, and another process has its number
            with contextlib.suppress(ProcessLookupError):
                os.kill(monitor, signal.SIGTERM)
            if not wait_gone([monitor], 5):
                kill(*descendants(monitor), monitor)
                wait_gone([monitor])
        kill(*alive(sorted(self._known)))


@pytest.fixture
def sessions(project: Project, workshop: Workshop) -> Iterator[Sessions]:
    """Yield what drives the project's sessions; they end with the test."""
    made = Sessions(project, workshop.library)
    yield made
    made.close()
