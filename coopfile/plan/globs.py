"""Globs of ``files.hide``, matched in a time that no glob and no path can blow up.

The globs are one automaton without backtracking. The places in them that the
characters of a path have led to so far are the bits of one integer: a bit for each
character, set or wildcard that may come next, and one for the end of each glob. So
a path costs at most its length times that of the globs, and mostly one look-up for
each character, since the same steps come again. ``re`` would try all the ways to
share a name out among the stars, and it takes longer to import than to do without.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_REMEMBERED = 50_000  # steps, of up to 300 bytes each


def compile_globs(globs: Sequence[str]) -> Callable[[str], bool]:
    """Return a predicate that tells whether any of the globs matches a relative path.

    ``*`` is any number of characters of a name and ``?`` one; ``[ab-d]`` is one of
    these, ``[!ab-d]`` one that is not. ``**/`` is any number of directories, ``**``
    without a slash after it the whole rest. The paths are normalised: their names
    are not empty. A glob without a slash is about paths right below the root.
    """
    return _Automaton(globs).matches


class _Automaton:
    """The places in some globs, and how the characters of a path lead from one to the next."""

    def __init__(self, globs: Sequence[str]) -> None:
        self._literals: dict[str, int] = {}
        """The places of each character that is itself."""
        self._sets: dict[tuple[str, bool], int] = {}
        """The places of each set: its members as written, and whether it is all others."""
        self._names = 0
        """The places of ``*``."""
        self._rests = 0
        """The places of ``**``."""
        self._directories = 0
        """The places of ``**/``: left without a character at once, and later only by a slash."""
        self._ends = 0
        self._steps: dict[int, dict[str, int]] = {}
        self._remembered = 0
        start, place = 0, 1
        for glob in globs:
            start |= place
            place = self._add(glob, place)
            self._ends |= place
            place <<= 1
        self._start = self._entered(start)

    def matches(self, path: str) -> bool:
        """Return whether one of the globs matches the whole of a path."""
        places = self._start
        for character in path:
            try:
                places = self._steps[places][character]
            except KeyError:
                places = self._remember(places, character)
            if not places:
                return False
        return bool(places & self._ends)

    def _remember(self, places: int, character: str) -> int:
        if self._remembered == _REMEMBERED:
            self._steps.clear()
            self._remembered = 0
        self._remembered += 1
        after = self._step(places, character)
        self._steps.setdefault(places, {})[character] = after
        return after

    def _step(self, places: int, character: str) -> int:
        taken = self._literals.get(character, 0)
        stay = self._rests
        if character == "/":
            taken |= self._directories
        else:
            stay |= self._names
            for (members, negated), places_of in self._sets.items():
                if _among(character, members) is not negated:
                    taken |= places_of
        return self._entered((places & taken) << 1 | places & stay) | places & self._directories

    def _entered(self, places: int) -> int:
        """Return the places with those that wildcards lead to by matching nothing."""
        skipped = self._names | self._rests | self._directories
        while (more := places | (places & skipped) << 1) != places:
            places = more
        return places

    def _add(self, glob: str, place: int) -> int:
        """Add a glob that begins at a place; return the place of its end."""
        position = 0
        while position < len(glob):
            if glob.startswith("**/", position):
                self._directories |= place
                position += 3
                while glob.startswith("**/", position):  # says nothing new, and would be one more to skip
                    position += 3
            elif glob.startswith("**", position):
                self._rests |= place
                position += 2
            elif glob[position] == "*":
                self._names |= place
                position += 1
            elif glob[position] == "?":
                self._add_set("", True, place)
                position += 1
            elif glob[position] == "[" and (end := glob.find("]", position + 2)) > 0:
                members = glob[position + 1 : end]
                negated = members[0] in "!^"
                self._add_set(members[negated:], negated, place)
                position = end + 1
            else:
                self._literals[glob[position]] = self._literals.get(glob[position], 0) | place
                position += 1
            place <<= 1
        return place

    def _add_set(self, members: str, negated: bool, place: int) -> None:
        self._sets[members, negated] = self._sets.get((members, negated), 0) | place


def _among(character: str, members: str) -> bool:
    """Return whether the members of a set, such as ``a-z_``, name a character."""
    position = 0
    while position < len(members):
        wide = 2 if members[position + 1 : position + 2] == "-" and position + 2 < len(members) else 0
        if members[position] <= character <= members[position + wide]:
            return True
        position += wide + 1
    return False
