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
    from collections.abc import Callable, Iterable
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


class Chosen(Direction):
    """Something chosen, or nothing (None, an empty list): each choice brings in something of its own.

    One choice in another's place gives up the one and brings in the other: two deltas.
    """

    def compare(self, old: Any, new: Any) -> tuple[Delta, ...]:
        """Return the differences between two typed values; none when they are equal."""
        if old == new:
            return ()
        nothing = () if isinstance(old, tuple) or isinstance(new, tuple) else None
        given_up = () if old == nothing else (Delta(NARROWS, old, nothing),)
        brought_in = () if new == nothing else (Delta(WIDENS, nothing, new),)
        return (*given_up, *brought_in)


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
    """A Seatbelt profile: restrictive, permissive, then a path, whose rules are unknown.

    One path in another's place gives up the one and brings in the other: two deltas.
    """

    def compare(self, old: str, new: str) -> tuple[Delta, ...]:
        """Return the differences between two profiles; none when they are equal."""
        if old != new and self._rank(old) == self._rank(new):
            return (Delta(NARROWS, old, None), Delta(WIDENS, None, new))
        return super().compare(old, new)

    def kind(self, old: str, new: str) -> Kind:
        """Classify the step from one rank to another."""
        return _ranked(self._rank(old), self._rank(new))

    @staticmethod
    def _rank(profile: str) -> int:
        return {"restrictive": 0, "permissive": 1}.get(profile, 2)


class Backends(Direction):
    """A list of back ends, as weak as the weakest that it allows, and then as the first that it tries.

    Engines isolate with namespaces as the native back end does, but without its fences
    of files and system calls.
    """

    def kind(self, old: tuple[str, ...], new: tuple[str, ...]) -> Kind:
        """Classify the step by the lists' weakest members, then by their first."""
        before, after = self._strength(old), self._strength(new)
        if before == after:
            return DIFFERENT
        return WIDENS if after < before else NARROWS

    @staticmethod
    def _strength(backends: tuple[str, ...]) -> tuple[int, int]:
        strengths = {"seatbelt": 0, "apple": 2}
        weakest = min((strengths.get(backend, 1) for backend in backends), default=3)
        return weakest, 0 if backends[:1] in (("docker",), ("podman",)) else 1


class Growing(Direction):
    """A set that gives more with every item, except for items that another one covers."""

    by_item = True
    added: Kind = WIDENS
    removed: Kind = NARROWS

    def compare(self, old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Delta, ...]:
        """Return one delta per item that only one side has: removed ones first."""
        before, after = frozenset(old), frozenset(new)
        return (
            *(
                Delta(DIFFERENT if self._is_covered(item, after) else self.removed, item, None)
                for item in old
                if item not in after
            ),
            *(
                Delta(DIFFERENT if self._is_covered(item, before) else self.added, None, item)
                for item in new
                if item not in before
            ),
        )

    def _is_covered(self, item: Any, others: frozenset[Any]) -> bool:
        return any(other in others for other in _covering(item))


class GrowingNames(Growing):
    """A set of names, of which none covers another: to npm ``a/b`` is a repository, and nothing of ``a``."""

    def _is_covered(self, item: Any, others: frozenset[Any]) -> bool:
        return False


class GrowingRead(Growing):
    """Host paths to read: what may be written may be read too, so plans compare with ``compare_files``."""


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


def compare_files(
    old_read: tuple[str, ...],
    old_write: tuple[str, ...],
    new_read: tuple[str, ...],
    new_write: tuple[str, ...],
) -> tuple[tuple[Delta, ...], tuple[Delta, ...]]:
    """Return the deltas of the host paths to read, and of those to write.

    The innermost listed path decides about a file, and reading wins where one path
    is in both lists. So a read-only path inside a writable one takes something away.
    That makes each listed path, taken by itself, tell all about the files that it
    decides about. Where a path moves from one list to the other, the second delta
    says whether that widens, and the first only differs.
    """

    before, after = file_levels(old_read, old_write), file_levels(new_read, new_write)

    def kind(path: str) -> Kind:
        return _ranked(before(path), after(path))

    def deltas(old: tuple[str, ...], new: tuple[str, ...], moved: Iterable[str]) -> tuple[Delta, ...]:
        here, there = frozenset(old), frozenset(new)
        return (
            *(
                Delta(DIFFERENT if path in moved else kind(path), path, None)
                for path in old
                if path not in there
            ),
            *(
                Delta(DIFFERENT if path in moved else kind(path), None, path)
                for path in new
                if path not in here
            ),
        )

    moved = {*old_write} ^ {*new_write}
    return deltas(old_read, new_read, moved), deltas(old_write, new_write, ())


def file_levels(read: Iterable[str], write: Iterable[str]) -> Callable[[str], int]:
    """Return what tells what may be done with a path of the host: 0 nothing, 1 read, 2 read and write."""
    levels = {**dict.fromkeys(write, 2), **dict.fromkeys(read, 1)}
    return lambda path: next((levels[outer] for outer in (path, *_covering(path)) if outer in levels), 0)


def _covering(item: Any) -> Iterable[Any]:
    """Yield whatever else gives all that an item of a set gives, the nearest first.

    Items that know it are asked; texts are paths, which the directories above them cover. There may be
    tens of thousands of items, so that nothing may be looked for among all of them.
    """
    if isinstance(item, str):
        end = len(item)
        while (end := item.rfind("/", 0, end)) >= 0:
            yield item[:end] or "/"
        return
    asked = getattr(item, "covering", None)
    if asked is not None:
        yield from asked()


def _ranked(old: int, new: int) -> Kind:
    if old == new:
        return DIFFERENT
    return WIDENS if new > old else NARROWS


ASCENDING = Ascending()
CHOSEN = Chosen()
GROWING = Growing()
GROWING_NAMES = GrowingNames()
GROWING_READ = GrowingRead()
SHRINKING = Shrinking()
DIFFERS = Differs()
ENVIRONMENT = EnvironmentVariables()
BACKENDS = Backends()
PROFILE = Profile()
