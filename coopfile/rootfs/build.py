"""Building the stages of a root file system, each on the one before, in sandboxes of its own."""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
import time
from contextlib import ExitStack, contextmanager

from coopfile.errors import CoopError
from coopfile.native import building, preparing, signals
from coopfile.record import Record
from coopfile.render.stages import CACHES
from coopfile.rootfs import versions
from coopfile.rootfs.chain import IMAGE, chain, is_given
from coopfile.rootfs.fetch import fetch, resolve
from coopfile.rootfs.hold import hold
from coopfile.rootfs.progress import BUILDING, BUILT, KEPT
from coopfile.rootfs.store import project_id
from coopfile.rootfs.tree import remove_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from coopfile.plan.model import Plan
    from coopfile.rootfs.chain import Link
    from coopfile.rootfs.progress import Progress
    from coopfile.rootfs.store import Stage, Store

_KEPT = 64 << 10  # bytes of a command's output, for the error
_PIECE = 64 << 10
_MOST_LISTED = 4 << 20  # bytes of a list of packages
_LISTS = 60.0  # seconds, for the list of packages
_TRIES = 10  # at a stage that others remove as soon as it is built


class StageError(CoopError):
    """A command of a stage failed.

    ``number`` is its place in the plan's list, from 0; ``output`` is the end of what it
    printed, at most 64 KiB of untrusted bytes.
    """

    def __init__(self, stage: str, number: int, command: str, status: int, output: bytes) -> None:
        super().__init__(
            f"{stage}: the command ended with status {status}: {command}",
            "coop rebuild --debug opens a shell where it failed",
        )
        self.stage = stage
        self.number = number
        self.command = command
        self.status = status
        self.output = output


class Downloads(Record):
    """A directory for what a package manager downloads: its real path, where it is in a build.

    ``used`` tells that earlier builds left something there; what they ran could write what it liked.
    """

    place: str
    inside: str
    used: bool


class Builder(Record):
    """What the stages of one plan are built with."""

    plan: Plan
    store: Store
    environment: Mapping[str, str]
    progress: Progress
    project: str
    debug: Callable[[building.Step, StageError], None] | None

    def make(
        self, link: Link, below: tuple[Stage, ...], downloads: Downloads | None, directory: str
    ) -> Mapping[str, Any]:
        """Make a stage's layer in a directory and return what it is about; ``below`` is the image first."""
        image = self.plan.base.image
        assert image is not None
        if link.kind == IMAGE:
            return fetch(image, directory, self.environment, self.progress, self.project)
        started = time.monotonic()
        step = self._step(below, directory, downloads)
        try:
            for number, command in enumerate(link.commands):
                self._run(step, link, number, command)
            found = self._versions(step, link)
            building.finish(step.upper)
        finally:
            remove_tree(step.work)
            remove_tree(step.scratch)
        about: dict[str, Any] = {
            "commands": list(link.commands),
            "seconds": round(time.monotonic() - started, 1),
        }
        return about if link.cache is None else {**about, "versions": found}

    def _step(self, below: tuple[Stage, ...], directory: str, downloads: Downloads | None) -> building.Step:
        """Return the step that a stage's commands go into."""
        upper = os.path.realpath(directory)
        beside = os.path.dirname(upper)
        variables = {str(name): str(value) for name, value in below[0].about.get("environment", ())}
        return building.Step(
            argv=(),
            environment={**variables, "HOME": "/root", "USER": "root", "TERM": "dumb"},
            layers=tuple(os.path.realpath(stage.fs) for stage in reversed(below)),
            upper=upper,
            work=_made(f"{beside}/work"),
            scratch=_made(f"{beside}/scratch"),
            caches=() if downloads is None else ((downloads.place, downloads.inside),),
            network=self.plan.setup.network,
            limits=self.plan.limits,
            allow=self.plan.network.allow,
        )

    def check(self, stage: Stage) -> None:
        """Have it seen that an image's stage that is there already is what the image's name stands for."""
        image = self.plan.base.image
        assert image is not None
        if not is_given(image, stage, self.store.root(self.project)):
            self.progress.note(f"asking whether {image} is there")
            resolve(image, self.environment, self.project)

    @contextmanager
    def downloads(self, link: Link) -> Iterator[Downloads | None]:
        """Give the project's downloads for a stage that is missing, if it has any, to one build at a time."""
        if link.cache is None or self.store.stage(link.key) is not None:
            yield None
            return
        own = f"{self.store.directory}/caches/{project_id(self.project)}"
        with _held_directory(own):
            place = os.path.realpath(f"{own}/{link.cache}")
            os.makedirs(place, exist_ok=True)
            os.chmod(place, 0o755)  # whatever an earlier build made of it
            descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self.progress.note(f"another coop installs with {link.cache} here; waiting for it")
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                # Who was waited for may have built it, and its downloads make no other of it.
                missing = self.store.stage(link.key) is None
                inside = f"{CACHES}/{link.cache}"
                yield Downloads(place, inside, bool(os.listdir(place))) if missing else None
            finally:
                os.close(descriptor)

    def _run(self, step: building.Step, link: Link, number: int, command: str) -> None:
        packages = () if link.cache is None else getattr(self.plan.packages, link.cache)
        self.progress.command(link.kind, number + 1, len(link.commands), " ".join(packages) or command)
        step = step.replace(argv=_shell(command))
        with Tap(_KEPT, self.progress.output) as tap:
            outcome = building.run(step, tap.descriptor)
        for note in outcome.notes:
            self.progress.note(note)
        if outcome.status:
            error = StageError(link.kind, number, command, outcome.status, bytes(tap.end))
            if self.debug is not None:
                self.debug(step, error)
            raise error

    def _versions(self, step: building.Step, link: Link) -> dict[str, str]:
        """Return the versions of the packages that were asked for, as far as the image tells."""
        if link.cache is None:
            return {}
        packages = getattr(self.plan.packages, link.cache)
        with Tap(_MOST_LISTED) as tap:
            # On the layer, not in it: what the question leaves behind is no part of the stage.
            asking = step.replace(
                argv=_shell(f"{versions.query(link.cache, packages)} 2>/dev/null"),
                layers=(step.upper, *step.layers),
                upper=_made(f"{step.scratch}/asking"),
                work=_made(f"{step.scratch}/asking-work"),
                caches=(),
                network="none",
            )
            building.run(asking, tap.descriptor, _LISTS)
        return versions.parse(link.cache, packages, tap.end.decode("utf-8", "replace"))


def build_all(
    builder: Builder, *, rebuild: bool, accept: Callable[[Sequence[Stage]], None]
) -> tuple[Stage, ...]:
    """Build the stages of a plan that are missing, record that the project uses all, and return them.

    ``rebuild`` and ``accept`` are as ``base.build`` takes them.
    """
    store, project = builder.store, builder.project
    root = store.root(project)
    own: dict[str, str] = {}
    links = chain(builder.plan, root)
    if rebuild:
        own = dict.fromkeys((link.kind for link in links[1:]), secrets.token_hex(8))
        links = chain(builder.plan, root, own)
    if builder.plan.setup.network == "veth" and any(store.stage(link.key) is None for link in links[1:]):
        preparing.internet("setup.network")  # before anything is fetched for nothing
    with ExitStack() as held:
        stages: tuple[Stage, ...] = ()
        for number in range(len(links)):
            with builder.downloads(links[number]) as downloads:
                if downloads is not None and downloads.used and not links[number].generation:
                    # What was left there may be anything: nobody else is to get what is made of it.
                    own[links[number].kind] = project_id(project)
                    links = chain(builder.plan, root, own)
                stage, descriptor = _stage(builder, links, stages, downloads)
            held.callback(os.close, descriptor)
            stages = (*stages, stage)
        accept(stages)
        generations = {link.kind: link.generation for link in links if link.generation}
        store.use(project, tuple(link.key for link in links), generations)
    return stages


def _stage(
    builder: Builder, links: tuple[Link, ...], below: tuple[Stage, ...], downloads: Downloads | None
) -> tuple[Stage, int]:
    """Return the stage above others, built if it is missing, and a descriptor that holds it."""
    store, progress = builder.store, builder.progress
    link, number = links[len(below)], len(below) + 1
    made = False

    def make(directory: str) -> Mapping[str, Any]:
        nonlocal made
        made = True
        progress.stage(link.kind, number, len(links), BUILDING)
        return builder.make(link, below, downloads, directory)

    for _ in range(_TRIES):
        known = store.stage(link.key)
        stage = known or store.build(link.key, link.kind, link.parent, make, progress.note)
        descriptor = hold(f"{store.directory}/stages/{link.key}")
        if descriptor is not None:
            if link.kind == IMAGE and not made:
                try:
                    builder.check(stage)
                except BaseException:
                    os.close(descriptor)
                    raise
            progress.stage(link.kind, number, len(links), KEPT if known else BUILT)
            return stage, descriptor
    raise CoopError(f"the stage {link.kind} is removed by others as soon as it is there", "run it again")


class Tap:
    """A pipe that passes on what comes through it, and keeps the end of that."""

    def __init__(self, most: int, tell: Callable[[bytes], None] = lambda _: None) -> None:
        self.end = bytearray()
        self._most = most
        self._tell = tell
        self._failure: Exception | None = None

    def __enter__(self) -> Tap:
        self._receive, self.descriptor = os.pipe()
        # The thread must not take the signals that the runner waits for.
        mask = signals.block()
        try:
            self._thread = threading.Thread(target=self._read, daemon=True)
            self._thread.start()
        finally:
            signals.restore(mask)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        os.close(self.descriptor)
        self._thread.join()
        os.close(self._receive)
        if self._failure is not None and kind is None:
            raise self._failure

    def _read(self) -> None:
        while data := os.read(self._receive, _PIECE):
            self.end += data
            del self.end[: -self._most]
            # Whatever becomes of those who listen, nobody who writes may be left waiting.
            if self._failure is None:
                try:
                    self._tell(data)
                except Exception as error:
                    self._failure = error


@contextmanager
def _held_directory(path: str) -> Iterator[None]:
    """Make a directory and keep it from being removed meanwhile."""
    descriptor = None
    while descriptor is None:
        os.makedirs(path, exist_ok=True)
        descriptor = hold(path)
    try:
        yield
    finally:
        os.close(descriptor)


def _shell(command: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", "--", command)


def _made(path: str) -> str:
    os.mkdir(path)
    return path
