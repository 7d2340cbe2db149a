"""Keeping what a session has changed of its root file system: when asked, and at its end."""

from __future__ import annotations

import os
from contextlib import closing

from coopfile import strictjson
from coopfile.plan import canonical
from coopfile.record import Record
from coopfile.rootfs import commit as stages
from coopfile.rootfs import committed
from coopfile.rootfs.overlay import ADDED, CHANGED, DELETED
from coopfile.session import changes, installs, lifecycle, since
from coopfile.session.changes import Difference
from coopfile.session.model import SessionGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from coopfile.rootfs.commit import Outcome
    from coopfile.rootfs.overlay import Change
    from coopfile.rootfs.store import Store
    from coopfile.session.store import State

# What programs leave behind without being asked: no reason to keep anything.
_TRACES = (
    "/etc/ld.so.cache",
    "/run/",
    "/tmp/",
    "/var/cache/",
    "/var/lib/apt/",
    "/var/log/",
    "/var/tmp/",
)
_TRACES_BELOW = (
    "__pycache__",
    ".bash_history",
    ".cache",
    ".lesshst",
    ".python_history",
    ".viminfo",
    ".wget-hsts",
)
# Where programs are installed.
_TOOLS = ("/bin/", "/etc/", "/lib/", "/lib32/", "/lib64/", "/opt/", "/sbin/", "/srv/", "/usr/", "/var/lib/")
_TOOLS_BELOW = ("bin", "node_modules", "site-packages", ".cargo", ".local", ".nvm", ".pyenv", ".rustup")


class End(Record):
    """What a person should know of a session's end: before it is ended, and of what is gone afterwards."""

    kept: str = ""
    lost: str = ""


def commit(directory: str, state: State, store: Store, *, replace: bool = False) -> Outcome:
    """Make what a session has changed a part of the project's root file system; it goes on afterwards.

    Its processes stand still meanwhile. ``replace`` is as ``rootfs.commit`` takes it. Raises CoopError.
    """
    plan = canonical.from_json(state.plan, f"what the session {state.name} runs under")
    live = changes.running(directory, state)
    if state.backend != "native":
        from coopfile.session import saving

        found = _found(directory, state, store)  # before: what changes meanwhile counts as lost
        outcome = saving.commit(directory, state, count(item.change for item in found))
        stage = saving.committed_image(directory, state) if outcome.stage is not None else ""
    else:
        upper = live.upper()
        try:
            with live.paused():
                outcome = stages.commit(store, plan, state.root, upper, _life(state), replace=replace)
                found = _found(directory, state, store) if outcome.stage is not None else ()
        finally:
            os.close(upper.descriptor)
        stage = "" if outcome.stage is None else outcome.stage.key
    if stage:
        since.write(directory, since.Earlier(_life(state), stage, since.marks(found)))
    return outcome


def _found(directory: str, state: State, store: Store) -> tuple[Difference, ...]:
    with closing(changes.differences(directory, state, store)) as items:
        return tuple(item for item in items if isinstance(item, Difference))


def _life(state: State) -> str:
    """Return what tells one life of a session from all others."""
    return f"{state.id} {state.started}"


def at_end(directory: str, state: State, store: Store, *, ask: Callable[[str], bool] | None = None) -> End:
    """Do what ``session.commit`` says with a session that runs and is about to be ended.

    ``ask`` asks a person a question; None where there is nobody. Raises CoopError when what is to be kept
    cannot be: then the session is not to be ended.
    """
    mode = _mode(state)
    on_image = mode != "never" and changes.is_on_image(state)
    if not on_image or lifecycle.join(directory, state) is None:
        _forget(directory)
        return End()
    if state.backend == "apple":
        return End(lost=f"what the session {state.name} has installed is gone with its container")
    try:
        earlier = _earlier(directory, state, store)
        with closing(changes.differences(directory, state, store)) as items:
            found = since.changes((item for item in items if isinstance(item, Difference)), earlier)
            if mode == "auto":
                keep, counts = _weighed(found, hinted=installs.were_noted(directory))
            else:
                keep, counts = False, count(found)
        what = f"the session {state.name} has {listed(counts)} beside the workspace"
        what += " since it was committed" if earlier is not None else ""
        lost = ""
        if any(counts) and mode == "ask" and ask is not None:
            keep = ask(f"{what}: keep that for the next ones?")
        elif any(counts) and not keep:
            seems = ", which does not look installed" if mode == "auto" else ""
            lost = f"{what}{seems}: it is gone, and coop commit {state.name} would have kept it"
        if keep:
            kept = f"session {state.name}: {words(commit(directory, state, store))}"
        elif earlier is not None:
            kept = f"session {state.name}: what was committed is kept"
        else:
            kept = ""
    except SessionGone:
        return End()  # it has ended by itself meanwhile
    _forget(directory)
    return End(kept, lost)


def _forget(directory: str) -> None:
    installs.forget(directory)
    since.forget(directory)


def _earlier(directory: str, state: State, store: Store) -> since.Earlier | None:
    """Return what a session has committed, if that is still what later runs have."""
    earlier = since.read(directory, _life(state))
    if earlier is None:
        return None
    if state.backend != "native":
        from coopfile.session import saving

        return earlier if saving.committed_image(directory, state) == earlier.stage else None
    plan = canonical.from_json(state.plan, f"what the session {state.name} runs under")
    known = committed.read(store.directory, state.root, plan.access)
    return earlier if any(item.stage == earlier.stage for item in known.values()) else None


def _weighed(found: Iterable[Change], *, hinted: bool) -> tuple[bool, tuple[int, int, int]]:
    """Tell whether to keep changes without being asked; and if not, how many are more than traces."""
    passed: list[Change] = []

    def noted() -> Iterator[Change]:
        for change in found:
            if not is_trace(change.path):
                passed.append(change)
            yield change

    keep = is_install(noted(), hinted=hinted)
    return keep, (0, 0, 0) if keep else count(passed)


def words(outcome: Outcome) -> str:
    """Return what was committed, for people."""
    return "nothing to commit" if outcome.stage is None else f"committed: {listed(outcome.counts)}"


def count(found: Iterable[Change]) -> tuple[int, int, int]:
    """Return how many things were added, changed and deleted."""
    counts = {ADDED: 0, CHANGED: 0, DELETED: 0}
    for change in found:
        counts[change.kind] += 1
    return counts[ADDED], counts[CHANGED], counts[DELETED]


def listed(counts: tuple[int, int, int]) -> str:
    """Return such numbers for people."""
    kinds = zip((ADDED, CHANGED, DELETED), counts, strict=True)
    return ", ".join(f"{kind} {number}" for kind, number in kinds if number) or "changed nothing"


def is_install(found: Iterable[Change], *, hinted: bool) -> bool:
    """Tell whether changes are worth keeping without being asked: somebody has installed something.

    Anything where programs and their settings are counts. Other things do if commands looked like that
    (``hinted``), but for caches, logs and histories, which never do.
    """
    for change in found:
        if is_trace(change.path):
            continue
        if hinted or change.path.startswith(_TOOLS) or not _parts(change.path).isdisjoint(_TOOLS_BELOW):
            return True
    return False


def is_trace(path: str) -> bool:
    """Tell whether programs leave such a thing behind without being asked."""
    return f"{path}/".startswith(_TRACES) or path in _TRACES or not _parts(path).isdisjoint(_TRACES_BELOW)


def _parts(path: str) -> set[str]:
    return set(path.split("/"))


def _mode(state: State) -> str:
    try:
        return str(strictjson.loads(state.plan)["session"]["commit"])
    except (ValueError, TypeError, KeyError):
        return "never"
