"""Keeping what a session has changed of its root file system: when asked, and at its end."""

from __future__ import annotations

import os
from contextlib import closing

from coopfile import strictjson
from coopfile.plan import canonical
from coopfile.rootfs import commit as stages
from coopfile.rootfs.overlay import ADDED, CHANGED, DELETED
from coopfile.session import changes, installs, lifecycle
from coopfile.session.changes import Difference
from coopfile.session.model import SessionGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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


def commit(directory: str, state: State, store: Store, *, replace: bool = False) -> Outcome:
    """Make what a session has changed a part of the project's root file system; it goes on afterwards.

    Its processes stand still meanwhile. ``replace`` is as ``rootfs.commit`` takes it. Raises CoopError.
    """
    plan = canonical.from_json(state.plan, f"what the session {state.name} runs under")
    live = changes.running(directory, state)
    if state.backend != "native":
        from coopfile.session import saving

        return saving.commit(directory, state)
    upper = live.upper()
    try:
        with live.paused():
            return stages.commit(store, plan, state.root, upper, _life(state), replace=replace)
    finally:
        os.close(upper.descriptor)


def _life(state: State) -> str:
    """Return what tells one life of a session from all others."""
    return f"{state.id} {state.started}"


def at_end(directory: str, state: State, store: Store, *, ask: Callable[[str], bool] | None = None) -> str:
    """Do what ``session.commit`` says with a session that runs and is about to be ended.

    Returns what a person should know, which may be nothing. ``ask`` asks them a question; None where there
    is nobody. Raises CoopError when what is to be kept cannot be: then the session is not to be ended.
    """
    mode = _mode(state)
    on_image = mode != "never" and changes.is_on_image(state)
    if not on_image or lifecycle.join(directory, state) is None:
        installs.forget(directory)
        return ""
    if state.backend == "apple":
        return f"what the session {state.name} has installed goes with its container"
    told, keep = "", False
    try:
        with closing(changes.differences(directory, state, store)) as items:
            found = (item.change for item in items if isinstance(item, Difference))
            if mode == "auto":
                keep = is_install(found, hinted=installs.were_noted(directory))
                counts = (0, 0, 0)
            else:
                counts = count(found)
        if any(counts):
            what = f"the session {state.name} has {listed(counts)} beside the workspace"
            if ask is None:
                told = f"{what}, which is gone now: coop commit {state.name} would have kept it"
            else:
                keep = ask(f"{what}: keep that for the next ones?")
        if keep:
            told = f"session {state.name}: {words(commit(directory, state, store))}"
    except SessionGone:
        return ""  # it has ended by itself meanwhile
    installs.forget(directory)
    return told


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
        if _is_trace(change.path):
            continue
        if hinted or change.path.startswith(_TOOLS) or not _parts(change.path).isdisjoint(_TOOLS_BELOW):
            return True
    return False


def _is_trace(path: str) -> bool:
    return f"{path}/".startswith(_TRACES) or path in _TRACES or not _parts(path).isdisjoint(_TRACES_BELOW)


def _parts(path: str) -> set[str]:
    return set(path.split("/"))


def _mode(state: State) -> str:
    try:
        return str(strictjson.loads(state.plan)["session"]["commit"])
    except (ValueError, TypeError, KeyError):
        return "never"
