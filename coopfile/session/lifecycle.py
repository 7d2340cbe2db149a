"""From a plan to a session that runs: joined if it does already, else started, on whatever back end.

The one place that knows all back ends of sessions.
"""

from __future__ import annotations

import os
import time

from coopfile import audit, launching
from coopfile.errors import CoopError
from coopfile.find import directories
from coopfile.plan import canonical
from coopfile.plan.sessions import session_id
from coopfile.record import Record
from coopfile.session import store
from coopfile.session.model import PlanDiffers, SessionError, Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from coopfile.engines.choose import Choice
    from coopfile.plan.launch import Weakening
    from coopfile.session.model import Live, Started

_START = 120.0  # seconds that another process may take for starting the same session
_SETTLES = 8.0  # seconds that one on an engine may take to end which nobody knows of
_UNWANTED = 2.0  # the same of one in namespaces, whose starter was interrupted
_END = 15.0  # seconds that ending one may take


class Opened(Record):
    """A session to run commands in.

    ``fresh`` tells that it was started just now, and ``choice`` then on which engine, if on one.
    """

    live: Live
    state: store.State
    directory: str
    fresh: bool
    weakenings: tuple[Weakening, ...] = ()
    choice: Choice | None = None


def place(spec: Spec) -> str:
    """Return the directory of a session, whether there is one or not."""
    data = os.path.realpath(directories(spec.environment).data)
    return f"{data}/sessions/{session_id(spec.project.root, spec.plan.access, spec.name)}"


def open_session(
    spec: Spec, *, tell: Callable[[str], None] = lambda _: None, show: Callable[[str], None] | None = None
) -> Opened:
    """Join a session that runs under this plan, or start it. Raises PlanDiffers, CoopError.

    ``tell`` and ``show`` hear of images that are fetched and made, as with ``engines.run.run``.
    """
    directory = place(spec)
    digest = canonical.digest(spec.plan)
    if not store.is_starting(directory):
        opened = _joined(spec, directory, digest)
        if opened is not None and not store.is_starting(directory):
            return opened
    try:
        with store.starting(directory, _START):
            opened = _joined(spec, directory, digest)  # another process may have started it meanwhile
            return opened if opened is not None else _start(spec, directory, digest, tell, show)
    except OSError as error:
        raise store.unusable(directory, error) from None


def join(directory: str, state: store.State) -> Live | None:
    """Return a session that runs, None if it does not."""
    if state.backend == "native":
        from coopfile.session import native

        return native.join(directory, state)
    from coopfile.session import container

    return container.join(directory, state)


def stop(directory: str, state: store.State) -> bool:
    """End a session, if it runs; tell whether it did. What it keeps is kept. Raises CoopError."""
    try:
        with store.starting(directory, _END):
            live = join(directory, state)
            if live is None:
                return False
            live.stop()
            return True
    except OSError as error:
        raise store.unusable(directory, error) from None


def _joined(spec: Spec, directory: str, digest: str) -> Opened | None:
    state = store.read(directory)
    live = None if state is None else join(directory, state)
    if state is None or live is None:
        return None
    if state.digest != digest:
        raise PlanDiffers(
            f"the session {spec.name} runs under another plan",
            f"coop stop {spec.name} ends it; the next command starts it under the plan of now",
            session=spec.name,
            running=state.digest,
            asked=digest,
        )
    return Opened(live, state, directory, False)


def _start(
    spec: Spec,
    directory: str,
    digest: str,
    tell: Callable[[str], None],
    show: Callable[[str], None] | None,
) -> Opened:
    launching.check_access(spec.plan)
    if store.is_alive(directory) and not _settles(directory):
        raise SessionError(
            f"the session {spec.name} runs, but what is known of it is damaged",
            f"coop stop {spec.name} ends it",
            session=spec.name,
        )
    earlier = store.read(directory)
    now = int(time.time())
    access = spec.plan.access
    state = store.State(
        id=os.path.basename(directory),
        name=spec.name,
        root=spec.project.root,
        user=None if access is None else access.user,
        backend="native",
        digest=digest,
        plan=canonical.to_json(spec.plan, indent=None),
        created=now if earlier is None else earlier.created,
        started=now,
        ttl_ms=None if spec.ttl is None else int(spec.ttl * 1000),
        leased=spec.leased,
    )
    audit.note(directory, audit.about(spec.plan, digest))
    without: dict[str, CoopError] = {}
    if launching.prefers_native(spec.plan):
        try:
            started = _start_native(spec, directory, state, earlier)
            return Opened(started.live, state, directory, True, started.weakenings)
        except CoopError as error:
            if spec.plan.sandbox.backend == ("native",) or not launching.native_is_impossible():
                raise
            without["native"] = error
    from coopfile.session import container

    started = container.start(spec, directory, without, tell=tell, show=show)
    state = state.replace(backend=started.live.backend, container=started.container)
    try:
        store.write(directory, state)
    except BaseException:
        started.live.stop()
        raise
    return Opened(started.live, state, directory, True, started.weakenings, started.choice)


def _settles(directory: str) -> bool:
    """Wait for a session that is just ending, or will for want of its starter; tell whether it has."""
    from coopfile.session import mark

    return store.wait_end(directory, _UNWANTED if mark.read(directory) is None else _SETTLES)


def _start_native(spec: Spec, directory: str, state: store.State, earlier: store.State | None) -> Started:
    """Start it in namespaces. What it is known by is there first: this process may be killed at any time."""
    from coopfile.session import native

    store.write(directory, state)
    try:
        return native.start(spec, directory)
    except BaseException as error:
        if isinstance(error, CoopError):  # what was begun goes by itself: it is not to be joined meanwhile
            store.wait_end(directory, _UNWANTED)
        store.put_back(directory, earlier)
        raise
