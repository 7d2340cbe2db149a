"""Which way each setting is wider: the part of the settings table that comparing rests on.

A change *widens* when the sandbox may have something that it could not have
before, *narrows* when it is the mirror image of one that widens, and only
*differs* otherwise. Every direction keeps three promises, which the tests hold
it to: equal values give no delta, unequal ones at least one, and the deltas of
``compare(b, a)`` are those of ``compare(a, b)`` seen in a mirror.
"""

from __future__ import annotations

from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Literal

    from coopfile.language.items import Variable

    Kind = Literal["widens", "narrows", "differs"]

WIDENS: Kind = "widens"
NARROWS: Kind = "narrows"
DIFFERENT: Kind = "differs"


class Delta(Record):
    """One difference between two values of a setting.

    ``old`` and ``new`` are whole values, or single items of a set, where None
    stands on the side that does not have the item.
    """

    kind: Kind
    old: Any
    new: Any


class Direction:
    """Knows whether the step from one value of a setting to another gives more or less."""

    #: Whether deltas are about single items of the value, not about all of it.
    by_item = False

    def compare(self, old: Any, new: Any) -> tuple[Delta, ...]:
        """Return the differences between two typed values; none when they are equal."""
        return () if old == new else (Delta(self.kind(old, new), old, new),)

    def kind(self, old: Any, new: Any) -> Kind:
        """Classify the step between two unequal values."""
        raise NotImplementedError


class Differs(Direction):
    """A setting of which no value is more than another."""

    def kind(self, old: Any, new: Any) -> Kind:
        """Classify the step: it only differs."""
        return DIFFERENT


class Ascending(Direction):
    """A number of which more is wider; None is "no limit", the widest."""

    def kind(self, old: int | None, new: int | None) -> Kind:
        """Classify the step from one number to another."""
        return WIDENS if new is None or (old is not None and new > old) else NARROWS


class Ranked(Direction):
    """One of a few values, given from the narrowest to the widest."""

    def __init__(self, *narrow_to_wide: object) -> None:
        """Rank the values in the order given."""
        self.values = narrow_to_wide

    def kind(self, old: object, new: object) -> Kind:
        """Classify the step by the values' places in the ranking."""
        return _ranked(self.values.index(old), self.values.index(new))


class Profile(Direction):
    """A Seatbelt profile: restrictive, permissive, then a path, whose rules are unknown."""

    def kind(self, old: str, new: str) -> Kind:
        """Classify the step; one path to another only differs."""
        return _ranked(self._rank(old), self._rank(new))

    @staticmethod
    def _rank(profile: str) -> int:
        return {"restrictive": 0, "permissive": 1}.get(profile, 2)


class Backends(Direction):
    """A list of back ends, as weak as the weakest that it allows."""

    def kind(self, old: tuple[str, ...], new: tuple[str, ...]) -> Kind:
        """Classify the step by the lists' weakest members."""
        return _ranked(-self._strength(old), -self._strength(new))

    @staticmethod
    def _strength(backends: tuple[str, ...]) -> int:
        strengths = {"seatbelt": 0, "apple": 2}
        return min((strengths.get(backend, 1) for backend in backends), default=3)


class Growing(Direction):
    """A set that gives more with every item, except for items that another one covers."""

    by_item = True
    added: Kind = WIDENS
    removed: Kind = NARROWS

    def compare(self, old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Delta, ...]:
        """Return one delta per item that only one side has: removed ones first."""
        return (
            *(
                Delta(DIFFERENT if _covered(item, new) else self.removed, item, None)
                for item in old
                if item not in new
            ),
            *(
                Delta(DIFFERENT if _covered(item, old) else self.added, None, item)
                for item in new
                if item not in old
            ),
        )


class GrowingRead(Growing):
    """Host paths to read. A path that may be written may be read, so the written ones count too."""

    def compare_beside(
        self,
        old: tuple[str, ...],
        new: tuple[str, ...],
        old_write: tuple[str, ...],
        new_write: tuple[str, ...],
    ) -> tuple[Delta, ...]:
        """Return the deltas of ``files.read``, given both sides' ``files.write``.

        The innermost listed path decides about a file, and writing wins where one
        path is in both lists. So a read-only path inside a writable one takes
        something away: adding it narrows. A path that moves from one list to the
        other is ``files.write``'s to classify; here it differs.
        """

        def kind(path: str) -> Kind:
            before, after = _level(path, old, old_write), _level(path, new, new_write)
            moved = (path in old_write) != (path in new_write)
            return DIFFERENT if moved else _ranked(before, after)

        return (
            *(Delta(kind(path), path, None) for path in old if path not in new),
            *(Delta(kind(path), None, path) for path in new if path not in old),
        )


class Shrinking(Growing):
    """A set that takes away more with every item: the mirror image of one that grows."""

    added: Kind = NARROWS
    removed: Kind = WIDENS


class EnvironmentVariables(Direction):
    """Variables by name: a host variable brings something in, a literal brings nothing.

    A variable that is pointed at another of the host's gives up one value and
    gains another: two deltas.
    """

    by_item = True

    def compare(self, old: tuple[Variable, ...], new: tuple[Variable, ...]) -> tuple[Delta, ...]:
        """Return the deltas per variable, in the order of their names."""
        before = {variable.name: variable for variable in old}
        after = {variable.name: variable for variable in new}
        return tuple(
            delta
            for name in sorted({*before, *after})
            for delta in self._compare_one(before.get(name), after.get(name))
        )

    @staticmethod
    def _compare_one(old: Variable | None, new: Variable | None) -> Iterable[Delta]:
        if old == new:
            return ()
        was_host = old is not None and old.host is not None
        is_host = new is not None and new.host is not None
        if was_host and is_host:
            return (Delta(NARROWS, old, None), Delta(WIDENS, None, new))
        return (Delta(_ranked(was_host, is_host), old, new),)


def covers(item: Any, other: Any) -> bool:
    """Tell whether an item of a set gives all that another one gives.

    Items with a ``covers`` of their own are asked; texts are paths, of which a
    directory covers what is below it; anything else covers its equal.
    """
    if item == other:
        return True
    if isinstance(item, str):
        return isinstance(other, str) and other.startswith(item.rstrip("/") + "/")
    asked = getattr(item, "covers", None)
    return asked is not None and bool(asked(other))


def _covered(item: Any, others: Iterable[Any]) -> bool:
    return any(covers(other, item) for other in others)


def _level(path: str, read: tuple[str, ...], write: tuple[str, ...]) -> int:
    """Return what a sandbox may do with a host path: 0 nothing, 1 read, 2 read and write."""
    around = [(len(outer.rstrip("/")), 1) for outer in read if covers(outer, path)]
    around += [(len(outer.rstrip("/")), 2) for outer in write if covers(outer, path)]
    return max(around, default=(0, 0))[1]


def _ranked(old: int, new: int) -> Kind:
    if old == new:
        return DIFFERENT
    return WIDENS if new > old else NARROWS


ASCENDING = Ascending()
GROWING = Growing()
GROWING_READ = GrowingRead()
SHRINKING = Shrinking()
DIFFERS = Differs()
ENVIRONMENT = EnvironmentVariables()
BACKENDS = Backends()
PROFILE = Profile()
