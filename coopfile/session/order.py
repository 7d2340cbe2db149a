"""What is asked of the helper: a session, as data."""

from __future__ import annotations

from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.plan.launch import Launch


class Order(Record):
    """A session in ``directory``. ``plan`` is the digest of what it runs under.

    ``environment`` and ``umask`` are the caller's. ``state`` and ``rootfs`` are directories of
    coop's; ``log`` is the file for what a proxy blocks.
    """

    directory: str
    plan: str
    launch: Launch
    inputs: tuple[str, ...]
    private: tuple[str, ...]
    layers: tuple[str, ...]
    environment: dict[str, str]
    umask: int
    state: str
    rootfs: str
    log: str
    ttl: float | None
    leased: bool
