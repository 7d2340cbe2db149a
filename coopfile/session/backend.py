"""Where the Python API has its sessions from: this machine, or what stands in for it in a test."""

from __future__ import annotations

from coopfile.errors import CoopError
from coopfile.record import Record
from coopfile.system import LINUX, system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from coopfile.plan.launch import Weakening
    from coopfile.proxy.denials import Denial
    from coopfile.session.model import Live, Spec
else:
    Protocol = object


class Open(Record):
    """A session that runs. ``fresh`` tells that it was started just now, not joined."""

    live: Live
    fresh: bool
    weakenings: tuple[Weakening, ...] = ()


class Backend(Protocol):
    """What `Session` takes as ``backend``."""

    def open(self, spec: Spec) -> Open:
        """Join the session if it runs, else start it. Raises PlanDiffers, CoopError."""

    def note(self, spec: Spec, argv: Sequence[str]) -> None:
        """Take notice of a command that has begun; asked for where ``session.commit`` is "auto"."""

    def denials(self, spec: Spec, began: float) -> tuple[Denial, ...]:
        """Return what its proxy has blocked since a time, in seconds since the epoch.

        Asked for where ``network.mode`` is "proxy".
        """

    def stop(self, spec: Spec) -> tuple[str, ...]:
        """End it if it runs, after what ``session.commit`` says; what it keeps is kept.

        Returns what there is to tell people. Raises CoopError.
        """

    def remove(self, spec: Spec) -> None:
        """End it if it runs, and remove what it kept. Raises CoopError."""


class Machine:
    """The back ends of this machine, as ``sandbox.backend`` says."""

    def open(self, spec: Spec) -> Open:
        """Join or start it. What no ceiling lets a Coopfile say, a program's plan does not get either."""
        if system() != LINUX:
            raise CoopError(
                "sessions need Linux",
                "FakeBackend serves tests; coop render prints what can be run here: docs/backends.md",
            )
        from coopfile.compiling import hold_to_ceiling
        from coopfile.session import lifecycle

        hold_to_ceiling(spec.plan, spec.project)
        opened = lifecycle.open_session(spec)
        return Open(opened.live, opened.fresh, opened.weakenings)

    def note(self, spec: Spec, argv: Sequence[str]) -> None:
        """Remember a command that may install something."""
        from coopfile.session import installs, lifecycle

        installs.note(lifecycle.place(spec), argv)

    def denials(self, spec: Spec, began: float) -> tuple[Denial, ...]:
        """Return what is in its log, which the proxy writes before it answers."""
        from coopfile import launching
        from coopfile.proxy import denials

        return denials.since(launching.log(spec.plan, spec.project, spec.environment, spec.name), began)

    def stop(self, spec: Spec) -> tuple[str, ...]:
        """End it, whoever started it."""
        from coopfile.find import directories
        from coopfile.rootfs.store import Store
        from coopfile.session import commit, lifecycle, store

        directory = lifecycle.place(spec)
        known = store.look(directory)
        if known is None:
            return ()
        end = commit.End()
        try:
            if known.state is not None and spec.plan.session.commit != "never":
                end = commit.at_end(directory, known.state, Store(directories(spec.environment).rootfs))
            lifecycle.stop(directory, known.state or store.salvaged(directory, spec.name))
        except OSError as error:
            raise CoopError(f"cannot end the session in {directory}: {error.strerror}") from None
        return tuple(filter(None, (end.kept, end.lost)))

    def remove(self, spec: Spec) -> None:
        """End it, and remove its directory."""
        from coopfile.find import directories
        from coopfile.session import lifecycle, sweep

        sweep.discard(lifecycle.place(spec), spec.name, directories(spec.environment).state)
