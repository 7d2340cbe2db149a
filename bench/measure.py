"""Timing of whole processes, from spawn to the collected exit status, and of what this process does."""

from __future__ import annotations

import os
import random
import select
import signal
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from coopfile.errors import CoopError
from coopfile.record import Record

TIMEOUT = 60.0


class Subject(Record):
    """A command to measure: ``argv`` begins with an absolute path and runs in ``directory``.

    ``reset``, which is not measured, goes before every run.
    """

    name: str
    what: str
    argv: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]
    reset: Callable[[], None] | None = None


class Call(Record):
    """Something that this process does, to measure: ``act``, and nothing besides. It raises when it fails."""

    name: str
    what: str
    act: Callable[[], object]


class Timing(Record):
    """Wall-clock times of one subject's runs, in milliseconds."""

    subject: Subject | Call
    runs: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median, which a few disturbed runs do not move."""
        return statistics.median(self.runs)


class RunError(CoopError):
    """A command that was to be measured failed, or took too long."""


def run_once(subject: Subject | Call, log: int) -> float:
    """Run a subject and return its wall time in milliseconds; ``log`` gets what it prints.

    No shell and no Python between: the time of a command is that of posix_spawn, the command
    and wait4.
    """
    if isinstance(subject, Call):
        start = time.perf_counter()
        subject.act()
        return (time.perf_counter() - start) * 1000
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, log, 1),
        (os.POSIX_SPAWN_DUP2, log, 2),
    ]
    if subject.reset is not None:
        subject.reset()
    os.chdir(subject.directory)
    start = time.perf_counter()
    pid = os.posix_spawn(subject.argv[0], subject.argv, subject.environment, file_actions=actions)
    ended = _wait(pid)
    _, status, _ = os.wait4(pid, 0)
    elapsed = (time.perf_counter() - start) * 1000
    if not ended:
        raise RunError(f"{subject.name} did not end within {TIMEOUT:.0f} s")
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        raise RunError(f"{subject.name} ended with status {code}")
    return elapsed


def _wait(pid: int) -> bool:
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if poll.poll(TIMEOUT * 1000):
            return True
        os.kill(pid, signal.SIGKILL)
        return False
    finally:
        os.close(descriptor)


def interleaved(subjects: Sequence[Subject | Call], count: int, log: int) -> list[Timing]:
    """Run each subject once a round, so that a disturbance hits all of them alike.

    Every round has an order of its own: what a subject leaves behind, such as a daemon that cleans up or
    caches that others have filled, is not always for the same one to bear.
    """
    runs: dict[str, list[float]] = {subject.name: [] for subject in subjects}
    for _ in range(count):
        for subject in random.sample(subjects, len(subjects)):
            runs[subject.name].append(run_once(subject, log))
    return [Timing(subject, tuple(runs[subject.name])) for subject in subjects]
