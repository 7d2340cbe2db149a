"""From an identity to a user, to a trust level, to what that level gives (design section 11)."""

from __future__ import annotations

from coopfile.errors import UsageError
from coopfile.language.settings import TRUST_LEVELS
from coopfile.language.values import BadValue, Identity
from coopfile.plan.model import STORES, TOOLS, Access
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from coopfile.language.reading import User

TERMINAL = "terminal:default"

# The most that anyone has in a place. What is said in a group is read by others,
# and may have been put there by others.
CEILINGS = {"direct": "owner", "group": "familiar"}


class Grant(Record):
    """What a trust level gives: tools and memory stores, sorted; and where tool calls run."""

    sandboxed: bool
    tools: tuple[str, ...]
    stores: tuple[str, ...]


GRANTS = {
    "owner": Grant(sandboxed=False, tools=TOOLS, stores=STORES),
    "full": Grant(sandboxed=True, tools=TOOLS, stores=STORES),
    "inner": Grant(sandboxed=True, tools=TOOLS, stores=("shared", "social")),
    "familiar": Grant(sandboxed=True, tools=("read_file",), stores=("social",)),
    "public": Grant(sandboxed=True, tools=(), stores=()),
}


def access_for(
    users: Iterable[User], identity: str, place: str = "direct", sandbox_enabled: bool = True
) -> tuple[User | None, Access]:
    """Find the user of an identity (``channel:sender``), and what they get in a place.

    A user without a trust level, and an identity that no user matches, are
    ``public``; but whoever sits at the terminal of a machine whose tool calls are
    sandboxed owns it.
    """
    check_identity(identity)
    user = next((user for user in users if identity in user.match), None)
    if user is not None:
        return user, _access(user, user.trust or "public", place)
    return None, _access(None, "owner" if identity == TERMINAL and sandbox_enabled else "public", place)


def access_named(users: Iterable[User], name: str, place: str = "direct") -> tuple[User | None, Access]:
    """Find the user of a name, and what they get in a place; one that there is not is ``public``."""
    user = next((user for user in users if user.name == name), None)
    return user, _access(user, (user.trust if user else None) or "public", place)


def _access(user: User | None, trust: str, place: str) -> Access:
    if place not in CEILINGS:
        raise UsageError(f"no such place: {place!r}", f"places are {' and '.join(CEILINGS)}")
    trust = lowered(trust, CEILINGS[place])
    grant = GRANTS[trust]
    return Access(
        user=user.name if user else None,
        trust=trust,
        place=place,
        tools=grant.tools,
        stores=grant.stores,
        sandboxed=grant.sandboxed,
    )


def check_identity(identity: str) -> None:
    """Refuse what could not stand in a user's ``match``. Raises UsageError."""
    try:
        Identity().parse(identity)
    except BadValue as error:
        help = error.help or "an identity is channel:sender, such as terminal:default"
        raise UsageError(error.message, help) from None


def lowered(trust: str, ceiling: str) -> str:
    """Return the lesser of two trust levels."""
    return max(trust, ceiling, key=TRUST_LEVELS.index)


def may_run_commands(access: Access | None) -> bool:
    """Tell whether whoever asks may run commands; where nobody was named, the caller may."""
    return access is None or "bash" in access.tools
