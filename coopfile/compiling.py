"""The front door: from a directory and options to a plan."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from coopfile.access.trust import access_for, access_named
from coopfile.errors import UsageError
from coopfile.find import Project, find, read_bounded
from coopfile.language.diagnostics import CoopfileError, Diagnostic
from coopfile.language.merging import BUILT_IN, Origin, Settings, Valued, defaults
from coopfile.language.reading import Reading, User, read
from coopfile.language.sources import LAYERS, Source
from coopfile.language.suggest import did_you_mean
from coopfile.plan.ceiling import exceeding
from coopfile.plan.model import Access, Plan, leaf
from coopfile.plan.resolve import resolve
from coopfile.record import Record


class Request(Record):
    """What is to be compiled: where, and the options of the command line that matter.

    ``identity`` is "channel:sender" or None, and ``user`` stands for it where somebody is asked for
    by name; ``place`` is direct or group; ``locked`` says that the lock counts, as it does unless it
    is about to be written.
    """

    directory: str
    file: str | None = None
    identity: str | None = None
    user: str | None = None
    place: str = "direct"
    assignments: tuple[str, ...] = ()
    locked: bool = True


class Compiled(Record):
    """A plan and all it came from.

    ``asked`` is the plan as the files ask for it, without what the lock adds: that is
    what is approved.
    """

    request: Request
    plan: Plan
    settings: Settings
    reading: Reading
    project: Project
    user: User | None
    asked: Plan


class CeilingError(CoopfileError):
    """A plan asks for more than the ceiling of the user's own file; ``plan`` is what it asks for."""

    decision = "denied"

    def __init__(self, diagnostics: tuple[Diagnostic, ...], plan: Plan) -> None:
        super().__init__(diagnostics)
        self.plan = plan


def compile_project(
    request: Request, environment: Mapping[str, str] | None = None, project: Project | None = None
) -> Compiled:
    """Find, read, merge, resolve, and hold the result to the ceiling.

    Raises CoopfileError with every problem found, CeilingError.
    """
    environment = os.environ if environment is None else environment
    if project is None:
        project = find(request.directory, request.file, environment)
    sources = [Source(place.layer, place.name, read_bounded(place)) for place in project.places]
    reading = read(sources, environment=environment, assignments=request.assignments)
    user, access = who_asks(request, reading, LAYERS)
    if user is None and request.user is not None:
        raise UsageError(
            f"no user is called {request.user!r}",
            did_you_mean(request.user, [user.name for user in reading.users])
            or "it is the name of one of [[users]], or an identity: channel:sender",
        )
    settings = reading.settings(user)
    conflicts = reading.conflicts(settings)
    if conflicts:
        raise CoopfileError(conflicts)
    plan = asked = resolve(settings, access)
    if request.locked and plan.base.image is not None and project.lock is not None:
        from coopfile import lock

        plan = lock.locked(plan, lock.parse(read_bounded(project.lock), project.lock.name), project.lock.name)
    exceeded = exceeding(reading, settings, plan)
    if exceeded:
        raise CeilingError(exceeded, plan)
    return Compiled(request, plan, settings, reading, project, user, asked)


def who_asks(
    request: Request, reading: Reading, layers: Collection[str]
) -> tuple[User | None, Access | None]:
    """Return who a request is for and what they get, by some layers alone; None where nobody is named."""
    if request.user is not None:
        return access_named(reading.users_of(layers), request.user, request.place)
    if request.identity is None:
        return None, None
    enabled = bool(reading.settings(layers=layers).value("sandbox.enabled"))
    return access_for(reading.users_of(layers), request.identity, request.place, enabled)


def hold_to_ceiling(plan: Plan, project: Project) -> None:
    """Raise CeilingError for what a plan asks for beyond the ceiling of the user's own file."""
    places = [place for place in project.places if place.layer == "user"]
    reading = read([Source(place.layer, place.name, read_bounded(place)) for place in places])
    if reading.ceiling:
        exceeded = exceeding(reading, _as_given(plan), plan)
        if exceeded:
            raise CeilingError(exceeded, plan)


def _as_given(plan: Plan) -> Settings:
    """Return the settings that a plan came from, as if all that is not built in were written in it."""
    given = Origin("command line", "--plan")
    values = {}
    for key, default in defaults().items():
        value = leaf(plan, key)
        if isinstance(value, tuple):
            known = default.value or ()
            values[key] = Valued(value, tuple(BUILT_IN if item in known else given for item in value))
        else:
            values[key] = Valued(value, (BUILT_IN if value == default.value else given,))
    return Settings(values)
