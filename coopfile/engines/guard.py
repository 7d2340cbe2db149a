"""A process beside a run that removes what the run left, however the run ends.

It is forked before the container is made and waits until its parent is gone or says
that all is over. What it removes it finds by label, never by name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import time

from coopfile.engines.call import EngineError, ask
from coopfile.engines.processes import started
from coopfile.engines.timeouts import QUICK, REMOVAL, REMOVAL_GOES_ON
from coopfile.record import Record
from coopfile.render import apple, docker
from coopfile.render.container import LABEL_MANAGED, LABEL_OWNER, LABEL_SESSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from coopfile.render.facts import Engine

_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)  # seconds between; the last one again and again
_ID = re.compile(r"[0-9a-f]{64}", re.ASCII)
_AT_REST = ("configured", "created", "dead", "exited", "initialized", "stopped")
_REMOVED, _LEFT, _DOUBT = b"removed", b"left", b"?"


class Guard:
    """The guarding process, as the run sees it.

    A call that makes a container has to hold ``lifeline`` open: should this process be
    killed meanwhile, the guard waits for the end of that call too.
    """

    def __init__(
        self, engine: Engine, owner: str, environment: Mapping[str, str], release: Callable[[], None]
    ) -> None:
        """Start it; ``release`` is called in it when the container is gone."""
        self._engine, self._environment, self._owner = engine, environment, owner
        receive, self.lifeline = os.pipe()
        self._told, tell = os.pipe()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self.lifeline)
                os.close(self._told)
                os.setsid()
                for number in _ENDING:
                    signal.signal(number, signal.SIG_IGN)
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                _guard(engine, owner, environment, receive, tell, release)
            finally:
                os._exit(0)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(receive)
        os.close(tell)

    def doubt(self) -> None:
        """Say that the engine may make the container later: it did not answer."""
        with contextlib.suppress(OSError):  # somebody killed the guard
            os.write(self.lifeline, _DOUBT)

    def done(self) -> str | None:
        """Have everything removed; return what to tell people if that failed."""
        os.close(self.lifeline)
        told = os.read(self._told, len(_REMOVED))
        os.close(self._told)
        if told == _REMOVED or (not told and _removed(self._engine, self._environment, self._owner)):
            return None
        return (
            f"{self._engine.name} did not remove the container: coop tries again for "
            f"{REMOVAL_GOES_ON / 60:g} minutes, and at its next run"
        )


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def _guard(
    engine: Engine,
    owner: str,
    environment: Mapping[str, str],
    receive: int,
    tell: int,
    release: Callable[[], None],
) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    try:
        sweep(engine, environment)
    except EngineError:
        pass  # of earlier runs; this one says itself if the engine does not answer
    doubt = os.read(receive, 1) == _DOUBT
    while doubt and os.read(receive, 1):
        continue
    removed = _removed(engine, environment, owner)
    if removed:
        release()
    _tell(tell, removed)
    if not removed or doubt:
        go_on(engine, environment, owner, release, sure=not doubt)
        release()


def _removed(engine: Engine, environment: Mapping[str, str], owner: str) -> bool:
    try:
        remove_all(engine, environment, owner)
    except EngineError:
        return False
    return True


def _tell(descriptor: int, removed: bool) -> None:
    try:
        os.write(descriptor, _REMOVED if removed else _LEFT)
        os.close(descriptor)
    except OSError:
        pass  # nobody is left to hear it


def go_on(
    engine: Engine, environment: Mapping[str, str], owner: str, release: Callable[[], None], *, sure: bool
) -> None:
    """Try again for a while to remove what is left, and ``release`` when it is removed.

    If it is not ``sure`` that nothing more comes, for an engine did not answer, some more after that.
    """
    end = time.monotonic() + REMOVAL_GOES_ON
    pauses = list(_PAUSES)
    successes = 0
    while successes < (1 if sure else len(_PAUSES)) and time.monotonic() < end:
        time.sleep(pauses.pop(0) if len(pauses) > 1 else pauses[0])
        if _removed(engine, environment, owner):
            successes += 1
            release()


class Owner(Record):
    """Whose container it is: a user of a machine since it booted, and one process of theirs.

    ``namespace`` is that of the process's pid, and ``started`` tells it from another one with its pid.
    """

    uid: str
    machine: str
    boot: str
    namespace: str
    pid: str
    started: str

    @property
    def label(self) -> str:
        """The start of a label's value; a random token comes after it."""
        return ".".join(getattr(self, name) for name in self._fields)


def this_owner(pid: int | None = None) -> Owner:
    """Return what is known of this process, or a child of its; "" for what the system does not tell."""
    pid = os.getpid() if pid is None else pid
    machine = _read("/etc/machine-id").strip()
    try:
        namespace = "".join(filter(str.isdigit, os.readlink("/proc/self/ns/pid")))
    except OSError:
        namespace = ""
    return Owner(
        uid=str(os.getuid()),
        # machine-id(5): it is confidential, and shown as a hash only.
        machine=hashlib.sha256(f"coop {machine}".encode()).hexdigest()[:12] if machine else "",
        boot=_read("/proc/sys/kernel/random/boot_id").strip().replace("-", "")[:12],
        namespace=namespace,
        pid=str(pid),
        started=started(pid),
    )


def owner_label(token: str, pid: int | None = None) -> str:
    """Return what labels the containers of this process, or of another; ``token`` is random."""
    return f"{this_owner(pid).label}.{token}"


def abandoned(label: str, running: bool) -> bool:
    """Tell whether a container's owner is certainly dead, so that this process may remove it.

    An engine may serve several machines, and containers that coop runs in. A process
    is dead for sure if it was one of this user's, seen from here, and is not there any
    more, or if the machine has booted since.
    """
    parts = label.split(".")
    if len(parts) != len(Owner._fields) + 1:
        return False
    owner, here = Owner(*parts[:-1]), this_owner()
    if owner.uid != here.uid or not (owner.pid.isascii() and owner.pid.isdecimal() and owner.started):
        return False
    if owner.boot and owner.boot == here.boot:
        return owner.namespace == here.namespace != "" and started(int(owner.pid)) != owner.started
    return owner.machine == here.machine != "" and "" not in (owner.boot, here.boot) and not running


class Listed(Record):
    """A container as its engine lists it: its labels of ours, "" for those that it has not."""

    id: str
    owner: str
    session: str
    running: bool


def remove_all(engine: Engine, environment: Mapping[str, str], owner: str) -> None:
    """Remove every container that a label says is ours; raises EngineError if one is left."""
    last = None
    for pause in (0.2, 0.5, 1.0):
        found = [item.id for item in listed(engine, environment, REMOVAL, LABEL_OWNER, owner)]
        answers = [remove(engine, environment, identifier) for identifier in found]
        if all(answers):
            return
        last = found[answers.index(False)]
        time.sleep(pause)  # somebody else may be removing it right now
    if listed(engine, environment, REMOVAL, LABEL_OWNER, owner):
        raise EngineError(f"the container {last} cannot be removed", None, (engine.program, "rm"))


def sweep(engine: Engine, environment: Mapping[str, str], *, dry_run: bool = False) -> tuple[Listed, ...]:
    """Remove the containers whose owner is dead: a machine, or everything, was killed; return them."""
    found = [
        item
        for item in listed(engine, environment, QUICK, LABEL_MANAGED, "true")
        if abandoned(item.owner, item.running)
    ]
    if dry_run:
        return tuple(found)
    # Podman keeps one whose network another has, until that is gone.
    left = [item for item in found if not remove(engine, environment, item.id)]
    kept = [item for item in left if not remove(engine, environment, item.id)]
    return tuple(item for item in found if item not in kept)


def listed(
    engine: Engine, environment: Mapping[str, str], seconds: float, label: str, value: str
) -> tuple[Listed, ...]:
    """Return every container that has a label with a value. Raises EngineError."""
    if engine.name == "apple":
        return tuple(_listed_by_apple(engine, environment, seconds, label, value))
    word = '{{json (.Label "%s")}}' if engine.name == "docker" else '{{json (index .Labels "%s")}}'
    # As JSON: a label may hold a line that looks like another container's.
    template = " ".join(("{{.ID}}", word % LABEL_OWNER, word % LABEL_SESSION, "{{.State}}"))
    condition = ("--filter", f"label={label}={value}", "--format", template)
    argv = (engine.program, "ps", "--all", "--no-trunc", *condition)
    found = (_line(line) for line in _answered(argv, environment, seconds).split("\n"))
    return tuple(item for item in found if item is not None)


def _line(line: str) -> Listed | None:
    identifier, _, rest = line.partition(" ")
    if not _ID.fullmatch(identifier):
        return None
    labels = []
    for _ in range(2):
        try:
            value, end = json.JSONDecoder().raw_decode(rest)
        except ValueError:
            return None
        labels.append(value if isinstance(value, str) else "")
        rest = rest[end:].strip()
    owner, session = labels
    # One word from Docker; more from Podman, such as "Exited (0) 2 minutes ago".
    return Listed(identifier, owner, session, rest.partition(" ")[0].lower() not in _AT_REST)


def _listed_by_apple(
    engine: Engine, environment: Mapping[str, str], seconds: float, label: str, value: str
) -> Iterator[Listed]:
    """Yield containers from JSON: ManagedContainer.swift of apple/container 1.2.2, and 0.x before it."""
    argv = apple.listing(engine)
    try:
        found = json.loads(_answered(argv, environment, seconds))
        for item in found:
            labels = item["configuration"].get("labels") or {}
            state = item["status"]["state"] if isinstance(item["status"], dict) else item["status"]
            if labels.get(label) == value:
                owner, session = (str(labels.get(name, "")) for name in (LABEL_OWNER, LABEL_SESSION))
                yield Listed(str(item["configuration"]["id"]), owner, session, state != "stopped")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise EngineError("containers cannot be listed: its JSON is not understood", None, argv) from None


def _answered(argv: tuple[str, ...], environment: Mapping[str, str], seconds: float) -> str:
    answer = ask(argv, seconds, environment)
    if answer.status != 0:
        raise EngineError("containers cannot be listed", None, argv, answer.said)
    return answer.out


def remove(engine: Engine, environment: Mapping[str, str], identifier: str) -> bool:
    """Remove a container; tell whether the engine says that it did."""
    of = apple.remove if engine.name == "apple" else docker.remove
    return ask(of(engine, identifier), REMOVAL, environment).status == 0


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
