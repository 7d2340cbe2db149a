"""What is asked of the helper: a session, as data."""

from __future__ import annotations

from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.native.prepared import Prepared


class Order(Record):
    """A session in ``directory``. ``plan`` is the digest of what it runs under.

    Who asks has laid it out: it is in the same namespaces as the helper, and as free. ``environment`` and
    ``umask`` are the caller's. ``state`` and ``rootfs`` are directories of coop's.
    """

    directory: str
    plan: str
    prepared: Prepared
    environment: dict[str, str]
    umask: int
    state: str
    rootfs: str
    ttl: float | None
    leased: bool
