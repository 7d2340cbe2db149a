"""The front door: from a directory and options to a plan."""

from __future__ import annotations

import os
from collections.abc import Mapping

from coopfile.access.trust import access_for
from coopfile.find import Project, find, read_bounded
from coopfile.language.diagnostics import CoopfileError
from coopfile.language.merging import Settings
from coopfile.language.reading import Reading, User, read
from coopfile.language.sources import Source
from coopfile.plan.ceiling import exceeding
from coopfile.plan.model import Plan
from coopfile.plan.resolve import resolve
from coopfile.record import Record


class Request(Record):
    """What is to be compiled: where, and the options of the command line that matter.

    ``identity`` is "channel:sender" or None; ``place`` is direct or group.
    """

    directory: str
    file: str | None = None
    identity: str | None = None
    place: str = "direct"
    assignments: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[object, ...]:
        """The part of a cache key that is not in files."""
        return (self.file, self.identity, self.place, self.assignments)


class Compiled(Record):
    """A plan and all it came from."""

    request: Request
    plan: Plan
    settings: Settings
    reading: Reading
    project: Project
    user: User | None


def compile_project(
    request: Request, environment: Mapping[str, str] | None = None, project: Project | None = None
) -> Compiled:
    """Find, read, merge, resolve, and hold the result to the ceiling.

    Raises CoopfileError with every problem found.
    """
    environment = os.environ if environment is None else environment
    if project is None:
        project = find(request.directory, request.file, environment)
    sources = [Source(place.layer, place.name, read_bounded(place)) for place in project.places]
    reading = read(sources, environment=environment, assignments=request.assignments)
    user, access = None, None
    if request.identity is not None:
        enabled = bool(reading.settings().value("sandbox.enabled"))
        user, access = access_for(reading.users, request.identity, request.place, enabled)
    settings = reading.settings(user)
    plan = resolve(settings, access)
    exceeded = exceeding(reading, settings, plan)
    if exceeded:
        raise CoopfileError(exceeded)
    return Compiled(request, plan, settings, reading, project, user)
