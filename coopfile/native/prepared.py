"""What the runner takes, and who makes a session: a launch that has been laid out for this machine."""

from __future__ import annotations

from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.native.limits import Enforcement
    from coopfile.native.network import Means
    from coopfile.native.tree import Layout
    from coopfile.plan.launch import Launch, Weakening


class Prepared(Record):
    """A launch, laid out for this machine, and what of its plan is weaker here.

    ``means`` are what may connect it to the internet, in order; ``log`` is the file for what its
    proxy blocks, empty for none.
    """

    launch: Launch
    layout: Layout
    enforcement: Enforcement
    landlock_abi: int
    weakenings: tuple[Weakening, ...]
    building: bool = False
    means: tuple[Means, ...] = ()
    log: str = ""
